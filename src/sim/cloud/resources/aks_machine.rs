//! Creates and deletes AKS Machines, with their VMs.
//!
//! AKS creates NIC, disk and VM under its own names, with the Machine's tags. A rejection leaves nothing; a creation
//! that fails at its end leaves a failed Machine. When Azure evicts the VM, the Machine remains, with state
//! `Succeeded`.

use crate::cloud::operations::Completion;
use crate::cloud::refusal::Refusal;
use crate::cloud::{ChangeCause, Cloud};
use jiff::Timestamp;
use napkeeper_core::catalog::OsDiskStorage;
use napkeeper_core::model::azure::cloud::ProvisioningState;
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, AksMachineSpec, NicSpec, Reply, VmSpec};

impl Cloud {
    pub(in crate::cloud) fn machine_call(
        &mut self,
        call: &AksMachineRequest,
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        match call {
            AksMachineRequest::Get(id) => Ok(Reply::AksMachine(self.related(id).cloned())),
            AksMachineRequest::Put(spec) => self.put_machine(spec, now),
            AksMachineRequest::Delete(id) => self.delete_machine(id, now),
        }
    }

    /// AKS chooses a managed disk by the size.
    fn machine_os_disk(&self, spec: &AksMachineSpec) -> OsDiskStorage {
        match self.settings.sizes.get(&spec.offering.size) {
            Some(facts) if spec.ephemeral_os_disk => OsDiskStorage::of(facts, spec.os_disk_gb),
            Some(facts) => OsDiskStorage::managed(facts),
            None => OsDiskStorage::StandardSsd,
        }
    }

    fn put_machine(&mut self, spec: &AksMachineSpec, now: Timestamp) -> Result<Reply, Refusal> {
        if self.related(&spec.id).is_some() {
            return Err(Refusal::Precondition { condition: "If-None-Match", resource: spec.id.clone() });
        }
        let name = format!("aks-{}-{:08x}-vm", spec.id.name(), self.minted.wrapping_mul(0x9e37_79b1) & 0xffff_ffff);
        let (vm, nic) = (self.vm_id(&name), self.nic_id(&name));
        self.put_nic(
            &NicSpec {
                id: nic.clone(),
                tags: spec.tags.clone(),
                accelerated: false,
                subnet: spec.subnet.clone(),
                create_only: true,
            },
            now,
        )?;
        let made = self.put_vm(
            &VmSpec {
                id: vm.clone(),
                offering: spec.offering.clone(),
                nic: nic.clone(),
                os_disk: self.disk_id(&name),
                os_disk_gb: spec.os_disk_gb,
                tags: spec.tags.clone(),
                claim: spec.claim.clone(),
                kubelet: spec.kubelet.clone(),
                os_disk_storage: self.machine_os_disk(spec),
                security: spec.security,
                capacity_reservation_group: None,
                create_only: true,
            },
            now,
        );
        if made.is_err() {
            self.remove(&nic, ChangeCause::Cascade, now);
            return made;
        }
        let role = RelatedDetail::AksMachine { vm: Some(vm), state: ProvisioningState::Creating };
        let machine =
            RelatedResource { id: spec.id.clone(), tags: spec.tags.clone(), created_at: Some(now), detail: role };
        self.add_related(machine, now)?;
        made
    }

    fn delete_machine(&mut self, id: &ArmId, now: Timestamp) -> Result<Reply, Refusal> {
        if self.related(id).is_none() {
            return Ok(Reply::Absent);
        }
        if let Some(operation) = self.operations.on(id).filter(|_| self.operations.deletes(id)) {
            return Ok(Reply::Accepted(operation.clone()));
        }
        self.edit_related(id, |one| {
            if let RelatedDetail::AksMachine { state, .. } = &mut one.detail {
                *state = ProvisioningState::Deleting;
            }
        });
        let due = now + self.takes(self.settings.timings.vm_delete, "delete", id.folded());
        let outcome = if self.faults.fails_late(true, now) { Err(Refusal::FailedLate) } else { Ok(()) };
        Ok(Reply::Accepted(self.begin(id, Completion::Delete(outcome), due)))
    }

    /// The VM of a Machine has started, or failed to.
    pub(in crate::cloud) fn finish_machine_creation(&mut self, vm: &ArmId, ok: bool) {
        let Some(id) = self.machine_of(vm) else { return };
        self.edit_related(&id, |one| {
            if let RelatedDetail::AksMachine { state, .. } = &mut one.detail
                && *state == ProvisioningState::Creating
            {
                *state = if ok { ProvisioningState::Succeeded } else { ProvisioningState::Failed };
            }
        });
    }

    /// A Machine that was to be deleted is still there.
    pub(in crate::cloud) fn fail_machine_deletion(&mut self, id: &ArmId) {
        self.edit_related(id, |one| {
            if let RelatedDetail::AksMachine { state, .. } = &mut one.detail {
                *state = ProvisioningState::Failed;
            }
        });
    }

    /// Deletes a Machine, and its VM with all attached resources.
    pub(in crate::cloud) fn remove_machine(&mut self, id: &ArmId, at: Timestamp) {
        let Some(deleted) = self.take_related(id, at) else { return };
        let RelatedDetail::AksMachine { vm: Some(vm), .. } = &deleted.detail else { return };
        if let Some(machine) = self.vm_records.get_mut(vm) {
            // AKS also deletes the NIC of a VM that never started.
            machine.failed = false;
        }
        self.remove(vm, ChangeCause::Cascade, at);
    }
}
