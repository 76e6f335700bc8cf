//! Authorization: what does ARM say of the caller's rights in the group?
//!
//! The caller is a contributor of the node resource group. What a fault forbids is missing from its rights, so that a
//! preflight sees what a listing would run into.

use crate::cloud::{Cloud, ListingFault};
use jiff::Timestamp;
use serde_json::{Value, json};

/// What a contributor may not do (`b24988ac-6180-42a0-ab88-20f7382dd24c` among Azure's built-in roles).
const NOT_OF_A_CONTRIBUTOR: [&str; 3] = [
    "Microsoft.Authorization/*/Delete",
    "Microsoft.Authorization/*/Write",
    "Microsoft.Authorization/elevateAccess/Action",
];
/// What a caller lacks whose listings are forbidden.
const LISTINGS: [&str; 2] = ["Microsoft.Compute/*/read", "Microsoft.Network/*/read"];

/// `Microsoft.Authorization/permissions`: an entry for each role of the caller.
pub(super) fn permissions(cloud: &Cloud, now: Timestamp) -> Value {
    let forbidden = cloud.faults.listing_fault(now) == Some(ListingFault::Forbidden);
    let lacks: &[&str] = if forbidden { &LISTINGS } else { &[] };
    let not: Vec<&str> = NOT_OF_A_CONTRIBUTOR.iter().chain(lacks).copied().collect();
    json!({ "value": [{ "actions": ["*"], "notActions": not, "dataActions": [], "notDataActions": [] }] })
}

/// A listing of what this group has none of: `denyAssignments`, `policyAssignments`.
pub(super) fn none() -> Value {
    json!({ "value": [] })
}
