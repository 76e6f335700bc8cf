//! The volumes of a workload's pods, and the volume limits of nodes.
//!
//! A workload is played twice. Bound volumes are unchanged; unbound ones have a twin for the second time, and so have
//! pods with ephemeral volumes, since a volume created in one zone cannot move.

use super::offerings::Offerings;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::serde::de::DeserializeOwned;
use napkeeper_core::model::cluster::volume::DISK_DRIVER;
use napkeeper_core::model::labels::ZONE;
use napkeeper_sim::random::Random;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A driver beside the one of Azure's disks. Its volumes can be used in all zones, and its limit is low.
const OTHER: &str = "other.example.com";
/// The zone label of the Azure Disk driver.
pub(crate) const DRIVER_ZONE: &str = "topology.disk.csi.azure.com/zone";
const ZONES: [&str; 3] = ["westeurope-1", "westeurope-2", "westeurope-3"];
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// What the names of the second time end with.
const AGAIN: &str = "-again";
/// The label of ephemeral claims.
const EPHEMERAL: &str = "ephemeral";
/// The label of claims that several pods use.
const SHARED: &str = "shared";

/// Claims with their volumes, and what nodes take of them; nothing at all in most workloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storage {
    pub(crate) volumes: Vec<PersistentVolume>,
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    /// The limits of existing nodes: disks, and volumes of the other driver.
    standing: BTreeMap<String, [u32; 2]>,
    exists: bool,
}

/// StorageClasses, the same for all workloads: disks, disks in two zones, and volumes of the other driver.
pub(crate) fn classes() -> Result<Vec<StorageClass>> {
    let expression = json!({ "key": DRIVER_ZONE, "values": &ZONES[..2] });
    let two = json!([{ "matchLabelExpressions": [expression] }]);
    let classes =
        [("disks", DISK_DRIVER, json!(null)), ("disks-in-two", DISK_DRIVER, two), ("others", OTHER, json!(null))];
    let class = |(name, driver, topologies): (&str, &str, Value)| {
        wire(json!({
            "metadata": { "name": name }, "provisioner": driver,
            "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies,
        }))
    };
    classes.into_iter().map(class).collect()
}

/// A volume as its driver makes it for a claim, on behalf of a node in a zone.
pub(crate) fn made(claim: &PersistentVolumeClaim, zone: Option<&str>) -> Result<PersistentVolume> {
    let (metadata, spec) = (&claim.metadata, claim.spec.as_ref());
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let volume = format!("{namespace}-{name}");
    let driver = if class == "others" { OTHER } else { DISK_DRIVER };
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": metadata.uid,
    });
    let mut object = json!({
        "metadata": { "name": volume, "uid": volume },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "storageClassName": class, "claimRef": reference, "csi": { "driver": driver, "volumeHandle": volume },
        },
    });
    if let Some(zone) = zone.filter(|_| driver == DISK_DRIVER) {
        let expression = json!({ "key": DRIVER_ZONE, "operator": "In", "values": [zone] });
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
        object["spec"]["nodeAffinity"] = json!({ "required": terms });
    }
    wire(object)
}

/// What makes a claim one that is bound to such a volume.
pub(crate) fn binding(volume: &PersistentVolume) -> Value {
    json!({ "metadata": { "annotations": { BIND_COMPLETED: "yes" } }, "spec": { "volumeName": volume.metadata.name } })
}

/// The zone of a node.
pub(crate) fn zone_of(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(ZONE).map(String::as_str)
}

/// True for an ephemeral claim.
pub(crate) fn is_ephemeral(claim: &PersistentVolumeClaim) -> bool {
    has_label(claim, EPHEMERAL)
}

/// True for a claim of several pods, whose volume is created for the first of them.
pub(crate) fn is_shared(claim: &PersistentVolumeClaim) -> bool {
    has_label(claim, SHARED)
}

fn has_label(claim: &PersistentVolumeClaim, key: &str) -> bool {
    claim.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key))
}

/// The names of the claims of a pod's volumes.
pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let name = |volume: &k8s_openapi::api::core::v1::Volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", volume.name)),
    };
    volumes.filter_map(name).collect()
}

/// Deserializes an object.
pub(super) fn wire<K: DeserializeOwned>(object: Value) -> Result<K> {
    let text = object.to_string();
    serde_json::from_value(object).with_context(|| format!("reading {text}"))
}

impl Storage {
    /// Gives volumes to pods of some workloads, as a seed has it.
    pub(super) fn give(seed: u64, standing: &[Node], running: &mut [Pod], waiting: &mut [Pod]) -> Result<Self> {
        let mut chance = Random::of(seed, "storage");
        if !chance.one_in(4) {
            return Ok(Self::default());
        }
        let mut draw =
            VolumeDraw { chance: &mut chance, storage: Self { exists: true, ..Self::default() }, existing: Vec::new() };
        for node in standing {
            draw.stand(node, running)?;
        }
        let apps: BTreeSet<String> = waiting.iter().map(app_of).collect();
        for app in apps {
            let mut pods: Vec<&mut Pod> = waiting.iter_mut().filter(|pod| app_of(pod) == app).collect();
            if draw.chance.one_in(2) {
                draw.give(&app, &mut pods)?;
            }
        }
        Ok(draw.storage)
    }

    /// Some pods may have volumes.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// The volume limits of nodes: for new ones the disks of their size, and for the other driver the lowest limit of
    /// existing nodes, if any.
    pub(super) fn csi_nodes<'n>(
        &self,
        offerings: &Offerings,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Vec<CSINode>> {
        if !self.exists {
            return Ok(Vec::new());
        }
        let least = self.standing.values().map(|[_, others]| *others).min();
        let csi_node = |node: &Node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let [disks, others] = match self.standing.get(name) {
                Some([disks, others]) => [Some(*disks), Some(*others)],
                None => [offerings.most_disks(node), least],
            };
            let driver = |driver: &str, count: Option<u32>| {
                let allocatable = count.map(|count| json!({ "count": count }));
                json!({ "name": driver, "nodeID": name, "topologyKeys": [DRIVER_ZONE], "allocatable": allocatable })
            };
            let drivers = json!([driver(DISK_DRIVER, disks), driver(OTHER, others)]);
            wire(json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } }))
        };
        nodes.into_iter().map(csi_node).collect()
    }

    /// The pod as it comes the second time.
    pub(super) fn again(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        let mut is_twin = false;
        for volume in pod.spec.iter_mut().flat_map(|spec| spec.volumes.iter_mut().flatten()) {
            is_twin |= volume.ephemeral.is_some();
            if let Some(claim) = &mut volume.persistent_volume_claim {
                let twin = format!("{}{AGAIN}", claim.claim_name);
                let same = |c: &&PersistentVolumeClaim| c.metadata.namespace == pod.metadata.namespace;
                if self.claims.iter().filter(same).any(|c| c.metadata.name.as_ref() == Some(&twin)) {
                    claim.claim_name = twin;
                }
            }
        }
        if let Some(name) = pod.metadata.name.as_mut().filter(|_| is_twin) {
            name.push_str(AGAIN);
        }
        pod
    }

    /// What there is once these pods were bound, one after the other.
    pub(super) fn after(&self, nodes: &[Node], bound: &[Pod]) -> Result<Self> {
        let mut all = self.clone();
        for pod in bound {
            let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let zone = nodes.iter().find(|node| node.metadata.name.as_ref() == name).and_then(zone_of);
            for name in claims_of(pod) {
                let is_it = |c: &&mut PersistentVolumeClaim| {
                    c.metadata.name.as_ref() == Some(&name) && c.metadata.namespace == pod.metadata.namespace
                };
                let claim = all.claims.iter_mut().find(is_it).with_context(|| format!("there is no claim {name}"))?;
                if claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none()) {
                    let volume = made(claim, zone)?;
                    claim
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
                    claim.spec.get_or_insert_default().volume_name = volume.metadata.name.clone();
                    all.volumes.push(volume);
                }
            }
        }
        Ok(all)
    }
}

fn app_of(pod: &Pod) -> String {
    pod.metadata.labels.iter().flatten().find(|(key, _)| *key == "app").map(|(_, app)| app.clone()).unwrap_or_default()
}

/// Volumes that are being given.
struct VolumeDraw<'c> {
    chance: &'c mut Random,
    storage: Storage,
    /// Claims of pods that run, with their namespaces.
    existing: Vec<(Option<String>, String)>,
}

/// A claim that is to be there.
struct NewClaim<'a> {
    name: &'a str,
    class: &'a str,
    /// The only access mode.
    mode: &'a str,
}

impl<'a> NewClaim<'a> {
    fn new(name: &'a str, class: &'a str) -> Self {
        Self { name, class, mode: "ReadWriteOnce" }
    }
}

impl VolumeDraw<'_> {
    /// An existing node, with the volumes of its pods.
    fn stand(&mut self, node: &Node, running: &mut [Pod]) -> Result<()> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let limits =
            [self.chance.between(1, 6), self.chance.between(2, 4)].map(|most| u32::try_from(most).unwrap_or(1));
        let zone = zone_of(node).unwrap_or_default().to_owned();
        for pod in
            running.iter_mut().filter(|pod| pod.spec.as_ref().is_some_and(|s| s.node_name.as_ref() == Some(&name)))
        {
            for n in 0..self.chance.between(0, 2) {
                let claim = format!("{}-{n}", pod.metadata.name.as_deref().unwrap_or_default());
                let class = if self.chance.one_in(3) { "others" } else { "disks" };
                self.bound(pod, &NewClaim::new(&claim, class), &zone)?;
                mount(pod, &claim);
                self.existing.push((pod.metadata.namespace.clone(), claim));
            }
        }
        self.storage.standing.insert(name, limits);
        Ok(())
    }

    /// Volumes of one sort for the pods of an app.
    fn give(&mut self, app: &str, pods: &mut [&mut Pod]) -> Result<()> {
        let zone = *self.chance.pick(&ZONES).unwrap_or(&ZONES[0]);
        let class = *self.chance.pick(&["disks", "disks", "disks-in-two", "others"]).unwrap_or(&"disks");
        let each = self.chance.between(1, 3);
        let how = self.chance.between(0, 9);
        for (n, pod) in pods.iter_mut().enumerate() {
            let shared = format!("{app}-shared");
            match how {
                // Of their own: bound, or still to be made.
                0..=3 => {
                    for i in 0..each {
                        let claim = format!("{app}-{n}-{i}");
                        match how {
                            0..=1 => self.bound(pod, &NewClaim::new(&claim, class), zone)?,
                            _ => self.unmade(pod, &NewClaim::new(&claim, class), json!({}))?,
                        }
                        mount(pod, &claim);
                    }
                }
                4 => self.ephemeral(pod, class)?,
                // One for all of them.
                5..=8 => {
                    let mode = if how == 8 { "ReadWriteOncePod" } else { "ReadWriteMany" };
                    match how {
                        _ if n > 0 => {}
                        5..=6 => self.unmade(pod, &NewClaim::new(&shared, class), labelled(SHARED))?,
                        _ => self.bound(pod, &NewClaim { mode, ..NewClaim::new(&shared, class) }, zone)?,
                    }
                    mount(pod, &shared);
                }
                _ => {
                    let same = |(namespace, _): &&(Option<String>, String)| *namespace == pod.metadata.namespace;
                    if let Some((_, claim)) = self.existing.iter().find(same) {
                        mount(pod, claim);
                    }
                }
            }
        }
        Ok(())
    }

    fn claim(&mut self, pod: &Pod, new: &NewClaim<'_>, more: Value) -> Result<PersistentVolumeClaim> {
        let mut object = json!({
            "metadata": { "name": new.name, "namespace": pod.metadata.namespace, "uid": new.name },
            "spec": {
                "accessModes": [new.mode], "storageClassName": new.class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        merge(&mut object, more);
        wire(object)
    }

    fn bound(&mut self, pod: &Pod, new: &NewClaim<'_>, zone: &str) -> Result<()> {
        let mut claim = self.claim(pod, new, json!({}))?;
        let uid = claim.metadata.uid.take();
        let volume = made(&claim, Some(zone))?;
        claim.metadata.uid = uid;
        let mut bound = serde_json::to_value(&claim)?;
        merge(&mut bound, binding(&volume));
        self.storage.claims.push(wire(bound)?);
        self.storage.volumes.push(volume);
        Ok(())
    }

    fn unmade(&mut self, pod: &Pod, new: &NewClaim<'_>, more: Value) -> Result<()> {
        for name in [new.name.to_owned(), format!("{}{AGAIN}", new.name)] {
            let claim = self.claim(pod, &NewClaim { name: &name, ..*new }, more.clone())?;
            self.storage.claims.push(claim);
        }
        Ok(())
    }

    fn ephemeral(&mut self, pod: &mut Pod, class: &str) -> Result<()> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        for name in [format!("{name}-scratch"), format!("{name}{AGAIN}-scratch")] {
            let claim = self.claim(pod, &NewClaim::new(&name, class), labelled(EPHEMERAL))?;
            self.storage.claims.push(claim);
        }
        let spec = self.claim(pod, &NewClaim::new("scratch", class), json!({}))?.spec;
        let volume = json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
        pod.spec.get_or_insert_default().volumes.get_or_insert_default().push(wire(volume)?);
        Ok(())
    }
}

/// What adds a label to an object.
fn labelled(key: &str) -> Value {
    json!({ "metadata": { "labels": { key: "yes" } } })
}

/// Gives a pod one volume more.
fn mount(pod: &mut Pod, claim: &str) {
    let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
    let name = format!("data-{}", volumes.len());
    let source =
        k8s_openapi::api::core::v1::PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: None };
    volumes.push(k8s_openapi::api::core::v1::Volume {
        name,
        persistent_volume_claim: Some(source),
        ..Default::default()
    });
}

/// Adds the fields of one object to another.
fn merge(to: &mut Value, more: Value) {
    match (to, more) {
        (Value::Object(to), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge(to.entry(key).or_insert(Value::Null), value));
        }
        (to, more) => *to = more,
    }
}
