//! What the volumes of a pod require of its node.
//!
//! A pod can only run where its PersistentVolumes can be used, or where the StorageClasses of unprovisioned ones allow;
//! and a node can attach a limited number of volumes. A pod whose volumes have a problem that no node can solve is not
//! helped by a new one.

use crate::model::cluster::pod::Pod;
use crate::model::cluster::volume::{StorageClass, Volume, VolumeClaim};
use crate::model::labels;
use crate::model::names::{NodeName, ObjectKey, ObjectName};
use crate::model::requirements::{Requirement, Requirements};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most alternatives: more than any real pod has. Others are not tried.
const MOST_ALTERNATIVES: usize = 64;

/// Prefix of the topology keys that CSI drivers set on nodes.
const DRIVER_TOPOLOGY: &str = "topology.";

/// Volumes by the CSI driver that attaches them. A claim represents its volume, which may not exist yet.
pub type Disks = BTreeMap<Arc<str>, BTreeSet<ObjectKey>>;

/// What the volumes of a pod require of its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeNeeds {
    /// One of these must hold for the node. Empty is any node.
    pub alternatives: Vec<Requirements>,
    /// Volumes to attach to the node. A volume that two pods share is attached once.
    pub disks: Disks,
}

/// A problem of a pod's volumes that no node can solve, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum VolumeTrouble {
    /// The claim is not there.
    #[error("PersistentVolumeClaim {0} not found: create it (Kubernetes creates those of ephemeral volumes itself)")]
    ClaimMissing(ObjectKey),
    /// The claim is being deleted.
    #[error("PersistentVolumeClaim {0} is being deleted: wait until it is gone, then recreate it")]
    ClaimDeleting(ObjectKey),
    /// The claim has lost its volume (phase `Lost`).
    #[error("PersistentVolumeClaim {0} has lost its volume: delete and recreate it")]
    ClaimLost(ObjectKey),
    /// The claim names a volume, and the binding is not complete.
    #[error(
        "PersistentVolumeClaim {0} is not bound yet: Kubernetes binds it to PersistentVolume {1} once that is available"
    )]
    Unbound(ObjectKey, ObjectName),
    /// The volume that the claim is bound to does not exist.
    #[error("PersistentVolume {1} of PersistentVolumeClaim {0} not found: delete and recreate the claim")]
    VolumeMissing(ObjectKey, ObjectName),
    /// The volume that the claim is bound to is being deleted.
    #[error(
        "PersistentVolume {1} of PersistentVolumeClaim {0} is being deleted: recreate the claim with another volume"
    )]
    VolumeDeleting(ObjectKey, ObjectName),
    /// The claim has neither a volume nor a class to make one.
    #[error("PersistentVolumeClaim {0} has no StorageClass: set one, mark one as default, or bind a PersistentVolume")]
    NoClass(ObjectKey),
    /// The class of the claim does not exist.
    #[error("StorageClass {1} of PersistentVolumeClaim {0} not found: create it, or use another")]
    ClassMissing(ObjectKey, ObjectName),
    /// The class provisions immediately, and has not provisioned the volume yet.
    #[error(
        "PersistentVolumeClaim {0} is waiting for its volume, which StorageClass {1} provisions without waiting for \
         a node: see the events of the claim"
    )]
    Immediate(ObjectKey, ObjectName),
    /// The class allows volumes by a label that no new node has.
    #[error(
        "StorageClass {1} of PersistentVolumeClaim {0} restricts volumes by {2}, which the CSI driver sets only on \
         existing nodes: use topology.kubernetes.io/zone in allowedTopologies"
    )]
    Topology(ObjectKey, ObjectName, Arc<str>),
    /// Only one pod may use the claim, and another uses it or takes precedence.
    #[error(
        "PersistentVolumeClaim {0} is for one pod (ReadWriteOncePod), and pod {1} uses it or comes first: wait for \
         that pod to end, or give each pod its own claim"
    )]
    InUse(ObjectKey, ObjectKey),
    /// The claim's volume can be used where those of the other claims cannot.
    #[error(
        "the volume of PersistentVolumeClaim {0} has no zone in common with the pod's other volumes: use volumes in \
         one zone"
    )]
    Apart(ObjectKey),
}

/// What the volumes of a pod require of its node.
///
/// # Errors
/// [`VolumeTrouble`]: the first, in the order of the pod's volumes, that no node cures.
pub fn volume_needs(snapshot: &Snapshot, pod: &Pod) -> Result<VolumeNeeds, VolumeTrouble> {
    let mut disks = Disks::new();
    let mut alternatives = vec![Requirements::new()];
    for claim in claims_of(snapshot, pod) {
        let claim = claim?;
        let source = source(snapshot, claim)?;
        let terms = source.node_terms(snapshot, claim)?;
        alternatives = both(&alternatives, &terms);
        if alternatives.is_empty() {
            return Err(VolumeTrouble::Apart(claim.key.clone()));
        }
        if let Some(driver) = source.driver() {
            disks.entry(Arc::clone(driver)).or_default().insert(claim.key.clone());
        }
    }
    if matches!(alternatives.as_slice(), [only] if only.is_empty()) {
        alternatives.clear();
    }
    Ok(VolumeNeeds { alternatives, disks })
}

/// The volumes of the pods on a node. Those with a problem are left out where their driver is unknown.
#[must_use]
pub fn disks_on(snapshot: &Snapshot, node: &NodeName) -> Disks {
    let mut disks = Disks::new();
    let pods = snapshot.node_usage(node).into_iter().flat_map(|usage| &usage.pods);
    for pod in pods.filter_map(|key| snapshot.pods().get(key)) {
        for claim in claims_of(snapshot, pod).flatten() {
            let volume = claim.volume.as_ref().and_then(|name| snapshot.volumes().get(name));
            let class = claim.class.as_ref().and_then(|name| snapshot.storage_classes().get(name));
            let driver = volume.map_or_else(|| class.map(|c| &c.provisioner), |v| v.driver.as_ref());
            if let Some(driver) = driver {
                disks.entry(Arc::clone(driver)).or_default().insert(claim.key.clone());
            }
        }
    }
    disks
}

/// The claims of a pod, or that one is missing.
fn claims_of<'s>(
    snapshot: &'s Snapshot,
    pod: &'s Pod,
) -> impl Iterator<Item = Result<&'s VolumeClaim, VolumeTrouble>> + 's {
    pod.claims().map(|key| snapshot.volume_claims().get(&key).map(Arc::as_ref).ok_or(VolumeTrouble::ClaimMissing(key)))
}

/// Where the volume of a claim comes from.
enum Source<'s> {
    /// It is there.
    There(&'s Volume),
    /// Its class provisions it once the pod has a node.
    Made(&'s StorageClass),
}

fn source<'s>(snapshot: &'s Snapshot, claim: &VolumeClaim) -> Result<Source<'s>, VolumeTrouble> {
    let key = || claim.key.clone();
    if claim.deleting {
        return Err(VolumeTrouble::ClaimDeleting(key()));
    }
    if claim.lost {
        return Err(VolumeTrouble::ClaimLost(key()));
    }
    if let Some(name) = &claim.volume {
        if !claim.bound {
            return Err(VolumeTrouble::Unbound(key(), name.clone()));
        }
        return match snapshot.volumes().get(name) {
            None => Err(VolumeTrouble::VolumeMissing(key(), name.clone())),
            Some(volume) if volume.deleting => Err(VolumeTrouble::VolumeDeleting(key(), name.clone())),
            Some(volume) => Ok(Source::There(volume)),
        };
    }
    let name = claim.class.as_ref().ok_or_else(|| VolumeTrouble::NoClass(key()))?;
    match snapshot.storage_classes().get(name) {
        None => Err(VolumeTrouble::ClassMissing(key(), name.clone())),
        Some(class) if !class.waits_for_pod => Err(VolumeTrouble::Immediate(key(), name.clone())),
        Some(class) => Ok(Source::Made(class)),
    }
}

impl Source<'_> {
    fn driver(&self) -> Option<&Arc<str>> {
        match self {
            Self::There(volume) => volume.driver.as_ref(),
            Self::Made(class) => Some(&class.provisioner),
        }
    }

    /// Node affinity terms of the volume or its StorageClass, of which one must hold. Empty is any node.
    fn node_terms(&self, snapshot: &Snapshot, claim: &VolumeClaim) -> Result<Vec<Requirements>, VolumeTrouble> {
        let class = match self {
            Self::There(volume) => return Ok(volume.affinity.clone()),
            Self::Made(class) => class,
        };
        let mut keys = class.topologies.iter().flat_map(Requirements::iter).map(|(key, _)| key);
        if let Some(key) = keys.find(|key| key.starts_with(DRIVER_TOPOLOGY) && !labels::is_well_known(key)) {
            return Err(VolumeTrouble::Topology(claim.key.clone(), class.name.clone(), Arc::clone(key)));
        }
        let Some(node) = claim.selected_node.as_ref().and_then(|name| snapshot.nodes().get(name)) else {
            return Ok(class.topologies.clone());
        };
        // The volume is being provisioned for this node, and kube-scheduler uses no other meanwhile.
        let host = node.label(labels::HOSTNAME).unwrap_or(node.name.as_str());
        let mut term = Requirements::new();
        term.add(labels::HOSTNAME, Requirement::any_of([host]));
        Ok(vec![term])
    }
}

/// All intersections of one term of each, without contradictions.
fn both(some: &[Requirements], others: &[Requirements]) -> Vec<Requirements> {
    if others.is_empty() {
        return some.to_vec();
    }
    let mut all: Vec<Requirements> = Vec::new();
    for both in some.iter().flat_map(|one| others.iter().map(|other| one.intersect(other))) {
        if all.len() < MOST_ALTERNATIVES && both.first_empty().is_none() && !all.contains(&both) {
            all.push(both);
        }
    }
    all
}

#[cfg(test)]
mod tests;
