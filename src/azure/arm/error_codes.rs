//! Azure's error codes, and the [`CloudErrorCode`] of each.
//!
//! Azure's text decides only for ambiguous codes, such as `OperationNotAllowed` for every kind of quota and
//! `InvalidParameter` for any error in a VM. Codes and texts are those of Azure's public
//! documentation; `fixtures/errors.json` has a body of each family with the page that documents it.

use napkeeper_core::model::errors::{CloudErrorCode, QuotaDetails};

/// Codes that mean one thing, whatever the text.
const BY_CODE: [(&str, CloudErrorCode); 56] = [
    ("SkuNotAvailable", CloudErrorCode::SkuNotAvailable),
    ("VMSizeNotSupported", CloudErrorCode::SkuNotAvailable),
    ("NotAvailableForSubscription", CloudErrorCode::SkuNotAvailable),
    ("AllocationFailed", CloudErrorCode::AllocationFailed),
    ("OverconstrainedAllocationRequest", CloudErrorCode::Overconstrained),
    ("ZonalAllocationFailed", CloudErrorCode::ZonalAllocationFailed),
    ("OverconstrainedZonalAllocationRequest", CloudErrorCode::OverconstrainedZonal),
    ("SubnetIsFull", CloudErrorCode::SubnetFull),
    ("InsufficientSubnetSize", CloudErrorCode::SubnetFull),
    ("NicReservedForAnotherVm", CloudErrorCode::NicReserved),
    ("NicInUse", CloudErrorCode::InUse),
    ("ScopeLocked", CloudErrorCode::Locked),
    ("RequestDisallowedByPolicy", CloudErrorCode::Policy),
    ("RequestDisallowedByAzure", CloudErrorCode::Policy),
    ("DenyAssignmentAuthorizationFailed", CloudErrorCode::Lockdown),
    ("ReadOnlyDisabledSubscription", CloudErrorCode::Permission),
    ("InvalidAuthenticationToken", CloudErrorCode::Permission),
    ("InvalidAuthenticationTokenTenant", CloudErrorCode::Permission),
    ("ExpiredAuthenticationToken", CloudErrorCode::Permission),
    ("TooManyRequests", CloudErrorCode::Throttled),
    ("SubscriptionRequestsThrottled", CloudErrorCode::Throttled),
    ("ResourceRequestsThrottled", CloudErrorCode::Throttled),
    ("ResourceCollectionRequestsThrottled", CloudErrorCode::Throttled),
    // Without its group the state of a resource is unknown; the bare word does not say what was not found.
    ("ResourceGroupNotFound", CloudErrorCode::Unavailable),
    ("NotFound", CloudErrorCode::Unavailable),
    ("PropertyChangeNotAllowed", CloudErrorCode::Conflict),
    ("PreconditionFailed", CloudErrorCode::Conflict),
    ("Conflict", CloudErrorCode::Conflict),
    ("AnotherOperationInProgress", CloudErrorCode::Conflict),
    ("RetryableErrorDueToAnotherOperation", CloudErrorCode::Conflict),
    ("OperationPreempted", CloudErrorCode::Conflict),
    ("GalleryImageNotFound", CloudErrorCode::Image),
    ("ImageNotFound", CloudErrorCode::Image),
    ("PlatformImageNotFound", CloudErrorCode::Image),
    ("ImageVersionDeprecated", CloudErrorCode::Image),
    ("MarketplacePurchaseEligibilityFailed", CloudErrorCode::Image),
    ("ResourcePurchaseValidationFailed", CloudErrorCode::Image),
    ("VMMarketplaceInvalidInput", CloudErrorCode::Image),
    ("SubscriptionNotEnabledEncryptionAtHost", CloudErrorCode::Encryption),
    ("VMSizeDoesNotSupportEncryptionAtHost", CloudErrorCode::SizeUnfit),
    ("VMSizeDoesNotSupportEphemeralOS", CloudErrorCode::SizeUnfit),
    ("DiskEncryptionSetNotFound", CloudErrorCode::Encryption),
    ("KeyVaultAccessForbidden", CloudErrorCode::Encryption),
    ("KeyVaultAndDiskInDifferentRegions", CloudErrorCode::Encryption),
    ("KeyVaultKeyDisabled", CloudErrorCode::Encryption),
    ("KeyVaultKeyNotFound", CloudErrorCode::Encryption),
    ("KeyVaultKeyIsDisabledOrExpired", CloudErrorCode::Encryption),
    ("KeyVaultNotFound", CloudErrorCode::Encryption),
    ("KeyVaultAuthenticationFailure", CloudErrorCode::Encryption),
    ("InternalServerError", CloudErrorCode::Unavailable),
    ("InternalExecutionError", CloudErrorCode::Unavailable),
    ("InternalOperationError", CloudErrorCode::Unavailable),
    ("RetryableError", CloudErrorCode::Unavailable),
    ("ServiceUnavailable", CloudErrorCode::Unavailable),
    ("ServerTimeout", CloudErrorCode::Unavailable),
    ("GatewayTimeout", CloudErrorCode::Unavailable),
];

/// The meanings of a code by a part of its text in lower case; the last one, with an empty text, is for any other.
type ByText = &'static [(&'static str, CloudErrorCode)];

const QUOTAS: ByText = &[
    ("lowprioritycores", CloudErrorCode::SpotQuota),
    ("total regional", CloudErrorCode::RegionalQuota),
    ("quota limits of core", CloudErrorCode::RegionalQuota),
    ("virtualmachines quota", CloudErrorCode::RegionalQuota),
    ("cores quota", CloudErrorCode::FamilyQuota),
];

/// A VM names a capacity reservation group that does not exist, may not be used, or has no capacity for it. Azure has
/// no separate code for that; its texts name the type of the group, or the reservation. Neither can be in the name of a
/// resource, which texts have too.
const RESERVATIONS: ByText = &[
    ("microsoft.compute/capacityreservationgroups/", CloudErrorCode::Reservation),
    ("capacity reservation", CloudErrorCode::Reservation),
];

/// `OperationNotAllowed` besides quotas.
const NOT_ALLOWED: ByText = &[("attached to vm", CloudErrorCode::InUse), ("", CloudErrorCode::Invalid)];

const AUTHORIZATION: ByText = &[
    ("deny assignment", CloudErrorCode::Lockdown),
    ("diskencryptionsets", CloudErrorCode::Encryption),
    ("", CloudErrorCode::Permission),
];

/// Errors in a requested VM.
const PARAMETERS: ByText = &[
    ("'microsoft.compute/encryptionathost' feature is not enabled", CloudErrorCode::Encryption),
    ("encryptionathost", CloudErrorCode::SizeUnfit),
    ("encryption at host", CloudErrorCode::SizeUnfit),
    ("cannot boot hypervisor generation", CloudErrorCode::SizeUnfit),
    ("cpu architecture", CloudErrorCode::SizeUnfit),
    ("disk controller", CloudErrorCode::SizeUnfit),
    ("storage account type", CloudErrorCode::SizeUnfit),
    ("is not supported for subscription", CloudErrorCode::SkuNotAvailable),
    ("disk encryption set", CloudErrorCode::Encryption),
    ("diskencryptionset", CloudErrorCode::Encryption),
    ("shared image gallery images", CloudErrorCode::Image),
    ("gallery image", CloudErrorCode::Image),
    ("", CloudErrorCode::Invalid),
];

/// Ambiguous codes.
const BY_TEXT: [(&str, &[ByText]); 11] = [
    ("OperationNotAllowed", &[QUOTAS, RESERVATIONS, NOT_ALLOWED]),
    ("ResourceNotFound", &[RESERVATIONS, &[("", CloudErrorCode::NotFound)]]),
    ("NotSupported", &[RESERVATIONS, &[("ephemeral", CloudErrorCode::SizeUnfit), ("", CloudErrorCode::Invalid)]]),
    ("ParentResourceNotFound", &[RESERVATIONS, &[("", CloudErrorCode::Invalid)]]),
    ("QuotaExceeded", &[QUOTAS, &[("", CloudErrorCode::FamilyQuota)]]),
    // A VM on a group that may not be used is refused by the linked one: this is a group that may not be read.
    ("AuthorizationFailed", &[AUTHORIZATION]),
    ("LinkedAuthorizationFailed", &[RESERVATIONS, AUTHORIZATION]),
    ("InvalidParameter", &[RESERVATIONS, PARAMETERS]),
    ("InvalidTemplateDeployment", &[PARAMETERS]),
    ("BadRequest", &[RESERVATIONS, PARAMETERS]),
    (
        "InvalidResourceReference",
        &[RESERVATIONS, &[("diskencryptionsets", CloudErrorCode::Encryption), ("", CloudErrorCode::Invalid)]],
    ),
];

/// The domain's code of an error, by ARM's `error.code` and `error.message`; `None` where the code is unknown. Codes
/// compare without case.
#[must_use]
pub fn known_code(code: &str, message: &str) -> Option<CloudErrorCode> {
    if let Some((_, code)) = BY_CODE.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)) {
        return Some(*code);
    }
    let (_, texts) = BY_TEXT.iter().find(|(known, _)| known.eq_ignore_ascii_case(code))?;
    let message = message.to_lowercase();
    texts.iter().copied().flatten().find(|(part, _)| message.contains(part)).map(|(_, code)| *code)
}

/// Limit and usage of a quota, in the two wordings of Compute.
pub(crate) fn quota(message: &str) -> Option<QuotaDetails> {
    let number = |after: &str| {
        let (_, rest) = message.split_once(after)?;
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let either = |one: &str, other: &str| number(one).or_else(|| number(other));
    let limit = either("Current Limit:", "Maximum allowed:")?;
    Some(QuotaDetails { limit, usage: either("Current Usage:", "Current in use:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_in_both_wordings() {
        let details = |limit, usage| Some(QuotaDetails { limit, usage });
        assert_eq!(quota("… Current Limit: 100, Current Usage: 96, Additional Required: 8 …"), details(100, 96));
        assert_eq!(quota("Maximum allowed: 4, Current in use: 4, Additional requested: 2."), details(4, 4));
        assert_eq!(quota("Current Limit: many"), None);
        assert_eq!(quota(""), None);
    }

    #[test]
    fn no_code_is_listed_twice() {
        let codes = BY_CODE.iter().map(|(code, _)| code).chain(BY_TEXT.iter().map(|(code, _)| code));
        let mut seen = std::collections::BTreeSet::new();
        for code in codes {
            assert!(seen.insert(code.to_lowercase()), "{code}");
        }
    }
}
