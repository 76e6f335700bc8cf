//! Order: what is collected first?
//!
//! What has not been tried comes before what has: a resource that Azure never lets go must not keep the others waiting.
//! Then NICs, those first whose subnet has the fewest free addresses; of subnets of which that is not known, those of
//! which the group's NICs hold the most. Then OS disks, VMs and data disks.

use super::verdict::Case;
use crate::model::azure::cloud::{CloudResource, Detail, ResourceKind};
use crate::model::names::ArmId;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the order rests on.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// Free addresses of the subnets of which they are known.
    free: BTreeMap<&'a ArmId, u64>,
    /// Addresses that NICs of the group hold, by subnet.
    held: BTreeMap<&'a ArmId, u32>,
    /// When a resource was last tried to be deleted, by id and incarnation.
    tried: BTreeMap<(&'a ArmId, &'a str), Timestamp>,
}

/// The turn of a resource: the least comes first.
pub(super) type Turn = (Option<Timestamp>, ResourceKind, Room);

/// How little room there is in the subnet of a NIC: the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    /// So many addresses are free.
    Free(u64),
    /// NICs of the group hold so many, and how many are free is not known.
    Held(Reverse<u32>),
}

impl<'a> Order<'a> {
    /// The order for an inventory.
    pub(super) fn of(case: &Case<'a>) -> Self {
        let Case { inventory, records, surroundings, .. } = *case;
        let free =
            surroundings.subnets.iter().flat_map(|fact| &fact.value).map(|room| (&room.id, room.free())).collect();
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
        Self { free, held, tried: tried.collect() }
    }

    /// When it is a resource's turn.
    pub(super) fn turn(&self, resource: &CloudResource) -> Turn {
        let tried = self.tried.get(&(&resource.id, &*resource.incarnation)).copied();
        let subnet = match &resource.detail {
            Detail::Nic(nic) => nic.subnet.as_ref(),
            Detail::Vm(_) | Detail::Disk(_) => None,
        };
        let free = subnet.and_then(|subnet| self.free.get(subnet)).copied();
        let held = subnet.and_then(|subnet| self.held.get(subnet)).copied().unwrap_or_default();
        (tried, resource.kind(), free.map_or(Room::Held(Reverse(held)), Room::Free))
    }
}
