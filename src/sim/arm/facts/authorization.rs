//! The caller's rights in the group, its locks and policies, as `Microsoft.Authorization` lists them.
//!
//! The caller is a contributor of the node resource group. What a fault denies is missing from its permissions, or the
//! denying lock or policy is listed, so that a preflight sees the same as a request.

use crate::cloud::{Cloud, FaultDuration, ListedKind, ListingFault};
use jiff::Timestamp;
use napkeeper_core::model::names::ArmId;
use serde_json::{Value, json};

/// Actions that a contributor may not perform (`b24988ac-6180-42a0-ab88-20f7382dd24c` among Azure's built-in roles).
const NOT_OF_A_CONTRIBUTOR: [&str; 3] = [
    "Microsoft.Authorization/*/Delete",
    "Microsoft.Authorization/*/Write",
    "Microsoft.Authorization/elevateAccess/Action",
];
/// Actions that a caller lacks if listings are forbidden.
const LISTINGS: [&str; 2] = ["Microsoft.Compute/*/read", "Microsoft.Network/*/read"];
/// Actions that a caller without write permission lacks.
const WRITES: [&str; 3] = ["*/write", "*/delete", "*/action"];

/// `Microsoft.Authorization/permissions`: an entry for each role of the caller.
pub(in crate::arm) fn permissions(cloud: &Cloud, now: Timestamp) -> Value {
    let unlisted = cloud.faults.listing.is_some_and(|(end, fault)| now < end && fault == ListingFault::Forbidden);
    let unwritten = cloud.faults.forbidden_until.is_some_and(|end| now < end);
    let lacks = |is: bool, actions: &'static [&'static str]| if is { actions } else { &[] };
    let not = NOT_OF_A_CONTRIBUTOR.iter().chain(lacks(unlisted, &LISTINGS)).chain(lacks(unwritten, &WRITES));
    let not: Vec<&str> = not.copied().collect();
    json!({ "value": [{ "actions": ["*"], "notActions": not, "dataActions": [], "notDataActions": [] }] })
}

/// `Microsoft.Authorization/permissions` at the cluster, which lies in a group of its own: what lists Machines.
pub(in crate::arm) fn at_cluster(cloud: &Cloud, now: Timestamp) -> Value {
    let fault = cloud.faults.listing_fault(ListedKind::Machines, now);
    let actions: &[&str] = match fault {
        Some(ListingFault::Forbidden) => &["Microsoft.ContainerService/managedClusters/read"],
        _ => &["Microsoft.ContainerService/managedClusters/*/read"],
    };
    json!({ "value": [{ "actions": actions, "notActions": [], "dataActions": [], "notDataActions": [] }] })
}

/// `Microsoft.Authorization/denyAssignments`: the lockdown, while there is one.
pub(in crate::arm) fn denials(cloud: &Cloud, now: Timestamp) -> Value {
    if cloud.faults.lockdown_until.is_none_or(|end| now >= end) {
        return json!({ "value": [] });
    }
    let group = &cloud.settings().group;
    json!({ "value": [{
        "id": id(group, "denyAssignments/lockdown"),
        "name": "lockdown",
        "type": "Microsoft.Authorization/denyAssignments",
        "properties": {
            "denyAssignmentName": "AKS node resource group lockdown",
            "scope": group.as_str(),
            "isSystemProtected": true,
            "permissions": [{ "actions": ["*/write", "*/delete", "*/action"], "notActions": [] }],
            "principals": [{ "id": "00000000-0000-0000-0000-000000000000", "type": "SystemDefined" }],
            "excludePrincipals": [{ "id": "00000000-0000-4000-8000-0000000000aa", "type": "ServicePrincipal" }],
        },
    }] })
}

/// `Microsoft.Authorization/policyAssignments`: those that deny, while they do.
pub(in crate::arm) fn policies(cloud: &Cloud, now: Timestamp) -> Value {
    let group = &cloud.settings().group;
    let in_force = cloud.faults.policies.iter().filter(|policy| match policy.duration {
        FaultDuration::Until(end) => now < end,
        FaultDuration::Times(times) => times > 0,
    });
    let assignment = |policy: &crate::cloud::PolicyAssignment| {
        json!({
            "id": id(group, &format!("policyAssignments/{}", policy.assignment)),
            "name": policy.assignment,
            "type": "Microsoft.Authorization/policyAssignments",
            "properties": {
                "displayName": policy.assignment,
                "policyDefinitionId": format!("/providers/Microsoft.Authorization/policyDefinitions/{}", policy.assignment),
                "scope": group.as_str(),
                "enforcementMode": "Default",
                "parameters": { "effect": { "value": policy.effect() } },
            },
        })
    };
    json!({ "value": in_force.map(assignment).collect::<Vec<_>>() })
}

fn id(group: &ArmId, collection: &str) -> String {
    format!("{group}/providers/Microsoft.Authorization/{collection}")
}
