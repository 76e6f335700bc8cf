//! Faults of Azure that are in force, and until when.
//!
//! A scenario writes these fields; nothing here is random. Times are ends: a fault is over at its `until`.

mod listing_lag;
mod quotas;
mod rate_limits;
mod write_restrictions;

use super::refusal::Refusal;
use jiff::{SignedDuration, Timestamp};
pub use listing_lag::{ListedKind, ListingLag};
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::names::{VmSize, Zone};
pub use quotas::{Limits, Usage};
pub use rate_limits::Throttling;
pub(crate) use rate_limits::{ComputeCall, MeteredRequest};
use std::collections::BTreeMap;
pub(super) use write_restrictions::LOCKDOWN;
pub use write_restrictions::PolicyAssignment;

/// Faults that are in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Offerings that Azure refuses to sell, at once (`SkuNotAvailable`).
    pub refused: Vec<Shortage>,
    /// Offerings that Azure accepts and then has no hardware for (`AllocationFailed`).
    pub unallocatable: Vec<Shortage>,
    /// Every call is throttled: until when, and the `Retry-After`.
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
    pub policies: Vec<PolicyAssignment>,
    /// Listings fail.
    pub listing: Option<(Timestamp, ListingFault)>,
    /// Listings of one kind fail.
    pub listings: BTreeMap<ListedKind, (Timestamp, ListingFault)>,
    /// Listings lag: younger resources are missing, and those deleted since are still shown.
    pub list_lag: SignedDuration,
    /// Listings of some kinds lag, in one direction or the other; the longest that covers a kind counts.
    pub lags: Vec<ListingLag>,
    /// A GET of one resource shows what existed so long ago.
    pub read_lag: SignedDuration,
    /// Pages of listings are of any size from one to what a page holds, as filtered pages of Azure are.
    pub ragged_pages: bool,
    /// Factor by which operations that begin now take longer; 0 and 1 change nothing.
    pub slow: u32,
    /// Operations that begin now take their usual time, and fail at the end.
    pub failing: Vec<LateFailure>,
    /// VMs leave their NIC and OS disk behind when they are deleted, `deleteOption` or not.
    pub keep_children: bool,
    /// Listings spell some ids in capitals.
    pub uppercase_ids: bool,
}

/// How a listing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingFault {
    /// Its last page cannot be read.
    BrokenPage,
    /// We may not list.
    Forbidden,
    /// The parent of the list is reported as absent, as Azure does to hide a rejection.
    Absent,
}

/// Operations that fail late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateFailure {
    /// Deletes; else what creates.
    pub deletes: bool,
    /// For how long, or for how many of them.
    pub duration: FaultDuration,
}

/// Offerings that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Of this size; `None` is any.
    pub size: Option<VmSize>,
    /// In this zone; `None` is any.
    pub zone: Option<Zone>,
    /// LaunchReason this way; `None` is any.
    pub capacity_type: Option<CapacityType>,
    /// For how long.
    pub duration: FaultDuration,
}

/// How long a shortage lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDuration {
    /// Until a time.
    Until(Timestamp),
    /// For this many next VMs.
    Times(u32),
}

impl FaultDuration {
    /// True when it strikes now; uses up one of its times.
    pub(crate) fn applies(&mut self, now: Timestamp) -> bool {
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
    pub fn of_all(duration: FaultDuration) -> Self {
        Self { size: None, zone: None, capacity_type: None, duration }
    }

    /// The size that is currently restricted for all capacity types, as a listing of sizes shows it.
    pub(crate) fn restricts(&self, size: &VmSize, now: Timestamp) -> bool {
        let lasts = matches!(self.duration, FaultDuration::Until(end) if now < end);
        lasts && self.capacity_type.is_none() && self.size.as_ref().is_none_or(|s| s == size)
    }

    fn covers(&self, offering: &OfferingKey) -> bool {
        self.size.as_ref().is_none_or(|s| *s == offering.size)
            && self.zone.as_ref().is_none_or(|z| *z == offering.zone)
            && self.capacity_type.is_none_or(|c| c == offering.capacity_type)
    }

    /// True when the offering is short now; uses up one of its times.
    fn applies(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.covers(offering) && self.duration.applies(now)
    }
}

impl Faults {
    /// Admits a call, or returns why not.
    pub(crate) fn admit(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.unavailable_until.is_some_and(|end| now < end) {
            return Err(Refusal::Unavailable);
        }
        match self.throttled {
            Some((end, retry_after)) if now < end => Err(Refusal::Throttled { retry_after }),
            _ => Ok(()),
        }
    }

    /// Why listings of this kind fail now, if so.
    pub(crate) fn listing_fault(&self, kind: ListedKind, now: Timestamp) -> Option<ListingFault> {
        let in_force = |fault: Option<(Timestamp, ListingFault)>| fault.filter(|(end, _)| now < *end).map(|(_, f)| f);
        in_force(self.listing).or_else(|| in_force(self.listings.get(&kind).copied()))
    }

    /// The lag of listings of this kind: for new and for deleted resources.
    pub(crate) fn lag(&self, kind: ListedKind) -> (SignedDuration, SignedDuration) {
        let of_kind = self.lags.iter().filter(|lag| lag.covers(kind));
        of_kind.fold((self.list_lag, self.list_lag), |(hides, keeps), lag| (hides.max(lag.hides), keeps.max(lag.keeps)))
    }

    /// True when an operation that begins now is to fail at its end.
    pub(crate) fn fails_late(&mut self, deletes: bool, now: Timestamp) -> bool {
        self.failing.iter_mut().any(|failing| failing.deletes == deletes && failing.duration.applies(now))
    }

    pub(crate) fn refuses(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.refused.iter_mut().any(|s| s.applies(offering, now))
    }

    pub(crate) fn lacks_capacity(&mut self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.unallocatable.iter_mut().any(|s| s.applies(offering, now))
    }
}
