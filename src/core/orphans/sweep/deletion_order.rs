//! The order of deletions: NICs of the fullest subnets first.
//!
//! Untried resources come before tried ones: a resource that Azure never deletes must not delay the others. Then NICs,
//! by the fewest free addresses of their subnet; of subnets where that is unknown, those with the most NICs of the
//! group. Then OS disks, VMs and data disks.

use crate::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind};
use crate::model::names::ArmId;
use crate::orphans::assessment::SweepContext;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The data for the order.
#[derive(Debug)]
pub(in crate::orphans) struct DeletionOrder<'a> {
    /// Free addresses of subnets, where known.
    free_addresses: BTreeMap<&'a ArmId, u64>,
    /// Addresses that NICs of the group hold, by subnet.
    held_addresses: BTreeMap<&'a ArmId, u32>,
    /// When a resource was last tried to be deleted, by id and incarnation.
    last_attempt: BTreeMap<(&'a ArmId, &'a str), Timestamp>,
}

/// The turn of a resource: the least comes first.
pub(in crate::orphans) type DeletionPriority = (Option<Timestamp>, ResourceKind, SubnetPressure);

/// Scarcity of addresses in the subnet of a NIC: the scarcest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::orphans) enum SubnetPressure {
    /// So many addresses are free.
    Free(u64),
    /// Addresses used by NICs of the group; the number of free ones is unknown.
    Held(Reverse<u32>),
}

impl<'a> DeletionOrder<'a> {
    /// The order for an inventory.
    pub(in crate::orphans) fn of(case: &SweepContext<'a>) -> Self {
        let SweepContext { inventory, records, infrastructure, .. } = *case;
        let free = infrastructure
            .subnets
            .iter()
            .flat_map(|fact| &fact.value)
            .map(|subnet| (&subnet.id, subnet.free()))
            .collect();
        let mut held = BTreeMap::new();
        for resource in crate::orphans::references::items(&inventory.resources) {
            if let ResourceDetail::Nic(nic) = &resource.detail
                && let Some(subnet) = &nic.subnet
            {
                let sum: &mut u32 = held.entry(subnet).or_default();
                *sum = sum.saturating_add(nic.addresses);
            }
        }
        let tried = records.deletions.iter().map(|d| ((&d.id, &*d.incarnation), d.at));
        Self { free_addresses: free, held_addresses: held, last_attempt: tried.collect() }
    }

    /// The position of a resource.
    pub(in crate::orphans) fn priority(&self, resource: &CloudResource) -> DeletionPriority {
        let tried = self.last_attempt.get(&(&resource.id, &*resource.incarnation)).copied();
        let subnet = match &resource.detail {
            ResourceDetail::Nic(nic) => nic.subnet.as_ref(),
            ResourceDetail::Vm(_) | ResourceDetail::Disk(_) => None,
        };
        let free = subnet.and_then(|subnet| self.free_addresses.get(subnet)).copied();
        let held = subnet.and_then(|subnet| self.held_addresses.get(subnet)).copied().unwrap_or_default();
        (tried, resource.kind(), free.map_or(SubnetPressure::Held(Reverse(held)), SubnetPressure::Free))
    }
}
