//! Volume limits per CSI driver (kube-scheduler's NodeVolumeLimits).
//!
//! As kube-scheduler has it (NodeVolumeLimits), a node takes so many volumes of each CSI driver, and one that several of
//! its pods have is attached once. Mostly a pod has data disks of Azure that nobody else has: those are a number. What
//! else there is stands beside it, and pods that have it are placed one at a time.

use crate::model::cluster::pod::Pod;
use crate::model::cluster::volume::DISK_DRIVER;
use crate::model::names::{NodeName, ObjectKey};
use crate::model::requirements::Requirements;
use crate::scheduling::Input;
use crate::snapshot::Snapshot;
use crate::snapshot::volume_needs::{VolumeTrouble, disks_on, volume_needs};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of a claim that several pods have.
pub(crate) type SharedVolumeId = u32;

/// What the volumes of a pod ask of its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct PodVolumes {
    /// One of these, if there are any.
    pub(crate) alternatives: Vec<Requirements>,
    /// Data disks that must be attached to the node where no pod has them yet.
    pub(crate) disks: u32,
    /// What more there is to say of its volumes; mostly nothing.
    pub(crate) tracked: Option<Arc<TrackedVolumes>>,
}

/// Volumes that are more than a number of data disks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct TrackedVolumes {
    /// By driver that limits its volumes, other than the one of Azure's disks: those that nobody else has.
    exclusive: BTreeMap<Arc<str>, u32>,
    /// Those that others have too, by the driver.
    shared: BTreeMap<Arc<str>, BTreeSet<SharedVolumeId>>,
    /// Data disks among these that are still to be made: in the zone of the first pod that has them.
    pub(crate) unprovisioned: Vec<SharedVolumeId>,
}

/// What is attached to a node, and what may be.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeUsage {
    /// How many more volumes of each driver, other than the one of Azure's disks; any number where it is not named.
    remaining: BTreeMap<Arc<str>, i64>,
    /// Volumes that several pods have and that are there.
    shared: BTreeSet<SharedVolumeId>,
}

/// The volumes of the pods that are to be placed.
#[derive(Debug, Default)]
pub(crate) struct VolumeIndex {
    /// Pods that are to be placed have volumes.
    has_volumes: bool,
    /// Claims that several pods have.
    shared: BTreeMap<ObjectKey, SharedVolumeId>,
    /// Who has those of them that only one pod may have.
    holders: BTreeMap<ObjectKey, ObjectKey>,
    /// A new node: it takes no more of other drivers than any node that there is.
    pub(crate) new_node: VolumeUsage,
}

impl TrackedVolumes {
    /// Data disks that others have too.
    pub(crate) fn shared_disks(&self) -> u32 {
        self.shared.get(DISK_DRIVER).map_or(0, |shared| shared.len() as u32)
    }
}

impl VolumeUsage {
    /// How many of a pod's data disks are there already.
    pub(crate) fn attached_shared_disks(&self, tracked: &TrackedVolumes) -> u32 {
        tracked.shared.get(DISK_DRIVER).map_or(0, |shared| shared.intersection(&self.shared).count() as u32)
    }

    /// True when there is room for a pod's volumes, so far as data disks do not decide.
    pub(crate) fn has_room_for(&self, tracked: &TrackedVolumes) -> bool {
        self.exceeded_limit(tracked).is_none()
    }

    /// A driver of which there would be too many volumes, how many, and how many more there may be.
    pub(crate) fn exceeded_limit(&self, tracked: &TrackedVolumes) -> Option<(&Arc<str>, i64, i64)> {
        let mut new = self.remaining.iter().map(|(driver, left)| (driver, self.new_volumes(tracked, driver), *left));
        new.find(|(_, new, left)| *new > 0 && new > left)
    }

    /// Takes the capacity for a pod's volumes.
    pub(crate) fn add(&mut self, tracked: &TrackedVolumes) {
        let taken: Vec<i64> = self.remaining.keys().map(|driver| self.new_volumes(tracked, driver)).collect();
        self.remaining.values_mut().zip(taken).for_each(|(left, taken)| *left -= taken);
        self.shared.extend(tracked.shared.values().flatten());
    }

    /// How many of a pod's volumes of a driver would have to be attached.
    fn new_volumes(&self, tracked: &TrackedVolumes, driver: &str) -> i64 {
        let shared = tracked.shared.get(driver).map_or(0, |shared| shared.difference(&self.shared).count() as i64);
        i64::from(tracked.exclusive.get(driver).copied().unwrap_or(0)) + shared
    }
}

impl VolumeIndex {
    /// The volumes of these pods.
    pub(crate) fn of(input: Input<'_>, pods: &[Arc<Pod>]) -> Self {
        if pods.iter().all(|pod| pod.volumes.is_empty()) {
            return Self::default();
        }
        let snapshot = input.snapshot;
        let mut users: BTreeMap<ObjectKey, BTreeSet<_>> = BTreeMap::new();
        // Who has a claim: who runs, and then who goes first.
        let user = |pod: &Pod| (pod.node.is_none(), Reverse(pod.shape.priority), pod.created_at, pod.key.clone());
        for pod in pods {
            for claim in pod.claims() {
                users.entry(claim).or_default().insert(user(pod));
            }
        }
        for pod in snapshot.pods().values().filter(|pod| !pod.is_terminal()) {
            for claim in pod.claims() {
                if let Some(users) = users.get_mut(&claim) {
                    users.insert(user(pod));
                }
            }
        }
        let mut volume_index = Self {
            has_volumes: true,
            new_node: VolumeUsage { remaining: min_driver_limits(snapshot), ..VolumeUsage::default() },
            ..Self::default()
        };
        for (claim, users) in users {
            let Some((.., first)) = users.first() else { continue };
            if users.iter().any(|(.., user)| user != first) {
                let number = volume_index.shared.len() as SharedVolumeId;
                if snapshot.volume_claims().get(&claim).is_some_and(|claim| claim.for_one_pod) {
                    volume_index.holders.insert(claim.clone(), first.clone());
                }
                volume_index.shared.insert(claim, number);
            }
        }
        volume_index
    }

    /// What the volumes of a pod ask of its node, as far as nodes differ in it.
    pub(crate) fn volumes_of(&self, snapshot: &Snapshot, pod: &Pod) -> Result<PodVolumes, VolumeTrouble> {
        if pod.volumes.is_empty() {
            return Ok(PodVolumes::default());
        }
        let needs = volume_needs(snapshot, pod)?;
        for claim in pod.claims() {
            if let Some(holder) = self.holders.get(&claim).filter(|holder| **holder != pod.key) {
                return Err(VolumeTrouble::InUse(claim, holder.clone()));
            }
        }
        let disks = needs.disks.get(DISK_DRIVER).map_or(0, |disks| disks.len() as u32);
        let mut more = TrackedVolumes::default();
        for (driver, claims) in needs.disks {
            let is_disk = &*driver == DISK_DRIVER;
            if !is_disk && !self.new_node.remaining.contains_key(&driver) {
                continue;
            }
            let shared = claims.iter().filter_map(|claim| Some((claim, *self.shared.get(claim)?)));
            let unmade = |claim: &ObjectKey| snapshot.volume_claims().get(claim).is_some_and(|c| c.volume.is_none());
            more.unprovisioned.extend(shared.clone().filter(|(claim, _)| is_disk && unmade(claim)).map(|(_, id)| id));
            let shared: BTreeSet<SharedVolumeId> = shared.map(|(_, id)| id).collect();
            let own = (claims.len() - shared.len()) as u32;
            if own > 0 && !is_disk {
                more.exclusive.insert(Arc::clone(&driver), own);
            }
            if !shared.is_empty() {
                more.shared.insert(driver, shared);
            }
        }
        let more = (more != TrackedVolumes::default()).then(|| Arc::new(more));
        Ok(PodVolumes { alternatives: needs.alternatives, disks, tracked: more })
    }

    /// How many more data disks a node takes, where there is a limit, and what else of volumes there is to say of it; `most` is
    /// how many data disks the size has that is being made, where one is.
    pub(crate) fn node_usage(
        &self,
        snapshot: &Snapshot,
        node: Option<&NodeName>,
        most: Option<u32>,
    ) -> (Option<i64>, VolumeUsage) {
        if !self.has_volumes {
            return (None, VolumeUsage::default());
        }
        let held = node.map(|node| disks_on(snapshot, node)).unwrap_or_default();
        let limits = node.and_then(|node| snapshot.attach_limits().get(node));
        let limit = |driver: &str| limits.and_then(|limits| limits.of(driver)).map(i64::from);
        let left = |driver: &str, limit: i64| limit - held.get(driver).map_or(0, |held| held.len() as i64);
        let disks = limit(DISK_DRIVER).or_else(|| most.map(i64::from)).map(|limit| left(DISK_DRIVER, limit));
        let others = self.new_node.remaining.iter().filter_map(|(driver, least)| {
            let limit = limit(driver).or_else(|| most.map(|_| *least))?;
            Some((Arc::clone(driver), left(driver, limit)))
        });
        let shared = held.values().flatten().filter_map(|claim| self.shared.get(claim).copied());
        (disks, VolumeUsage { remaining: others.collect(), shared: shared.collect() })
    }
}

/// The least that any node takes of each driver but the one of Azure's disks, which sizes tell.
fn min_driver_limits(snapshot: &Snapshot) -> BTreeMap<Arc<str>, i64> {
    let mut least = BTreeMap::new();
    let limits = snapshot.attach_limits().values().flat_map(|node| node.limits.iter());
    for (driver, limit) in limits.filter(|(driver, _)| &**driver != DISK_DRIVER) {
        let limit = i64::from(*limit);
        let known = least.entry(Arc::clone(driver)).or_insert(limit);
        *known = (*known).min(limit);
    }
    least
}
