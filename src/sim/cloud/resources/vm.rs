//! Creates and deletes VMs, with their NICs and disks.

use super::capacity_reservations::billed_as;
use crate::cloud::operations::Completion;
use crate::cloud::refusal::Refusal;
use crate::cloud::{ChangeCause, Cloud, CloudEvent, EphemeralOsDisk, NicReservation, VmRecord};
use jiff::Timestamp;
use napkeeper_core::catalog::{OfferingKey, OsDiskStorage, SizeFacts, managed_disk_price};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::{
    CloudResource, Disk, DiskState, PowerState, ProvisioningState, ResourceDetail, Vm,
};
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::{ArmId, Zone};
use napkeeper_core::plan::{Reply, VmSpec};
use std::sync::Arc;

impl Cloud {
    pub(in crate::cloud) fn put_vm(&mut self, spec: &VmSpec, now: Timestamp) -> Result<Reply, Refusal> {
        self.check_in_group(&spec.id)?;
        if let Some(present) = self.resources.get(&spec.id).cloned() {
            if spec.create_only {
                return Err(Refusal::Precondition { condition: "If-None-Match", resource: spec.id.clone() });
            }
            return self.put_vm_again(&present, spec, now);
        }
        let facts = self.check_vm(spec, now)?;
        if let Err(refusal) = self.check_for_sale(spec, &facts, now) {
            self.reserve(&spec.nic, &spec.id, now);
            return Err(refusal);
        }
        self.reservations.remove(&spec.nic);
        if let Some(disk) = self.new_os_disk(spec, now) {
            self.create(disk, ChangeCause::Cascade, now);
        }
        let vm = self.new_vm(spec, now);
        self.create(vm, ChangeCause::Request, now);
        let (claim, kubelet) = (Some(spec.claim.clone()), spec.kubelet.clone());
        let machine = VmRecord {
            claim,
            kubelet,
            failed: false,
            reservation: spec.capacity_reservation_group.clone(),
            ephemeral_os_disk: ephemeral_os_disk(spec),
        };
        self.vm_records.insert(spec.id.clone(), machine);
        self.attach_nic(&spec.nic, &spec.id);
        Ok(Reply::Accepted(self.begin_creation(&spec.id, &spec.offering, now)))
    }

    /// The power state of a VM; none if there is no VM of this id.
    #[must_use]
    pub fn power_state(&self, id: &ArmId) -> Option<PowerState> {
        let ResourceDetail::Vm(vm) = &self.resources.get(id)?.detail else { return None };
        let running = if vm.state == ProvisioningState::Creating { PowerState::Starting } else { PowerState::Running };
        Some(self.shut_down.get(id).copied().unwrap_or(running))
    }

    pub(in crate::cloud) fn attach_nic(&mut self, nic: &ArmId, vm: &ArmId) {
        self.edit(nic, |detail| {
            if let ResourceDetail::Nic(nic) = detail {
                nic.vm = Some(vm.clone());
            }
        });
    }

    /// A PUT of an existing VM: an equal one is adopted, a failed one is retried, anything else is rejected.
    fn put_vm_again(&mut self, present: &CloudResource, spec: &VmSpec, now: Timestamp) -> Result<Reply, Refusal> {
        self.check_idle(&spec.id)?;
        let ResourceDetail::Vm(vm) = &present.detail else {
            return Err(Refusal::Taken(spec.id.clone()));
        };
        let unlike = [
            ("hardwareProfile.vmSize", vm.size != spec.offering.size),
            ("zones", present.zone != zone_of(&spec.offering)),
            ("priority", vm.capacity_type != spec.offering.capacity_type),
            ("networkProfile", vm.nics != [spec.nic.clone()]),
            ("storageProfile.osDisk", self.os_disk_of(&present.id, vm) != Some(&spec.os_disk)),
        ];
        if let Some((property, _)) = unlike.into_iter().find(|(_, differs)| *differs) {
            let vm = spec.id.clone();
            return Err(Refusal::PropertyChange { property, vm });
        }
        if let Some(operation) = self.operations.on(&spec.id).cloned() {
            return Ok(Reply::Accepted(operation));
        }
        if vm.state == ProvisioningState::Failed {
            if self.faults.refuses(&spec.offering, now) {
                return Err(self.sku_not_available(&spec.offering));
            }
            return Ok(Reply::Accepted(self.begin_creation(&spec.id, &spec.offering, now)));
        }
        self.set_tags(&spec.id, spec.tags.clone(), ChangeCause::Request, now);
        Ok(Reply::Done)
    }

    /// Rejects an invalid VM.
    fn check_vm(&self, spec: &VmSpec, now: Timestamp) -> Result<Arc<SizeFacts>, Refusal> {
        let invalid = |message: String| Err(Refusal::Invalid(message.into()));
        let OfferingKey { size, zone, .. } = &spec.offering;
        let Some(facts) = self.settings.sizes.get(size) else {
            return invalid(format!("The value {size} provided for the VM size is not valid."));
        };
        check_os_disk(spec, facts)?;
        if spec.security.is_trusted_launch() && !facts.hyperv_v2 {
            return invalid(format!("The VM size '{size}' does not support Trusted Launch."));
        }
        let region = &self.settings.region;
        if !zone.is_regional() && !(1..=3).any(|n| *zone == Zone::of(region, n)) {
            return invalid(format!("The zone '{zone}' is not supported in location '{region}'."));
        }
        match self.resources.get(&spec.nic).map(|nic| &nic.detail) {
            Some(ResourceDetail::Nic(nic)) => {
                if let Some(vm) = nic.vm.clone() {
                    let nic = spec.nic.clone();
                    return Err(Refusal::NicInUse { nic, vm });
                }
            }
            _ => {
                return invalid(format!("Resource {} referenced by the VM was not found.", spec.nic));
            }
        }
        self.check_idle(&spec.nic)?;
        self.check_unreserved(&spec.nic, Some(&spec.id), now)?;
        if self.resources.contains_key(&spec.os_disk) {
            return Err(Refusal::Taken(spec.os_disk.clone()));
        }
        Ok(Arc::clone(facts))
    }

    /// Refuses what Azure does not sell to this subscription now.
    fn check_for_sale(&mut self, spec: &VmSpec, facts: &SizeFacts, now: Timestamp) -> Result<(), Refusal> {
        let reserved = spec
            .capacity_reservation_group
            .as_ref()
            .map(|group| self.has_reserved(group, &spec.offering))
            .transpose()?;
        if reserved == Some(true) {
            return Ok(());
        }
        let offering = &billed_as(&spec.offering, false);
        if self.faults.refuses(offering, now) {
            return Err(self.sku_not_available(offering));
        }
        let usage = self.usage();
        let region = &self.settings.region;
        self.limits.check_cores(&usage, facts, offering.capacity_type, region)
    }

    fn sku_not_available(&self, offering: &OfferingKey) -> Refusal {
        Refusal::SkuNotAvailable { size: offering.size.clone(), region: self.settings.region.clone() }
    }

    fn reserve(&mut self, nic: &ArmId, vm: &ArmId, now: Timestamp) {
        let reservation = NicReservation { vm: vm.clone(), until: now + self.settings.timings.nic_reservation };
        self.reservations.insert(nic.clone(), reservation);
    }

    fn begin_creation(&mut self, id: &ArmId, offering: &OfferingKey, now: Timestamp) -> OperationId {
        let reserved = self.is_reserved(id, offering);
        let lacks_capacity = !reserved && self.faults.lacks_capacity(&billed_as(offering, false), now);
        let outcome = match (lacks_capacity, offering.zone.is_regional()) {
            (false, _) if self.faults.fails_late(false, now) => Err(Refusal::FailedLate),
            (false, _) => Ok(()),
            (true, true) => Err(Refusal::Allocation),
            (true, false) => Err(Refusal::ZonalAllocation),
        };
        self.set_state(id, ProvisioningState::Creating);
        let span = self.settings.timings.vm_create;
        let due = now + self.takes(span, "create", &self.incarnation(id));
        self.begin(id, Completion::Create(outcome), due)
    }

    pub(in crate::cloud) fn end_creation(&mut self, id: &ArmId, outcome: &Result<(), Refusal>, at: Timestamp) {
        if let Some(machine) = self.vm_records.get_mut(id) {
            machine.failed = outcome.is_err();
        }
        self.finish_machine_creation(id, outcome.is_ok());
        if outcome.is_err() {
            return self.set_state(id, ProvisioningState::Failed);
        }
        self.set_state(id, ProvisioningState::Succeeded);
        self.announce(id, at);
    }

    /// Emits the event that a VM runs.
    pub(in crate::cloud) fn announce(&mut self, id: &ArmId, at: Timestamp) {
        let Some(resource) = self.resources.get(id) else {
            return;
        };
        let ResourceDetail::Vm(vm) = &resource.detail else {
            return;
        };
        let offering = OfferingKey {
            size: vm.size.clone(),
            zone: resource.zone.clone().unwrap_or_else(Zone::regional),
            capacity_type: vm.capacity_type,
        };
        let reserved = self.is_reserved(id, &offering);
        let machine = self.vm_records.get(id);
        let event = CloudEvent::VmRunning {
            at,
            vm: id.clone(),
            incarnation: Arc::clone(&resource.incarnation),
            claim: machine.and_then(|m| m.claim.clone()),
            kubelet: machine.map(|m| m.kubelet.clone()).unwrap_or_default(),
            price: self.settings.prices.get(&billed_as(&offering, reserved)).copied().unwrap_or_default(),
            os_disk: self.os_disk_price(vm),
            offering,
        };
        self.events.push(event);
    }

    /// The price of the OS disk of a VM.
    fn os_disk_price(&self, vm: &Vm) -> HourlyPrice {
        let disk = vm.os_disk.as_ref().and_then(|id| self.resources.get(id));
        match disk.map(|disk| &disk.detail) {
            Some(ResourceDetail::Disk(disk)) => managed_disk_price(&disk.sku, disk.size_gib),
            _ => HourlyPrice::ZERO,
        }
    }

    pub(in crate::cloud) fn begin_delete(&mut self, resource: &CloudResource, now: Timestamp) -> OperationId {
        let timings = &self.settings.timings;
        let span = match &resource.detail {
            ResourceDetail::Vm(_) => timings.vm_delete,
            ResourceDetail::Nic(_) | ResourceDetail::Disk(_) => timings.child_delete,
        };
        let due = now + self.takes(span, "delete", &resource.incarnation);
        self.set_state(&resource.id, ProvisioningState::Deleting);
        let outcome = if self.faults.fails_late(true, now) { Err(Refusal::FailedLate) } else { Ok(()) };
        self.begin(&resource.id, Completion::Delete(outcome), due)
    }

    /// The deletion failed: the resource still exists.
    pub(in crate::cloud) fn fail_deletion(&mut self, id: &ArmId) {
        self.set_state(id, ProvisioningState::Failed);
        self.fail_machine_deletion(id);
    }

    /// Deletes or detaches the NICs and disks of a deleted VM. `deleteOption: Delete` deletes NIC and OS disk, but
    /// Azure reserves the NIC of a VM that never started for a second try.
    pub(in crate::cloud) fn remove_children(&mut self, id: &ArmId, vm: &Vm, at: Timestamp) {
        let failed = self.vm_records.remove(id).is_some_and(|m| m.failed);
        for nic in &vm.nics {
            self.edit(nic, |detail| {
                if let ResourceDetail::Nic(nic) = detail {
                    nic.vm = None;
                }
            });
            if failed {
                self.reserve(nic, id, at);
            } else if !self.faults.keep_children {
                self.remove(nic, ChangeCause::Cascade, at);
            }
        }
        for disk in vm.os_disk.iter().chain(&vm.data_disks) {
            self.release_disk(disk, id, at);
        }
        if let Some(disk) = vm.os_disk.as_ref().filter(|_| !self.faults.keep_children) {
            self.remove(disk, ChangeCause::Cascade, at);
        }
    }

    pub(in crate::cloud) fn release_disk(&mut self, disk: &ArmId, vm: &ArmId, at: Timestamp) {
        self.edit(disk, |detail| {
            if let ResourceDetail::Disk(disk) = detail {
                disk.managed_by.retain(|holder| holder != vm);
                disk.state = if disk.managed_by.is_empty() { DiskState::Unattached } else { DiskState::Attached };
                disk.last_ownership_update = Some(at);
            }
        });
    }

    fn set_state(&mut self, id: &ArmId, state: ProvisioningState) {
        self.edit(id, |detail| {
            if let ResourceDetail::Vm(vm) = detail {
                vm.state = state;
            }
        });
    }

    fn incarnation(&self, id: &ArmId) -> Arc<str> {
        self.resources.get(id).map_or_else(|| Arc::from(""), |r| Arc::clone(&r.incarnation))
    }

    fn new_vm(&mut self, spec: &VmSpec, now: Timestamp) -> CloudResource {
        CloudResource {
            id: spec.id.clone(),
            incarnation: self.new_id(),
            tags: spec.tags.clone(),
            created_at: Some(now),
            zone: zone_of(&spec.offering),
            detail: ResourceDetail::Vm(Vm {
                size: spec.offering.size.clone(),
                capacity_type: spec.offering.capacity_type,
                state: ProvisioningState::Creating,
                nics: vec![spec.nic.clone()],
                os_disk: ephemeral_os_disk(spec).is_none().then(|| spec.os_disk.clone()),
                data_disks: Vec::new(),
                image: None,
            }),
        }
    }

    /// The id of the OS disk of a VM, which is that of no resource where it is ephemeral.
    fn os_disk_of<'a>(&'a self, id: &ArmId, vm: &'a Vm) -> Option<&'a ArmId> {
        vm.os_disk.as_ref().or_else(|| self.ephemeral_os_disk(id).map(|disk| &disk.id))
    }

    /// The OS disk of a VM, where it is ephemeral.
    pub(crate) fn ephemeral_os_disk(&self, vm: &ArmId) -> Option<&EphemeralOsDisk> {
        self.vm_records.get(vm)?.ephemeral_os_disk.as_ref()
    }

    /// The size of the OS disk of a VM, in GiB; `None` without one.
    #[must_use]
    pub fn os_disk_gib(&self, vm: &ArmId) -> Option<u32> {
        if let Some(disk) = self.ephemeral_os_disk(vm) {
            return Some(disk.gib);
        }
        let ResourceDetail::Vm(vm) = &self.resources.get(vm)?.detail else { return None };
        let disk = self.resources.get(vm.os_disk.as_ref()?)?;
        let ResourceDetail::Disk(disk) = &disk.detail else { return None };
        Some(disk.size_gib)
    }

    /// The disk of a VM to be created; `None` where it is ephemeral, and no resource.
    fn new_os_disk(&mut self, spec: &VmSpec, now: Timestamp) -> Option<CloudResource> {
        let account_type = spec.os_disk_storage.account_type()?;
        Some(CloudResource {
            id: spec.os_disk.clone(),
            incarnation: self.new_id(),
            tags: spec.tags.clone(),
            created_at: Some(now),
            zone: zone_of(&spec.offering),
            detail: ResourceDetail::Disk(Disk {
                is_os: true,
                size_gib: spec.os_disk_gb,
                sku: Arc::from(account_type),
                state: DiskState::Attached,
                managed_by: vec![spec.id.clone()],
                max_shares: 1,
                last_ownership_update: Some(now),
            }),
        })
    }
}

/// Rejects an OS disk that the size does not take.
fn check_os_disk(spec: &VmSpec, facts: &SizeFacts) -> Result<(), Refusal> {
    let size = facts.name.clone();
    match spec.os_disk_storage {
        OsDiskStorage::Ephemeral(placement) if OsDiskStorage::of(facts, spec.os_disk_gb) != spec.os_disk_storage => {
            let local = facts.ephemeral.filter(|disk| disk.placement == placement);
            let most = local.map_or(0, |disk| disk.gb);
            Err(Refusal::LocalDiskUnfit { size, placement: placement.as_str(), most })
        }
        OsDiskStorage::Premium if !facts.premium_io => {
            Err(Refusal::DiskUnfit { size, disk: Arc::from(spec.os_disk.name()) })
        }
        _ => Ok(()),
    }
}

fn ephemeral_os_disk(spec: &VmSpec) -> Option<EphemeralOsDisk> {
    match spec.os_disk_storage {
        OsDiskStorage::Ephemeral(placement) => {
            Some(EphemeralOsDisk { id: spec.os_disk.clone(), gib: spec.os_disk_gb, placement })
        }
        OsDiskStorage::Premium | OsDiskStorage::StandardSsd => None,
    }
}

fn zone_of(offering: &OfferingKey) -> Option<Zone> {
    (!offering.zone.is_regional()).then(|| offering.zone.clone())
}
