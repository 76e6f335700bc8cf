//! The permissions that the controller's jobs need, and which of them are missing or denied.

use napkeeper_azure::{ClusterPermissions, Preflight};
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_core::catalog::live::LockLevel;
use napkeeper_core::model::names::ArmId;
use serde::Serialize;

/// A job of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Job {
    /// List resources.
    Report,
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
            Self::Mark => "mark",
            Self::Collect => "collect",
            Self::Provision => "provision",
        }
    }
}

/// The actions in the node resource group that each job needs.
const IN_GROUP: [(Job, &str); 20] = [
    (Job::Report, "Microsoft.Resources/subscriptions/resourceGroups/read"),
    (Job::Report, "Microsoft.Resources/subscriptions/resourceGroups/resources/read"),
    (Job::Report, "Microsoft.Compute/virtualMachines/read"),
    (Job::Report, "Microsoft.Compute/disks/read"),
    (Job::Report, "Microsoft.Compute/snapshots/read"),
    (Job::Report, "Microsoft.Compute/virtualMachineScaleSets/read"),
    (Job::Report, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"),
    (Job::Report, "Microsoft.Network/networkInterfaces/read"),
    (Job::Report, "Microsoft.Network/publicIPAddresses/read"),
    (Job::Report, "Microsoft.Network/loadBalancers/read"),
    (Job::Mark, "Microsoft.Resources/tags/write"),
    (Job::Collect, "Microsoft.Network/networkInterfaces/delete"),
    (Job::Collect, "Microsoft.Compute/disks/delete"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/delete"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/write"),
    (Job::Provision, "Microsoft.Compute/disks/write"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/extensions/write"),
    (Job::Provision, "Microsoft.Network/networkInterfaces/write"),
    (Job::Provision, "Microsoft.Network/networkInterfaces/join/action"),
    (Job::Provision, "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"),
];

/// The actions at the managed cluster: without them no inventory is complete, and nothing is swept.
pub(super) const AT_CLUSTER: [(Job, &str); 2] = [
    (Job::Report, "Microsoft.ContainerService/managedClusters/agentPools/read"),
    (Job::Report, "Microsoft.ContainerService/managedClusters/agentPools/machines/read"),
];

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
    pub(super) action: &'static str,
    pub(super) state: PermissionState,
    /// The deny assignment or lock that denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

pub(super) fn missing(permissions: &[Permission]) -> Vec<&'static str> {
    permissions
        .iter()
        .filter(|permission| permission.state == PermissionState::Missing)
        .map(|permission| permission.action)
        .collect()
}

/// The permissions at the managed cluster. Neither locks nor lockdowns prevent reading.
pub(super) fn at_cluster(cluster: &ClusterPermissions) -> impl Iterator<Item = Permission> {
    AT_CLUSTER.iter().map(|(job, action)| {
        let state = match cluster.allows(action) {
            Some(true) => PermissionState::Present,
            Some(false) => PermissionState::Missing,
            None => PermissionState::Unknown,
        };
        Permission { job: *job, scope: cluster.id.to_string(), action, state, by: None }
    })
}

/// The permissions in the node resource group that the jobs of a mode need.
pub(super) fn in_group(preflight: &Preflight, group: &ArmId, mode: ModeArg) -> Vec<Permission> {
    let needed = IN_GROUP.iter().filter(|(job, _)| mode == ModeArg::Provisioner || *job != Job::Provision);
    needed.map(|(job, action)| permission(preflight, group, *job, action)).collect()
}

fn permission(preflight: &Preflight, group: &ArmId, job: Job, action: &'static str) -> Permission {
    let denial = preflight.denied_by(action).next().map(|denial| format!("deny assignment {}", denial.name));
    let lock = preflight.locks.iter().flatten().find(|lock| {
        let deletes = action.ends_with("/delete");
        deletes || lock.level == LockLevel::ReadOnly && !action.ends_with("/read")
    });
    let by = denial.or_else(|| lock.map(|lock| format!("lock {} ({})", lock.id.name(), lock.level.as_str())));
    let state = match (preflight.allows(action), &by) {
        (Some(false), _) => PermissionState::Missing,
        (_, Some(_)) => PermissionState::Denied,
        (Some(true), None) => PermissionState::Present,
        (None, None) => PermissionState::Unknown,
    };
    Permission { job, scope: group.to_string(), action, state, by }
}
