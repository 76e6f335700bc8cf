//! Faults: what goes wrong in Azure, and for how long?
//!
//! A scenario writes these fields; nothing here is drawn by chance. Times are ends: a fault is over at its `until`.

use super::refusal::{Quota, Refusal};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, OfferingKey, SizeFacts};
use napkeeper_core::cluster::cloud::{CloudResource, Detail};
use napkeeper_core::names::{Region, VmSize, Zone};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Faults that are in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Offerings that Azure refuses to sell, at once (`SkuNotAvailable`).
    pub refused: Vec<Shortage>,
    /// Offerings that Azure accepts and then has no hardware for (`AllocationFailed`).
    pub unallocatable: Vec<Shortage>,
    /// Every call is throttled: until when, and what Azure asks to wait.
    pub throttled: Option<(Timestamp, SignedDuration)>,
    /// Every call fails with an internal error.
    pub unavailable_until: Option<Timestamp>,
    /// A lock forbids deletes.
    pub deletes_locked_until: Option<Timestamp>,
    /// Listings are not whole.
    pub listing: Option<(Timestamp, ListingFault)>,
    /// Listings lag: what is younger than this is missing, what was deleted since is still there.
    pub list_lag: SignedDuration,
    /// VMs leave their NIC and OS disk behind when they are deleted, `deleteOption` or not.
    pub keep_children: bool,
    /// Listings spell some ids in capitals.
    pub shouting_ids: bool,
}

/// How a listing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingFault {
    /// Its last page cannot be read.
    BrokenPage,
    /// We may not list.
    Forbidden,
}

/// Offerings that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Of this size; `None` is any.
    pub size: Option<VmSize>,
    /// In this zone; `None` is any.
    pub zone: Option<Zone>,
    /// Bought this way; `None` is any.
    pub capacity_type: Option<CapacityType>,
    /// For how long.
    pub lasting: Lasting,
}

/// How long a shortage lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// Until a time.
    Until(Timestamp),
    /// For the next so many VMs.
    Times(u32),
}

impl Shortage {
    /// Everything is short.
    #[must_use]
    pub fn of_all(lasting: Lasting) -> Self {
        Self { size: None, zone: None, capacity_type: None, lasting }
    }

    /// The size that may not be bought in any way until a time that has not come, as a listing of sizes shows it.
    pub(crate) fn restricts(&self, size: &VmSize, now: Timestamp) -> bool {
        let lasts = matches!(self.lasting, Lasting::Until(end) if now < end);
        lasts && self.capacity_type.is_none() && self.size.as_ref().is_none_or(|s| s == size)
    }

    fn covers(&self, offering: &OfferingKey) -> bool {
        self.size.as_ref().is_none_or(|s| *s == offering.size)
            && self.zone.as_ref().is_none_or(|z| *z == offering.zone)
            && self.capacity_type.is_none_or(|c| c == offering.capacity_type)
    }

    /// True when the offering is short now; uses up one of its times.
    fn strikes(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.covers(offering)
            && match &mut self.lasting {
                Lasting::Until(end) => now < *end,
                Lasting::Times(0) => false,
                Lasting::Times(left) => {
                    *left -= 1;
                    true
                }
            }
    }
}

impl Faults {
    /// Lets a call in, or says why no call gets in now.
    pub(crate) fn admit(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.unavailable_until.is_some_and(|end| now < end) {
            return Err(Refusal::Unavailable);
        }
        match self.throttled {
            Some((end, retry_after)) if now < end => Err(Refusal::Throttled { retry_after }),
            _ => Ok(()),
        }
    }

    /// Why no listing is whole now, if so.
    pub(crate) fn listing_fault(&self, now: Timestamp) -> Option<ListingFault> {
        self.listing.filter(|(end, _)| now < *end).map(|(_, fault)| fault)
    }

    pub(crate) fn refuses(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.refused.iter_mut().any(|s| s.strikes(offering, now))
    }

    pub(crate) fn starves(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.unallocatable.iter_mut().any(|s| s.strikes(offering, now))
    }
}

/// What the subscription and the subnet hold at most. `None`, or a family that is not named: no limit.
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
    pub(super) fn of<'a>(
        resources: impl Iterator<Item = &'a Arc<CloudResource>>,
        sizes: &BTreeMap<VmSize, Arc<SizeFacts>>,
    ) -> Self {
        let mut usage = Self::default();
        for resource in resources {
            match &resource.detail {
                Detail::Nic(nic) => usage.addresses += nic.addresses,
                Detail::Disk(_) => {}
                Detail::Vm(vm) => {
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
