//! Errors of the API server.

use jiff::SignedDuration;

/// Kubernetes refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum ClusterError {
    /// The object exists already, has another UID, or has changed.
    #[error("the object has been modified or already exists")]
    Conflict,
    /// No such object.
    #[error("object not found")]
    NotFound,
    /// A PodDisruptionBudget allows no eviction now.
    #[error("a PodDisruptionBudget does not allow the eviction now")]
    Budget {
        /// Retry-After in seconds; 0 where the API server does not ask for one.
        retry_after: u32,
    },
    /// Several PodDisruptionBudgets select the pod, which the eviction API does not support.
    #[error("several PodDisruptionBudgets select the pod, so that it cannot be evicted: leave only one of them")]
    SeveralBudgets,
    /// We may not do that.
    #[error("permission denied")]
    Forbidden,
    /// A ValidatingAdmissionPolicy or an admission webhook denies it.
    #[error("an admission policy or webhook denies it: allow it there, the log has its message")]
    Denied,
    /// The API server has too many requests (API Priority and Fairness): it has not looked at this one.
    #[error("the API server has too many requests")]
    Overloaded {
        /// Retry-After in seconds; 0 where the API server does not ask for one.
        retry_after: u32,
    },
    /// Every possible name is taken.
    #[error("every name for it is already taken")]
    NamesExhausted,
    /// The API server failed, or could not be reached.
    #[error("the API server cannot be reached")]
    Unavailable,
    /// The Lease was lost, or is about to be, between the reads and the writes of an effect.
    #[error("the lease is lost or about to expire")]
    NotLeader,
}

impl ClusterError {
    /// Its name in metrics, events and reports.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Conflict => "cluster_conflict",
            Self::NotFound => "cluster_not_found",
            Self::Budget { .. } => "disruption_budget",
            Self::SeveralBudgets => "several_disruption_budgets",
            Self::Forbidden => "cluster_forbidden",
            Self::Denied => "cluster_denied",
            Self::Overloaded { .. } => "cluster_overloaded",
            Self::NamesExhausted => "cluster_exhausted",
            Self::Unavailable => "cluster_unavailable",
            Self::NotLeader => "not_leader",
        }
    }

    /// True when PodDisruptionBudgets refuse an eviction, as is normal while nodes are drained.
    #[must_use]
    pub fn is_budget(self) -> bool {
        matches!(self, Self::Budget { .. } | Self::SeveralBudgets)
    }

    /// How long the API server wants to be left alone; 0 where it does not say so.
    #[must_use]
    pub fn retry_after(self) -> SignedDuration {
        match self {
            Self::Budget { retry_after } | Self::Overloaded { retry_after } => {
                SignedDuration::from_secs(i64::from(retry_after))
            }
            _ => SignedDuration::ZERO,
        }
    }
}
