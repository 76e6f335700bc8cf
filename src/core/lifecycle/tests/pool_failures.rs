//! NodePools whose nodes do not come up.

use crate::catalog::CapacityType::OnDemand;
use crate::fixtures::{
    at, being_deleted, claim, class, cluster, managed, offering, pod, pool, put, requirements_in, running, settings,
    shape,
};
use crate::lifecycle::{LifecycleMemory, lifecycle};
use crate::model::cluster::claim::{Claim, LaunchFailure};
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::cluster::status::{ConditionType, StatusCondition};
use crate::model::labels;
use crate::model::names::NodePoolName;
use crate::plan::Command;
use crate::provisioning::{ProvisionMemory, provision};
use crate::snapshot::Snapshot;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";
const MINUTE: i64 = 60;

/// A NodeClaim whose VM runs since it was created, at this second.
fn launched(name: &str, second: i64) -> Claim {
    let mut claim = claim(name, &pool("general"), vec![offering(SMALL, 1, OnDemand)]);
    (claim.created_at, claim.status.launched) = (at(second), Some(at(second)));
    claim
}

/// Decides, lets all that is deleted disappear, and returns how the pool may launch.
fn step(snapshot: &mut Snapshot, memory: &mut LifecycleMemory, second: i64) -> Option<PoolHold> {
    let plan = lifecycle(snapshot, memory, &ProvisionMemory::default(), &settings(), at(second));
    for planned in plan.commands {
        if let Command::DeleteClaim { claim, .. } = planned.command {
            snapshot.remove_claim(&claim.name);
        }
    }
    memory.pool_failures.holds(snapshot, at(second)).remove(&NodePoolName::new("general").unwrap())
}

fn is_held(hold: Option<PoolHold>) -> bool {
    matches!(hold, Some(PoolHold::Held { .. }))
}

#[test]
fn a_pool_that_is_being_deleted_launches_nothing() {
    let deleted = NodePool { deletion: being_deleted(at(0)), ..pool("general") };
    let mut snapshot = cluster([deleted, pool("other")]);
    let held = |name: &str| snapshot.pool_hold(&NodePoolName::new(name).unwrap()).is_some();
    assert_eq!((held("general"), held("other")), (true, false));
    snapshot.put_pod(pod("p", &Arc::new(shape("p", 500, 1))));
    let mut memory = ProvisionMemory::default();
    let mut plan = provision(&snapshot, &mut memory, &settings(), at(100), 7);
    plan.extend(provision(&snapshot, &mut memory, &settings(), at(105), 7));
    let pools = plan.commands.iter().filter_map(|planned| match &planned.command {
        Command::CreateClaim(draft) => draft.spec.pool.as_ref().map(NodePoolName::as_str),
        _ => None,
    });
    assert_eq!(pools.collect::<Vec<_>>(), ["other"]);
}

#[test]
fn after_two_nodes_that_never_joined_a_pool_tries_one_at_a_time_after_growing_waits() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), LifecycleMemory::default());
    // Three at once are one failure.
    ["general-a", "general-b", "general-c"].into_iter().for_each(|name| snapshot.put_claim(launched(name, 0)));
    assert_eq!(step(&mut snapshot, &mut memory, 15 * MINUTE - 1), None);
    let mut now = 15 * MINUTE;
    assert!(is_held(step(&mut snapshot, &mut memory, now)));
    let mut waits = Vec::new();
    for attempt in 0..7 {
        let failed_at = now;
        while is_held(step(&mut snapshot, &mut memory, now)) {
            now += MINUTE;
        }
        waits.push((now - failed_at) / MINUTE);
        assert_eq!(step(&mut snapshot, &mut memory, now), Some(PoolHold::OneNode));
        snapshot.put_claim(launched(&format!("general-{attempt}"), now));
        assert!(is_held(step(&mut snapshot, &mut memory, now + MINUTE)), "one is being tried");
        now += 15 * MINUTE;
        assert!(is_held(step(&mut snapshot, &mut memory, now)), "it did not join either");
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120]);
}

#[test]
fn a_node_that_comes_up_or_another_template_ends_a_hold() {
    let failing = || {
        let (mut snapshot, mut memory) = (cluster([pool("general")]), LifecycleMemory::default());
        ["general-a", "general-b"].into_iter().for_each(|name| snapshot.put_claim(launched(name, 0)));
        assert!(is_held(step(&mut snapshot, &mut memory, 15 * MINUTE)));
        (snapshot, memory)
    };
    let (mut snapshot, mut memory) = failing();
    let (mut fresh, node) = managed("general-c", &pool("general"), offering(SMALL, 1, OnDemand));
    fresh.created_at = at(MINUTE);
    put(&mut snapshot, (fresh, node));
    assert_eq!(step(&mut snapshot, &mut memory, 16 * MINUTE), None);

    let (mut snapshot, mut memory) = failing();
    let (mut older, node) = managed("general-c", &pool("general"), offering(SMALL, 1, OnDemand));
    older.created_at = at(-MINUTE);
    put(&mut snapshot, (older, node));
    assert!(is_held(step(&mut snapshot, &mut memory, 16 * MINUTE)), "it came up before");

    let (mut snapshot, mut memory) = failing();
    let corrected = NodeClass { os_disk_gb: 256, ..class() };
    snapshot.put_class(corrected.name.clone(), corrected);
    assert_eq!(step(&mut snapshot, &mut memory, 16 * MINUTE), None);

    let (mut snapshot, mut memory) = failing();
    let mut changed = pool("general");
    changed.weight = 7;
    snapshot.put_pool(changed.name.clone(), changed.clone());
    assert!(is_held(step(&mut snapshot, &mut memory, 16 * MINUTE)), "its nodes are made as before");
    changed.labels = [(Arc::from("team"), Arc::from("ml"))].into();
    snapshot.put_pool(changed.name.clone(), changed);
    assert_eq!(step(&mut snapshot, &mut memory, 17 * MINUTE), None);
}

#[test]
fn after_a_restart_one_node_is_tried_in_a_pool_whose_condition_says_that_it_was_held() {
    let with_condition = |holds| {
        let condition = StatusCondition { holds, reason: Arc::from("NodesDidNotComeUp"), message: Arc::from("m") };
        let mut pool = pool("general");
        pool.status.conditions.by_type.insert(ConditionType::NodeRegistrationHealthy, condition);
        pool
    };
    let held = with_condition(false);
    let (mut snapshot, mut memory) = (cluster([held]), LifecycleMemory::default());
    assert_eq!(step(&mut snapshot, &mut memory, 0), Some(PoolHold::OneNode));
    snapshot.put_claim(launched("general-a", 0));
    assert!(is_held(step(&mut snapshot, &mut memory, 15 * MINUTE)));
    assert!(is_held(step(&mut snapshot, &mut memory, 25 * MINUTE - 1)));
    assert_eq!(step(&mut snapshot, &mut memory, 25 * MINUTE), Some(PoolHold::OneNode));
    // That a node has come up may be written a little later.
    let (mut fresh, node) = managed("general-b", &pool("general"), offering(SMALL, 1, OnDemand));
    fresh.created_at = at(25 * MINUTE);
    put(&mut snapshot, (fresh, node));
    assert_eq!(step(&mut snapshot, &mut memory, 27 * MINUTE), None);
    let healthy = with_condition(true);
    assert_eq!(step(&mut cluster([healthy]), &mut LifecycleMemory::default(), 0), None);
}

#[test]
fn after_a_restart_nodes_that_were_given_up_and_are_in_no_condition_yet_hold_their_pool() {
    let given_up = |name: &str, deleted: i64| {
        let mut claim = launched(name, 0);
        claim.deleting_at = Some(at(deleted));
        claim
    };
    let restarted = |deleted: i64, at_second: i64| {
        let (mut snapshot, mut memory) = (cluster([pool("general")]), LifecycleMemory::default());
        ["general-a", "general-b"].into_iter().for_each(|name| snapshot.put_claim(given_up(name, deleted)));
        let first = step(&mut snapshot, &mut memory, at_second);
        (first, step(&mut snapshot, &mut memory, deleted + 5 * MINUTE))
    };
    // The time of a deletion has no fractions of a second, and is another clock's.
    for deleted in [15 * MINUTE, 15 * MINUTE - 1] {
        let (first, later) = restarted(deleted, 16 * MINUTE);
        assert!(is_held(first));
        assert_eq!(later, Some(PoolHold::OneNode), "five minutes after they were given up");
    }
    // Deleted before the time was up, or so long ago that the hold has passed: nothing is said about the pool.
    assert_eq!(restarted(10 * MINUTE, 11 * MINUTE), (None, None));
    assert_eq!(restarted(15 * MINUTE, 60 * MINUTE), (None, None));
}

#[test]
fn one_failure_among_nodes_that_come_up_holds_nothing() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), LifecycleMemory::default());
    for round in 0..10 {
        let at_second = round * 3_600;
        snapshot.put_claim(launched(&format!("general-bad{round}"), at_second));
        let (mut good, node) = managed(&format!("general-good{round}"), &pool("general"), offering(SMALL, 1, OnDemand));
        good.created_at = at(at_second);
        put(&mut snapshot, (good, node));
        assert_eq!(step(&mut snapshot, &mut memory, at_second + 15 * MINUTE), None);
    }
}

#[test]
fn refusals_that_need_a_correction_hold_a_pool_and_lack_of_capacity_does_not() {
    for (code, held) in [("permission", true), ("image", true), ("allocation_failed", false), ("throttled", false)] {
        let (mut snapshot, mut memory) = (cluster([pool("general")]), LifecycleMemory::default());
        for name in ["general-a", "general-b"] {
            let mut refused = claim(name, &pool("general"), vec![offering(SMALL, 1, OnDemand)]);
            let message = Arc::from("The client does not have authorization");
            refused.status.launch_failed = Some(LaunchFailure { at: at(0), code: Arc::from(code), message });
            snapshot.put_claim(refused);
        }
        let hold = step(&mut snapshot, &mut memory, 0);
        assert_eq!(is_held(hold.clone()), held, "{code}: {hold:?}");
        if let Some(PoolHold::Held { reason }) = hold {
            let text = "the last 2 nodes did not come up (Azure refused every offering: The client does not have \
                        authorization); one is tried after ";
            assert!(reason.starts_with(text), "{reason}");
        }
        assert!(!is_held(step(&mut snapshot, &mut memory, MINUTE)), "the first hold is a minute");
    }
}

/// A NodeClaim whose Node has joined and does not become ready, in a pool of which one node failed before.
fn joined(change: impl FnOnce(&mut Claim, &mut Node)) -> Snapshot {
    let mut snapshot = cluster([pool("general")]);
    let (mut claim, mut node) = managed("general-a", &pool("general"), offering(SMALL, 1, OnDemand));
    (claim.status.registered, claim.status.initialized) = (Some(at(0)), None);
    change(&mut claim, &mut node);
    put(&mut snapshot, (claim, node));
    snapshot
}

fn deleted(snapshot: &Snapshot, second: i64) -> Option<String> {
    let plan =
        lifecycle(snapshot, &mut LifecycleMemory::default(), &ProvisionMemory::default(), &settings(), at(second));
    let delete = plan.commands.iter().find(|planned| matches!(planned.command, Command::DeleteClaim { .. }));
    delete.map(|planned| planned.reason.to_string())
}

#[test]
fn a_node_that_does_not_become_ready_for_pods_is_given_up() {
    let silent = joined(|_, node| node.ready = false);
    assert_eq!(deleted(&silent, 30 * MINUTE - 1), None);
    let reason = "node was not ready for pods within 30 minutes: its kubelet does not report Ready";
    assert_eq!(deleted(&silent, 30 * MINUTE).as_deref(), Some(reason));
    let without_device = joined(|claim, _| claim.spec.requests.extended = [(Arc::from("nvidia.com/gpu"), 1)].into());
    let reason = "node was not ready for pods within 30 minutes: it has no nvidia.com/gpu";
    assert_eq!(deleted(&without_device, 30 * MINUTE).as_deref(), Some(reason));

    // A Deployment's pod runs there: the node is of use.
    let mut used = without_device.clone();
    let node = used.nodes().values().next().unwrap().clone();
    used.put_pod(running("web", &Arc::new(shape("web", 100, 1)), &node));
    assert_eq!(deleted(&used, 30 * MINUTE), None);
}

#[test]
fn a_held_pool_launches_nothing_and_then_one_node() {
    let mut small = pool("general");
    small.requirements.add_all(&requirements_in(&[(labels::INSTANCE_TYPE, &[SMALL])]));
    let mut snapshot = cluster([small]);
    let large = Arc::new(shape("web", 1_500, 4));
    for name in ["a", "b", "c"] {
        snapshot.put_pod(pod(name, &large));
    }
    let launched = |snapshot: &Snapshot, memory: &mut ProvisionMemory, second| {
        // The first pass opens the batch window.
        let mut plan = provision(snapshot, memory, &settings(), at(second), 7);
        plan.extend(provision(snapshot, memory, &settings(), at(second + 5), 7));
        plan.commands.iter().filter(|planned| matches!(planned.command, Command::CreateClaim(_))).count()
    };
    let free = launched(&snapshot, &mut ProvisionMemory::default(), 10 * MINUTE);
    assert!(free > 1, "{free}");
    let name = NodePoolName::new("general").unwrap();
    snapshot.pool_holds.insert(name.clone(), PoolHold::Held { reason: Arc::from("the last 2 nodes did not come up") });
    let mut memory = ProvisionMemory::default();
    assert_eq!(launched(&snapshot, &mut memory, 10 * MINUTE), 0);
    let reason = memory.unplaced[0].reason();
    assert!(reason.contains("the last 2 nodes did not come up"), "{reason}");
    snapshot.pool_holds.insert(name, PoolHold::OneNode);
    assert_eq!(launched(&snapshot, &mut memory, 11 * MINUTE), 1);
}
