//! Volume limits per CSI driver (kube-scheduler's NodeVolumeLimits).
//!
//! A node can attach a limited number of volumes per CSI driver, and a volume that several of its pods share is
//! attached once. Most pods have only exclusive Azure data disks: those are just a number. All other volumes are
//! tracked, and pods that have them are placed one at a time.

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

/// Index of a claim that several pods share.
pub(crate) type SharedVolumeId = u32;

/// What the volumes of a pod require of its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct PodVolumes {
    /// Node affinity terms, of which one must hold, if there are any.
    pub(crate) alternatives: Vec<Requirements>,
    /// Data disks that must be attached to the node, unless another pod shares them.
    pub(crate) disks: u32,
    /// Its other volumes; mostly none.
    pub(crate) tracked: Option<Arc<TrackedVolumes>>,
}

/// Volumes other than exclusive data disks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct TrackedVolumes {
    /// Exclusive volumes, by driver with a limit other than the Azure disk driver.
    exclusive: BTreeMap<Arc<str>, u32>,
    /// Shared volumes, by driver.
    shared: BTreeMap<Arc<str>, BTreeSet<SharedVolumeId>>,
    /// Shared data disks that are not provisioned yet: they will be in the zone of the first pod that uses them.
    pub(crate) unprovisioned: Vec<SharedVolumeId>,
}

/// Attached volumes of a node, and its remaining limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeUsage {
    /// How many more volumes of each driver, except the Azure disk driver; unlimited where it is not listed.
    remaining: BTreeMap<Arc<str>, i64>,
    /// Attached volumes that several pods share.
    shared: BTreeSet<SharedVolumeId>,
}

/// The volumes of the pods to place.
#[derive(Debug, Default)]
pub(crate) struct VolumeIndex {
    /// True when any of them has volumes.
    has_volumes: bool,
    /// Claims that several pods share.
    shared: BTreeMap<ObjectKey, SharedVolumeId>,
    /// The pod that holds each ReadWriteOncePod claim among them.
    holders: BTreeMap<ObjectKey, ObjectKey>,
    /// Limits of a new node: per driver the least of any existing node.
    pub(crate) new_node: VolumeUsage,
}

impl TrackedVolumes {
    /// Shared data disks.
    pub(crate) fn shared_disks(&self) -> u32 {
        self.shared.get(DISK_DRIVER).map_or(0, |shared| shared.len() as u32)
    }
}

impl VolumeUsage {
    /// How many of a pod's data disks are attached already.
    pub(crate) fn attached_shared_disks(&self, tracked: &TrackedVolumes) -> u32 {
        tracked.shared.get(DISK_DRIVER).map_or(0, |shared| shared.intersection(&self.shared).count() as u32)
    }

    /// True when a pod's volumes are within the limits, except those of data disks.
    pub(crate) fn has_capacity_for(&self, tracked: &TrackedVolumes) -> bool {
        self.exceeded_limit(tracked).is_none()
    }

    /// A driver whose limit is exceeded, how many volumes it needs, and how many more it may attach.
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

    /// How many of a pod's volumes of a driver must be attached.
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
        // The holder of a claim: a running pod, else the first in scheduling order.
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

    /// What the volumes of a pod require of its node, where nodes differ in it.
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
        let mut tracked = TrackedVolumes::default();
        for (driver, claims) in needs.disks {
            let is_disk = &*driver == DISK_DRIVER;
            if !is_disk && !self.new_node.remaining.contains_key(&driver) {
                continue;
            }
            let shared = claims.iter().filter_map(|claim| Some((claim, *self.shared.get(claim)?)));
            let is_unprovisioned =
                |claim: &ObjectKey| snapshot.volume_claims().get(claim).is_some_and(|c| c.volume.is_none());
            tracked
                .unprovisioned
                .extend(shared.clone().filter(|(claim, _)| is_disk && is_unprovisioned(claim)).map(|(_, id)| id));
            let shared: BTreeSet<SharedVolumeId> = shared.map(|(_, id)| id).collect();
            let own = (claims.len() - shared.len()) as u32;
            if own > 0 && !is_disk {
                tracked.exclusive.insert(Arc::clone(&driver), own);
            }
            if !shared.is_empty() {
                tracked.shared.insert(driver, shared);
            }
        }
        let tracked = (tracked != TrackedVolumes::default()).then(|| Arc::new(tracked));
        Ok(PodVolumes { alternatives: needs.alternatives, disks, tracked })
    }

    /// How many more data disks a node can attach, where there is a limit, and its other volumes; `max_disks` is the
    /// limit of the size that is being launched, where one is.
    pub(crate) fn node_usage(
        &self,
        snapshot: &Snapshot,
        node: Option<&NodeName>,
        max_disks: Option<u32>,
    ) -> (Option<i64>, VolumeUsage) {
        if !self.has_volumes {
            return (None, VolumeUsage::default());
        }
        let attached = node.map(|node| disks_on(snapshot, node)).unwrap_or_default();
        let limits = node.and_then(|node| snapshot.attach_limits().get(node));
        let limit = |driver: &str| limits.and_then(|limits| limits.of(driver)).map(i64::from);
        let left = |driver: &str, limit: i64| limit - attached.get(driver).map_or(0, |volumes| volumes.len() as i64);
        let disks = limit(DISK_DRIVER).or_else(|| max_disks.map(i64::from)).map(|limit| left(DISK_DRIVER, limit));
        let others = self.new_node.remaining.iter().filter_map(|(driver, least)| {
            let limit = limit(driver).or_else(|| max_disks.map(|_| *least))?;
            Some((Arc::clone(driver), left(driver, limit)))
        });
        let shared = attached.values().flatten().filter_map(|claim| self.shared.get(claim).copied());
        (disks, VolumeUsage { remaining: others.collect(), shared: shared.collect() })
    }
}

/// The least limit of any node per driver, except the Azure disk driver, whose limit depends on the size.
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
