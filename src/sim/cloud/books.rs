//! The books: what exists, what has happened to it, and what is still to happen?
//!
//! Every change of what exists goes through here, so that ledger, events and operations cannot disagree with it.

use super::operation::Work;
use super::{Act, Author, Cloud, CloudEvent, Due, LedgerEntry};
use crate::chance::Chance;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, Nic, ResourceDetail, Tags};
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::ArmId;
use std::sync::Arc;

impl Cloud {
    pub(super) fn set_tags(&mut self, id: &ArmId, tags: Tags, by: Author, at: Timestamp) {
        let Some(resource) = self.resources.get_mut(id).filter(|r| r.tags != tags) else {
            return;
        };
        Arc::make_mut(resource).tags = tags;
        *self.revisions.entry(id.clone()).or_default() += 1;
        let resource = Arc::clone(resource);
        let act = Act::Tagged;
        self.ledger.push(LedgerEntry { at, act, by, resource });
    }

    pub(super) fn create(&mut self, resource: CloudResource, by: Author, at: Timestamp) {
        let resource = Arc::new(resource);
        *self.revisions.entry(resource.id.clone()).or_default() += 1;
        self.resources.insert(resource.id.clone(), Arc::clone(&resource));
        let act = Act::Created;
        self.ledger.push(LedgerEntry { at, act, by, resource });
    }

    /// Takes a resource out of the books, with all that hangs on it.
    pub(super) fn remove(&mut self, id: &ArmId, by: Author, at: Timestamp) {
        let Some(resource) = self.resources.remove(id) else {
            return self.remove_machine(id, at);
        };
        self.operations.cut_short(id);
        self.reservations.remove(id);
        self.gone.push((at, Arc::clone(&resource)));
        let act = Act::Deleted;
        self.ledger.push(LedgerEntry { at, act, by, resource: Arc::clone(&resource) });
        match &resource.detail {
            ResourceDetail::Vm(vm) => {
                self.events.push(CloudEvent::VmGone {
                    at,
                    vm: id.clone(),
                    incarnation: Arc::clone(&resource.incarnation),
                    why: by,
                });
                self.remove_children(id, vm, at);
                self.forget_extensions(id);
            }
            ResourceDetail::Disk(_) => self.events.push(CloudEvent::DiskGone { at, disk: id.clone() }),
            ResourceDetail::Nic(_) => {}
        }
    }

    /// Changes a resource that exists.
    pub(super) fn edit(&mut self, id: &ArmId, change: impl FnOnce(&mut ResourceDetail)) {
        if let Some(resource) = self.resources.get_mut(id) {
            change(&mut Arc::make_mut(resource).detail);
            *self.revisions.entry(id.clone()).or_default() += 1;
        }
    }

    pub(super) fn begin(&mut self, target: &ArmId, work: Work, due: Timestamp) -> OperationId {
        self.operations.cut_short(target);
        let id = OperationId(self.mint());
        self.operations.begin(id.clone(), target.clone(), work);
        self.agenda.insert((due, Due::Operation(id.clone())));
        id
    }

    /// How long something takes that happens to one incarnation once.
    pub(super) fn takes(
        &self,
        (least, most): (SignedDuration, SignedDuration),
        what: &str,
        incarnation: &str,
    ) -> SignedDuration {
        let usual = Chance::of(self.settings.seed, &format!("{what} {incarnation}")).duration(least, most);
        usual.saturating_mul(i32::try_from(self.faults.slow).unwrap_or(i32::MAX).max(1))
    }

    /// A new unique id in the form of a GUID: the seed's, with a counter at its end.
    pub(super) fn mint(&mut self) -> Arc<str> {
        self.minted += 1;
        let high = Chance::of(self.settings.seed, &self.minted.to_string()).bits();
        let id =
            format!("{:08x}-{:04x}-4{:03x}-8000-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xfff, self.minted);
        Arc::from(id)
    }

    pub(super) fn new_nic(&mut self, id: ArmId, tags: Tags, now: Timestamp) -> CloudResource {
        CloudResource {
            id,
            incarnation: self.mint(),
            tags,
            // A NIC does not say so itself; the listing of all resources of the group does.
            created_at: Some(now),
            zone: None,
            detail: ResourceDetail::Nic(Nic { vm: None, serves: None, addresses: 1, subnet: None }),
        }
    }
}
