//! Changes of the group by others, for scenarios. Each takes effect at once.

use super::refusal::Refusal;
use super::{ChangeCause, Cloud, CloudEvent, ScheduledEvent, VmRecord};
use jiff::Timestamp;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::{
    CloudResource, Disk, DiskState, PowerState, ProvisioningState, ResourceDetail, Tags, Vm,
};
use napkeeper_core::model::names::{ArmId, Zone};
use std::sync::Arc;

/// A disk created from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskDraft {
    /// Name.
    pub name: Arc<str>,
    /// Tags.
    pub tags: Tags,
    /// Size in GiB.
    pub size_gib: u32,
    /// Storage type.
    pub sku: Arc<str>,
    /// It has an operating system.
    pub is_os: bool,
    /// Zone; `None` is regional.
    pub zone: Option<Zone>,
}

impl Cloud {
    /// The id of a VM of this group.
    #[must_use]
    pub fn vm_id(&self, name: &str) -> ArmId {
        self.id_of("Microsoft.Compute/virtualMachines", name)
    }

    /// The id of a NIC of this group.
    #[must_use]
    pub fn nic_id(&self, name: &str) -> ArmId {
        self.id_of("Microsoft.Network/networkInterfaces", name)
    }

    /// The id of a disk of this group.
    #[must_use]
    pub fn disk_id(&self, name: &str) -> ArmId {
        self.id_of("Microsoft.Compute/disks", name)
    }

    pub(super) fn id_of(&self, kind: &str, name: &str) -> ArmId {
        let group = &self.settings.group;
        // The group's id begins as every id must, so its children's do too.
        ArmId::new(format!("{group}/providers/{kind}/{name}")).unwrap_or_else(|_| group.clone())
    }

    /// Creates a NIC that nothing uses.
    ///
    /// # Errors
    /// [`Refusal`] when the name is taken.
    pub fn leak_nic(&mut self, name: &str, tags: Tags, now: Timestamp) -> Result<ArmId, Refusal> {
        self.advance(now);
        let id = self.check_name_free(self.nic_id(name))?;
        let nic = self.new_nic(id.clone(), tags, self.settings.subnet.clone(), now);
        self.create(nic, ChangeCause::Outside, now);
        Ok(id)
    }

    /// Another client creates an unattached disk.
    ///
    /// # Errors
    /// [`Refusal`] when the name is taken.
    pub fn add_disk(&mut self, draft: DiskDraft, now: Timestamp) -> Result<ArmId, Refusal> {
        self.advance(now);
        let id = self.check_name_free(self.disk_id(&draft.name))?;
        let disk = CloudResource {
            id: id.clone(),
            incarnation: self.new_id(),
            tags: draft.tags,
            created_at: Some(now),
            zone: draft.zone,
            detail: ResourceDetail::Disk(Disk {
                is_os: draft.is_os,
                size_gib: draft.size_gib,
                sku: draft.sku,
                state: DiskState::Unattached,
                managed_by: Vec::new(),
                max_shares: 1,
                last_ownership_update: None,
            }),
        };
        self.create(disk, ChangeCause::Outside, now);
        Ok(id)
    }

    /// Another client creates a VM, running at once, with NIC and OS disk of the same name and tags. It is not a node.
    ///
    /// # Errors
    /// [`Refusal`] when one of the three names is taken.
    pub fn add_vm(&mut self, name: &str, tags: Tags, offering: &OfferingKey, now: Timestamp) -> Result<ArmId, Refusal> {
        self.advance(now);
        let id = self.check_name_free(self.vm_id(name))?;
        self.check_name_free(self.disk_id(name))?;
        let nic = self.leak_nic(name, tags.clone(), now)?;
        let zone = Some(offering.zone.clone()).filter(|zone| !zone.is_regional());
        let disk = self.add_disk(
            DiskDraft {
                name: Arc::from(name),
                tags: tags.clone(),
                size_gib: 128,
                sku: Arc::from("Premium_LRS"),
                is_os: true,
                zone: zone.clone(),
            },
            now,
        )?;
        let vm = CloudResource {
            id: id.clone(),
            incarnation: self.new_id(),
            tags,
            created_at: Some(now),
            zone,
            detail: ResourceDetail::Vm(Vm {
                size: offering.size.clone(),
                capacity_type: offering.capacity_type,
                state: ProvisioningState::Succeeded,
                nics: vec![nic.clone()],
                os_disk: Some(disk.clone()),
                data_disks: Vec::new(),
                image: None,
            }),
        };
        self.create(vm, ChangeCause::Outside, now);
        self.vm_records.insert(id.clone(), VmRecord::default());
        self.attach_nic(&nic, &id);
        self.mark_attached(&disk, &id, now);
        self.announce(&id, now);
        Ok(id)
    }

    /// Attaches a data disk to a VM, as the CSI driver does.
    ///
    /// # Errors
    /// [`Refusal`] if either does not exist or is being deleted, or the disk is attached elsewhere.
    pub fn attach_disk(&mut self, disk: &ArmId, vm: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        if !matches!(self.find_idle(vm)?.detail, ResourceDetail::Vm(_)) {
            return Err(Refusal::Invalid(format!("{vm} is not a VM").into()));
        }
        self.check_unused(&*self.find_idle(disk)?)?;
        self.mark_attached(disk, vm, now);
        self.edit(vm, |detail| {
            if let ResourceDetail::Vm(vm) = detail {
                vm.data_disks.push(disk.clone());
            }
        });
        Ok(())
    }

    /// Detaches a data disk from a VM, as the CSI driver does; nothing happens if it is not attached there.
    pub fn detach_disk(&mut self, disk: &ArmId, vm: &ArmId, now: Timestamp) {
        self.advance(now);
        let mut attached = false;
        self.edit(vm, |detail| {
            if let ResourceDetail::Vm(vm) = detail {
                attached = vm.data_disks.contains(disk);
                vm.data_disks.retain(|held| held != disk);
            }
        });
        if attached {
            self.release_disk(disk, vm, now);
        }
    }

    /// Azure gives notice to a running spot VM; it is deleted when the notice is over.
    ///
    /// # Errors
    /// [`Refusal`] if the VM does not exist, or is not a running spot VM.
    pub fn evict_spot(&mut self, vm: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        let resource = self.find_idle(vm)?;
        match &resource.detail {
            ResourceDetail::Vm(Vm {
                capacity_type: CapacityType::Spot, state: ProvisioningState::Succeeded, ..
            }) => {}
            _ => {
                return Err(Refusal::Invalid(format!("{vm} is not a running spot VM").into()));
            }
        }
        let due = ScheduledEvent::Eviction(vm.clone(), Arc::clone(&resource.incarnation));
        let at = now + self.settings.timings.eviction_notice;
        self.agenda.insert((at, due));
        Ok(())
    }

    /// Another client shuts a running VM down. A stopped one is still allocated and paid for; a deallocated one is not.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist, is being deleted, or is not a running VM.
    pub fn shut_down_vm(&mut self, vm: &ArmId, deallocate: bool, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        let incarnation = Arc::clone(&self.find_idle(vm)?.incarnation);
        if self.power_state(vm) != Some(PowerState::Running) {
            return Err(Refusal::Invalid(format!("{vm} is not a running VM").into()));
        }
        let state = if deallocate { PowerState::Deallocated } else { PowerState::Stopped };
        self.shut_down.insert(vm.clone(), state);
        self.events.push(CloudEvent::VmStopped { at: now, vm: vm.clone(), incarnation, deallocated: deallocate });
        Ok(())
    }

    /// An update of a VM by another client fails: its provisioning state is failed, and it runs on.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist, or is being deleted.
    pub fn fail_vm(&mut self, vm: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.find_idle(vm)?;
        self.edit(vm, |detail| {
            if let ResourceDetail::Vm(vm) = detail {
                vm.state = ProvisioningState::Failed;
            }
        });
        Ok(())
    }

    /// Another client gives a VM another OS disk. The former one is kept, and no longer attached.
    ///
    /// # Errors
    /// [`Refusal`] if either does not exist or is being deleted, or the disk is attached.
    pub fn swap_os_disk(&mut self, vm: &ArmId, disk: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.check_unused(&*self.find_idle(disk)?)?;
        let found = self.find_idle(vm)?;
        let ResourceDetail::Vm(Vm { os_disk: Some(former), state: ProvisioningState::Succeeded, .. }) = &found.detail
        else {
            return Err(Refusal::Invalid(format!("{vm} is not a running VM").into()));
        };
        self.release_disk(former, vm, now);
        self.mark_attached(disk, vm, now);
        self.edit(vm, |detail| {
            if let ResourceDetail::Vm(vm) = detail {
                vm.os_disk = Some(disk.clone());
            }
        });
        Ok(())
    }

    /// A VM of another group attaches a disk, or detaches it.
    ///
    /// # Errors
    /// [`Refusal`] if the disk does not exist, is being deleted, or is attached to a VM of this group.
    pub fn use_elsewhere(&mut self, disk: &ArmId, on: bool, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        let elsewhere = ArmId::new(format!(
            "{}-of-another-cluster/providers/Microsoft.Compute/virtualMachines/node",
            self.settings.group
        ));
        let Ok(vm) = elsewhere else { return Ok(()) };
        if on {
            self.check_unused(&*self.find_idle(disk)?)?;
            self.mark_attached(disk, &vm, now);
        } else {
            self.release_disk(disk, &vm, now);
        }
        Ok(())
    }

    /// Another client deletes a resource.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist, or is attached.
    pub fn delete_outside(&mut self, id: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        let resource = self.resources.get(id).cloned().ok_or_else(|| Refusal::NotFound(id.clone()))?;
        self.check_unused(&resource)?;
        self.remove(id, ChangeCause::Outside, now);
        Ok(())
    }

    /// Another client replaces all tags of a resource.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist, or is being deleted.
    pub fn retag(&mut self, id: &ArmId, tags: Tags, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.find_idle(id)?;
        self.set_tags(id, tags, ChangeCause::Outside, now);
        Ok(())
    }

    /// A private endpoint, link service or hosted workload takes a NIC, or leaves it.
    ///
    /// # Errors
    /// [`Refusal`] when the NIC is not there, or is being deleted.
    pub fn set_serves(&mut self, nic: &ArmId, serves: Option<Arc<str>>, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.find_idle(nic)?;
        self.edit(nic, |detail| {
            if let ResourceDetail::Nic(nic) = detail {
                nic.serves = serves;
            }
        });
        Ok(())
    }

    /// Another client copies a disk: its state is `ActiveSAS` from now on.
    ///
    /// # Errors
    /// [`Refusal`] if the disk does not exist, or is being deleted.
    pub fn set_copied(&mut self, disk: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.find_idle(disk)?;
        self.edit(disk, |detail| {
            if let ResourceDetail::Disk(disk) = detail {
                disk.state = DiskState::Other(Arc::from("ActiveSAS"));
            }
        });
        Ok(())
    }

    /// Another client changes `managedBy` of the group to another cluster, or to none.
    pub fn set_group_managed_by(&mut self, cluster: Option<ArmId>) {
        self.managed_by = cluster;
    }

    fn check_name_free(&self, id: ArmId) -> Result<ArmId, Refusal> {
        if self.resources.contains_key(&id) {
            return Err(Refusal::Taken(id));
        }
        Ok(id)
    }

    fn find_idle(&self, id: &ArmId) -> Result<Arc<CloudResource>, Refusal> {
        self.check_idle(id)?;
        let found = self.resources.get(id).cloned();
        found.ok_or_else(|| Refusal::NotFound(id.clone()))
    }

    fn mark_attached(&mut self, disk: &ArmId, vm: &ArmId, now: Timestamp) {
        self.edit(disk, |detail| {
            if let ResourceDetail::Disk(disk) = detail {
                disk.managed_by.push(vm.clone());
                disk.state = DiskState::Attached;
                disk.last_ownership_update = Some(now);
            }
        });
    }
}
