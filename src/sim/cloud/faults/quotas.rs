//! Quotas of cores, addresses of the subnet, and how much of them is used.

use crate::cloud::refusal::{Quota, Refusal};
use napkeeper_core::catalog::{CapacityType, SizeFacts};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::names::{Region, VmSize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limits of the subscription and the subnet. `None`, or a family that is not listed: no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Cores of a VM family at the full price, by the family's name in [`SizeFacts`].
    pub families: BTreeMap<Arc<str>, u32>,
    /// Cores at the full price in the region.
    pub regional: Option<u32>,
    /// Cores of spot VMs in the region. Azure counts them apart from the other two.
    pub spot: Option<u32>,
    /// Addresses of the subnet that NICs may take.
    pub subnet: Option<u32>,
}

/// Cores and addresses taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Cores at the full price, by family.
    pub families: BTreeMap<Arc<str>, u32>,
    /// Cores at the full price.
    pub regional: u32,
    /// Cores of spot VMs.
    pub spot: u32,
    /// Addresses of the subnet.
    pub addresses: u32,
}

impl Usage {
    /// Counts every VM, whatever its state (Azure holds the quota of a failed one too), and every NIC.
    pub(in crate::cloud) fn of<'a>(
        resources: impl Iterator<Item = &'a Arc<CloudResource>>,
        sizes: &BTreeMap<VmSize, Arc<SizeFacts>>,
    ) -> Self {
        let mut usage = Self::default();
        for resource in resources {
            match &resource.detail {
                ResourceDetail::Nic(nic) => usage.addresses += nic.addresses,
                ResourceDetail::Disk(_) => {}
                ResourceDetail::Vm(vm) => {
                    if let Some(facts) = sizes.get(&vm.size) {
                        usage.count(facts, vm.capacity_type);
                    }
                }
            }
        }
        usage
    }

    /// Counts one more VM.
    pub(crate) fn count(&mut self, facts: &SizeFacts, capacity_type: CapacityType) {
        match capacity_type {
            // The reservation has already taken its cores.
            CapacityType::Reserved => {}
            CapacityType::Spot => self.spot += facts.vcpus,
            CapacityType::OnDemand => {
                self.regional += facts.vcpus;
                *self.families.entry(Arc::clone(&facts.family)).or_default() += facts.vcpus;
            }
        }
    }
}

impl Limits {
    /// Refuses a VM that would exceed a quota.
    pub(crate) fn check_cores(
        &self,
        usage: &Usage,
        facts: &SizeFacts,
        capacity_type: CapacityType,
        region: &Region,
    ) -> Result<(), Refusal> {
        let family = usage.families.get(&facts.family).copied().unwrap_or(0);
        let limited = match capacity_type {
            CapacityType::Reserved => Vec::new(),
            CapacityType::Spot => vec![(Quota::Spot, self.spot, usage.spot)],
            CapacityType::OnDemand => vec![
                (Quota::Regional, self.regional, usage.regional),
                (Quota::Family(Arc::clone(&facts.family)), self.families.get(&facts.family).copied(), family),
            ],
        };
        for (quota, limit, usage) in limited {
            if let Some(limit) = limit.filter(|limit| usage + facts.vcpus > *limit) {
                return Err(Refusal::Quota { quota, region: region.clone(), limit, usage, need: facts.vcpus });
            }
        }
        Ok(())
    }
}
