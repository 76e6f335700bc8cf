//! The resources that exist: how they are created, changed and removed.
//!
//! Every creation and deletion goes through this module, so that ledger, events and operations stay consistent.

mod aks_machine;
mod capacity_reservations;
mod related;
mod vm;
mod vm_extension;

use crate::cloud::operations::Completion;
use crate::cloud::{Change, ChangeCause, Cloud, CloudEvent, LedgerEntry, ScheduledEvent};
use crate::random::{Delay, Random};
pub(super) use capacity_reservations::Reserved;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, Nic, ResourceDetail, Tags};
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::ArmId;
pub(super) use related::RelatedResources;
pub(crate) use related::pool_of;
use std::sync::Arc;
pub use vm_extension::Extension;

impl Cloud {
    pub(in crate::cloud) fn set_tags(&mut self, id: &ArmId, tags: Tags, cause: ChangeCause, at: Timestamp) {
        let Some(resource) = self.resources.get_mut(id).filter(|r| r.tags != tags) else {
            return;
        };
        Arc::make_mut(resource).tags = tags;
        *self.revisions.entry(id.clone()).or_default() += 1;
        let resource = Arc::clone(resource);
        let change = Change::Tagged;
        self.ledger.push(LedgerEntry { at, change, cause, resource });
    }

    pub(in crate::cloud) fn create(&mut self, resource: CloudResource, cause: ChangeCause, at: Timestamp) {
        let resource = Arc::new(resource);
        *self.revisions.entry(resource.id.clone()).or_default() += 1;
        self.resources.insert(resource.id.clone(), Arc::clone(&resource));
        let change = Change::Created;
        self.ledger.push(LedgerEntry { at, change, cause, resource });
    }

    /// Removes a resource, with all that depends on it.
    pub(in crate::cloud) fn remove(&mut self, id: &ArmId, cause: ChangeCause, at: Timestamp) {
        let Some(resource) = self.resources.remove(id) else {
            return self.remove_machine(id, at);
        };
        self.operations.cancel(id);
        self.reservations.remove(id);
        self.deleted.push((at, Arc::clone(&resource)));
        let change = Change::Deleted;
        self.ledger.push(LedgerEntry { at, change, cause, resource: Arc::clone(&resource) });
        match &resource.detail {
            ResourceDetail::Vm(vm) => {
                self.events.push(CloudEvent::VmGone {
                    at,
                    vm: id.clone(),
                    incarnation: Arc::clone(&resource.incarnation),
                    cause,
                });
                self.shut_down.remove(id);
                self.remove_children(id, vm, at);
                self.forget_extensions(id);
            }
            ResourceDetail::Nic(_) => drop(self.address_names.remove(id)),
            ResourceDetail::Disk(_) => {}
        }
    }

    /// Changes a resource that exists.
    pub(in crate::cloud) fn edit(&mut self, id: &ArmId, change: impl FnOnce(&mut ResourceDetail)) {
        if let Some(resource) = self.resources.get_mut(id) {
            change(&mut Arc::make_mut(resource).detail);
            *self.revisions.entry(id.clone()).or_default() += 1;
        }
    }

    /// Moves a NIC to another subnet; `None` moves nothing.
    pub(in crate::cloud) fn set_subnet(&mut self, id: &ArmId, subnet: Option<&ArmId>) {
        let is_there =
            |detail: &ResourceDetail| matches!(detail, ResourceDetail::Nic(nic) if nic.subnet.as_ref() == subnet);
        if subnet.is_none() || self.resources.get(id).is_none_or(|nic| is_there(&nic.detail)) {
            return;
        }
        self.edit(id, |detail| {
            if let ResourceDetail::Nic(nic) = detail {
                nic.subnet = subnet.cloned();
            }
        });
    }

    /// Gives a NIC's first address a name.
    pub(crate) fn name_address(&mut self, nic: &ArmId, name: Arc<str>) {
        if self.resources.contains_key(nic) && self.address_names.get(nic) != Some(&name) {
            self.address_names.insert(nic.clone(), name);
            *self.revisions.entry(nic.clone()).or_default() += 1;
        }
    }

    pub(in crate::cloud) fn begin(&mut self, target: &ArmId, completion: Completion, due: Timestamp) -> OperationId {
        self.operations.cancel(target);
        let id = OperationId(self.new_id());
        self.operations.begin(id.clone(), target.clone(), completion);
        self.agenda.insert((due, ScheduledEvent::Operation(id.clone())));
        id
    }

    /// How long something takes that happens to one incarnation once.
    pub(in crate::cloud) fn takes(&self, delay: Delay, operation: &str, incarnation: &str) -> SignedDuration {
        let usual = delay.of(self.settings.seed, operation, incarnation);
        usual.saturating_mul(i32::try_from(self.faults.slow).unwrap_or(i32::MAX).max(1))
    }

    /// A new unique id in the form of a GUID: the seed's, with a counter at its end.
    pub(in crate::cloud) fn new_id(&mut self) -> Arc<str> {
        self.minted += 1;
        let high = Random::of(self.settings.seed, &self.minted.to_string()).bits();
        let id =
            format!("{:08x}-{:04x}-4{:03x}-8000-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xfff, self.minted);
        Arc::from(id)
    }

    pub(in crate::cloud) fn new_nic(&mut self, id: ArmId, tags: Tags, subnet: ArmId, now: Timestamp) -> CloudResource {
        CloudResource {
            id,
            incarnation: self.new_id(),
            tags,
            // A NIC itself has no creation time; the listing of the group has it.
            created_at: Some(now),
            zone: None,
            detail: ResourceDetail::Nic(Nic { vm: None, serves: None, addresses: 1, subnet: Some(subnet) }),
        }
    }
}
