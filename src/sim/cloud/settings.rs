//! The group, what its region sells, and how long operations take.

use crate::random::Delay;
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey, RegionCatalog, SizeFacts};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::{ArmId, Region, VmSize, Zone};
use napkeeper_core::model::settings::ClusterIdentity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Settings that do not change while the world runs.
#[derive(Debug, Clone)]
pub struct CloudSettings {
    /// The node resource group: `/subscriptions/…/resourceGroups/MC_…`.
    pub group: ArmId,
    /// `managedBy` of the group: the cluster.
    pub managed_by: Option<ArmId>,
    /// The region.
    pub region: Region,
    /// The subnet of NICs for which no other is named.
    pub subnet: ArmId,
    /// Seed of all durations and ids.
    pub seed: u64,
    /// Every VM size that exists.
    pub sizes: BTreeMap<VmSize, Arc<SizeFacts>>,
    /// What offerings cost.
    pub prices: BTreeMap<OfferingKey, HourlyPrice>,
    /// How long things take.
    pub timings: Timings,
}

/// How long operations take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timings {
    /// Creating a VM.
    pub vm_create: Delay,
    /// Deleting a VM.
    pub vm_delete: Delay,
    /// Deleting a NIC or a disk.
    pub child_delete: Delay,
    /// How long a NIC is reserved for a VM whose creation failed.
    pub nic_reservation: SignedDuration,
    /// From the notice of a spot eviction to the end of the VM.
    pub eviction_notice: SignedDuration,
}

impl Default for Timings {
    /// The reservation is the 180 s of Azure's error message `NicReservedForAnotherVm`; the notice is the 30 s of
    /// Azure's scheduled event `Preempt`; the rest is what VMs of Linux images commonly take.
    fn default() -> Self {
        let secs = SignedDuration::from_secs;
        Self {
            vm_create: Delay::secs(30, 90),
            vm_delete: Delay::secs(20, 60),
            child_delete: Delay::secs(1, 5),
            nic_reservation: secs(180),
            eviction_notice: secs(30),
        }
    }
}

impl CloudSettings {
    /// The group of a cluster, with all that its region offers at known prices, and Azure's usual timings.
    #[must_use]
    pub fn of_region(cluster: &ClusterIdentity, region: &RegionCatalog, seed: u64) -> Self {
        let group = &cluster.node_resource_group;
        // As in clusters whose network AKS creates. It begins as every id must, since the group's id does.
        let subnet = format!("{group}/providers/Microsoft.Network/virtualNetworks/aks-vnet/subnets/aks-subnet");
        Self {
            subnet: ArmId::new(subnet).unwrap_or_else(|_| group.clone()),
            group: group.clone(),
            managed_by: Some(cluster.id.clone()),
            region: cluster.region.clone(),
            seed,
            sizes: region.sizes.iter().map(|s| (s.facts.name.clone(), Arc::clone(&s.facts))).collect(),
            prices: prices(region),
            timings: Timings::default(),
        }
    }
}

impl Timings {
    /// The same, but everything takes one part in `times` of its time; a `times` of 0 changes nothing.
    #[must_use]
    pub fn faster(&self, times: u32) -> Self {
        let times = i32::try_from(times).unwrap_or(i32::MAX).max(1);
        let both = |delay: Delay| Delay { least: delay.least / times, most: delay.most / times };
        Self {
            vm_create: both(self.vm_create),
            vm_delete: both(self.vm_delete),
            child_delete: both(self.child_delete),
            nic_reservation: self.nic_reservation / times,
            eviction_notice: self.eviction_notice / times,
        }
    }
}

fn prices(region: &RegionCatalog) -> BTreeMap<OfferingKey, HourlyPrice> {
    let mut prices = BTreeMap::new();
    for size in &region.sizes {
        let zones = if size.zones.is_empty() { vec![Zone::regional()] } else { size.zones.clone() };
        for zone in zones {
            for (capacity_type, price) in [(CapacityType::OnDemand, size.on_demand), (CapacityType::Spot, size.spot)] {
                if let Some(price) = price {
                    prices.insert(
                        OfferingKey { size: size.facts.name.clone(), zone: zone.clone(), capacity_type },
                        price,
                    );
                }
            }
        }
    }
    prices
}
