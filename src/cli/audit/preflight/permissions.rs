//! The permissions that the controller's jobs need, and which of them are missing or denied.

use napkeeper_azure::{ClusterPermissions, Preflight};
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_core::catalog::live::LockLevel;
use napkeeper_core::model::names::ArmId;
use serde::{Deserialize, Serialize};

/// A job of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Job {
    /// List resources.
    Report,
    /// Find out what is denied.
    Check,
    /// Tag suspects.
    Mark,
    /// Delete orphans.
    Collect,
    /// Launch and remove nodes, in place of managed NAP.
    Provision,
}

impl Job {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Check => "check",
            Self::Mark => "mark",
            Self::Collect => "collect",
            Self::Provision => "provision",
        }
    }
}

/// The role of reports.
const READ_ONLY: &str = include_str!("../../../../manifests/azure/roles/read-only.json");
/// The role of the controller in companion mode.
const JANITOR: &str = include_str!("../../../../manifests/azure/roles/janitor.json");
/// The role of the controller in provisioner mode.
const PROVISIONER: &str = include_str!("../../../../manifests/azure/roles/provisioner.json");

/// What actions at the managed cluster begin with. Without them no inventory is complete, and nothing is swept.
const AT_CLUSTER: &str = "Microsoft.ContainerService/";

/// A role definition, as `az role definition create` reads it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleDefinition {
    actions: Vec<String>,
}

/// The actions that the jobs of a mode need, by the roles that ship.
fn needed(mode: ModeArg) -> anyhow::Result<Vec<(Job, String)>> {
    let actions = |role: &str| serde_json::from_str(role).map(|RoleDefinition { actions }| actions);
    let (reads, sweeps) = (actions(READ_ONLY)?, actions(JANITOR)?);
    let all = if mode == ModeArg::Provisioner { actions(PROVISIONER)? } else { sweeps.clone() };
    let job = |action: &String| match action {
        _ if reads.contains(action) => Job::Report,
        _ if !sweeps.contains(action) => Job::Provision,
        _ if action.starts_with("Microsoft.Authorization/") => Job::Check,
        _ if action.ends_with("/delete") => Job::Collect,
        _ => Job::Mark,
    };
    Ok(all.into_iter().map(|action| (job(&action), action)).collect())
}

/// Whether an action is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PermissionState {
    Present,
    Missing,
    /// Granted, but denied by a deny assignment or a lock.
    Denied,
    /// The permissions could not be read.
    Unknown,
}

impl PermissionState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Permission {
    pub(super) job: Job,
    /// The group or the cluster at which it is needed.
    pub(super) scope: String,
    pub(super) action: String,
    pub(super) state: PermissionState,
    /// The deny assignment or lock that denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

pub(super) fn missing(permissions: &[Permission]) -> Vec<String> {
    permissions
        .iter()
        .filter(|permission| permission.state == PermissionState::Missing)
        .map(|permission| permission.action.clone())
        .collect()
}

/// The permissions at the managed cluster that the jobs of a mode need. Neither locks nor lockdowns prevent reading.
///
/// # Errors
/// If a role that ships is broken.
pub(super) fn at_cluster(cluster: &ClusterPermissions, mode: ModeArg) -> anyhow::Result<Vec<Permission>> {
    let there = needed(mode)?.into_iter().filter(|(_, action)| action.starts_with(AT_CLUSTER));
    let permission = |(job, action): (Job, String)| {
        let state = match cluster.allows(&action) {
            Some(true) => PermissionState::Present,
            Some(false) => PermissionState::Missing,
            None => PermissionState::Unknown,
        };
        Permission { job, scope: cluster.id.to_string(), action, state, by: None }
    };
    Ok(there.map(permission).collect())
}

/// The permissions in the node resource group that the jobs of a mode need.
///
/// # Errors
/// If a role that ships is broken.
pub(super) fn in_group(preflight: &Preflight, group: &ArmId, mode: ModeArg) -> anyhow::Result<Vec<Permission>> {
    let there = needed(mode)?.into_iter().filter(|(_, action)| !action.starts_with(AT_CLUSTER));
    Ok(there.map(|(job, action)| permission(preflight, group, job, action)).collect())
}

fn permission(preflight: &Preflight, group: &ArmId, job: Job, action: String) -> Permission {
    let denial = preflight.denied_by(&action).next().map(|denial| format!("deny assignment {}", denial.name));
    let lock = preflight.locks.iter().flatten().find(|lock| {
        let deletes = action.ends_with("/delete");
        deletes || lock.level == LockLevel::ReadOnly && !action.ends_with("/read")
    });
    let by = denial.or_else(|| lock.map(|lock| format!("lock {} ({})", lock.id.name(), lock.level.as_str())));
    let state = match (preflight.allows(&action), &by) {
        (Some(false), _) => PermissionState::Missing,
        (_, Some(_)) => PermissionState::Denied,
        (Some(true), None) => PermissionState::Present,
        (None, None) => PermissionState::Unknown,
    };
    Permission { job, scope: group.to_string(), action, state, by }
}
