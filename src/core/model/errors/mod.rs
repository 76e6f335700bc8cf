//! Errors of Azure and Kubernetes, by how they are retried.
//!
//! The domain has one way out: an executor performs [`crate::plan::Effect`]s and answers with a
//! [`crate::plan::Reply`] or a [`EffectError`]. Adapters turn every error of Azure and Kubernetes into one of these.

mod cluster_error;

use super::names::ArmId;
use crate::model::cluster::offering::OfferingKey;
pub use cluster_error::ClusterError;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A long-running operation of Azure, as the URL or token that finds it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub Arc<str>);

/// An effect failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// Azure refused or failed.
    #[error("Azure: {0}")]
    Cloud(CloudError),
    /// Kubernetes refused or failed.
    #[error("Kubernetes: {0}")]
    Cluster(ClusterError),
    /// A pause switch or a lost lease held the write back.
    #[error("blocked: {0}")]
    Blocked(&'static str),
}

impl EffectError {
    /// Its name in metrics, events and reports.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Cloud(error) => error.code.category(),
            Self::Cluster(error) => error.category(),
            Self::Blocked(_) => "held",
        }
    }

    /// Why a read failed.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Cloud(error) => error.cause,
            Self::Cluster(ClusterError::Forbidden) => FailureCause::Forbidden,
            Self::Cluster(ClusterError::NotFound) => FailureCause::NotFound,
            Self::Cluster(_) | Self::Blocked(_) => FailureCause::Other,
        }
    }
}

/// Azure refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct CloudError {
    /// Which error.
    pub code: CloudErrorCode,
    /// Azure's message.
    pub message: Arc<str>,
    /// Azure's Retry-After.
    pub retry_after: Option<SignedDuration>,
    /// The Azure Policy that forbids it, as people know it.
    pub policy: Option<Arc<str>>,
    /// The quota that would be exceeded.
    pub quota: Option<QuotaDetails>,
    /// It is the result of a long-running operation, not of the request that started it.
    pub is_operation_result: bool,
    /// Why a read failed.
    pub cause: FailureCause,
}

/// Why Azure or Kubernetes could not be read, by the required action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureCause {
    /// We have no right to read it.
    Forbidden,
    /// There is no credential, or it is not accepted.
    Unauthenticated,
    /// The subscription is absent, or of another tenant.
    SubscriptionNotFound,
    /// The node resource group is absent.
    ResourceGroupNotFound,
    /// Anything else is absent, or of a kind that is not served.
    NotFound,
    /// There is no connection.
    Unreachable,
    /// The answer does not match the schema of its type.
    Unreadable,
    /// A folder of saved listings does not have it, or not completely.
    NotSaved,
    /// Anything else, such as throttling: it may pass.
    #[default]
    Other,
}

/// A quota of cores as reported in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDetails {
    /// Cores allowed.
    pub limit: u32,
    /// Cores taken.
    pub usage: u32,
}

impl QuotaDetails {
    /// Cores that are still free.
    #[must_use]
    pub fn free(self) -> u32 {
        self.limit.saturating_sub(self.usage)
    }
}

impl CloudError {
    /// An error of which no more is known than its code and message.
    #[must_use]
    pub fn new(code: CloudErrorCode, message: impl Into<Arc<str>>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: None,
            policy: None,
            quota: None,
            is_operation_result: false,
            cause: code.cause(),
        }
    }

    /// How long to wait before the same call: Azure's Retry-After, else the code's own time, else `otherwise`.
    #[must_use]
    pub fn retry_delay(&self, otherwise: SignedDuration) -> SignedDuration {
        let own = (self.code == CloudErrorCode::NicReserved).then_some(NIC_RESERVATION_RETRY);
        self.retry_after.or(own).unwrap_or(otherwise)
    }
}

/// How often a reserved NIC is requested again. Azure's message says that it is reserved for 180 s.
const NIC_RESERVATION_RETRY: SignedDuration = SignedDuration::from_secs(45);

/// What may be done after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// The same call may succeed a little later.
    SameCall,
    /// The same call will not soon, but another offering may.
    OtherOffering,
    /// No retry until a person changes something: a right, a lock, a policy, a subnet, an image, a key.
    UserAction,
    /// It would fail again.
    Never,
}

/// Errors of Azure that call for different answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudErrorCode {
    /// The quota of a VM family is used up.
    FamilyQuota,
    /// The regional quota is used up.
    RegionalQuota,
    /// The quota of spot cores is used up.
    SpotQuota,
    /// The size is not sold here to this subscription.
    SkuNotAvailable,
    /// No capacity for the size in the region.
    AllocationFailed,
    /// No capacity for the size in the zone.
    ZonalAllocationFailed,
    /// No capacity in the region satisfies all constraints together.
    Overconstrained,
    /// No capacity in the zone satisfies all constraints together.
    OverconstrainedZonal,
    /// The capacity reservation group does not exist, may not be used, or has no reservation for such a VM.
    Reservation,
    /// The subnet has no free address.
    SubnetFull,
    /// A NIC is reserved for a VM whose creation failed.
    NicReserved,
    /// The resource is in use.
    InUse,
    /// We have no right to do it.
    Permission,
    /// A lock forbids it.
    Locked,
    /// A deny assignment forbids it, as the lockdown of a node resource group does.
    Lockdown,
    /// An Azure Policy forbids it.
    Policy,
    /// The image does not exist, is not replicated here or does not fit the size.
    Image,
    /// Encryption at host is not switched on for the subscription, or a disk encryption set cannot be used.
    Encryption,
    /// The size does not support what is requested: encryption at host, the image's generation or architecture, its
    /// disk controller.
    SizeUnfit,
    /// Too many requests.
    Throttled,
    /// No such resource.
    NotFound,
    /// The resource is being changed by another operation, or exists with other properties.
    Conflict,
    /// Azure failed, or could not be reached.
    Unavailable,
    /// Anything else: it would fail again.
    Invalid,
}

impl CloudErrorCode {
    /// Its name in metrics, events and reports.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::FamilyQuota => "family_quota",
            Self::RegionalQuota => "regional_quota",
            Self::SpotQuota => "spot_quota",
            Self::SkuNotAvailable => "sku_not_available",
            Self::AllocationFailed => "allocation_failed",
            Self::ZonalAllocationFailed => "zonal_allocation_failed",
            Self::Overconstrained => "overconstrained",
            Self::OverconstrainedZonal => "overconstrained_zonal",
            Self::Reservation => "reservation",
            Self::SubnetFull => "subnet_full",
            Self::NicReserved => "nic_reserved",
            Self::InUse => "in_use",
            Self::Permission => "permission",
            Self::Locked => "locked",
            Self::Lockdown => "lockdown",
            Self::Policy => "policy",
            Self::Image => "image",
            Self::Encryption => "encryption",
            Self::SizeUnfit => "size_unfit",
            Self::Throttled => "throttled",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Invalid => "invalid",
        }
    }

    /// Why a read failed with it.
    #[must_use]
    pub fn cause(self) -> FailureCause {
        match self {
            Self::Permission | Self::Lockdown => FailureCause::Forbidden,
            Self::NotFound => FailureCause::NotFound,
            _ => FailureCause::Other,
        }
    }

    /// What may be done after it.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self {
            Self::Throttled | Self::Unavailable | Self::Conflict | Self::NicReserved | Self::InUse => Retry::SameCall,
            Self::FamilyQuota
            | Self::RegionalQuota
            | Self::SpotQuota
            | Self::SkuNotAvailable
            | Self::AllocationFailed
            | Self::ZonalAllocationFailed
            | Self::Overconstrained
            | Self::OverconstrainedZonal
            | Self::Reservation
            | Self::SizeUnfit
            // Many a policy names the sizes that are allowed.
            | Self::Policy => Retry::OtherOffering,
            Self::SubnetFull
            | Self::Permission
            | Self::Locked
            | Self::Lockdown
            | Self::Image
            | Self::Encryption => Retry::UserAction,
            Self::NotFound | Self::Invalid => Retry::Never,
        }
    }

    /// True when another offering may succeed where this one failed.
    #[must_use]
    pub fn is_capacity(self) -> bool {
        self.retry() == Retry::OtherOffering
    }

    /// Refusals that end only when somebody corrects permissions, settings or the image.
    pub const NEEDING_CORRECTION: [Self; 8] = [
        Self::Permission,
        Self::Locked,
        Self::Lockdown,
        Self::Policy,
        Self::Image,
        Self::Encryption,
        Self::NotFound,
        Self::Invalid,
    ];

    /// True for an answer that means that the action is forbidden.
    #[must_use]
    pub fn is_denial(self) -> bool {
        matches!(self, Self::Permission | Self::Locked | Self::Lockdown | Self::Policy)
    }

    /// True when the same call may succeed a little later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self.retry() == Retry::SameCall
    }
}

/// Azure refused to launch an offering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRefusal {
    /// The offering.
    pub offering: OfferingKey,
    /// Its capacity reservation group, if it is reserved.
    pub reservation: Option<ArmId>,
    /// The error.
    pub error: CloudError,
    /// It was refused before a VM was requested: it applies to every offering.
    pub applies_to_all_offerings: bool,
    /// When.
    pub at: Timestamp,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
