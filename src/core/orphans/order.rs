//! Order: what is collected first?
//!
//! What has not been tried comes before what has: a resource that Azure never lets go must not keep the others waiting.
//! Then NICs, the subnets first of which the group's NICs hold the most addresses, for these are the shortest of free
//! ones; then OS disks, VMs and data disks.

use crate::cluster::cloud::{CloudResource, Detail, ResourceKind};
use crate::cluster::inventory::Inventory;
use crate::cluster::record::Records;
use crate::names::ArmId;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the order rests on.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// Addresses that NICs of the group hold, by subnet.
    held: BTreeMap<&'a ArmId, u32>,
    /// When a resource was last tried to be deleted, by id and incarnation.
    tried: BTreeMap<(&'a ArmId, &'a str), Timestamp>,
}

/// The turn of a resource: the least comes first.
pub(super) type Turn = (Option<Timestamp>, ResourceKind, Reverse<u32>);

impl<'a> Order<'a> {
    /// The order for an inventory.
    pub(super) fn of(inventory: &'a Inventory, records: &'a Records) -> Self {
        let mut held = BTreeMap::new();
        for resource in super::links::rows(&inventory.cloud) {
            if let Detail::Nic(nic) = &resource.detail
                && let Some(subnet) = &nic.subnet
            {
                let sum: &mut u32 = held.entry(subnet).or_default();
                *sum = sum.saturating_add(nic.addresses);
            }
        }
        let tried = records.deletions.iter().map(|d| ((&d.id, &*d.incarnation), d.at));
        Self { held, tried: tried.collect() }
    }

    /// When it is a resource's turn.
    pub(super) fn turn(&self, resource: &CloudResource) -> Turn {
        let tried = self.tried.get(&(&resource.id, &*resource.incarnation)).copied();
        let held = match &resource.detail {
            Detail::Nic(nic) => nic.subnet.as_ref().and_then(|subnet| self.held.get(subnet)).copied(),
            Detail::Vm(_) | Detail::Disk(_) => None,
        };
        (tried, resource.kind(), Reverse(held.unwrap_or_default()))
    }
}
