//! PersistentVolumes: which disks does Kubernetes know of?

use super::meta;
use super::pod_affinity::terms;
use super::violations::Violations;
use crate::path::Path;
use k8s_openapi::api::core::v1::PersistentVolume;
use napkeeper_core::cluster::volume::{ReclaimPolicy, Volume};
use napkeeper_core::labels::ZONE;
use napkeeper_core::names::{ArmId, Namespace, ObjectKey, ObjectName};
use napkeeper_core::requirements::{Requirement, Requirements};

/// The zone label of the Azure disk driver.
const DRIVER_ZONE: &str = "topology.disk.csi.azure.com/zone";

/// Reads a PersistentVolume.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn volume(object: &PersistentVolume) -> Result<Volume, Violations> {
    let mut found = Violations::default();
    let name = meta::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let uid = meta::uid(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let by_driver = spec.and_then(|s| s.csi.as_ref()).map(|csi| csi.volume_handle.as_str());
    // In-tree volumes were never rewritten when the driver took over.
    let in_tree = || Some(spec?.azure_disk.as_ref()?.disk_uri.as_str());
    let handle = by_driver.or_else(in_tree).and_then(|disk| ArmId::new(disk).ok());
    let reclaim = spec.and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    let reclaim = match reclaim.unwrap_or("Retain") {
        "Delete" => ReclaimPolicy::Delete,
        // Recycle keeps the disk as well.
        _ => ReclaimPolicy::Retain,
    };
    let claim = spec.and_then(|s| s.claim_ref.as_ref()).and_then(|claim| {
        let at = Path::of("spec.claimRef");
        let namespace = Namespace::new(claim.namespace.as_deref().unwrap_or_default());
        let name = ObjectName::new(claim.name.as_deref().unwrap_or_default());
        Some(ObjectKey {
            namespace: found.take(&at.key("namespace"), namespace)?,
            name: found.take(&at.key("name"), name)?,
        })
    });
    let affinity = affinity(object, &mut found);
    let built = name.zip(uid).map(|(name, uid)| Volume { name, uid, handle, reclaim, claim, affinity });
    found.finish(built)
}

/// Where the volume can be used.
fn affinity(object: &PersistentVolume, found: &mut Violations) -> Requirements {
    let path = Path::of("spec.nodeAffinity.required");
    let required = object.spec.as_ref().and_then(|s| s.node_affinity.as_ref()).and_then(|a| a.required.as_ref());
    let terms = required.map(|r| terms(r, &path, found)).unwrap_or_default();
    one_of(&terms, &path, found)
}

/// Terms of which one must hold, as one. A zone-redundant disk has one term per zone, which together are one set of
/// zones.
pub(super) fn one_of(terms: &[Requirements], path: &Path, found: &mut Violations) -> Requirements {
    match terms {
        [] => Requirements::new(),
        [only] => by_node_label(only),
        several => {
            let zones: Option<Vec<_>> = several.iter().map(zones_alone).collect();
            let Some(zones) = zones else {
                found.add(path, "several terms are understood only where each names zones and nothing else");
                return Requirements::new();
            };
            let mut all = Requirements::new();
            all.add(ZONE, Requirement::any_of(zones.into_iter().flatten()));
            all
        }
    }
}

/// The zones of a term that names nothing else.
fn zones_alone(term: &Requirements) -> Option<Vec<std::sync::Arc<str>>> {
    let term = by_node_label(term);
    let zones = term.get(ZONE)?.values()?;
    (term.iter().count() == 1).then(|| zones.iter().cloned().collect())
}

/// The driver's zone label is the node's own by another name; an empty value, for nodes in no zone, is its `0`.
fn by_node_label(term: &Requirements) -> Requirements {
    let mut all = Requirements::new();
    for (key, requirement) in term.iter() {
        match requirement.values() {
            Some(values) if &**key == DRIVER_ZONE => {
                let zones = values.iter().map(|v| if v.is_empty() { "0" } else { v });
                all.add(ZONE, Requirement::any_of(zones));
            }
            _ if &**key == DRIVER_ZONE => all.add(ZONE, requirement.clone()),
            _ => all.add(key, requirement.clone()),
        }
    }
    all
}
