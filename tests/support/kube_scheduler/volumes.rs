//! Which nodes a pod can be on, by the volumes that it attaches.
//!
//! VolumeRestrictions (ReadWriteOncePod), NodeVolumeLimits and VolumeBinding. Unbound volumes are created when the
//! first pod that has them is bound, as by Azure's drivers: a disk for the zone of the node, and anything else for all
//! zones. Storage capacity, inline volumes and VolumeAttachments are ignored.

use super::Reason;
use super::nodes::Node;
use super::selector::NodeTerm;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use std::collections::{BTreeMap, BTreeSet};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DISKS: &str = "disk.csi.azure.com";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// Namespace and name of a claim.
pub(super) type ClaimKey = (String, String);

/// Where the volume of a claim is, or will be.
#[derive(Debug, Clone)]
enum Source {
    /// It is bound, to the volume of this handle.
    Bound { volume: String },
    /// It is made by a class once its first pod is bound.
    Made { class: String, node: Option<String> },
    /// It was made in the zone of a node; in none in particular.
    MadeIn { driver: String, zone: Option<String> },
    /// Another controller must act first.
    Nothing,
}

#[derive(Debug, Clone)]
struct Claim {
    source: Source,
    for_one_pod: bool,
}

#[derive(Debug, Clone)]
struct Volume {
    driver: Option<(String, String)>,
    /// One of these must match; `None` without constraints.
    required: Option<Vec<NodeTerm>>,
}

#[derive(Debug, Clone)]
struct Class {
    provisioner: String,
    waits: bool,
    /// One of these must match, if there are any: all labels of it.
    topologies: Vec<Vec<(String, Vec<String>)>>,
}

/// Objects beside nodes and pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Storage {
    claims: BTreeMap<ClaimKey, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: BTreeMap<String, Class>,
    /// By node and driver.
    limits: BTreeMap<String, BTreeMap<String, i64>>,
    /// Who uses each claim, and how often.
    used: BTreeMap<ClaimKey, usize>,
}

/// The claims of a pod, those that are made for its ephemeral volumes too.
pub(super) fn claims_of(pod: &Pod) -> Vec<ClaimKey> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
        (None, None) => None,
    });
    names.map(|name| (namespace.clone(), name)).collect()
}

impl Storage {
    pub(super) fn add_class(&mut self, wire: &StorageClass) {
        let topologies = wire.allowed_topologies.iter().flatten().map(|term| {
            let labels = term.match_label_expressions.iter().flatten();
            labels.map(|label| (label.key.clone(), label.values.clone())).collect()
        });
        let class = Class {
            provisioner: wire.provisioner.clone(),
            waits: wire.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: topologies.collect(),
        };
        self.classes.insert(wire.metadata.name.clone().unwrap_or_default(), class);
    }

    pub(super) fn add_volume(&mut self, wire: &PersistentVolume) {
        let spec = wire.spec.as_ref();
        let csi = spec.and_then(|spec| spec.csi.as_ref());
        let affinity = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let volume = Volume {
            driver: csi.map(|csi| (csi.driver.clone(), csi.volume_handle.clone())),
            required: affinity.map(|all| all.node_selector_terms.iter().map(NodeTerm::read).collect()),
        };
        self.volumes.insert(wire.metadata.name.clone().unwrap_or_default(), volume);
    }

    pub(super) fn add_claim(&mut self, wire: &PersistentVolumeClaim) {
        let (metadata, spec) = (&wire.metadata, wire.spec.as_ref());
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let text = |field: Option<&String>| field.filter(|text| !text.is_empty()).cloned();
        let volume = text(spec.and_then(|spec| spec.volume_name.as_ref()));
        let class = text(spec.and_then(|spec| spec.storage_class_name.as_ref()));
        let source = match (volume, class) {
            (Some(volume), _) if annotation(BIND_COMPLETED).is_some() => Source::Bound { volume },
            (None, Some(class)) => Source::Made { class, node: annotation(SELECTED_NODE) },
            _ => Source::Nothing,
        };
        let modes = spec.and_then(|spec| spec.access_modes.as_ref());
        let for_one_pod = modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"));
        let namespace = metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let key = (namespace, metadata.name.clone().unwrap_or_default());
        self.claims.insert(key, Claim { source, for_one_pod });
    }

    pub(super) fn add_csi_node(&mut self, wire: &CSINode) {
        let limit = |allocatable: &k8s_openapi::api::storage::v1::VolumeNodeResources| allocatable.count.map(i64::from);
        let drivers = wire.spec.drivers.iter();
        let limits = drivers.filter_map(|d| Some((d.name.clone(), d.allocatable.as_ref().and_then(limit)?))).collect();
        self.limits.insert(wire.metadata.name.clone().unwrap_or_default(), limits);
    }

    /// A pod with these claims is bound to a node: unbound volumes are created.
    pub(super) fn bind(&mut self, claims: &[ClaimKey], node: &Node) {
        for key in claims {
            *self.used.entry(key.clone()).or_default() += 1;
            let Some(claim) = self.claims.get_mut(key) else { continue };
            if let Source::Made { class, .. } = &claim.source
                && let Some(class) = self.classes.get(class)
            {
                let driver = class.provisioner.clone();
                let zone = (driver == DISKS).then(|| node.labels.get(ZONE).cloned()).flatten();
                claim.source = Source::MadeIn { driver, zone };
            }
        }
    }

    /// Why a pod with these claims cannot be on a node.
    pub(super) fn refuses(&self, claims: &[ClaimKey], node: &Node) -> Option<Reason> {
        let taken = |key: &ClaimKey| self.used.contains_key(key) && self.claims.get(key).is_some_and(|c| c.for_one_pod);
        if claims.iter().any(taken) {
            return Some(Reason::VolumeInUse);
        }
        if claims.iter().any(|key| !self.is_reachable(key, node)) {
            return Some(Reason::Volume);
        }
        self.has_too_many(claims, node).then_some(Reason::VolumeLimit)
    }

    /// True when the volume of a claim can be used, or made, on a node.
    fn is_reachable(&self, key: &ClaimKey, node: &Node) -> bool {
        let Some(claim) = self.claims.get(key) else { return false };
        match &claim.source {
            Source::Nothing => false,
            Source::Bound { volume } => self.volumes.get(volume).is_some_and(|volume| {
                let held = |terms: &Vec<NodeTerm>| terms.iter().any(|term| term.matches(&node.name, &node.labels));
                volume.required.as_ref().is_none_or(held)
            }),
            Source::MadeIn { zone, .. } => zone.as_ref().is_none_or(|zone| node.labels.get(ZONE) == Some(zone)),
            Source::Made { class, node: selected } => {
                let chosen = selected.as_ref().is_none_or(|name| *name == node.name);
                chosen && self.classes.get(class).is_some_and(|class| class.waits && class.allows(node))
            }
        }
    }

    fn has_too_many(&self, claims: &[ClaimKey], node: &Node) -> bool {
        let Some(limits) = self.limits.get(&node.name) else { return false };
        let attached: BTreeSet<(String, String)> = node.claims.iter().filter_map(|key| self.attached(key)).collect();
        let new: BTreeSet<(String, String)> = claims.iter().filter_map(|key| self.attached(key)).collect();
        limits.iter().any(|(driver, most)| {
            let more = new.difference(&attached).filter(|(of, _)| of == driver).count() as i64;
            let now = attached.iter().filter(|(of, _)| of == driver).count() as i64;
            more > 0 && now + more > *most
        })
    }

    /// The driver that attaches the volume of a claim, and what tells the volume from others of that driver.
    fn attached(&self, key: &ClaimKey) -> Option<(String, String)> {
        let by_claim = |driver: &String| Some((driver.clone(), format!("claim {}/{}", key.0, key.1)));
        match &self.claims.get(key)?.source {
            Source::Bound { volume } => self.volumes.get(volume)?.driver.clone(),
            Source::MadeIn { driver, .. } => by_claim(driver),
            Source::Made { class, .. } => by_claim(&self.classes.get(class)?.provisioner),
            Source::Nothing => None,
        }
    }
}

impl Class {
    fn allows(&self, node: &Node) -> bool {
        let held = |(key, values): &(String, Vec<String>)| node.labels.get(key).is_some_and(|v| values.contains(v));
        self.topologies.is_empty() || self.topologies.iter().any(|term| term.iter().all(held))
    }
}
