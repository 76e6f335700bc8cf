//! Listings: what does Azure show of the group, as against what it holds?

use super::Cloud;
use super::faults::ListingFault;
use super::refusal::Refusal;
use crate::chance::Chance;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::cluster::cloud::{CloudResource, Detail};
use napkeeper_core::cluster::inventory::{ListFailure, Listing};
use napkeeper_core::names::ArmId;
use std::sync::Arc;

impl Cloud {
    /// Lists VMs, NICs and disks of the group, by id.
    ///
    /// # Errors
    /// [`ListFailure`] while listings are made to fail, and while no request gets through.
    pub fn list(&mut self, now: Timestamp) -> Listing<CloudResource> {
        let failed =
            |why: &Refusal| ListFailure { what: Arc::from("the node resource group"), why: why.to_string().into() };
        self.advance(now);
        self.faults.admit(now).map_err(|why| failed(&why))?;
        match self.faults.listing_fault(now) {
            Some(ListingFault::Forbidden) => Err(failed(&Refusal::ListForbidden)),
            Some(ListingFault::BrokenPage) => Err(failed(&Refusal::Unavailable)),
            None => Ok(self.shown(now)),
        }
    }

    /// `managedBy` of the group.
    ///
    /// # Errors
    /// [`ListFailure`] while no request gets through.
    pub fn group_managed_by(&self, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        self.faults.admit(now).map_err(|why| ListFailure {
            what: Arc::from("managedBy of the node resource group"),
            why: why.to_string().into(),
        })?;
        Ok(self.managed_by.clone())
    }

    /// What a whole listing shows: the truth, but late and in Azure's spelling where a fault says so.
    pub(crate) fn shown(&mut self, now: Timestamp) -> Vec<Arc<CloudResource>> {
        let lag = self.faults.list_lag;
        self.gone.retain(|(at, _)| *at + lag > now);
        let mut shown = self.resources.clone();
        if lag > SignedDuration::ZERO {
            for entry in self.ledger.iter().rev().take_while(|e| e.at + lag > now) {
                if entry.act == super::Act::Created {
                    shown.remove(&entry.resource.id);
                }
            }
        }
        for (_, ghost) in &self.gone {
            shown.entry(ghost.id.clone()).or_insert_with(|| Arc::clone(ghost));
        }
        let mut shown: Vec<_> = shown.into_values().collect();
        if self.faults.shouting_ids {
            let seed = self.settings.seed;
            shown.iter_mut().for_each(|r| shout(Arc::make_mut(r), seed));
        }
        shown
    }
}

/// Spells some ids in capitals, each of them always or never.
fn shout(resource: &mut CloudResource, seed: u64) {
    let spell = |id: &mut ArmId| {
        if Chance::of(seed, id.folded()).one_in(2)
            && let Ok(loud) = ArmId::new(id.as_str().to_ascii_uppercase())
        {
            *id = loud;
        }
    };
    spell(&mut resource.id);
    match &mut resource.detail {
        Detail::Vm(vm) => vm.nics.iter_mut().chain(&mut vm.os_disk).chain(&mut vm.data_disks).for_each(spell),
        Detail::Nic(nic) => nic.vm.iter_mut().for_each(spell),
        Detail::Disk(disk) => disk.managed_by.iter_mut().for_each(spell),
    }
}
