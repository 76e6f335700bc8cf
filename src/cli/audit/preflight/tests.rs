use super::permissions::PermissionState;
use super::{PreflightReport, table};
use napkeeper_azure::{ClusterPermissions, DenyAssignment, Permission, PolicyAssignment, Preflight};
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_core::catalog::live::{Lock, LockLevel};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::names::ArmId;

fn permission(actions: &[&str], not: &[&str]) -> Permission {
    let owned = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect();
    Permission { actions: owned(actions), not_actions: owned(not) }
}

fn preflight(actions: &[&str]) -> Preflight {
    Preflight {
        permissions: Ok(vec![permission(actions, &[])]),
        deny_assignments: Ok(Vec::new()),
        locks: Ok(Vec::new()),
        policies: Ok(Vec::new()),
        cluster: Some(ClusterPermissions { id: cluster(), permissions: Ok(vec![permission(actions, &[])]) }),
    }
}

fn cluster() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/k/providers/Microsoft.ContainerService/managedClusters/c").unwrap()
}

fn group() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/g").unwrap()
}

fn shown(preflight: &Preflight) -> (PreflightReport, String) {
    let found = PreflightReport::of(preflight, &group(), ModeArg::Companion).unwrap();
    let mut out = Vec::new();
    table::write(&found, &mut out).unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
    (found, text)
}

#[test]
fn missing_permissions_are_printed_as_a_role() {
    let (found, text) = shown(&preflight(&["*/read"]));
    assert_eq!(
        found.grant,
        [
            "Microsoft.Resources/tags/write",
            "Microsoft.Network/networkInterfaces/delete",
            "Microsoft.Compute/disks/delete"
        ]
    );
    assert!(!found.is_clear() && text.contains("az role assignment create"), "{text}");
    let (found, text) = shown(&preflight(&["*"]));
    assert!(found.is_clear() && text.contains("no permissions missing"), "{text}");
}

#[test]
fn a_provisioner_needs_more_than_a_companion() {
    let actions = |mode| -> Vec<String> {
        let report = PreflightReport::of(&preflight(&["*"]), &group(), mode).unwrap();
        report.permissions.into_iter().map(|permission| permission.action).collect()
    };
    let (companion, provisioner) = (actions(ModeArg::Companion), actions(ModeArg::Provisioner));
    assert!(companion.iter().all(|action| provisioner.contains(action)));
    let more: Vec<_> = provisioner.iter().filter(|action| !companion.contains(action)).collect();
    assert!(more.iter().any(|action| *action == "Microsoft.Compute/virtualMachines/delete"), "{more:?}");
    assert!(!companion.iter().any(|action| action.contains("virtualMachines/") && !action.ends_with("/read")));
}

#[test]
fn missing_permissions_for_machines_are_a_role_at_the_cluster() {
    let mut blind = preflight(&["*"]);
    let only = permission(&["Microsoft.ContainerService/managedClusters/read"], &[]);
    blind.cluster = Some(ClusterPermissions { id: cluster(), permissions: Ok(vec![only]) });
    let (found, text) = shown(&blind);
    assert!(!found.is_clear() && found.grant.is_empty());
    let pools = "Microsoft.ContainerService/managedClusters/agentPools";
    assert_eq!(found.grant_at_cluster, [format!("{pools}/read"), format!("{pools}/machines/read")]);
    let grant = format!("--role napkeeper-cluster --assignee <its client id> --scope {}", cluster());
    assert!(text.contains(&grant), "{text}");
    // A cluster outside of AKS has no Machines, and needs no permissions.
    blind.cluster = None;
    assert!(shown(&blind).0.is_clear());
}

#[test]
fn blockers_of_permissions_are_named() {
    let mut locked = preflight(&["*"]);
    locked.locks = Ok(vec![Lock {
        id: group().resource("Microsoft.Authorization/locks", "keep"),
        level: LockLevel::CanNotDelete,
        notes: None,
    }]);
    locked.deny_assignments = Ok(vec![DenyAssignment {
        name: "AKS lockdown".into(),
        permissions: vec![permission(&["*/write"], &[])],
        excluded_principals: 2,
    }]);
    locked.policies =
        Ok(vec![PolicyAssignment { name: "Need cost center".into(), effect: "deny".into(), scope: "/s".into() }]);
    let (found, text) = shown(&locked);
    let state = |action: &str| found.permissions.iter().find(|r| r.action.ends_with(action)).unwrap();
    assert_eq!(state("disks/delete").by.as_deref(), Some("lock keep (CanNotDelete)"));
    assert_eq!(state("tags/write").by.as_deref(), Some("deny assignment AKS lockdown"));
    assert_eq!(state("virtualMachines/read").state, PermissionState::Present);
    assert_eq!(found.blockers.len(), 3);
    assert!(text.contains("Need cost center denies"), "{text}");
}

#[test]
fn a_rejected_preflight_is_a_finding() {
    let refused = CloudError::new(CloudErrorCode::Permission, "403 no right to read");
    let all = Preflight {
        permissions: Err(refused.clone()),
        deny_assignments: Err(refused.clone()),
        locks: Err(refused.clone()),
        policies: Err(refused.clone()),
        cluster: Some(ClusterPermissions { id: cluster(), permissions: Err(refused) }),
    };
    let (found, text) = shown(&all);
    assert!(found.permissions.iter().all(|permission| permission.state == PermissionState::Unknown));
    assert_eq!((found.blockers.len(), found.grant.len(), found.grant_at_cluster.len()), (5, 0, 0));
    assert!(text.contains("grant Microsoft.Authorization/locks/read"), "{text}");
}
