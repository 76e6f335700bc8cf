//! Nodes that are unhealthy or about to be lost.

use super::*;
use crate::fixtures::being_deleted;
use crate::lifecycle::{DeleteIfUnhealthyScript, RepairBlock};
use crate::model::cluster::claim::ClaimStatus;
use crate::model::cluster::claim::ForcefulReason::{self, Interrupted, Unhealthy};
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::cluster::node::{ConditionStatus, Node, NodeCondition};
use crate::model::cluster::pod::TaintEffect;
use crate::model::cluster::pool::NodePool;
use crate::model::errors::ClusterError;
use crate::model::names::{NodePoolName, ObjectKey, Uid};
use crate::model::settings::{NodeHealthRules, Pause, Settings};
use crate::plan::{ClusterRead, SignOnNode};
use crate::provisioning::provision;
use jiff::Timestamp;

/// A condition since the start.
fn condition(kind: &str, status: ConditionStatus, message: &str) -> NodeCondition {
    let (kind, reason, message) = (Arc::from(kind), Arc::from("Reason"), Arc::from(message));
    NodeCondition { kind, status, since: at(0), reason, message, not_before: None }
}

fn unwell(node: &mut Node) {
    node.conditions = vec![condition("kubernetes.azure.com/NodeHealthy", ConditionStatus::False, "")];
}

fn evicted(node: &mut Node) {
    node.conditions = vec![condition("PreemptionScheduled", ConditionStatus::True, "")];
}

/// The pod of one node in use.
fn one(change: impl FnOnce(&mut Claim, &mut Node)) -> Snapshot {
    draining(|claim, node, _| {
        claim.deleting_at = None;
        change(claim, node);
    })
}

/// Nodes in use of these NodePools, so many of each, of which the first ones are changed.
fn many(pools: &[&str], count: usize, changed: usize, change: impl Fn(&mut Node)) -> Snapshot {
    let mut snapshot = cluster(pools.iter().map(|name| pool(name)));
    for name in pools {
        for n in 0..count {
            let (claim, mut node) = managed(&format!("{name}-{n:02}"), &pool(name), offering(SMALL, 1, Spot));
            node.labels.insert(Arc::from(labels::NODEPOOL), Arc::from(*name));
            if n < changed {
                change(&mut node);
            }
            put(&mut snapshot, (claim, node));
        }
    }
    snapshot
}

fn decide(snapshot: &Snapshot, seconds: i64) -> Vec<&'static str> {
    words(&decided(snapshot, &mut LifecycleMemory::default(), seconds))
}

/// Carries out what is decided about the one node.
fn carry_out(snapshot: &mut Snapshot, plan: &Plan, seconds: i64) {
    let claim = snapshot.claims().values().next().map(|claim| Claim::clone(claim)).unwrap();
    let node = snapshot.nodes().values().next().map(|node| Node::clone(node)).unwrap();
    let (mut claim, mut node) = (claim, node);
    for planned in &plan.commands {
        match &planned.command {
            Command::UpdateClaim { update: ClaimUpdate::Forced(reason), .. } => claim.status.forced = Some(*reason),
            Command::UpdateClaim { update: ClaimUpdate::NotDisrupted, .. } => {
                claim.status.forced = None;
                node.taints.retain(|taint| *taint != Taint::disrupted());
            }
            Command::UpdateNode { update: NodeUpdate::BeginDrain, .. } => {
                mark_draining(&mut node);
            }
            Command::DeleteClaim { .. } => claim.deleting_at = Some(at(seconds)),
            Command::RecordDeadline { deadline, .. } => claim.termination_at = Some(*deadline),
            _ => {}
        }
    }
    put(snapshot, (claim, node));
}

#[test]
fn a_node_is_marked_deleted_and_drained_in_time() {
    type Change = fn(&mut Node);
    let cases: [(Change, ForcefulReason, i64, &str); 2] =
        [(unwell, Unhealthy, 2, "unhealthy"), (evicted, Interrupted, 30, "interrupted")];
    for (change, reason, deadline, category) in cases {
        let mut snapshot = one(|_, node| change(node));
        let mut memory = LifecycleMemory::default();
        let mut step = |seconds| {
            let plan = decided(&snapshot, &mut memory, seconds);
            carry_out(&mut snapshot, &plan, seconds);
            (words(&plan), snapshot.claims().values().next().map(|claim| Claim::clone(claim)).unwrap())
        };
        let (first, claim) = step(1);
        assert_eq!((first, claim.status.forced), (vec!["mark"], Some(reason)));
        assert_eq!(step(2).0, [category]);
        assert_eq!(step(2).0, ["taint", "deadline"], "{reason:?}");
        let (drain, claim) = step(2);
        assert_eq!(drain, ["delete pod"], "{reason:?}: its grace period is 30 s, and no budget is asked");
        assert_eq!(claim.termination_at, Some(at(deadline)), "{reason:?}");
    }
}

#[test]
fn what_a_node_does_not_want_does_not_keep_it() {
    let snapshot = draining(|claim, node, pod| {
        claim.deleting_at = None;
        (node.do_not_disrupt, pod.do_not_disrupt) = (true, Some(DoNotDisrupt::Always));
        evicted(node);
    });
    assert_eq!(decide(&snapshot, 0), ["mark"]);
}

#[test]
fn a_node_that_is_not_ready_is_repaired_after_ten_minutes() {
    for status in [None, Some(ConditionStatus::Unknown), Some(ConditionStatus::False)] {
        let snapshot = one(|_, node| {
            node.ready = false;
            node.conditions = status.map(|status| condition("Ready", status, "")).into_iter().collect();
        });
        let mut memory = LifecycleMemory::default();
        let plan = decided(&snapshot, &mut memory, 599);
        assert_eq!((words(&plan), plan.next), (vec!["check"], Some(at(600))), "{status:?}");
        assert_eq!(words(&decided(&snapshot, &mut memory, 600)), ["mark"], "{status:?}");
    }
    assert!(decide(&one(|_, node| unwell(node)), 0).contains(&"mark"), "not tolerated at all");
}

#[test]
fn only_events_that_lose_a_vm_interrupt() {
    for (message, interrupts) in [
        ("Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. DurationInSeconds: -1.", true),
        ("Redeploy Scheduled: . See https://aka.ms/aks/scheduledevents", true),
        ("terminate scheduled", true),
        ("Freeze Scheduled: it may be redeployed later", false),
        ("Freeze Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. DurationInSeconds: 5", false),
        ("Reboot Scheduled: Sat, 01 Aug 2026 05:41:02 GMT.", false),
        ("", false),
    ] {
        for (status, holds) in [(ConditionStatus::True, true), (ConditionStatus::False, false)] {
            let snapshot = one(|_, node| node.conditions = vec![condition("VMEventScheduled", status, message)]);
            assert_eq!(decide(&snapshot, 0).contains(&"mark"), interrupts && holds, "{message} {status:?}");
        }
    }
    let by_reason = one(|_, node| {
        let reason = Arc::from("PreemptScheduled");
        node.conditions = vec![NodeCondition { reason, ..condition("VMEventScheduled", ConditionStatus::True, "") }];
    });
    assert!(decide(&by_reason, 0).contains(&"mark"));
    let other = one(|_, node| node.conditions = vec![condition("KernelDeadlock", ConditionStatus::True, "")]);
    assert!(decide(&other, 100_000).is_empty(), "of no rule");
}

#[test]
fn the_deadline_is_when_azure_takes_the_vm_away() {
    let deadline = |reason, deleted: i64, not_before: Option<i64>, has_notice: bool| {
        let snapshot = draining(|claim, node, _| {
            (claim.deleting_at, claim.status.forced) = (Some(at(deleted)), Some(reason));
            mark_draining(node);
            if has_notice {
                evicted(node);
                node.conditions[0].not_before = not_before.map(at);
            }
        });
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), deleted);
        plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::RecordDeadline { deadline, .. } => Some(deadline),
            _ => None,
        })
    };
    for (reason, deleted, not_before, has_notice, found) in [
        (Interrupted, 2, Some(600), true, 600),
        (Interrupted, 2, None, true, 30),
        (Interrupted, 2, Some(1), true, 30),
        (Interrupted, 100, Some(90), true, 130),
        (Interrupted, 100, None, false, 130),
    ] {
        let case = (reason, deleted, not_before, has_notice);
        assert_eq!(deadline(reason, deleted, not_before, has_notice), Some(at(found)), "{case:?}");
    }
}

/// The draining node of an interruption, whose VM Azure takes away after so many seconds, with two pods.
fn taken_away_at(seconds: i64, change: impl FnOnce(&mut Claim, &mut Node)) -> Snapshot {
    let mut snapshot = draining(|claim, node, _| {
        node.taints.push(Taint::disrupted());
        let announced = condition("VMEventScheduled", ConditionStatus::True, "Redeploy Scheduled: .");
        node.conditions = vec![NodeCondition { not_before: Some(at(seconds)), ..announced }];
        claim.status.forced = Some(Interrupted);
        change(claim, node);
    });
    let node = Node::clone(snapshot.nodes().values().next().unwrap());
    snapshot.put_pod(running("large", &Arc::new(shape("a", 1_500, 1)), &node));
    snapshot
}

/// Other nodes that are ready, each with room for one of the pods.
fn with_room(mut snapshot: Snapshot, nodes: usize) -> Snapshot {
    for n in 0..nodes {
        put(&mut snapshot, managed(&format!("general-b{n}"), &pool("general"), offering(SMALL, 1, Spot)));
    }
    snapshot
}

fn first_key(snapshot: &Snapshot) -> ObjectKey {
    snapshot.pods().values().next().unwrap().key.clone()
}

/// What is decided about the drain after provisioning has looked for room for its pods.
fn after_provisioning(snapshot: &Snapshot, seconds: i64) -> Plan {
    let mut memory = LifecycleMemory::default();
    let node = snapshot.nodes().values().next().unwrap();
    memory.drains.insert(node.name.clone(), DrainProgress::begun(at(seconds - 60)));
    next_after_provisioning(snapshot, &mut memory, seconds)
}

fn next_after_provisioning(snapshot: &Snapshot, memory: &mut LifecycleMemory, seconds: i64) -> Plan {
    let mut provisioning = ProvisionMemory::default();
    for second in [seconds - 20, seconds - 5] {
        drop(provision(snapshot, &mut provisioning, &settings(), at(second), 1));
    }
    lifecycle(snapshot, memory, &provisioning, &settings(), at(seconds))
}

fn evictions(plan: &Plan) -> Vec<&str> {
    let evicted = plan.commands.iter().map(|planned| match &planned.command {
        Command::Evict { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    evicted.flatten().collect()
}

#[test]
fn pods_leave_an_interrupted_node_when_others_have_room_if_there_is_time() {
    let evicted = |snapshot: &Snapshot, seconds| evictions(&after_provisioning(snapshot, seconds)).len();
    // The pods end within half a minute.
    let begins = 3_600 - 300 - 30;
    for (nodes, second, expected) in [(0, 100, 0), (1, 100, 1), (2, 100, 2), (0, begins - 1, 0), (0, begins, 2)] {
        let snapshot = with_room(taken_away_at(3_600, |_, _| {}), nodes);
        assert_eq!(evicted(&snapshot, second), expected, "{nodes} other nodes, after {second} s");
    }
    let hurried = [
        ("Azure takes it away soon", taken_away_at(300, |_, _| {})),
        ("it has not been ready for a minute", taken_away_at(3_600, |_, node| node.ready = false)),
        ("it is unwell", {
            taken_away_at(3_600, |_, node| {
                let notice = node.conditions.clone();
                unwell(node);
                node.conditions.extend(notice);
            })
        }),
        ("Azure evicts it first", {
            let spot = || condition("PreemptionScheduled", ConditionStatus::True, "");
            taken_away_at(3_600, |_, node| node.conditions.push(NodeCondition { since: at(99), ..spot() }))
        }),
    ];
    for (name, snapshot) in hurried {
        assert_eq!(evicted(&snapshot, 100), 2, "{name}");
    }
    let blip = taken_away_at(3_600, |_, node| (node.ready, node.ready_since) = (false, at(41)));
    assert_eq!(evicted(&blip, 100), 0, "it is not ready for a moment");
}

#[test]
fn room_that_nobody_looks_for_is_forgotten() {
    let mut snapshot = with_room(taken_away_at(3_600, |_, _| {}), 2);
    let mut provisioning = ProvisionMemory::default();
    let pass = |snapshot: &Snapshot, provisioning: &mut ProvisionMemory, seconds| {
        provision(snapshot, provisioning, &settings(), at(seconds), 1).next
    };
    assert_eq!(pass(&snapshot, &mut provisioning, 80), Some(at(80)), "its pods may leave");
    assert_eq!(provisioning.with_room().len(), 2);
    let gone = first_key(&snapshot);
    snapshot.remove_pod(&gone);
    pass(&snapshot, &mut provisioning, 96);
    assert_eq!(provisioning.with_room().len(), 1);
    snapshot.pause = Pause::of([PauseSwitch::Launch]);
    pass(&snapshot, &mut provisioning, 97);
    assert!(provisioning.with_room().is_empty());
}

#[test]
fn daemons_stay_with_the_pods_that_are_held_back() {
    let mut snapshot = taken_away_at(3_600, |_, _| {});
    let node = Node::clone(snapshot.nodes().values().next().unwrap());
    let critical = PodShape { priority: 2_000_000_000, ..shape("dns", 1_000, 1) };
    let left: Vec<Pod> = snapshot.pods().values().map(|pod| Pod::clone(pod)).collect();
    left.iter().for_each(|pod| snapshot.remove_pod(&pod.key));
    let daemon = running("daemon", &Arc::new(shape("daemon", 100, 1)), &node);
    snapshot.put_pod(Pod { owner: PodOwner::DaemonSet, ..daemon });
    snapshot.put_pod(running("dns", &Arc::new(critical), &node));
    assert_eq!(evictions(&after_provisioning(&snapshot, 100)), [""; 0]);
    assert_eq!(evictions(&after_provisioning(&with_room(snapshot, 1), 100)), ["daemon"]);
}

/// The node has the label of drains by now.
fn left_out(snapshot: &mut Snapshot) {
    let mut node = Node::clone(snapshot.nodes().values().next().unwrap());
    node.labels.insert(Arc::from(labels::EXCLUDE_FROM_LOAD_BALANCERS), Arc::from(labels::EXCLUDED_BY));
    snapshot.put_node(node);
}

#[test]
fn pods_that_may_leave_are_not_held_back_again() {
    let mut snapshot = taken_away_at(3_600, |_, _| {});
    let mut slow = Pod::clone(snapshot.pods().values().next().unwrap());
    slow.termination_grace = SignedDuration::from_mins(40);
    snapshot.put_pod(slow.clone());
    assert_eq!(after_provisioning(&snapshot, 899).next, Some(at(900)));
    let plan = after_provisioning(&snapshot, 900);
    assert_eq!((evictions(&plan).len(), words(&plan).contains(&"taint")), (2, true));
    left_out(&mut snapshot);
    snapshot.remove_pod(&slow.key);
    assert_eq!(evictions(&after_provisioning(&snapshot, 1_000)), ["p"], "nor after a restart");
}

#[test]
fn load_balancers_use_a_node_as_long_as_pods_are_held_back() {
    for (seconds, expected) in [(3_600, "no new pods"), (300, "taint")] {
        let snapshot = taken_away_at(seconds, |_, node| node.taints.clear());
        assert_eq!(words(&after_provisioning(&snapshot, 100))[0], expected, "{seconds}");
    }
    for (nodes, is_left_out) in [(0, false), (1, false), (2, true)] {
        let snapshot = with_room(taken_away_at(3_600, |_, _| {}), nodes);
        assert_eq!(words(&after_provisioning(&snapshot, 100)).contains(&"taint"), is_left_out, "{nodes}");
    }
    // As where the pods have ended by themselves.
    let mut empty = taken_away_at(3_600, |_, _| {});
    let pods: Vec<_> = empty.pods().values().map(|pod| pod.key.clone()).collect();
    pods.iter().for_each(|pod| empty.remove_pod(pod));
    let mut memory = LifecycleMemory::default();
    memory.drains.insert(empty.nodes().values().next().unwrap().name.clone(), DrainProgress::begun(at(0)));
    assert!(words(&next_after_provisioning(&empty, &mut memory, 100)).contains(&"taint"));
    left_out(&mut empty);
    assert!(!words(&next_after_provisioning(&empty, &mut memory, 104)).contains(&"terminate"));
    assert!(words(&next_after_provisioning(&empty, &mut memory, 105)).contains(&"terminate"));
}

#[test]
fn a_drain_that_is_held_back_is_not_blocked() {
    let mut snapshot = taken_away_at(3_600, |_, _| {});
    let pods: Vec<Pod> = snapshot.pods().values().map(|pod| Pod::clone(pod)).collect();
    pods.into_iter().for_each(|pod| snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod }));
    let mut memory = LifecycleMemory::default();
    for second in (100..3_200).step_by(100) {
        drop(next_after_provisioning(&snapshot, &mut memory, second));
        assert!(memory.blocked_drains.is_empty(), "{second}");
    }
    for (second, blocked) in [(3_270, 0), (3_299, 0), (3_300, 1)] {
        drop(next_after_provisioning(&snapshot, &mut memory, second));
        assert_eq!(memory.blocked_drains.len(), blocked, "{second}");
    }
}

#[test]
fn an_eviction_counts_though_another_notice_may_not() {
    let snapshot = many(&["a"], 5, 3, |node| {
        let announced = |kind, message| condition(kind, ConditionStatus::True, message);
        let redeployed = announced("VMEventScheduled", "Redeploy Scheduled: .");
        node.conditions = vec![NodeCondition { not_before: Some(at(7_200)), ..redeployed }];
        // Later than the other.
        node.conditions.push(NodeCondition { since: at(1), ..announced("PreemptionScheduled", "") });
    });
    let marked =
        decided(&snapshot, &mut LifecycleMemory::default(), 1_000).commands.into_iter().filter_map(|planned| {
            match planned.command {
                Command::UpdateClaim { update: ClaimUpdate::Forced(reason), .. } => Some(reason),
                _ => None,
            }
        });
    assert_eq!(marked.collect::<Vec<_>>(), [ForcefulReason::Preempted; 3]);
}

/// The first is there until Azure takes it away.
#[test]
fn an_interruption_counts_as_unhealthy_for_half_an_hour() {
    let mut snapshot = many(&["a"], 5, 2, |node| {
        let announced = condition("VMEventScheduled", ConditionStatus::True, "Redeploy Scheduled: .");
        node.conditions = vec![NodeCondition { not_before: Some(at(7_200)), ..announced }];
    });
    let first = Claim::clone(snapshot.claims().values().next().unwrap());
    let mut status = first.status.clone();
    status.forced = Some(Interrupted);
    snapshot.put_claim(Claim { deleting_at: Some(at(0)), status, ..first });
    let mut memory = LifecycleMemory::default();
    assert!(!words(&decided(&snapshot, &mut memory, 1_799)).contains(&"mark"));
    assert!(words(&decided(&snapshot, &mut memory, 1_800)).contains(&"mark"));
}

#[test]
fn a_drain_whose_pods_are_held_back_says_so() {
    let snapshot = taken_away_at(3_600, |claim, _| claim.termination_at = Some(at(3_600)));
    let plan = after_provisioning(&snapshot, 100);
    assert_eq!(plan.next, Some(at(3_270)));
    let told = plan.commands.iter().find_map(|planned| match &planned.command {
        Command::UpdateClaim { update: ClaimUpdate::Terminating(conditions), .. } => conditions.drained.clone(),
        _ => None,
    });
    let told = told.unwrap();
    let wanted = format!("pods leave when other nodes have room for them, at the latest from {} on", at(3_270));
    assert_eq!((told.holds, &*told.reason, &*told.message), (None, "Draining", &*wanted));
}

#[test]
fn a_notice_ends_a_drain_that_has_begun_before() {
    for (grace, found) in [(None, Some(30)), (Some(3_600), Some(30)), (Some(10), Some(10))] {
        let snapshot = draining(|claim, node, pod| {
            claim.deleting_at = Some(at(-60));
            claim.spec.termination_grace_period = grace.map(|seconds| SignedDuration::from_secs(seconds + 60));
            pod.do_not_disrupt = Some(DoNotDisrupt::Always);
            mark_draining(node);
            evicted(node);
        });
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 1);
        let deadline = plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::RecordDeadline { deadline, .. } => Some(deadline),
            _ => None,
        });
        assert_eq!(deadline, found.map(at), "{grace:?}");
    }
}

#[test]
fn an_earlier_end_of_the_drain_is_kept() {
    let recorded = |termination_at: Option<Timestamp>, grace: Option<i64>| {
        let snapshot = draining(|claim, node, _| {
            (claim.status.forced, claim.termination_at) = (Some(Interrupted), termination_at);
            claim.spec.termination_grace_period = grace.map(SignedDuration::from_secs);
            mark_draining(node);
            evicted(node);
        });
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 1);
        plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::RecordDeadline { deadline, .. } => Some(deadline),
            _ => None,
        })
    };
    assert_eq!(recorded(None, Some(3_600)), Some(at(30)));
    assert_eq!(recorded(None, Some(10)), Some(at(10)));
    assert_eq!(recorded(Some(at(20)), None), None, "written before");
}

#[test]
fn nothing_is_repaired_while_more_than_a_fifth_of_a_pool_is_sick() {
    for (count, unhealthy, repaired) in
        [(1, 1, true), (2, 1, true), (2, 2, false), (5, 1, true), (10, 2, true), (10, 3, false), (11, 3, true)]
    {
        let snapshot = many(&["general"], count, unhealthy, unwell);
        let mut memory = LifecycleMemory::default();
        let marks = words(&decided(&snapshot, &mut memory, 1)).iter().filter(|word| **word == "mark").count();
        assert_eq!(marks, if repaired { unhealthy } else { 0 }, "{unhealthy} of {count}");
        assert_eq!(memory.blocked_repairs.len(), unhealthy - marks);
    }
    let snapshot = many(&["general"], 10, 5, unwell);
    let mut memory = LifecycleMemory::default();
    let _ = decided(&snapshot, &mut memory, 1);
    let text = memory.blocked_repairs.values().next().unwrap().to_string();
    assert_eq!(
        text,
        "more than 20 % of NodePool general are unhealthy or were repaired in the last 30 minutes: 5 of 10 nodes"
    );
    let _ = decided(&many(&["general"], 10, 0, unwell), &mut memory, 2);
    assert!(memory.blocked_repairs.is_empty(), "it is over");
}

#[test]
fn nothing_is_repaired_while_more_than_a_fifth_of_the_cluster_is_sick() {
    let pools = ["a", "b", "c", "d", "e"];
    let snapshot = many(&pools, 2, 1, unwell);
    let mut memory = LifecycleMemory::default();
    assert!(words(&decided(&snapshot, &mut memory, 1)).is_empty(), "one of two in each NodePool, and five of ten");
    assert!(memory.blocked_repairs.values().all(|block| matches!(block, RepairBlock::Cluster(_))));
    // Those that are not ready for a minute are an outage.
    let silent = many(&pools, 2, 1, |node| node.ready = false);
    let found = words(&decided(&silent, &mut memory, 601));
    assert!(!found.contains(&"mark"), "{found:?}");
    assert!(memory.blocked_repairs.values().all(|block| matches!(block, RepairBlock::Outage(_))));
    assert_eq!(memory.blocked_repairs.len(), 5);
    // What Azure takes away, it takes away meanwhile too.
    let mut taken = silent.clone();
    let mut spot = Node::clone(taken.nodes().values().find(|node| node.ready).unwrap());
    evicted(&mut spot);
    taken.put_node(spot);
    assert!(words(&decided(&taken, &mut LifecycleMemory::default(), 601)).contains(&"mark"));
}

#[test]
fn nodes_count_as_sick_before_they_are_repaired() {
    let mut soon = many(&["general"], 10, 2, |node| node.ready = false);
    let mut unwell_one = Node::clone(soon.nodes().values().last().unwrap());
    unwell(&mut unwell_one);
    soon.put_node(unwell_one);
    assert!(decide(&soon, 30).is_empty(), "two are about to be unhealthy");
}

#[test]
fn repaired_nodes_count_for_half_an_hour() {
    let mut snapshot = many(&["general"], 12, 2, unwell);
    let mut memory = LifecycleMemory::default();
    let mut marks = |snapshot: &Snapshot, seconds| words(&decided(snapshot, &mut memory, seconds)).contains(&"mark");
    let names: Vec<_> = snapshot.claims().values().take(2).map(|claim| claim.name.clone()).collect();
    for name in &names {
        let mut claim = Claim::clone(snapshot.claims().get(name).unwrap());
        (claim.deleting_at, claim.status.forced) = (Some(at(60)), Some(Unhealthy));
        snapshot.put_claim(claim);
    }
    assert!(!marks(&snapshot, 61));
    for name in &names {
        let node = snapshot.node_of(snapshot.claims().get(name).unwrap()).unwrap().name.clone();
        snapshot.remove_node(&node);
        snapshot.remove_claim(name);
    }
    // One after the other: each would be a tenth of the pool.
    let mut third = Node::clone(snapshot.nodes().values().last().unwrap());
    unwell(&mut third);
    snapshot.put_node(third.clone());
    assert!(!marks(&snapshot, 62), "both are gone, and no node has taken their place");
    assert!(!marks(&snapshot, 60 + 1_799));
    // What others delete is no repair.
    assert!(marks(&snapshot, 60 + 1_800));
    let mut fresh = LifecycleMemory::default();
    assert!(words(&decided(&snapshot, &mut fresh, 62)).contains(&"mark"), "a restart forgets those that are gone");
}

#[test]
fn a_mark_that_is_taken_back_counts_no_longer() {
    let mut snapshot = many(&["general"], 5, 0, unwell);
    let mut memory = LifecycleMemory::default();
    let marked = Claim::clone(snapshot.claims().values().next().unwrap());
    snapshot.put_claim(Claim {
        status: ClaimStatus { forced: Some(Unhealthy), ..marked.status.clone() },
        ..marked.clone()
    });
    assert_eq!(words(&decided(&snapshot, &mut memory, 1)), ["take back"]);
    snapshot.put_claim(marked);
    let mut other = Node::clone(snapshot.nodes().values().last().unwrap());
    unwell(&mut other);
    snapshot.put_node(other);
    assert_eq!(words(&decided(&snapshot, &mut memory, 2)), ["mark"]);
}

#[test]
fn notices_of_many_nodes_are_believed_for_spot_vms_only() {
    for (capacity_type, marked) in [(Spot, 10), (OnDemand, 0)] {
        let mut snapshot = cluster([pool("general")]);
        for n in 0..10 {
            let (claim, mut node) =
                managed(&format!("general-{n:02}"), &pool("general"), offering(SMALL, 1, capacity_type));
            evicted(&mut node);
            put(&mut snapshot, (claim, node));
        }
        let mut memory = LifecycleMemory::default();
        let found = words(&decided(&snapshot, &mut memory, 600)).iter().filter(|word| **word == "mark").count();
        assert_eq!((found, memory.blocked_repairs.len()), (marked, 10 - marked), "{capacity_type:?}");
        let young = words(&decided(&snapshot, &mut LifecycleMemory::default(), 599));
        assert!(!young.contains(&"mark"), "new nodes show it at once");
    }
}

#[test]
fn nothing_is_repaired_where_no_node_would_be_launched_in_its_place() {
    let general = NodePoolName::new("general").unwrap();
    let held = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = one(|_, node| unwell(node));
        change(&mut snapshot);
        let mut memory = LifecycleMemory::default();
        assert!(words(&decided(&snapshot, &mut memory, 1)).is_empty());
        memory.blocked_repairs.values().next().unwrap().to_string()
    };
    let reason: Arc<str> = Arc::from("two nodes did not come up");
    assert_eq!(
        held(&|snapshot| {
            snapshot.pool_holds.insert(general.clone(), PoolHold::Held { reason: Arc::clone(&reason) });
        }),
        "no node is launched in its place: two nodes did not come up"
    );
    assert_eq!(
        held(&|snapshot| snapshot.pause = Pause::of([PauseSwitch::Launch])),
        "no node is launched in its place: launches are paused"
    );
    let delete = |snapshot: &mut Snapshot| {
        let deleted = NodePool { deletion: being_deleted(at(0)), ..pool("general") };
        snapshot.put_pool(general.clone(), deleted);
    };
    assert_eq!(held(&delete), "no node is launched in its place: it is being deleted");
    // The pods of a node that is not ready do not serve there either.
    let mut snapshot = one(|_, node| {
        unwell(node);
        node.ready = false;
    });
    delete(&mut snapshot);
    assert_eq!(decide(&snapshot, 1), ["mark"]);
    // What Azure takes away goes all the same.
    let mut snapshot = one(|_, node| evicted(node));
    snapshot.pause = Pause::of([PauseSwitch::Launch]);
    assert_eq!(decide(&snapshot, 1), ["mark"]);
}

#[test]
fn a_notice_of_a_node_that_does_not_report_waits_for_the_end_of_an_outage() {
    let silent = many(&["general"], 10, 5, |node| {
        node.ready = false;
        evicted(node);
    });
    let found = decide(&silent, 100);
    assert!(!found.contains(&"mark"), "{found:?}");
    let few = many(&["general"], 10, 1, |node| {
        node.ready = false;
        evicted(node);
    });
    assert!(decide(&few, 100).contains(&"mark"));
}

#[test]
fn a_node_is_deleted_only_if_a_fresh_read_shows_the_sign() {
    let snapshot = one(|claim, node| {
        claim.status.forced = Some(Unhealthy);
        unwell(node);
    });
    let plan = decided(&snapshot, &mut LifecycleMemory::default(), 1);
    let Command::DeleteClaim { claim, only_if: Some(sign), .. } = plan.commands[0].command.clone() else {
        panic!("{plan:?}")
    };
    let node = Node::clone(snapshot.nodes().values().next().unwrap());
    let read = |found: Option<Node>| {
        let mut script = DeleteIfUnhealthyScript::new(claim.clone(), SignOnNode::clone(&sign));
        assert_eq!(script.step(None, at(1)), Step::perform(Effect::Read(ClusterRead::Node(sign.vm.clone()))));
        script.step(Some(Ok(Reply::Node(found.map(Arc::new)))), at(1))
    };
    let delete = Step::perform(Effect::Cluster(ClusterWrite::DeleteClaim(claim.clone())));
    assert_eq!(read(Some(node.clone())), delete);
    let changed = Step::failed(EffectError::Cluster(ClusterError::Conflict));
    let silent = condition("Ready", ConditionStatus::Unknown, "");
    for (found, why) in [
        (None, "it is gone"),
        (Some(Node { conditions: Vec::new(), ..node.clone() }), "it is healthy"),
        (Some(Node { conditions: vec![silent], ..node.clone() }), "another sign"),
        (Some(Node { uid: Uid::new("other").unwrap(), ..node }), "it is another Node"),
    ] {
        assert_eq!(read(found), changed, "{why}");
    }
}

#[test]
fn a_fresh_read_must_show_the_sign_for_as_long_as_it_is_tolerated() {
    let silent = |since| {
        one(|claim, node| {
            claim.status.forced = Some(Unhealthy);
            (node.ready, node.ready_since) = (false, at(since));
        })
    };
    let plan = decided(&silent(0), &mut LifecycleMemory::default(), 700);
    let deletion = plan.commands.into_iter().find_map(|planned| match planned.command {
        Command::DeleteClaim { claim, only_if, .. } => Some((claim, only_if?)),
        _ => None,
    });
    let (claim, sign) = deletion.unwrap();
    for (since, is_deleted) in [(0, true), (100, true), (101, false)] {
        let mut script = DeleteIfUnhealthyScript::new(claim.clone(), SignOnNode::clone(&sign));
        let _ = script.step(None, at(700));
        let found = silent(since).nodes().values().next().cloned();
        let step = script.step(Some(Ok(Reply::Node(found))), at(700));
        let delete = Step::perform(Effect::Cluster(ClusterWrite::DeleteClaim(claim.clone())));
        assert_eq!(step == delete, is_deleted, "not ready since {since}");
    }
}

#[test]
fn the_taint_of_the_remediator_is_tolerated_from_when_it_was_seen() {
    let key = "remediator.kubernetes.azure.com/unschedulable";
    let taint = || Taint { key: Arc::from(key), value: Arc::from("x"), effect: TaintEffect::NoSchedule };
    let tainted = one(|_, node| node.taints.push(taint()));
    let bare = one(|_, _| {});
    let mut memory = LifecycleMemory::default();
    let mut marks = |snapshot: &Snapshot, seconds| words(&decided(snapshot, &mut memory, seconds)).contains(&"mark");
    assert!(!marks(&tainted, 100) && !marks(&tainted, 699));
    assert!(marks(&tainted, 700));
    assert!(!marks(&bare, 701) && !marks(&tainted, 702), "taken away and put back");
    assert!(!marks(&tainted, 1_301) && marks(&tainted, 1_302));
    assert!(!decide(&tainted, 5_000).contains(&"mark"), "after a restart it is tolerated anew");
}

#[test]
fn a_mark_is_taken_back_when_the_node_is_well_again() {
    for reason in ForcefulReason::ALL {
        let snapshot = one(|claim, _| claim.status.forced = Some(reason));
        assert_eq!(decide(&snapshot, 0), ["take back"]);
    }
    let other = one(|claim, node| {
        claim.status.forced = Some(Unhealthy);
        evicted(node);
    });
    assert_eq!(decide(&other, 0), ["mark"], "for another reason now");
    let marked = one(|claim, node| {
        claim.status.forced = Some(Interrupted);
        node.taints.push(Taint::disrupted());
        evicted(node);
    });
    assert_eq!(decide(&marked, 0), ["interrupted"], "a restart goes on");
}

#[test]
fn a_node_that_is_not_in_use_yet_has_other_limits() {
    for change in [unwell as fn(&mut Node), evicted] {
        let young = one(|claim, node| {
            claim.status.initialized = None;
            node.ready = false;
            change(node);
        });
        assert!(!decide(&young, 900).contains(&"mark"));
    }
}

#[test]
fn a_vm_that_is_not_a_spot_vm_is_within_the_share_before_and_after_its_mark() {
    let mut snapshot = cluster([pool("general")]);
    let (mut claim, mut node) = managed("general-a", &pool("general"), offering(SMALL, 1, OnDemand));
    evicted(&mut node);
    put(&mut snapshot, (claim.clone(), node));
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 1)), ["mark"]);
    claim.status.forced = Some(Interrupted);
    snapshot.put_claim(claim);
    assert_eq!(words(&decided(&snapshot, &mut memory, 2)), ["interrupted"]);
    assert!(words(&decided(&snapshot, &mut memory, 6)).is_empty(), "the read did not confirm it");
    assert_eq!(words(&decided(&snapshot, &mut memory, 7)), ["interrupted"]);
}

#[test]
fn a_repair_that_does_not_end_wakes_nobody_at_once() {
    let mut snapshot = many(&["general"], 5, 2, unwell);
    let mut stuck = Claim::clone(snapshot.claims().values().next().unwrap());
    (stuck.deleting_at, stuck.status.forced) = (Some(at(0)), Some(Unhealthy));
    snapshot.put_claim(stuck);
    let mut memory = LifecycleMemory::default();
    let plan = decided(&snapshot, &mut memory, 1_900);
    assert_eq!(memory.blocked_repairs.len(), 1, "it counts for as long as its NodeClaim exists");
    assert!(plan.next.is_none_or(|next| next > at(1_900)), "{:?}", plan.next);
}

#[test]
fn notices_to_more_than_a_fifth_end_no_drain() {
    for (drains, ends) in [(1, true), (3, false)] {
        let mut snapshot = many(&["general"], 10, drains, |node| {
            mark_draining(node);
            node.conditions = vec![condition("VMEventScheduled", ConditionStatus::True, "Terminate Scheduled: .")];
        });
        let names: Vec<_> = snapshot.claims().values().take(drains).map(|claim| claim.name.clone()).collect();
        for name in names {
            let claim = Claim::clone(snapshot.claims().get(&name).unwrap());
            let node = snapshot.node_of(&claim).unwrap();
            let pod = running(name.as_str(), &Arc::new(shape("a", 500, 1)), node);
            snapshot.put_pod(crate::model::cluster::pod::Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
            snapshot.put_claim(Claim { deleting_at: Some(at(-60)), ..claim });
        }
        let found = decide(&snapshot, 1);
        assert_eq!(found.contains(&"deadline"), ends, "{drains}: {found:?}");
    }
}

#[test]
fn a_mark_left_on_a_healthy_node_neither_stays_nor_ends_a_drain_at_once() {
    let mut paused = one(|claim, _| claim.status.forced = Some(Unhealthy));
    paused.pause = Pause::of([PauseSwitch::Disrupt]);
    assert_eq!(decide(&paused, 1), ["take back"]);
    let deleted = draining(|claim, node, _| {
        claim.status.forced = Some(Unhealthy);
        mark_draining(node);
    });
    let found = decide(&deleted, 1);
    assert!(!found.contains(&"deadline"), "a person has deleted it: {found:?}");
}

#[test]
fn nothing_follows_while_disruption_is_paused_or_where_no_rule_says_so() {
    for change in [unwell as fn(&mut Node), evicted] {
        let mut snapshot = one(|_, node| change(node));
        let rules = Arc::new(NodeHealthRules::new(Vec::new()));
        let without = Settings { node_health: rules, ..settings() };
        let plan =
            lifecycle(&snapshot, &mut LifecycleMemory::default(), &ProvisionMemory::default(), &without, at(5_000));
        assert!(plan.commands.is_empty());
        snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
        assert!(decide(&snapshot, 5_000).is_empty());
    }
}
