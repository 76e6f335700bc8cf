//! Conversion of PersistentVolumes.

use crate::convert::common;
use crate::convert::pods::node_affinity::terms;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use napkeeper_core::model::cluster::volume::{DISK_DRIVER, FILE_DRIVER, ReclaimPolicy, Volume, driver};
use napkeeper_core::model::labels::{HOSTNAME, ZONE, normalize};
use napkeeper_core::model::names::{ArmId, Namespace, ObjectKey, ObjectName};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::sync::Arc;

/// The zone label of the Azure disk driver.
const DRIVER_ZONE: &str = "topology.disk.csi.azure.com/zone";

/// Reads a PersistentVolume.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn volume(object: &PersistentVolume) -> Result<Volume, Violations> {
    let mut found = Violations::default();
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let uid = common::uid(&object.metadata, &mut found);
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
        let at = Path::from_dotted("spec.claimRef");
        let namespace = Namespace::new(claim.namespace.as_deref().unwrap_or_default());
        let name = ObjectName::new(claim.name.as_deref().unwrap_or_default());
        Some(ObjectKey {
            namespace: found.take(&at.key("namespace"), namespace)?,
            name: found.take(&at.key("name"), name)?,
        })
    });
    let affinity = affinity(object, &mut found);
    let built = name.zip(uid).map(|(name, uid)| Volume {
        name,
        uid,
        handle,
        reclaim,
        claim,
        affinity,
        driver: spec.and_then(driver_of),
        deleting: object.metadata.deletion_timestamp.is_some(),
    });
    found.finish(built)
}

fn driver_of(spec: &PersistentVolumeSpec) -> Option<Arc<str>> {
    let by_driver = spec.csi.as_ref().map(|csi| csi.driver.as_str());
    let disk = || spec.azure_disk.as_ref().map(|_| DISK_DRIVER);
    let share = || spec.azure_file.as_ref().map(|_| FILE_DRIVER);
    by_driver.or_else(disk).or_else(share).map(driver)
}

/// Where the volume can be used.
fn affinity(object: &PersistentVolume, found: &mut Violations) -> Vec<Requirements> {
    let path = Path::from_dotted("spec.nodeAffinity.required");
    let spec = object.spec.as_ref();
    let required = spec.and_then(|s| s.node_affinity.as_ref()).and_then(|a| a.required.as_ref());
    let mut terms = required.map(|r| terms(r, &path, found)).unwrap_or_default();
    if spec.is_some_and(|s| s.local.is_some() || s.host_path.is_some()) {
        // A local volume is lost with its node, so its hostname does not constrain the pod.
        terms.iter_mut().for_each(|term| drop(term.remove(HOSTNAME)));
    }
    alternative_terms(&terms)
}

/// Terms of which one must hold, by the labels of nodes; none where every node meets one. A zone-redundant disk has one
/// term per zone, which together are one set of zones.
pub(crate) fn alternative_terms(terms: &[Requirements]) -> Vec<Requirements> {
    let terms: Vec<Requirements> = terms.iter().map(normalize_zone_label).collect();
    if terms.iter().any(Requirements::is_empty) {
        return Vec::new();
    }
    let zones: Option<Vec<_>> = terms.iter().map(zones_only).collect();
    match zones {
        Some(zones) if terms.len() > 1 => {
            let mut all = Requirements::new();
            all.add(ZONE, Requirement::any_of(zones.into_iter().flatten()));
            vec![all]
        }
        _ => terms,
    }
}

/// The zones of a term that names nothing else.
fn zones_only(term: &Requirements) -> Option<Vec<Arc<str>>> {
    let zones = term.get(ZONE)?.values()?;
    (term.iter().count() == 1).then(|| zones.iter().cloned().collect())
}

/// The driver's zone label is the node's own by another name; an empty value, for nodes in no zone, is its `0`.
fn normalize_zone_label(term: &Requirements) -> Requirements {
    let mut all = Requirements::new();
    for (key, requirement) in term.iter() {
        match requirement.values() {
            Some(values) if &**key == DRIVER_ZONE => {
                let zones = values.iter().map(|v| if v.is_empty() { "0" } else { v });
                all.add(ZONE, Requirement::any_of(zones));
            }
            _ if &**key == DRIVER_ZONE => all.add(ZONE, requirement.clone()),
            _ => all.add(normalize(key), requirement.clone()),
        }
    }
    all
}
