//! Edits of what stays in use: tags and states of resources in Azure, and OrphanRecords.

use crate::world::World;
use crate::world::timeline::EventKind;
use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::{ResourceDetail, Tags};
use napkeeper_core::model::names::ObjectName;
use std::sync::Arc;

/// What users and Azure do to what stays in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalEdit {
    /// A resource that a NodeClaim's launch created has other tags, and stays in use.
    Tags {
        /// Which, counted in the order of ids, modulo their number.
        nth: usize,
        /// What becomes of its tags.
        edit: TagEdit,
    },
    /// Azure shows a running VM as failed, as after an update that failed.
    FailVm {
        /// Which, counted in the order of ids, modulo their number.
        nth: usize,
    },
    /// The OS disk of a node's VM is swapped for one that a user has restored.
    SwapOsDisk {
        /// Which node in use, counted in the order of names, modulo their number.
        nth: usize,
    },
    /// OrphanRecords are backed up.
    BackUpRecords,
    /// OrphanRecords are restored from the last backup.
    RestoreRecords,
    /// OrphanRecords cannot be written for a while.
    LockRecords(SignedDuration),
}

/// What a user does to tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagEdit {
    /// All are removed.
    Remove,
    /// Keys are in capitals, which Azure takes for the same.
    Capitals,
}

impl World {
    pub(super) fn strike_external(&mut self, edit: ExternalEdit) {
        match edit {
            ExternalEdit::Tags { nth, edit } => self.edit_tags(nth, edit),
            ExternalEdit::FailVm { nth } => {
                let vms = self.cloud.resources().values().filter(|r| matches!(r.detail, ResourceDetail::Vm(_)));
                let ids: Vec<_> = vms.map(|vm| vm.id.clone()).collect();
                if let Some(id) = ids.get(nth % ids.len().max(1)) {
                    // One that is being deleted does not fail.
                    drop(self.cloud.fail_vm(id, self.now));
                }
            }
            ExternalEdit::SwapOsDisk { nth } => self.swap_os_disk(nth),
            ExternalEdit::BackUpRecords => {
                self.injected.records = Some((self.now, Arc::clone(&self.cluster.state().records)));
            }
            ExternalEdit::RestoreRecords => {
                if let Some((backup, records)) = self.injected.records.clone() {
                    self.truth.records_restored(backup, self.now, self.controller.knows_inventory);
                    self.cluster.restore_records(records);
                }
            }
            ExternalEdit::LockRecords(duration) => self.cluster.lock_records(self.now + duration),
        }
    }

    fn swap_os_disk(&mut self, nth: usize) {
        let claim = self.claims_in_use(nth, 1).pop();
        let Some(vm) = claim.and_then(|claim| claim.status.provider_id.as_ref().map(|id| id.vm().clone())) else {
            return;
        };
        let Ok(name) = ObjectName::new(format!("restored-{}-{}", vm.name(), self.now.as_second())) else { return };
        let Some(disk) = self.add_bare_disk(&name, Tags::new(), true) else { return };
        self.mark_foreign(&disk);
        if self.cloud.swap_os_disk(&vm, &disk, self.now).is_ok() {
            self.log(EventKind::Scenario, vm.name(), "a user swaps its OS disk for a restored one");
        }
    }

    fn edit_tags(&mut self, nth: usize, edit: TagEdit) {
        let launched = self.cloud.resources().values().filter(|r| self.truth.creator(r).is_some());
        let all: Vec<_> = launched.cloned().collect();
        let Some(resource) = all.get(nth % all.len().max(1)) else { return };
        let (id, tags) = (&resource.id, &resource.tags);
        let edited = match edit {
            TagEdit::Remove => Tags::new(),
            TagEdit::Capitals => {
                tags.iter().map(|(key, value)| (Arc::from(key.to_uppercase()), Arc::clone(value))).collect()
            }
        };
        if self.cloud.retag(id, edited, self.now).is_ok() {
            self.log(EventKind::Scenario, id.name(), format!("a user edits its tags: {edit:?}"));
            self.truth.retag(id);
        }
    }
}
