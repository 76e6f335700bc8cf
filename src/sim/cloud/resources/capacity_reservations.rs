//! Groups of capacity reservations and the VMs that use them.
//!
//! As in Azure ("Overallocate capacity reservation", learn.microsoft.com/azure/virtual-vm_records/
//! capacity-reservation-overallocate): a VM that names a group must be of a size and in a zone that the group has
//! reserved. Up to the reserved number have guaranteed capacity, and take no quota beside that of the reservation.
//! Those beyond are ordinary VMs: at the full price, within the quotas, and only while there is capacity.

use crate::cloud::Cloud;
use crate::cloud::refusal::Refusal;
use napkeeper_core::catalog::live::CapacityReservation;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::names::{ArmId, VmSize, Zone};
use std::collections::BTreeMap;

/// Reserved VMs by group, size and zone.
pub(in crate::cloud) type Reserved = BTreeMap<(ArmId, VmSize, Zone), u64>;

impl Cloud {
    /// Another client changes the reserved capacity of a group; without a capacity it is released.
    pub fn reserve_vms(&mut self, group: &ArmId, size: &VmSize, zone: &Zone, capacity: Option<u64>) {
        let key = (group.clone(), size.clone(), zone.clone());
        match capacity {
            Some(capacity) => drop(self.reserved.insert(key, capacity)),
            None => drop(self.reserved.remove(&key)),
        }
    }

    /// True when a group has reserved anything.
    #[must_use]
    pub fn reserves(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// The reserved capacity of groups, and its usage.
    #[must_use]
    pub fn reserved(&self) -> Vec<CapacityReservation> {
        let room = |((group, size, zone), capacity): (&(ArmId, VmSize, Zone), &u64)| CapacityReservation {
            group: group.clone(),
            size: size.clone(),
            zone: zone.clone(),
            capacity: *capacity,
            used: self.on(group, size, zone).count() as u64,
        };
        self.reserved.iter().map(room).collect()
    }

    /// The VMs that name a group and are of a size and in a zone.
    pub(crate) fn on<'c>(&'c self, group: &ArmId, size: &VmSize, zone: &Zone) -> impl Iterator<Item = &'c ArmId> {
        let names = move |id: &ArmId| self.group_of(id) == Some(group);
        let alike = move |resource: &CloudResource| match &resource.detail {
            ResourceDetail::Vm(vm) => {
                vm.size == *size && resource.zone.as_ref().map_or_else(|| zone.is_regional(), |z| z == zone)
            }
            ResourceDetail::Nic(_) | ResourceDetail::Disk(_) => false,
        };
        let vms = self.resources.iter().filter(move |(id, resource)| names(id) && alike(resource));
        vms.map(|(id, _)| id).collect::<Vec<_>>().into_iter()
    }

    /// The group that a VM names.
    pub(crate) fn group_of(&self, vm: &ArmId) -> Option<&ArmId> {
        self.vm_records.get(vm)?.reservation.as_ref()
    }

    /// Whether one more VM would have reserved capacity; refused where the group has none such at all.
    pub(in crate::cloud) fn has_reserved(&self, group: &ArmId, offering: &OfferingKey) -> Result<bool, Refusal> {
        let OfferingKey { size, zone, .. } = offering;
        if !self.reserved.keys().any(|(known, ..)| known == group) {
            return Err(Refusal::NotFound(group.clone()));
        }
        let Some(capacity) = self.reserved.get(&(group.clone(), size.clone(), zone.clone())) else {
            let (group, offering) = (group.clone(), Box::new(offering.clone()));
            return Err(Refusal::Unreserved { group, offering });
        };
        Ok((self.on(group, size, zone).count() as u64) < *capacity)
    }

    /// True if an existing VM has reserved capacity: the first ones do.
    pub(in crate::cloud) fn is_reserved(&self, vm: &ArmId, offering: &OfferingKey) -> bool {
        let OfferingKey { size, zone, .. } = offering;
        let Some(group) = self.group_of(vm) else { return false };
        let capacity = self.reserved.get(&(group.clone(), size.clone(), zone.clone())).copied().unwrap_or(0);
        let age = |id: &ArmId| self.resources.get(id).map(|r| (r.created_at, r.id.clone()));
        let before = self.on(group, size, zone).filter(|other| age(other) < age(vm)).count() as u64;
        before < capacity
    }
}

/// The offering that Azure bills: on demand where nothing is reserved.
pub(in crate::cloud) fn billed_as(offering: &OfferingKey, reserved: bool) -> OfferingKey {
    let capacity_type = match offering.capacity_type {
        CapacityType::Reserved if !reserved => CapacityType::OnDemand,
        other => other,
    };
    OfferingKey { capacity_type, ..offering.clone() }
}
