//! Deny assignments, locks and policies that block the controller, and what could not be read.

use crate::output::plural;
use napkeeper_azure::Preflight;
use napkeeper_core::model::errors::{CloudError, FailureCause};
use serde::Serialize;

/// What blocks the controller besides missing permissions, or could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Blocker {
    pub(super) about: &'static str,
    pub(super) message: String,
    pub(super) remedy: String,
}

pub(super) fn blockers(preflight: &Preflight) -> Vec<Blocker> {
    let mut blockers = Vec::new();
    let mut put = |about, message: String, remedy: &str| {
        blockers.push(Blocker { about, message, remedy: remedy.to_owned() });
    };
    for denial in preflight.deny_assignments.iter().flatten() {
        let excluded = plural(denial.excluded_principals, "principal");
        put(
            "deny assignment",
            format!("{} denies actions regardless of roles; excluded principals: {excluded}", denial.name),
            "this is AKS node resource group lockdown (restrictionLevel ReadOnly): set it to Unrestricted for sweeps \
             to delete; until then they only report",
        );
    }
    for lock in preflight.locks.iter().flatten() {
        put(
            "lock",
            format!("{} ({}) at {}", lock.id.name(), lock.level.as_str(), lock.id),
            "remove the lock if napkeeper should delete the locked resources",
        );
    }
    for policy in preflight.policies.iter().flatten() {
        let message = match policy.effect.as_str() {
            "deny" => format!("{} denies non-compliant resources", policy.name),
            "denyaction" => format!("{} denies deletes", policy.name),
            "initiative" => format!("{} is a policy initiative that may include a deny policy", policy.name),
            _ => format!("{}: its definition could not be read, it may deny", policy.name),
        };
        put(
            "policy",
            format!("{message} (assigned at {})", policy.scope),
            "check that it allows the VMs, NICs and tags that napkeeper creates, or exempt the node resource group",
        );
    }
    let mut unread = |about, error: Option<&CloudError>, permission: &str| {
        if let Some(error) = error {
            let message = format!("could not be read: {}", error.message);
            let remedy = match error.cause {
                FailureCause::NotFound => "check clusterId and nodeResourceGroup: it does not exist".to_owned(),
                _ => format!("grant {permission}, or check it manually"),
            };
            put(about, message, &remedy);
        }
    };
    unread("permissions", preflight.permissions.as_ref().err(), "Microsoft.Authorization/permissions/read");
    let at_cluster = preflight.cluster.as_ref().and_then(|cluster| cluster.permissions.as_ref().err());
    unread("permissions at the cluster", at_cluster, "Microsoft.Authorization/permissions/read at the cluster");
    unread(
        "deny assignments",
        preflight.deny_assignments.as_ref().err(),
        "Microsoft.Authorization/denyAssignments/read",
    );
    unread("locks", preflight.locks.as_ref().err(), "Microsoft.Authorization/locks/read");
    unread("policies", preflight.policies.as_ref().err(), "Microsoft.Authorization/policyAssignments/read");
    blockers
}
