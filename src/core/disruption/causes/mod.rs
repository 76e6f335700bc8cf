//! Why nodes are replaced whatever that costs.

mod drift;
mod expiry;
mod pool_deletion;
mod vanished_size;
mod version_drift;

use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::replacement::RecurringCause;
pub(super) use drift::record_drift;
pub use drift::{Drift, DriftDetector, DriftReason};
pub use expiry::Expiry;
pub(super) use expiry::{delete_expired, expiring};
use jiff::Timestamp;
pub use pool_deletion::DeletedPool;
pub(super) use pool_deletion::of_deleted_pools;
use std::fmt;
pub use vanished_size::VanishedSize;
pub(super) use vanished_size::VanishedSizes;

/// Why a node is replaced, whatever that costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplacementCause {
    /// It has drifted.
    Drift(Drift),
    /// It expires soon.
    Expiry(Expiry),
    /// Its NodePool is being deleted.
    PoolDeleted(DeletedPool),
}

impl ReplacementCause {
    /// The reason by which it counts.
    #[must_use]
    pub const fn reason(&self) -> DisruptionReason {
        match self {
            Self::Drift(_) => DisruptionReason::Drifted,
            Self::Expiry(_) => DisruptionReason::Expiring,
            Self::PoolDeleted(_) => DisruptionReason::NodePoolDeleted,
        }
    }

    /// By what it is known again, if a node of this NodePool may be replaced for it again and again. A node that expires has
    /// lasted for its time, and a NodePool that is being deleted gets no new ones.
    #[must_use]
    pub fn recurring(&self, pool: &NodePool) -> Option<RecurringCause> {
        match self {
            Self::Drift(drift) => Some(drift.cause(pool)),
            Self::Expiry(_) | Self::PoolDeleted(_) => None,
        }
    }

    /// By this time nodes of one cause are ordered: since when one has drifted, or when it expires.
    pub(super) fn time(&self, claim: &Claim) -> Option<Timestamp> {
        match self {
            Self::Drift(_) => claim.status.drifted.as_ref().map(|drifted| drifted.since),
            Self::Expiry(expiry) => Some(expiry.at),
            Self::PoolDeleted(deleted) => Some(deleted.since),
        }
    }
}

impl fmt::Display for ReplacementCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drift(drift) => write!(f, "drift: {drift}"),
            Self::Expiry(expiry) => write!(f, "expiry: {expiry}"),
            Self::PoolDeleted(deleted) => deleted.fmt(f),
        }
    }
}
