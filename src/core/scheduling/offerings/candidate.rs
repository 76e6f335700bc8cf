//! Candidates for new nodes, and what they are compared by.

use crate::catalog::{CapacityType, InstanceType};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use std::sync::Arc;

/// A VM size at a capacity type, in all zones where the pool may launch it; reserved capacity in its one zone.
#[derive(Debug)]
pub(crate) struct InstanceCandidate {
    pub(crate) instance: Arc<InstanceType>,
    pub(crate) capacity_type: CapacityType,
    /// The index of its reservation in the [`ReservationHeadroom`](super::headroom::ReservationHeadroom).
    pub(crate) reservation: Option<usize>,
    /// Bits of the zones, by their index in [`PoolOfferings::zones`](super::available::PoolOfferings::zones).
    pub(crate) zones: u32,
    /// The lowest price over the zones, of VM and OS disk.
    pub(crate) price: HourlyPrice,
    /// Allocatable capacity, less DaemonSet overhead.
    pub(crate) pod_capacity: Resources,
}

impl InstanceCandidate {
    /// What candidates are compared by, in nano-USD per hour: the price, and what each node counts beside it. It adds
    /// nothing to reserved capacity, which is used first.
    pub(crate) fn cost(&self) -> i64 {
        match self.capacity_type {
            CapacityType::Reserved => self.price.nanos(),
            CapacityType::Spot | CapacityType::OnDemand => (self.price + self.instance.costs.per_node).nanos(),
        }
    }

    /// True when pods with these requests and data disks fit together.
    pub(crate) fn holds(&self, requests: &Resources, disks: u32) -> bool {
        requests.fits(&self.pod_capacity) && disks <= self.instance.facts.max_data_disks
    }
}
