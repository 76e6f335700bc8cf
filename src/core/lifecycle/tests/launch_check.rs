//! Whether nodes may be launched in this cluster at all.

use crate::catalog::CapacityType::OnDemand;
use crate::fixtures::{at, claim, cluster, group, managed, node, offering, pool, put, settings};
use crate::lifecycle::LaunchCheck;
use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::cluster::node::Node;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::labels;
use crate::model::names::{ArmId, ClaimName, ProviderId};
use crate::model::settings::{ControllerMode, Settings};
use crate::plan::{Command, CommandReport};
use crate::snapshot::{CommandKey, Snapshot};
use std::sync::Arc;

/// A Node of an agent pool in this group.
fn agent_node(group: &ArmId) -> Node {
    let vm = format!("{group}/providers/Microsoft.Compute/virtualMachineScaleSets/aks-system-vmss/virtualMachines/0");
    let provider_id = Some(ProviderId::of_vm(&ArmId::new(vm).unwrap()));
    let mut node = Node { provider_id, ready: true, ..node("aks-system-0", 1, 4) };
    let labels = node.labels.iter().filter(|(key, _)| &***key != labels::NODEPOOL);
    node.labels = labels.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect();
    node
}

fn answered(owner: Option<ArmId>) -> CommandReport {
    CommandReport { group_owner: Some(owner), ..CommandReport::default() }
}

/// The check of a replica that Azure has told the owner of the group.
fn check_with(owner: Option<ArmId>) -> LaunchCheck {
    let mut check = LaunchCheck::default();
    check.record(&answered(owner));
    check
}

fn hold_of(check: &mut LaunchCheck, snapshot: &Snapshot) -> Option<&'static str> {
    let _ = check.decide(snapshot, &settings(), at(0));
    check.hold.as_ref().map(LaunchHold::category)
}

#[test]
fn nothing_is_launched_before_azure_and_a_node_have_shown_that_the_group_is_this_clusters() {
    let own = || Some(settings().cluster.id);
    let other = ArmId::new("/subscriptions/s/resourceGroups/o/providers/x/managedClusters/other").ok();
    let elsewhere = ArmId::new("/subscriptions/s/resourceGroups/MC_other").unwrap();
    let mut empty = cluster([pool("general")]);
    assert_eq!(hold_of(&mut LaunchCheck::default(), &empty), Some("GroupUnread"));
    assert_eq!(hold_of(&mut check_with(own()), &empty), Some("NoAgentNode"));
    empty.put_node(agent_node(&elsewhere));
    assert_eq!(hold_of(&mut check_with(own()), &empty), Some("NoAgentNode"), "a Node of another group");
    let mut unready = empty.clone();
    unready.put_node(Node { ready: false, ..agent_node(&group()) });
    assert_eq!(hold_of(&mut check_with(own()), &unready), Some("NoAgentNode"));
    let mut right = empty.clone();
    right.put_node(agent_node(&group()));
    assert_eq!(hold_of(&mut LaunchCheck::default(), &right), Some("GroupUnread"));
    assert_eq!(hold_of(&mut check_with(None), &right), Some("OtherGroup"));
    assert_eq!(hold_of(&mut check_with(other), &right), Some("OtherGroup"));
    let mut check = check_with(own());
    assert_eq!(hold_of(&mut check, &right), None);
    assert_eq!(hold_of(&mut check, &empty), None, "it was shown in this term");
}

#[test]
fn a_node_that_was_launched_into_the_group_proves_nothing() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, managed("general-a", &pool("general"), offering("Standard_D2s_v5", 1, OnDemand)));
    assert_eq!(hold_of(&mut check_with(Some(settings().cluster.id)), &snapshot), Some("NoAgentNode"));
    // Nor does one whose NodeClaim no longer exists, or whose labels were removed.
    let bought = snapshot.nodes().values().next().unwrap().clone();
    let mut released = cluster([pool("general")]);
    released.put_node(Node::clone(&bought));
    assert_eq!(hold_of(&mut check_with(Some(settings().cluster.id)), &released), Some("NoAgentNode"));
    snapshot.put_node(Node { labels: Default::default(), ..Node::clone(&bought) });
    assert_eq!(hold_of(&mut check_with(Some(settings().cluster.id)), &snapshot), Some("NoAgentNode"));
}

#[test]
fn a_node_claim_of_another_karpenter_holds_launches_for_as_long_as_it_exists() {
    let mut snapshot = cluster([pool("general")]);
    snapshot.put_node(agent_node(&group()));
    let mut check = check_with(Some(settings().cluster.id));
    assert_eq!(hold_of(&mut check, &snapshot), None);
    let own = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
    let mut foreign = own.clone();
    snapshot.put_claim(own);
    assert_eq!(hold_of(&mut check, &snapshot), None);
    foreign.spec.planned.clear();
    (foreign.has_finalizer, foreign.name) = (false, ClaimName::new("theirs-b").unwrap());
    snapshot.put_claim(foreign.clone());
    assert_eq!(hold_of(&mut check, &snapshot), None, "no controller works on it");
    foreign.has_finalizer = true;
    snapshot.put_claim(foreign.clone());
    assert_eq!(hold_of(&mut check, &snapshot), Some("ForeignNodeClaim"));
    assert!(
        check.hold.as_ref().unwrap().to_string().starts_with("NodeClaim theirs-b was created by another Karpenter")
    );
    snapshot.remove_claim(&foreign.name);
    assert_eq!(hold_of(&mut check, &snapshot), None);
}

#[test]
fn azure_is_asked_once_and_again_after_growing_waits_until_it_names_this_cluster() {
    let mut snapshot = cluster([pool("general")]);
    let mut check = LaunchCheck::default();
    let mut asked = Vec::new();
    for second in 0..1_300 {
        let plan = check.decide(&snapshot, &settings(), at(second));
        asked.extend(plan.commands.iter().map(|planned| (second, planned.command.clone())));
        assert!(
            asked.last().is_some_and(|(last, _)| *last == second || plan.next.is_some_and(|next| next > at(second)))
        );
        check.record(&CommandReport {
            error: Some(EffectError::Cluster(ClusterError::Unavailable)),
            ..Default::default()
        });
    }
    assert!(asked.iter().all(|(_, command)| *command == Command::ReadGroupOwner));
    let times: Vec<i64> = asked.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 15, 45, 105, 225, 465, 765, 1065]);
    check.record(&answered(ArmId::new("/subscriptions/s/x").ok()));
    assert_eq!(check.decide(&snapshot, &settings(), at(1_400)).commands.len(), 1, "it may be corrected");
    snapshot.in_progress.insert(CommandKey::GroupOwner);
    assert_eq!(check.decide(&snapshot, &settings(), at(3_000)).commands, []);
    snapshot.in_progress.clear();
    check.record(&answered(Some(settings().cluster.id)));
    assert_eq!(check.decide(&snapshot, &settings(), at(9_000)).commands, []);
}

#[test]
fn beside_managed_nap_nothing_is_asked() {
    let beside = Settings { mode: ControllerMode::Companion, ..settings() };
    let mut check = LaunchCheck::default();
    assert_eq!(check.decide(&cluster([pool("general")]), &beside, at(0)), Default::default());
    assert_eq!(check.hold, None);
}
