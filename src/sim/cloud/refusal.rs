//! Azure's refusals, with its own error messages.
//!
//! Codes and wording are Azure's own, because callers have to tell several causes apart by the message alone
//! (`OperationNotAllowed` is all of the quotas).

use jiff::SignedDuration;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, QuotaDetails};
use napkeeper_core::model::names::{ArmId, Region, VmSize};
use std::sync::Arc;

/// Object id of the caller, as refusals show it.
const CLIENT: &str = "00000000-0000-4000-8000-00000000c0de";

/// Why Azure refused a call, or why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A quota of cores would be exceeded.
    #[error(
        "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - \
         Deployment Model: Resource Manager, Location: {region}, Current Limit: {limit}, Current Usage: {usage}, \
         Additional Required: {need}, (Minimum) New Limit Required: {least}.", name = quota.name(), least = usage + need
    )]
    Quota {
        /// Which quota.
        quota: Quota,
        /// Where.
        region: Region,
        /// Cores allowed.
        limit: u32,
        /// Cores taken.
        usage: u32,
        /// Cores that the VM would take.
        need: u32,
    },
    /// The size is not sold here.
    #[error(
        "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {size}' is currently \
         not available in location '{region}'. Please try another size or deploy to a different location or different zone."
    )]
    SkuNotAvailable {
        /// The size.
        size: VmSize,
        /// Where.
        region: Region,
    },
    /// There is no hardware for a VM without a zone.
    #[error("Allocation failed. We do not have sufficient capacity for the requested VM size in this region.")]
    Allocation,
    /// There is no hardware for a VM in its zone.
    #[error("Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.")]
    ZonalAllocation,
    /// The group has nothing reserved that such a VM could have.
    #[error(
        "The VM cannot be associated with capacity reservation group '{group}': it has no capacity reservation of VM size \
         '{}' in '{}'.", offering.size, offering.zone
    )]
    Unreserved {
        /// The group.
        group: ArmId,
        /// The requested offering.
        offering: Box<OfferingKey>,
    },
    /// The subnet has no address left.
    #[error("Subnet aks-subnet does not have enough capacity for {need} IP addresses.")]
    SubnetFull {
        /// Addresses that the NIC would take.
        need: u32,
    },
    /// The NIC is reserved for a VM whose creation failed.
    #[error(
        "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) or \
         retry after 180 seconds. Reserved VM: {vm}"
    )]
    NicReserved {
        /// The VM.
        vm: ArmId,
    },
    /// The NIC is attached.
    #[error(
        "Network Interface {nic} is used by existing resource {vm}. In order to delete the network interface, it must \
         be dissociated from the resource."
    )]
    NicInUse {
        /// The NIC.
        nic: ArmId,
        /// The VM.
        vm: ArmId,
    },
    /// The disk is attached.
    #[error("Disk {disk} is attached to VM {vm}.")]
    DiskInUse {
        /// The disk.
        disk: ArmId,
        /// The VM.
        vm: ArmId,
    },
    /// A lock forbids deletes.
    #[error(
        "The scope '{0}' cannot perform delete operation because following scope(s) are locked. Please remove the lock \
         and try again."
    )]
    Locked(ArmId),
    /// A deny assignment forbids it, as the lockdown of a node resource group does.
    #[error(
        "The client '{CLIENT}' with object id '{CLIENT}' has permission to perform action '{action}' on scope '{scope}'; \
         however, the access is denied because of the deny assignment with name '{}' and Id '{CLIENT}' at scope '{scope}'.",
        super::faults::LOCKDOWN
    )]
    Denied {
        /// The requested action, as roles name it.
        action: Arc<str>,
        /// On what.
        scope: ArmId,
    },
    /// No role of the caller allows it.
    #[error(
        "The client '{CLIENT}' with object id '{CLIENT}' does not have authorization to perform action '{action}' over \
         scope '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
    )]
    NoPermission {
        /// The requested action, as roles name it.
        action: Arc<str>,
        /// On what.
        scope: ArmId,
    },
    /// An Azure Policy forbids it.
    #[error(
        "Resource '{name}' was disallowed by policy. Policy identifiers: '[{{\"policyAssignment\":{{\"name\":\"{assignment}\",\
         \"id\":\"{group}/providers/Microsoft.Authorization/policyAssignments/{assignment}\"}}}}]'.", name = resource.name()
    )]
    Policy {
        /// The resource.
        resource: ArmId,
        /// The scope of the policy.
        group: ArmId,
        /// Name of the assignment.
        assignment: Arc<str>,
        /// `Deny` or `DenyAction`.
        effect: &'static str,
    },
    /// The resource is not, or is, what `If-Match` or `If-None-Match` expects.
    #[error("The condition '{condition}' for the resource '{resource}' was not satisfied.")]
    Precondition {
        /// The header.
        condition: &'static str,
        /// The resource.
        resource: ArmId,
    },
    /// An operation failed at its end.
    #[error("An internal execution error occurred. Please retry later.")]
    FailedLate,
    /// Too many requests.
    #[error("The request is being throttled. Retry after {} seconds.", retry_after.as_secs())]
    Throttled {
        /// How long to wait.
        retry_after: SignedDuration,
    },
    /// No such resource.
    #[error("The Resource '{0}' was not found.")]
    NotFound(ArmId),
    /// No such operation.
    #[error("The entity was not found: operation '{0}'.")]
    OperationNotFound(Arc<str>),
    /// The VM exists with another value of a property that never changes.
    #[error("Changing property '{property}' is not allowed: VM {vm} exists with another value.")]
    PropertyChange {
        /// The property, as a path.
        property: &'static str,
        /// The VM.
        vm: ArmId,
    },
    /// The name is taken by a resource that serves something else.
    #[error("{0} exists already and serves another resource.")]
    Taken(ArmId),
    /// Another operation on the resource has not ended.
    #[error("Another operation on {0} is in progress. Retry when it has ended.")]
    Busy(ArmId),
    /// A later operation preempted this one.
    #[error("Operation execution has been preempted by a more recent operation.")]
    Preempted,
    /// Azure is down.
    #[error("The server encountered an internal error. Retry the request.")]
    Unavailable,
    /// We may not list.
    #[error("The client does not have authorization to list the resources of the group.")]
    ListForbidden,
    /// The size takes no premium disk.
    #[error(
        "Requested operation cannot be performed because the VM size {size} does not support the storage account type \
         Premium_LRS of disk '{disk}'. Consider updating the VM to a size that supports Premium storage."
    )]
    DiskUnfit {
        /// The size.
        size: VmSize,
        /// The disk.
        disk: Arc<str>,
    },
    /// The OS disk does not fit on a local disk of the size.
    #[error(
        "OS disk of Ephemeral VM with size greater than {most} GB is not allowed for VM size {size} when the \
         DiffDiskPlacement is {placement}."
    )]
    LocalDiskUnfit {
        /// The size.
        size: VmSize,
        /// Where the disk would be.
        placement: &'static str,
        /// The largest there.
        most: u64,
    },
    /// The request is wrong; it would fail again.
    #[error("{0}")]
    Invalid(Arc<str>),
}

/// A quota of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quota {
    /// Of a VM family, at the full price.
    Family(Arc<str>),
    /// Of the whole region, at the full price.
    Regional,
    /// Of spot VMs.
    Spot,
}

impl Quota {
    fn name(&self) -> String {
        match self {
            Self::Family(family) => format!("{family} Cores"),
            Self::Regional => "Total Regional Cores".to_owned(),
            Self::Spot => "LowPriorityCores".to_owned(),
        }
    }
}

impl Refusal {
    /// The refusal as the domain sees it.
    #[must_use]
    pub fn code(&self) -> CloudErrorCode {
        match self {
            Self::Quota { quota, .. } => match quota {
                Quota::Family(_) => CloudErrorCode::FamilyQuota,
                Quota::Regional => CloudErrorCode::RegionalQuota,
                Quota::Spot => CloudErrorCode::SpotQuota,
            },
            Self::SkuNotAvailable { .. } => CloudErrorCode::SkuNotAvailable,
            Self::Allocation => CloudErrorCode::AllocationFailed,
            Self::ZonalAllocation => CloudErrorCode::ZonalAllocationFailed,
            Self::SubnetFull { .. } => CloudErrorCode::SubnetFull,
            Self::NicReserved { .. } => CloudErrorCode::NicReserved,
            Self::NicInUse { .. } | Self::DiskInUse { .. } => CloudErrorCode::InUse,
            Self::Locked(_) => CloudErrorCode::Locked,
            Self::ListForbidden | Self::NoPermission { .. } => CloudErrorCode::Permission,
            Self::Denied { .. } => CloudErrorCode::Lockdown,
            Self::Policy { .. } => CloudErrorCode::Policy,
            Self::Throttled { .. } => CloudErrorCode::Throttled,
            Self::Unreserved { .. } => CloudErrorCode::Reservation,
            Self::NotFound(id) if id.folded().contains("/capacityreservationgroups/") => CloudErrorCode::Reservation,
            Self::NotFound(_) | Self::OperationNotFound(_) => CloudErrorCode::NotFound,
            Self::PropertyChange { .. }
            | Self::Taken(_)
            | Self::Busy(_)
            | Self::Preempted
            | Self::Precondition { .. } => CloudErrorCode::Conflict,
            Self::Unavailable | Self::FailedLate => CloudErrorCode::Unavailable,
            Self::DiskUnfit { .. } | Self::LocalDiskUnfit { .. } => CloudErrorCode::SizeUnfit,
            Self::Invalid(_) => CloudErrorCode::Invalid,
        }
    }

    /// The `Retry-After` of Azure, if any.
    #[must_use]
    pub fn retry_after(&self) -> Option<SignedDuration> {
        match self {
            Self::Throttled { retry_after } => Some(*retry_after),
            _ => None,
        }
    }
}

impl From<Refusal> for CloudError {
    fn from(refusal: Refusal) -> Self {
        let quota = match &refusal {
            Refusal::Quota { limit, usage, .. } => Some(QuotaDetails { limit: *limit, usage: *usage }),
            _ => None,
        };
        let policy = match &refusal {
            Refusal::Policy { assignment, .. } => Some(Arc::clone(assignment)),
            _ => None,
        };
        let error = Self::new(refusal.code(), refusal.to_string());
        Self { retry_after: refusal.retry_after(), policy, quota, ..error }
    }
}
