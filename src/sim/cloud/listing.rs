//! Listings of VMs, NICs and disks, with their delays.

use super::faults::ListedKind;
use super::refusal::Refusal;
use super::{Change, Cloud};
use crate::random::Random;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::names::ArmId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Longest that a ghost is remembered: a lag that is set later does not bring back older ones.
const GHOSTS_LAST: SignedDuration = SignedDuration::from_hours(1);

impl Cloud {
    /// Lists VMs, NICs and disks of the group, by id.
    ///
    /// # Errors
    /// [`ListFailure`] while listings fail by a fault, or Azure is unavailable.
    pub fn list(&mut self, now: Timestamp) -> Listing<CloudResource> {
        let failed = |refusal: Refusal| ListFailure::of_azure("the node resource group", refusal.into());
        self.advance(now);
        self.faults.admit(now).map_err(failed)?;
        for kind in ListedKind::RESOURCES {
            self.check_listing(kind, now).map_err(failed)?;
        }
        Ok(self.shown(None, now))
    }

    /// `managedBy` of the group.
    ///
    /// # Errors
    /// [`ListFailure`] while Azure is unavailable.
    pub fn group_managed_by(&self, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        let failed = |refusal: Refusal| ListFailure::of_azure("managedBy of the node resource group", refusal.into());
        self.faults.admit(now).map_err(failed)?;
        Ok(self.managed_by.clone())
    }

    /// The resources in a complete listing of one kind, or of all, by id: with lag, and in Azure's spelling, if a fault
    /// sets that.
    pub(crate) fn shown(&mut self, of: Option<ListedKind>, now: Timestamp) -> Vec<Arc<CloudResource>> {
        let wanted = |resource: &CloudResource| of.is_none_or(|of| ListedKind::of(resource) == of);
        let longest = ListedKind::RESOURCES.map(|kind| self.faults.lag(kind).1).into_iter().max();
        self.deleted.retain(|(at, _)| *at + longest.unwrap_or_default().max(GHOSTS_LAST) > now);
        let hidden = self.hidden_ids(now);
        let present = self.resources.values().filter(|r| wanted(r) && !hidden.contains(&r.id));
        let mut shown: Vec<_> = present.cloned().collect();
        let keeps = |ghost: &CloudResource| self.faults.lag(ListedKind::of(ghost)).1;
        let ghosts = self.deleted.iter().filter(|(at, ghost)| wanted(ghost) && *at + keeps(ghost) > now);
        let ghosts: BTreeMap<_, _> = ghosts.rev().map(|(_, ghost)| (ghost.id.clone(), Arc::clone(ghost))).collect();
        let present_ids: BTreeSet<_> =
            if ghosts.is_empty() { BTreeSet::new() } else { shown.iter().map(|r| r.id.clone()).collect() };
        let ghosts: Vec<_> = ghosts.into_values().filter(|ghost| !present_ids.contains(&ghost.id)).collect();
        if !ghosts.is_empty() {
            shown.extend(ghosts);
            shown.sort_by(|a, b| a.id.cmp(&b.id));
        }
        if self.faults.uppercase_ids {
            let seed = self.settings.seed;
            shown.iter_mut().for_each(|r| uppercase_ids(Arc::make_mut(r), seed));
        }
        shown
    }

    /// What a GET of one resource shows: by a lag, one that was deleted since, and none that was created since.
    pub(super) fn read(&self, id: &ArmId, now: Timestamp) -> Option<Arc<CloudResource>> {
        let recent = self.ledger.iter().rev().take_while(|entry| entry.at + self.faults.read_lag > now);
        let first = recent.filter(|entry| entry.resource.id == *id && entry.change != Change::Tagged).last();
        match first {
            Some(entry) if entry.change == Change::Created => None,
            Some(entry) => Some(Arc::clone(&entry.resource)),
            None => self.resources.get(id).cloned(),
        }
    }

    /// What listings do not show yet.
    fn hidden_ids(&self, now: Timestamp) -> BTreeSet<ArmId> {
        let longest = ListedKind::RESOURCES.map(|kind| self.faults.lag(kind).0).into_iter().max().unwrap_or_default();
        let recent = self.ledger.iter().rev().take_while(|entry| entry.at + longest > now);
        let hides = |resource: &CloudResource| self.faults.lag(ListedKind::of(resource)).0;
        let young = recent.filter(|e| e.change == Change::Created && e.at + hides(&e.resource) > now);
        young.map(|entry| entry.resource.id.clone()).collect()
    }
}

/// Spells an id in capitals or leaves it, always the same.
fn uppercase_or_keep(id: &mut ArmId, seed: u64) {
    if Random::of(seed, id.folded()).one_in(2)
        && let Ok(loud) = ArmId::new(id.as_str().to_ascii_uppercase())
    {
        *id = loud;
    }
}

/// Spells some ids in capitals, each of them always or never.
fn uppercase_ids(resource: &mut CloudResource, seed: u64) {
    let uppercase = |id: &mut ArmId| uppercase_or_keep(id, seed);
    uppercase(&mut resource.id);
    match &mut resource.detail {
        ResourceDetail::Vm(vm) => {
            vm.nics.iter_mut().chain(&mut vm.os_disk).chain(&mut vm.data_disks).for_each(uppercase)
        }
        ResourceDetail::Nic(nic) => nic.vm.iter_mut().for_each(uppercase),
        ResourceDetail::Disk(disk) => disk.managed_by.iter_mut().for_each(uppercase),
    }
}

/// As [`uppercase_ids`], for the links of a related resource. Its own id is in the path of its request.
pub(super) fn uppercase_links(one: &mut RelatedResource, seed: u64) {
    let uppercase = |id: &mut ArmId| uppercase_or_keep(id, seed);
    match &mut one.detail {
        RelatedDetail::AksMachine { vm, .. } => vm.iter_mut().for_each(uppercase),
        RelatedDetail::ScaleSetInstance { nics, disks } => nics.iter_mut().chain(disks).for_each(uppercase),
        RelatedDetail::Snapshot { source, .. } => source.iter_mut().for_each(uppercase),
        RelatedDetail::PublicIp { used_by, .. } => used_by.iter_mut().for_each(uppercase),
        RelatedDetail::LoadBalancerFrontend { public_ip, .. } => public_ip.iter_mut().for_each(uppercase),
    }
}
