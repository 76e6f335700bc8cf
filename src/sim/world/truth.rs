//! Truth: what is alive, foreign or leaked by the world's own knowledge, whatever any verdict says?
//!
//! The world knows who made each resource and what it staged itself. Nothing here reads tags, records or verdicts
//! of the domain: invariants are judged by this, and the domain is judged by the invariants.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, DiskState, ResourceDetail, ResourceKind};
use napkeeper_core::model::azure::inventory::Inventory;
use napkeeper_core::model::names::{ArmId, ProviderId, Uid};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Identity of a resource through time: Azure gives every incarnation a new one.
pub(super) type Incarnation = Arc<str>;

/// What the world knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    /// Resources that a NodeClaim's launch created, with the claim's UID.
    makers: BTreeMap<Incarnation, Uid>,
    /// Resources that belong to somebody else.
    foreign: BTreeSet<Incarnation>,
    /// Data disks whose content somebody wants: reclaim policy Retain.
    retained: BTreeSet<Incarnation>,
    /// Resources that lost their owners when the API server was emptied: alive until a person says otherwise.
    bereft: BTreeSet<Incarnation>,
    /// Whole inventories that have shown a resource dead, without a break: the first, and how many 10 min apart.
    dead: BTreeMap<Incarnation, (Timestamp, Timestamp, u32)>,
    /// Deletions by sweeps.
    pub(super) sweeps: Vec<(Timestamp, ArmId, ResourceKind)>,
    /// Most resources of this cluster at once over the last day, for the cap.
    owned: Vec<(Timestamp, usize)>,
    /// Every listing of the last inventory was whole.
    whole: bool,
    /// When a report last said that a person, or the cap, keeps this.
    excused: BTreeMap<Incarnation, Timestamp>,
}

/// Who a resource belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Somebody else's.
    Foreign,
    /// In use, or wanted.
    Alive,
    /// Nobody's.
    Dead,
}

impl Truth {
    /// A launch created this.
    pub(super) fn made(&mut self, resource: &CloudResource, claim: &Uid) {
        self.makers.insert(Arc::clone(&resource.incarnation), claim.clone());
    }

    /// The UID of the claim that a launch created this for.
    pub(super) fn maker(&self, resource: &CloudResource) -> Option<&Uid> {
        self.makers.get(&resource.incarnation)
    }

    /// This belongs to somebody else from now on.
    pub(super) fn set_foreign(&mut self, incarnation: &Incarnation) {
        self.foreign.insert(Arc::clone(incarnation));
    }

    /// What is on this disk is wanted, whatever becomes of its objects.
    pub(super) fn retain(&mut self, incarnation: &Incarnation) {
        self.retained.insert(Arc::clone(incarnation));
    }

    /// The API server forgets its objects: what they answered for is still in use.
    pub(super) fn bereave<'a>(&mut self, resources: impl Iterator<Item = &'a Arc<CloudResource>>, cluster: &Snapshot) {
        let alive: Vec<_> = resources.filter(|r| self.standing(r, cluster) == Standing::Alive).collect();
        // The law's breaker looks for more than three of a kind. Fewer are orphans like any other.
        for kind in ResourceKind::ALL {
            let of_kind: Vec<_> = alive.iter().filter(|r| r.kind() == kind).collect();
            if of_kind.len() > 3 {
                self.bereft.extend(of_kind.into_iter().map(|r| Arc::clone(&r.incarnation)));
            }
        }
    }

    /// A person has looked, and cleared the breaker: what the emptied API server left is nobody's.
    pub(super) fn unbereave(&mut self) {
        self.bereft.clear();
    }

    /// Who a resource belongs to at this instant.
    pub(super) fn standing(&self, resource: &CloudResource, cluster: &Snapshot) -> Standing {
        match self.linked(resource, cluster) {
            Standing::Dead if self.bereft.contains(&resource.incarnation) => Standing::Alive,
            standing => standing,
        }
    }

    /// Who a resource belongs to by what can be seen of it, though a person may know better.
    fn linked(&self, resource: &CloudResource, cluster: &Snapshot) -> Standing {
        if self.foreign.contains(&resource.incarnation) {
            return Standing::Foreign;
        }
        if self.retained.contains(&resource.incarnation) {
            return Standing::Alive;
        }
        let claimed =
            self.makers.get(&resource.incarnation).is_some_and(|uid| cluster.claims().values().any(|c| c.uid == *uid));
        let used = match &resource.detail {
            ResourceDetail::Vm(_) => cluster.node_by_provider_id(&ProviderId::of_vm(&resource.id)).is_some(),
            ResourceDetail::Nic(nic) => nic.vm.is_some() || nic.serves.is_some(),
            ResourceDetail::Disk(disk) => {
                !disk.managed_by.is_empty()
                    || disk.state != DiskState::Unattached
                    || cluster.volumes().values().any(|v| v.handle.as_ref() == Some(&resource.id))
            }
        };
        if claimed || used { Standing::Alive } else { Standing::Dead }
    }

    /// An inventory was taken: remembers what it showed dead, by the truth of this instant.
    pub(super) fn observed(&mut self, inventory: &Inventory, cluster: &Snapshot, now: Timestamp) {
        self.whole = inventory.failure().is_none();
        let Ok(listed) = &inventory.resources else { return };
        if !self.whole {
            return;
        }
        self.owned.retain(|(at, _)| now.duration_since(*at) <= SignedDuration::from_hours(25));
        self.owned.push((now, listed.len()));
        let dead: Vec<_> = listed.iter().filter(|r| self.linked(r, cluster) == Standing::Dead).collect();
        let present: BTreeSet<&Incarnation> = dead.iter().map(|r| &r.incarnation).collect();
        self.dead.retain(|incarnation, _| present.contains(incarnation));
        for resource in dead {
            let entry = self.dead.entry(Arc::clone(&resource.incarnation)).or_insert((now, now, 1));
            if now.duration_since(entry.1) >= SignedDuration::from_mins(10) {
                (entry.1, entry.2) = (now, entry.2 + 1);
            }
        }
    }

    /// A report says that a person must lift something before this can go, or that the cap holds it back.
    pub(super) fn excuse(&mut self, incarnation: &Incarnation, now: Timestamp) {
        self.excused.insert(Arc::clone(incarnation), now);
    }

    /// Since when nothing but napkeeper itself has kept a resource that has been dead without a break.
    pub(super) fn overdue_since(&self, resource: &CloudResource) -> Option<Timestamp> {
        let (first, ..) = self.dead.get(&resource.incarnation)?;
        Some(self.excused.get(&resource.incarnation).map_or(*first, |excused| *excused.max(first)))
    }

    /// Since which whole inventory a resource has been dead without a break, and in how many, 10 min apart.
    pub(super) fn dead_since(&self, resource: &CloudResource) -> Option<(Timestamp, u32)> {
        self.dead.get(&resource.incarnation).map(|(first, _, times)| (*first, *times))
    }

    /// True when every listing of the last inventory was whole.
    pub(super) fn last_was_whole(&self) -> bool {
        self.whole
    }

    /// A sweep deleted this.
    pub(super) fn swept(&mut self, id: &ArmId, kind: ResourceKind, now: Timestamp) {
        self.sweeps.push((now, id.clone(), kind));
    }

    /// Most sweep deletions that the default cap allows over 24 h: the lesser of 20 and 5 % of all that the group
    /// has held at once in that time, at least 1.
    pub(super) fn default_cap(&self) -> usize {
        let most = self.owned.iter().map(|(_, n)| *n).max().unwrap_or(0);
        (most * 5 / 100).clamp(1, 20)
    }
}
