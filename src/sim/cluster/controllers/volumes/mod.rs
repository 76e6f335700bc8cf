//! PersistentVolumeClaims, provisioning and attachment of disks.
//!
//! PersistentVolumeClaims wait for their first pod; its node decides the zone. A disk is on one node at a time.

mod attachments;

use crate::cluster::{Cluster, ClusterEvent, Delta, ids};
use crate::workload::DiskRequest;
use jiff::Timestamp;
use napkeeper_core::model::cluster::pod::{Labels, Pod};
use napkeeper_core::model::cluster::volume::{
    Attachment, DISK_DRIVER, ReclaimPolicy, StorageClass, Volume, VolumeClaim, driver,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, Namespace, NodeName, ObjectKey, ObjectName, ProviderId, Uid, Zone};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects for disks beside PersistentVolumes.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Volumes {
    claims: BTreeMap<ObjectKey, VolumeClaimState>,
    attached: BTreeMap<ObjectName, AttachedVolume>,
    /// Pods with volumes; true once they are about to start.
    pub(in crate::cluster) pods: BTreeMap<ObjectKey, bool>,
}

/// A PersistentVolumeClaim.
#[derive(Debug)]
struct VolumeClaimState {
    disk: DiskRequest,
    binding: ClaimBinding,
    deleting: bool,
}

#[derive(Debug)]
enum ClaimBinding {
    /// No pod has needed it.
    Unbound,
    /// Its disk is being made for this PersistentVolume.
    Provisioning(ObjectName, Requirements),
    /// It has this PersistentVolume.
    Bound(ObjectName),
}

/// A VolumeAttachment, and the data to undo it.
#[derive(Debug)]
struct AttachedVolume {
    object: Arc<Attachment>,
    disk: Option<ArmId>,
    vm: Option<ProviderId>,
    /// It is on its way off its node, and comes back only after that.
    is_detaching: bool,
}

impl Volumes {
    pub(in crate::cluster) fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attached.values().map(|a| &a.object)
    }

    /// Where the volumes of a pod can be used; `None` when one of them is missing.
    pub(in crate::cluster) fn topology_of(
        &self,
        store: &Snapshot,
        namespace: &Namespace,
        names: &[ObjectName],
    ) -> Option<VolumeTopology> {
        let mut all = VolumeTopology::default();
        for name in names {
            let claim = self.claims.get(&key(namespace, name));
            match &claim.filter(|c| !c.deleting)?.binding {
                ClaimBinding::Unbound => {}
                ClaimBinding::Provisioning(_, affinity) => all.0.push(vec![affinity.clone()]),
                ClaimBinding::Bound(volume) => all.0.push(store.volumes().get(volume)?.affinity.clone()),
            }
        }
        Some(all)
    }
}

/// The node affinity of volumes: for each, one of the alternatives must match, if there are any.
#[derive(Debug, Default)]
pub(in crate::cluster) struct VolumeTopology(Vec<Vec<Requirements>>);

impl VolumeTopology {
    /// True if a node with these labels can use all of them.
    pub(in crate::cluster) fn holds(&self, labels: &Labels) -> bool {
        self.0
            .iter()
            .all(|alternatives| alternatives.is_empty() || alternatives.iter().any(|terms| terms.satisfied_by(labels)))
    }
}

/// The StorageClass of a reclaim policy.
fn class(reclaim: ReclaimPolicy) -> Option<StorageClass> {
    let name = match reclaim {
        ReclaimPolicy::Delete => "managed-csi",
        ReclaimPolicy::Retain => "managed-csi-retain",
    };
    let (provisioner, topologies) = (driver(DISK_DRIVER), Vec::new());
    let name = ObjectName::new(name).ok()?;
    Some(StorageClass { name, provisioner, waits_for_pod: true, topologies, is_default: false })
}

fn key(namespace: &Namespace, name: &ObjectName) -> ObjectKey {
    ObjectKey { namespace: namespace.clone(), name: name.clone() }
}

impl Cluster {
    /// Creates a PersistentVolumeClaim unless it exists. It gets its disk when the first pod that uses it is scheduled.
    pub fn apply_volume_claim(&mut self, claim: ObjectKey, disk: DiskRequest, now: Timestamp) {
        self.advance_clock(now);
        self.put_volume_claim(claim, disk);
    }

    pub(in crate::cluster) fn put_volume_claim(&mut self, claim: ObjectKey, disk: DiskRequest) {
        let free = VolumeClaimState { disk, binding: ClaimBinding::Unbound, deleting: false };
        self.volumes.claims.entry(claim.clone()).or_insert(free);
        self.show_claim(&claim);
        self.volumes_changed();
    }

    /// Publishes a claim, or its deletion, and its class.
    fn show_claim(&mut self, key: &ObjectKey) {
        let Some(VolumeClaimState { disk, binding, deleting }) = self.volumes.claims.get(key) else {
            if self.store.volume_claims().get(key).is_some() {
                self.store.remove_volume_claim(key);
                self.deltas.push(Delta::VolumeClaimGone(key.clone()));
            }
            return;
        };
        let volume = match binding {
            ClaimBinding::Bound(volume) => Some(volume.clone()),
            ClaimBinding::Unbound | ClaimBinding::Provisioning(..) => None,
        };
        let deleting = *deleting;
        let class = class(disk.reclaim);
        let uid = Uid::new(format!("claim-{}-{}", key.namespace, key.name)).ok();
        let Some((class, uid)) = class.zip(uid) else { return };
        let claim = VolumeClaim {
            key: key.clone(),
            uid,
            bound: volume.is_some(),
            volume,
            class: Some(class.name.clone()),
            lost: false,
            deleting,
            for_one_pod: false,
            selected_node: None,
        };
        if self.store.storage_classes().get(&class.name).is_none() {
            let class = Arc::new(class);
            self.store.put_storage_class(class.name.clone(), Arc::clone(&class));
            self.deltas.push(Delta::StorageClass(class));
        }
        if self.store.volume_claims().get(key).is_none_or(|known| **known != claim) {
            let claim = Arc::new(claim);
            self.store.put_volume_claim(key.clone(), Arc::clone(&claim));
            self.deltas.push(Delta::VolumeClaim(claim));
        }
    }

    /// Deletes a PersistentVolumeClaim once no pod uses it, and releases its disk if the reclaim policy is Delete.
    pub fn delete_volume_claim(&mut self, claim: &ObjectKey, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.volumes.claims.get_mut(claim) {
            claim.deleting = true;
        }
        self.show_claim(claim);
        self.volumes_changed();
    }

    /// The disk that [`ClusterEvent::DiskWanted`] requested exists.
    pub fn disk_created(&mut self, volume: &ObjectName, disk: ArmId, now: Timestamp) {
        self.advance_clock(now);
        let wanted = self.volumes.claims.iter_mut().find_map(|(key, claim)| {
            let affinity = match &claim.binding {
                ClaimBinding::Provisioning(name, affinity) if name == volume => affinity.clone(),
                _ => return None,
            };
            Some((key.clone(), affinity, claim))
        });
        let Some((key, affinity, claim)) = wanted else {
            // It is no longer used: the provisioner releases it.
            return self.emit(ClusterEvent::DiskReleased { disk });
        };
        claim.binding = ClaimBinding::Bound(volume.clone());
        let reclaim = claim.disk.reclaim;
        let volume = Volume {
            name: volume.clone(),
            uid: self.ids.uid(),
            handle: Some(disk),
            reclaim,
            claim: Some(key.clone()),
            affinity: Some(affinity).filter(|a| !a.is_empty()).into_iter().collect(),
            driver: Some(driver(DISK_DRIVER)),
            deleting: false,
        };
        self.show_claim(&key);
        self.put_volume(volume);
    }

    /// Adds a static PersistentVolume; it is bound to the claim that it names, if that is unbound.
    pub fn apply_volume(&mut self, volume: Volume, now: Timestamp) {
        self.advance_clock(now);
        if let Some(key) = &volume.claim
            && let Some(claim) = self.volumes.claims.get_mut(key)
            && matches!(claim.binding, ClaimBinding::Unbound)
        {
            claim.binding = ClaimBinding::Bound(volume.name.clone());
            self.show_claim(key);
        }
        self.put_volume(volume);
    }

    /// A PersistentVolume is removed with its finalizers: its disk remains.
    pub fn lose_volume(&mut self, name: &ObjectName, now: Timestamp) {
        self.advance_clock(now);
        self.take_volume(name);
    }

    /// All claims and attachments are lost without a deletion.
    pub(in crate::cluster) fn forget_volume_claims(&mut self) {
        for attached in std::mem::take(&mut self.volumes.attached).into_values() {
            let name = attached.object.name.clone();
            self.store.remove_attachment(&name);
            self.deltas.push(Delta::AttachmentGone(name));
        }
        for key in std::mem::take(&mut self.volumes.claims).into_keys() {
            self.show_claim(&key);
        }
    }

    fn put_volume(&mut self, volume: Volume) {
        let volume = Arc::new(volume);
        self.store.put_volume(volume.name.clone(), Arc::clone(&volume));
        self.deltas.push(Delta::Volume(volume));
        self.volumes_changed();
    }

    pub(in crate::cluster) fn take_volume(&mut self, name: &ObjectName) {
        if self.store.volumes().get(name).is_some() {
            self.store.remove_volume(name);
            self.deltas.push(Delta::VolumeGone(name.clone()));
            self.volumes_changed();
        }
    }

    fn volumes_changed(&mut self) {
        self.dirty.volumes = true;
        self.scheduler.volumes_changed();
    }

    /// Runs the attach-detach controller, the provisioner and the claim protection controller.
    pub(in crate::cluster) fn run_volumes(&mut self) {
        if !std::mem::take(&mut self.dirty.volumes) {
            return;
        }
        self.detach_unused();
        for pod in self.pods_with_volumes() {
            if pod.node.is_some() && pod.deleting_at.is_none() && !pod.is_terminal() {
                self.provision_volumes(&pod);
            }
        }
        self.reclaim();
    }

    fn pods_with_volumes(&self) -> Vec<Arc<Pod>> {
        let keys = self.volumes.pods.keys();
        keys.filter_map(|key| self.store.pods().get(key)).map(Arc::clone).collect()
    }

    fn bound_volume(&self, pod: &Pod, name: &ObjectName) -> Option<ObjectName> {
        let claim = self.volumes.claims.get(&key(&pod.key.namespace, name))?;
        match &claim.binding {
            ClaimBinding::Bound(volume) => Some(volume.clone()),
            ClaimBinding::Unbound | ClaimBinding::Provisioning(..) => None,
        }
    }

    /// Attaches the volumes of a pod; it starts once all are on its node.
    fn provision_volumes(&mut self, pod: &Pod) {
        let Some(node) = pod.node.as_ref() else {
            return;
        };
        let mut ready = true;
        for name in &pod.volumes {
            self.provision(&key(&pod.key.namespace, name), node);
            let volume = self.bound_volume(pod, name);
            ready &= volume.is_some_and(|volume| self.attach(volume, node));
        }
        let starting = self.volumes.pods.get_mut(&pod.key);
        if ready && starting.is_some_and(|starting| !std::mem::replace(starting, true)) {
            self.start_soon(pod);
        }
    }

    fn provision(&mut self, key: &ObjectKey, node: &NodeName) {
        let Some(claim) = self.volumes.claims.get_mut(key) else {
            return;
        };
        if !matches!(claim.binding, ClaimBinding::Unbound) {
            return;
        }
        let node = self.store.nodes().get(node);
        let zone = node.and_then(|n| Zone::new(n.label(labels::ZONE)?).ok()).filter(|zone| !zone.is_regional());
        let mut affinity = Requirements::new();
        if let Some(zone) = &zone {
            affinity.add(labels::ZONE, Requirement::any_of([zone.as_str()]));
        }
        let volume = ids::volume(&self.ids.uid());
        claim.binding = ClaimBinding::Provisioning(volume.clone(), affinity);
        let size_gib = claim.disk.size_gib;
        self.emit(ClusterEvent::DiskWanted { volume, claim: key.clone(), zone, size_gib });
    }

    /// Where each of a pod's volumes can be used, as alternatives; `None` when one of them is missing.
    pub(crate) fn volume_alternatives(&self, pod: &Pod) -> Option<Vec<Vec<Requirements>>> {
        let topology = self.volumes.topology_of(&self.store, &pod.key.namespace, &pod.volumes)?;
        Some(topology.0.into_iter().filter(|alternatives| !alternatives.is_empty()).collect())
    }

    /// Removes claims that are being deleted and unused, and their volumes.
    fn reclaim(&mut self) {
        let used: BTreeSet<ObjectKey> = self
            .pods_with_volumes()
            .iter()
            .filter(|pod| !pod.is_terminal())
            .flat_map(|pod| pod.volumes.iter().map(|v| key(&pod.key.namespace, v)))
            .collect();
        let attached = &self.volumes.attached;
        let is_attached = |claim: &VolumeClaimState| match &claim.binding {
            ClaimBinding::Bound(volume) => attached.contains_key(volume),
            ClaimBinding::Unbound | ClaimBinding::Provisioning(..) => false,
        };
        let free = |(key, claim): (&ObjectKey, &VolumeClaimState)| {
            (claim.deleting && !used.contains(key) && !is_attached(claim)).then(|| key.clone())
        };
        let free: Vec<ObjectKey> = self.volumes.claims.iter().filter_map(free).collect();
        for claim in free {
            let removed = self.volumes.claims.remove(&claim);
            self.show_claim(&claim);
            let Some(VolumeClaimState { binding: ClaimBinding::Bound(volume), .. }) = removed else {
                continue;
            };
            let volume = self.store.volumes().get(&volume).map(Arc::clone);
            if let Some(volume) = volume.filter(|v| v.reclaim == ReclaimPolicy::Delete) {
                self.take_volume(&volume.name);
                if let Some(disk) = volume.handle.clone() {
                    self.emit(ClusterEvent::DiskReleased { disk });
                }
            }
        }
    }
}
