//! Faults: what goes wrong in Azure, and for how long?
//!
//! A scenario writes these fields; nothing here is drawn by chance. Times are ends: a fault is over at its `until`.

use super::guards::Policy;
use super::lag::{Lag, ListedKind};
use super::refusal::{Quota, Refusal};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, OfferingKey, SizeFacts};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::names::{Region, VmSize, Zone};
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
    /// The group is locked down: a deny assignment refuses every write.
    pub lockdown_until: Option<Timestamp>,
    /// We have lost the permission to write.
    pub forbidden_until: Option<Timestamp>,
    /// Policies that deny requests.
    pub policies: Vec<Policy>,
    /// Listings are not whole.
    pub listing: Option<(Timestamp, ListingFault)>,
    /// Listings of one kind are not whole.
    pub listings: BTreeMap<ListedKind, (Timestamp, ListingFault)>,
    /// Listings lag: what is younger than this is missing, what was deleted since is still there.
    pub list_lag: SignedDuration,
    /// Listings of some kinds lag, in one direction or the other; the longest that covers a kind counts.
    pub lags: Vec<Lag>,
    /// Pages of listings are of any size from one to what a page holds, as filtered pages of Azure are.
    pub ragged_pages: bool,
    /// Operations that begin now take so many times their time; 0 and 1 are as ever.
    pub slow: u32,
    /// Operations that begin now run for as long as ever, and fail at their end.
    pub failing: Vec<Failing>,
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
    /// What should hold the list is said to be absent, as Azure says too where it hides a refusal.
    Absent,
}

/// Operations that fail late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing {
    /// Deletes; else what creates.
    pub deletes: bool,
    /// For how long, or for how many of them.
    pub lasting: Lasting,
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

impl Lasting {
    /// True when it strikes now; uses up one of its times.
    pub(crate) fn strikes(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Until(end) => now < *end,
            Self::Times(0) => false,
            Self::Times(left) => {
                *left -= 1;
                true
            }
        }
    }
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
        self.covers(offering) && self.lasting.strikes(now)
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

    /// Why no listing of this kind is whole now, if so.
    pub(crate) fn listing_fault(&self, kind: ListedKind, now: Timestamp) -> Option<ListingFault> {
        let in_force = |fault: Option<(Timestamp, ListingFault)>| fault.filter(|(end, _)| now < *end).map(|(_, f)| f);
        in_force(self.listing).or_else(|| in_force(self.listings.get(&kind).copied()))
    }

    /// What listings of this kind hide and keep: how young, and how long gone.
    pub(crate) fn lag(&self, kind: ListedKind) -> (SignedDuration, SignedDuration) {
        let of_kind = self.lags.iter().filter(|lag| lag.covers(kind));
        of_kind.fold((self.list_lag, self.list_lag), |(hides, keeps), lag| (hides.max(lag.hides), keeps.max(lag.keeps)))
    }

    /// True when an operation that begins now is to fail at its end.
    pub(crate) fn fails_late(&mut self, deletes: bool, now: Timestamp) -> bool {
        self.failing.iter_mut().any(|failing| failing.deletes == deletes && failing.lasting.strikes(now))
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
            // The reservation has taken its cores, whatever becomes of it.
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
