//! Which resources are in use, foreign or left over, by the world's own knowledge.
//!
//! The world knows who made each resource and what it staged itself. This module does not read tags, records or
//! verdicts of the domain: the invariants depend on it, and check the domain.

use super::moves::MoveBooks;
use crate::cloud::{Change, ChangeCause, LedgerEntry};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, DiskState, ResourceDetail, ResourceKind};
use napkeeper_core::model::azure::inventory::Inventory;
use napkeeper_core::model::names::{ArmId, ClaimName, ProviderId, Uid};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Identity of a resource through time: Azure gives every incarnation a new one.
pub(in crate::world) type Incarnation = Arc<str>;

/// The most that the controller's clock may be wrong while it acts, as documented.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// The ground truth.
#[derive(Debug, Clone, Default)]
pub(in crate::world) struct GroundTruth {
    /// The group's `managedBy` is another cluster. Azure sets it once, with the group: a change simulates a controller
    /// that is configured for another group.
    pub(in crate::world) group_is_foreign: bool,
    /// It was when the last inventory was taken, by which each sweep is judged.
    pub(in crate::world) listed_as_foreign: bool,
    /// Since when the controller runs in a second cluster, configured as the first one.
    pub(in crate::world) second_cluster_since: Option<Timestamp>,
    /// It has done so from the start.
    pub(in crate::world) was_second_cluster_at_start: bool,
    /// It did when the last inventory was taken.
    pub(in crate::world) listed_in_second_cluster: bool,
    /// Since when another Karpenter has had a NodeClaim.
    pub(in crate::world) other_karpenter_since: Option<Timestamp>,
    /// Since when new nodes do not come up.
    pub(in crate::world) kubelets_broken_since: Option<Timestamp>,
    /// NodeClaims whose VMs were requested since then, with their NodePools.
    pub(in crate::world) broken_launches: BTreeMap<ClaimName, (Timestamp, Arc<str>)>,
    /// When the template of a NodePool was last changed: it may try again then.
    pub(in crate::world) templates_changed: BTreeMap<Arc<str>, Timestamp>,
    /// How far a time by the controller's clock may have been wrong: twice the most that it was ahead or behind while it
    /// acted.
    pub(in crate::world) clock_error: SignedDuration,
    /// NodeClaims that users have deleted, and replicas that no longer lead.
    pub(in crate::world) deleted_by_others: BTreeSet<ClaimName>,
    /// What was recorded in this time is lost, because OrphanRecords were restored from a backup.
    pub(in crate::world) records_lost: Option<Range<Timestamp>>,
    /// Resources that a user has given other tags: nothing shows any more whose they are.
    retagged: BTreeSet<ArmId>,
    /// Moves: marks and replacements.
    pub(in crate::world) moves: MoveBooks,
    /// UIDs of all NodeClaims that ever existed.
    uids: BTreeMap<ClaimName, Uid>,
    /// How much of Azure's ledger has been read.
    ledger_read: usize,
    /// Resources that a NodeClaim's launch created, with the claim's UID.
    creators: BTreeMap<Incarnation, Uid>,
    /// Resources that belong to others.
    foreign: BTreeSet<Incarnation>,
    /// Data disks whose content is to be kept: reclaim policy Retain.
    retained: BTreeSet<Incarnation>,
    /// Resources that lost their owners when the API server was emptied: in use until the breaker is cleared.
    protected: BTreeSet<Incarnation>,
    /// Complete inventories that have shown a resource unused, without interruption: first, last counted, and how many
    /// 10 min apart.
    unused: BTreeMap<Incarnation, (Timestamp, Timestamp, u32)>,
    /// Deletions by sweeps.
    pub(in crate::world) sweeps: Vec<(Timestamp, ArmId, ResourceKind)>,
    /// Most resources of this cluster at once over the last day, for the cap.
    owned: Vec<(Timestamp, usize)>,
    /// The last inventory was complete.
    complete: bool,
    /// When a report last showed that manual action, or the cap, holds this back.
    excused: BTreeMap<Incarnation, Timestamp>,
}

/// Who a resource belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::world) enum Usage {
    /// Owned by others.
    Foreign,
    /// In use, or wanted.
    InUse,
    /// Not used by anything.
    Unused,
}

impl GroundTruth {
    /// Notes which resources were created for which NodeClaim since the last call.
    pub(in crate::world) fn record_creators(&mut self, cluster: &Snapshot, ledger: &[LedgerEntry]) {
        for claim in cluster.claims().values() {
            self.uids.insert(claim.name.clone(), claim.uid.clone());
        }
        for entry in &ledger[self.ledger_read.min(ledger.len())..] {
            let by_controller = matches!(entry.cause, ChangeCause::Request | ChangeCause::Cascade);
            let claim = entry.resource.id.name().strip_prefix("aks-").and_then(|n| ClaimName::new(n).ok());
            let claim = claim.filter(|_| by_controller && entry.change == Change::Created);
            if let Some(uid) = claim.and_then(|name| self.uids.get(&name)) {
                self.creators.insert(Arc::clone(&entry.resource.incarnation), uid.clone());
            }
        }
        self.ledger_read = ledger.len();
    }

    /// The UID of the claim that a launch created this for.
    pub(in crate::world) fn creator(&self, resource: &CloudResource) -> Option<&Uid> {
        self.creators.get(&resource.incarnation)
    }

    /// The controller's clock is ahead by so much from now on. It does not act by one that is more than a minute wrong.
    pub(in crate::world) fn allow_clock_error(&mut self, ahead: SignedDuration) {
        if ahead.abs() <= MAX_SKEW {
            self.clock_error = self.clock_error.max(ahead.abs() * 2);
        }
    }

    /// OrphanRecords are restored from a backup: each resource must be seen unused twice again. The last inventory counts
    /// if the controller still knows it.
    pub(in crate::world) fn records_restored(&mut self, backup: Timestamp, now: Timestamp, inventory_is_known: bool) {
        self.records_lost = Some(backup..now);
        self.unused.values_mut().for_each(|(_, _, times)| *times = u32::from(inventory_is_known).min(*times));
    }

    /// A user has given this other tags.
    pub(in crate::world) fn retag(&mut self, id: &ArmId) {
        self.retagged.insert(id.clone());
    }

    /// A user has given this, or the VM that it is attached to, other tags.
    pub(in crate::world) fn is_retagged(&self, resource: &CloudResource) -> bool {
        let is_retagged = |id: &ArmId| self.retagged.contains(id);
        let attached = match &resource.detail {
            ResourceDetail::Vm(_) => false,
            ResourceDetail::Nic(nic) => nic.vm.as_ref().is_some_and(is_retagged),
            ResourceDetail::Disk(disk) => disk.managed_by.iter().any(is_retagged),
        };
        attached || is_retagged(&resource.id)
    }

    /// This belongs to others from now on.
    pub(in crate::world) fn set_foreign(&mut self, incarnation: &Incarnation) {
        self.foreign.insert(Arc::clone(incarnation));
    }

    /// The content of this disk is to be kept, whatever happens to its objects.
    pub(in crate::world) fn retain(&mut self, incarnation: &Incarnation) {
        self.retained.insert(Arc::clone(incarnation));
    }

    /// The API server loses its objects: resources that they referenced are still in use.
    pub(in crate::world) fn protect_until_cleared<'a>(
        &mut self,
        resources: impl Iterator<Item = &'a Arc<CloudResource>>,
        cluster: &Snapshot,
    ) {
        let alive: Vec<_> = resources.filter(|r| self.usage_of(r, cluster) == Usage::InUse).collect();
        // The breaker trips at more than three of a kind. Fewer are ordinary orphans.
        for kind in ResourceKind::ALL {
            let of_kind: Vec<_> = alive.iter().filter(|r| r.kind() == kind).collect();
            if of_kind.len() > 3 {
                self.protected.extend(of_kind.into_iter().map(|r| Arc::clone(&r.incarnation)));
            }
        }
    }

    /// The breaker was cleared: resources left by the emptied API server are unused.
    pub(in crate::world) fn clear_protection(&mut self) {
        self.protected.clear();
    }

    /// Who a resource belongs to at this instant.
    pub(in crate::world) fn usage_of(&self, resource: &CloudResource, cluster: &Snapshot) -> Usage {
        match self.linked(resource, cluster) {
            Usage::Unused if self.protected.contains(&resource.incarnation) => Usage::InUse,
            usage_of => usage_of,
        }
    }

    /// The owner of a resource, as far as it is visible.
    fn linked(&self, resource: &CloudResource, cluster: &Snapshot) -> Usage {
        if self.foreign.contains(&resource.incarnation) {
            return Usage::Foreign;
        }
        if self.retained.contains(&resource.incarnation) {
            return Usage::InUse;
        }
        let claimed = self
            .creators
            .get(&resource.incarnation)
            .is_some_and(|uid| cluster.claims().values().any(|c| c.uid == *uid));
        let used = match &resource.detail {
            ResourceDetail::Vm(_) => cluster.node_by_provider_id(&ProviderId::of_vm(&resource.id)).is_some(),
            ResourceDetail::Nic(nic) => nic.vm.is_some() || nic.serves.is_some(),
            ResourceDetail::Disk(disk) => {
                !disk.managed_by.is_empty()
                    || disk.state != DiskState::Unattached
                    || cluster.volumes().values().any(|v| v.handle.as_ref() == Some(&resource.id))
            }
        };
        if claimed || used { Usage::InUse } else { Usage::Unused }
    }

    /// An inventory was taken: records the resources that are unused at this instant.
    pub(in crate::world) fn record_inventory(&mut self, inventory: &Inventory, cluster: &Snapshot, now: Timestamp) {
        self.complete = inventory.failure().is_none();
        let Ok(listed) = &inventory.resources else { return };
        if !self.complete {
            return;
        }
        self.owned.retain(|(at, _)| now.duration_since(*at) <= SignedDuration::from_hours(25));
        self.owned.push((now, listed.len()));
        let named = named_by_intents(cluster);
        let is_dead = |r: &&Arc<CloudResource>| self.linked(r, cluster) == Usage::Unused && !named.contains(&r.id);
        let dead: Vec<_> = listed.iter().filter(is_dead).collect();
        let present: BTreeSet<&Incarnation> = dead.iter().map(|r| &r.incarnation).collect();
        self.unused.retain(|incarnation, _| present.contains(incarnation));
        for resource in dead {
            let entry = self.unused.entry(Arc::clone(&resource.incarnation)).or_insert((now, now, 1));
            if now.duration_since(entry.1) >= SignedDuration::from_mins(10) - self.clock_error {
                (entry.1, entry.2) = (now, entry.2 + 1);
            }
        }
    }

    /// A report shows that manual action or the cap holds the deletion back.
    pub(in crate::world) fn excuse(&mut self, incarnation: &Incarnation, now: Timestamp) {
        self.excused.insert(Arc::clone(incarnation), now);
    }

    /// Since when a continuously unused resource should have been deleted by napkeeper.
    pub(in crate::world) fn overdue_since(&self, resource: &CloudResource) -> Option<Timestamp> {
        let (first, ..) = self.unused.get(&resource.incarnation)?;
        Some(self.excused.get(&resource.incarnation).map_or(*first, |excused| *excused.max(first)))
    }

    /// Since which complete inventory a resource has been unused without interruption, and in how many, 10 min apart.
    pub(in crate::world) fn unused_since(&self, resource: &CloudResource) -> Option<(Timestamp, u32)> {
        self.unused.get(&resource.incarnation).map(|(first, _, times)| (*first, *times))
    }

    /// True when the last inventory was complete.
    pub(in crate::world) fn last_was_complete(&self) -> bool {
        self.complete
    }

    /// A sweep deleted this.
    pub(in crate::world) fn record_sweep(&mut self, id: &ArmId, kind: ResourceKind, now: Timestamp) {
        self.sweeps.push((now, id.clone(), kind));
    }

    /// Most sweep deletions that the default cap allows over 24 h: the lesser of 20 and 5 % of all that the group
    /// has held at once in that time, at least 1.
    pub(in crate::world) fn default_cap(&self) -> usize {
        let most = self.owned.iter().map(|(_, n)| *n).max().unwrap_or(0);
        (most * 5 / 100).clamp(1, 20)
    }
}

/// What launch intents name: it counts as used, also where a user has made one name the resources of another NodeClaim.
pub(in crate::world) fn named_by_intents(cluster: &Snapshot) -> BTreeSet<&ArmId> {
    let intents = cluster.claims().values().filter_map(|claim| claim.intent.as_ref());
    intents.flat_map(|intent| [&intent.vm, &intent.nic, &intent.os_disk]).collect()
}
