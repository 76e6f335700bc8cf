//! The error map: what does an error of Azure Resource Manager mean to the domain?
//!
//! By code first. Text decides only where one code stands for several things, as `OperationNotAllowed` does for every
//! kind of quota. Codes and texts: Azure's documentation of Compute and Network errors, and the handlers of
//! karpenter-provider-azure (`commonerrorhandlers.go`).

use napkeeper_core::ports::CloudErrorCode;

/// Codes that mean one thing whatever the text says.
const BY_CODE: [(&str, CloudErrorCode); 27] = [
    ("SkuNotAvailable", CloudErrorCode::SkuNotAvailable),
    ("VMSizeNotSupported", CloudErrorCode::SkuNotAvailable),
    ("AllocationFailed", CloudErrorCode::AllocationFailed),
    ("OverconstrainedAllocationRequest", CloudErrorCode::AllocationFailed),
    ("ZonalAllocationFailed", CloudErrorCode::ZonalAllocationFailed),
    ("OverconstrainedZonalAllocationRequest", CloudErrorCode::ZonalAllocationFailed),
    ("QuotaExceeded", CloudErrorCode::FamilyQuota),
    ("SubnetIsFull", CloudErrorCode::SubnetFull),
    ("InsufficientSubnetSize", CloudErrorCode::SubnetFull),
    ("NicReservedForAnotherVm", CloudErrorCode::NicReserved),
    ("NicInUse", CloudErrorCode::InUse),
    ("ScopeLocked", CloudErrorCode::Forbidden),
    ("RequestDisallowedByPolicy", CloudErrorCode::Forbidden),
    ("AuthorizationFailed", CloudErrorCode::Forbidden),
    ("LinkedAuthorizationFailed", CloudErrorCode::Forbidden),
    ("TooManyRequests", CloudErrorCode::Throttled),
    ("SubscriptionRequestsThrottled", CloudErrorCode::Throttled),
    ("ResourceNotFound", CloudErrorCode::NotFound),
    ("ResourceGroupNotFound", CloudErrorCode::NotFound),
    ("NotFound", CloudErrorCode::NotFound),
    ("PropertyChangeNotAllowed", CloudErrorCode::Conflict),
    ("Conflict", CloudErrorCode::Conflict),
    ("AnotherOperationInProgress", CloudErrorCode::Conflict),
    ("OperationPreempted", CloudErrorCode::Conflict),
    ("InternalServerError", CloudErrorCode::Unavailable),
    ("ServiceUnavailable", CloudErrorCode::Unavailable),
    ("InternalExecutionError", CloudErrorCode::Unavailable),
];

/// What `OperationNotAllowed` means, by a part of its text.
const NOT_ALLOWED: [(&str, CloudErrorCode); 4] = [
    ("lowprioritycores", CloudErrorCode::SpotQuota),
    ("total regional cores", CloudErrorCode::RegionalQuota),
    ("cores quota", CloudErrorCode::FamilyQuota),
    ("attached to vm", CloudErrorCode::InUse),
];

/// What an error means, by ARM's `error.code` and `error.message`. Codes compare without case. What is unknown is
/// [`CloudErrorCode::Invalid`]: it would fail again, and nothing is marked unavailable for it.
#[must_use]
pub fn classify(code: &str, message: &str) -> CloudErrorCode {
    let known = BY_CODE.iter().find(|(known, _)| known.eq_ignore_ascii_case(code));
    if let Some((_, meaning)) = known {
        return *meaning;
    }
    if !code.eq_ignore_ascii_case("OperationNotAllowed") {
        return CloudErrorCode::Invalid;
    }
    let message = message.to_lowercase();
    let meant = NOT_ALLOWED.iter().find(|(part, _)| message.contains(part));
    meant.map_or(CloudErrorCode::Invalid, |(_, meaning)| *meaning)
}
