//! Mischief: what else can go wrong, so that no rule of the law is believed without need?

use super::timeline::Kind;
use super::{Deed, Violation, World};
use crate::cloud::DiskDraft;
use crate::cluster::Listed;
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::cluster::cloud::{Detail, Tags};
use napkeeper_core::cluster::sweep::Approval;
use napkeeper_core::cluster::volume::{ReclaimPolicy, Volume};
use napkeeper_core::labels;
use napkeeper_core::names::{ArmId, ObjectName, Uid};
use napkeeper_core::requirements::Requirements;
use std::sync::Arc;

/// What only the search for faults does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mischief {
    /// An OS disk is left over from a NodeClaim that is gone.
    LeakDisk(ObjectName),
    /// A VM, with NIC and OS disk, is left over from a NodeClaim that is gone.
    LeakVm(ObjectName),
    /// A NIC of another cluster.
    ForeignNic(ObjectName),
    /// A data disk of somebody else.
    ForeignDisk(ObjectName),
    /// A private endpoint takes a NIC.
    ServeNic(ObjectName),
    /// A disk is being copied (`ActiveSAS`).
    CopyDisk(ObjectName),
    /// One of the cluster's listings fails for a while.
    FailListing(Listed, SignedDuration),
    /// This happens right after the next inventory, before anything follows from it.
    Race(Box<Deed>),
    /// Somebody makes the resource of this name theirs.
    TakeOver(ObjectName),
    /// A PersistentVolume that was lost is restored.
    RestoreVolume(ObjectName),
    /// Approvals are merged that have expired, or name another incarnation, of everything that waits for one.
    ApproveStale,
}

impl World {
    pub(super) fn play_mischief(&mut self, mischief: Mischief) -> Result<(), Violation> {
        self.note(Kind::Scenario, "mischief", format!("{mischief:?}"));
        match mischief {
            Mischief::LeakDisk(name) => drop(self.add_bare_disk(&name, self.gone_tags(), true)),
            Mischief::LeakVm(name) => self.leak_vm(&name),
            Mischief::ForeignNic(name) => {
                let tags = Tags::from([(Arc::from(labels::TAG_CLUSTER), Arc::from("another"))]);
                if let Ok(id) = self.cloud.leak_nic(name.as_str(), tags, self.now) {
                    self.disown(&id);
                }
            }
            Mischief::ForeignDisk(name) => {
                if let Some(id) = self.add_bare_disk(&name, Tags::new(), false) {
                    self.disown(&id);
                }
            }
            Mischief::ServeNic(name) => {
                let id = self.cloud.nic_id(name.as_str());
                drop(self.cloud.set_serves(&id, Some(Arc::from("a private endpoint")), self.now));
            }
            Mischief::CopyDisk(name) => {
                let id = self.cloud.disk_id(name.as_str());
                drop(self.cloud.set_copied(&id, self.now));
            }
            Mischief::FailListing(what, lasting) => self.cluster.fail_listing(what, self.now + lasting),
            Mischief::Race(deed) => self.races.push(*deed),
            Mischief::TakeOver(name) => self.take_over_named(&name),
            Mischief::RestoreVolume(name) => self.restore_volume(name),
            Mischief::ApproveStale => self.approve_stale(),
        }
        Ok(())
    }

    /// Tags of what was made for a NodeClaim that is gone.
    fn gone_tags(&self) -> Tags {
        let tag = |k: &str, v: &str| (Arc::from(k), Arc::from(v));
        Tags::from([
            tag(labels::TAG_CLUSTER, &self.settings.cluster.tag),
            tag(labels::TAG_CLAIM, "general-purpose-gone0"),
            tag(labels::TAG_CLAIM_UID, "0b5f8e0e-0000-4000-8000-00000000dead"),
        ])
    }

    fn add_bare_disk(&mut self, name: &ObjectName, tags: Tags, is_os: bool) -> Option<ArmId> {
        let draft =
            DiskDraft { name: name.text(), tags, size_gib: 128, sku: Arc::from("Premium_LRS"), is_os, zone: None };
        self.cloud.add_disk(draft, self.now).ok()
    }

    fn leak_vm(&mut self, name: &ObjectName) {
        let Some(size) = self.catalog.sizes.iter().find(|s| s.facts.vcpus == 2 && !s.zones.is_empty()) else { return };
        let offering = OfferingKey {
            size: size.facts.name.clone(),
            zone: size.zones[0].clone(),
            capacity_type: CapacityType::OnDemand,
        };
        drop(self.cloud.add_vm(name.as_str(), self.gone_tags(), &offering, self.now));
    }

    /// From now on this is somebody else's, and with a VM all that is attached to it.
    pub(super) fn disown(&mut self, id: &ArmId) {
        let Some(resource) = self.cloud.resources().get(id).cloned() else { return };
        self.truth.set_foreign(&resource.incarnation);
        if let Detail::Vm(vm) = &resource.detail {
            for part in vm.nics.iter().chain(&vm.os_disk) {
                self.disown(part);
            }
        }
    }

    fn take_over_named(&mut self, name: &ObjectName) {
        let named = |id: &&ArmId| id.name() == name.as_str();
        let Some(id) = self.cloud.resources().keys().find(named).cloned() else { return };
        let tags = Tags::from([(Arc::from("owner"), Arc::from("somebody else"))]);
        if self.cloud.retag(&id, tags, self.now).is_ok() {
            self.disown(&id);
        }
    }

    fn restore_volume(&mut self, name: ObjectName) {
        let disk = self.cloud.disk_id(name.as_str());
        let there = self.cloud.resources().contains_key(&disk) && !self.cloud.is_deleting(&disk);
        let Ok(uid) = Uid::new(format!("restored-{name}")) else { return };
        if there {
            let affinity = Requirements::new();
            let reclaim = ReclaimPolicy::Delete;
            let volume = Volume { name, uid, handle: Some(disk), reclaim, claim: None, affinity };
            self.cluster.apply_volume(volume, self.now);
        }
    }

    fn approve_stale(&mut self) {
        let now = self.now;
        let waiting: Vec<(ArmId, Arc<str>)> = self.waiting_for_approval();
        self.edit_sweeps(|sweep| {
            for (id, incarnation) in &waiting {
                let expired = Approval {
                    id: id.clone(),
                    incarnation: Arc::clone(incarnation),
                    expires_at: now - SignedDuration::from_hours(1),
                };
                let other = Approval {
                    id: id.clone(),
                    incarnation: Arc::from("another-incarnation"),
                    expires_at: now + SignedDuration::from_hours(24),
                };
                sweep.approvals.extend([expired, other]);
            }
        });
    }
}
