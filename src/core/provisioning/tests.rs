//! Tests of provisioning: when pods are placed, and that no node is created twice for them.

use super::*;
use crate::catalog::CapacityType::OnDemand;
use crate::fixtures::{
    at, cluster, disruption_budget, full_subnet, managed, offering, pod, pool, running, settings, shape, start,
};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{DoNotDisrupt, PodShape, Preferences, Taint};
use crate::model::settings::{Pause, PauseSwitch};
use crate::plan::{ClaimDraft, PlannedCommand};

fn put(snapshot: &mut Snapshot, name: &str, shape: PodShape, seconds: i64) {
    let mut pod = pod(name, &Arc::new(shape));
    pod.created_at = at(seconds);
    snapshot.put_pod(pod);
}

fn run(snapshot: &Snapshot, memory: &mut ProvisionMemory, millis: i64) -> Plan {
    provision(snapshot, memory, &settings(), at(0) + SignedDuration::from_millis(millis), 7)
}

fn drafts(plan: Plan) -> Vec<ClaimDraft> {
    let draft = |c: PlannedCommand| match c.command {
        Command::CreateClaim(draft) => *draft,
        other => panic!("unexpected {other:?}"),
    };
    plan.commands.into_iter().map(draft).collect()
}

#[test]
fn pods_are_placed_once_no_new_one_has_arrived_for_a_second_and_after_ten_at_the_latest() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    for second in 0..10 {
        put(&mut snapshot, &format!("p{second}"), shape("a", 100, 1), second);
        assert!(run(&snapshot, &mut memory, second * 1000 + 500).commands.is_empty(), "second {second}");
    }
    assert_eq!(drafts(run(&snapshot, &mut memory, 10_500)).len(), 1, "all of them share a node after ten seconds");
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    assert_eq!(run(&snapshot, &mut memory, 0).next, Some(at(1)));
    assert_eq!(drafts(run(&snapshot, &mut memory, 1000)).len(), 1);
}

/// Kubernetes tells the time of creation in whole seconds, so that a pod may be younger than it says.
#[test]
fn pods_created_within_the_same_second_share_a_window() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    for (number, millis) in [100, 500, 900].into_iter().enumerate() {
        put(&mut snapshot, &format!("p{number}"), shape("a", 100, 1), 0);
        let plan = run(&snapshot, &mut memory, millis);
        assert!(plan.commands.is_empty(), "{millis} ms");
        assert_eq!(plan.next, Some(at(1) + SignedDuration::from_millis(millis)));
    }
    assert!(run(&snapshot, &mut memory, 1_500).commands.is_empty());
    assert_eq!(drafts(run(&snapshot, &mut memory, 1_900)).len(), 1);
}

/// kube-scheduler tries a thousand pods one after the other: the last of them is seen long after its creation.
#[test]
fn pods_that_are_found_unschedulable_late_share_a_window_too() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "first", shape("a", 100, 1), 20);
    assert!(run(&snapshot, &mut memory, 20_000).commands.is_empty());
    assert_eq!(drafts(run(&snapshot, &mut memory, 21_000)).len(), 1);
    for tenth in 0..8 {
        put(&mut snapshot, &format!("late{tenth}"), shape("a", 1_900, 1), 0);
        assert!(run(&snapshot, &mut memory, 22_000 + tenth * 100).commands.is_empty(), "{tenth}");
    }
    assert!(!drafts(run(&snapshot, &mut memory, 23_700)).is_empty());
}

#[test]
fn pods_that_have_waited_for_long_at_a_start_wait_for_no_others() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, "old", shape("a", 100, 1), 0);
    assert_eq!(drafts(run(&snapshot, &mut ProvisionMemory::default(), 60_000)).len(), 1);
}

#[test]
fn a_window_that_closes_without_pods_is_forgotten() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "hopeless", shape("a", 900_000, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    let _ = run(&snapshot, &mut memory, 1000);
    put(&mut snapshot, "gone", shape("a", 100, 1), 2);
    let _ = run(&snapshot, &mut memory, 2000);
    snapshot.remove_pod(&pod("gone", &Arc::new(shape("a", 100, 1))).key);
    let _ = run(&snapshot, &mut memory, 2500);
    put(&mut snapshot, "new", shape("a", 100, 1), 60);
    assert!(run(&snapshot, &mut memory, 60_000).commands.is_empty(), "its own second begins now");
    assert_eq!(drafts(run(&snapshot, &mut memory, 61_000)).len(), 1);
}

/// The claim that a draft becomes.
fn created(draft: &ClaimDraft) -> crate::model::cluster::claim::Claim {
    crate::model::cluster::claim::Claim {
        name: draft.name.clone(),
        spec: draft.spec.clone(),
        ..crate::fixtures::claim("x", &pool("general"), Vec::new())
    }
}

#[test]
fn pods_that_fit_a_claim_in_flight_get_no_second_one() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    let plan = drafts(run(&snapshot, &mut memory, 1000));
    snapshot.put_claim(created(&plan[0]));
    for millis in (2000..60_000).step_by(500) {
        assert!(run(&snapshot, &mut memory, millis).commands.is_empty(), "{millis} ms");
    }
    let mut after_a_crash = ProvisionMemory::default();
    assert!([0, 1000].iter().all(|m| run(&snapshot, &mut after_a_crash, 60_000 + m).commands.is_empty()));
}

#[test]
fn a_claim_whose_creation_is_under_way_is_waited_for() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    let first = drafts(run(&snapshot, &mut memory, 1000));
    snapshot.in_progress.insert(CommandKey::Claim(first[0].name.clone()));
    put(&mut snapshot, "q", shape("a", 100, 1), 1);
    let _ = run(&snapshot, &mut memory, 1100);
    let plan = run(&snapshot, &mut memory, 2200);
    assert!(plan.commands.is_empty() && plan.next.is_some(), "p would be paid for twice: {plan:?}");
    snapshot.in_progress.clear();
    snapshot.put_claim(created(&first[0]));
    assert!(run(&snapshot, &mut memory, 4000).commands.is_empty(), "both fit the first claim");
}

#[test]
fn unschedulable_pods_are_tried_again_when_their_class_appears() {
    let mut snapshot = cluster([pool("general")]);
    let types = std::mem::take(&mut snapshot.instance_types);
    snapshot.remove_class(&crate::fixtures::class().name);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    assert!(run(&snapshot, &mut memory, 1000).commands.is_empty() && !memory.unplaced.is_empty());
    snapshot.instance_types = types;
    snapshot.put_class(crate::fixtures::class().name, crate::fixtures::class());
    assert_eq!(drafts(run(&snapshot, &mut memory, 11_000)).len(), 1);
}

#[test]
fn nothing_is_launched_in_companion_mode_or_while_paused() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let mut memory = ProvisionMemory::default();
    let companion = Settings { mode: ControllerMode::Companion, ..settings() };
    assert!([0, 1, 2].iter().all(|s| provision(&snapshot, &mut memory, &companion, at(*s), 7) == Plan::default()));
    snapshot.pause = Pause::of([PauseSwitch::Launch]);
    assert!([0, 1, 2].iter().all(|s| provision(&snapshot, &mut memory, &settings(), at(*s), 7).commands.is_empty()));
}

#[test]
fn equal_arguments_give_equal_plans_and_memories() {
    use crate::engine::decide::{Memory, decide};
    let mut snapshot = cluster([pool("general")]);
    for i in 0..20 {
        put(&mut snapshot, &format!("p{i}"), shape("a", 700, 2), 0);
    }
    let (mut one, mut other) = (Memory::default(), Memory::default());
    for second in 0..40 {
        let first = decide(&snapshot, &mut one, &settings(), at(second), 7);
        assert_eq!(first, decide(&snapshot.clone(), &mut other, &settings(), at(second), 7));
        assert_eq!((&one.provision, &one.lifecycle), (&other.provision, &other.lifecycle));
        for planned in first.commands {
            if let Command::CreateClaim(draft) = planned.command {
                snapshot.put_claim(created(&draft));
            }
        }
    }
    assert!(!snapshot.claims().is_empty());
}

#[test]
fn a_pod_keeps_the_claim_that_was_created_for_it() {
    let pool_of = |name: &str, weight: i32, capacity_type: &str| {
        let mut pool = pool(name);
        pool.weight = weight;
        pool.requirements
            .add(crate::model::labels::CAPACITY_TYPE, crate::model::requirements::Requirement::any_of([capacity_type]));
        pool
    };
    let mut snapshot = cluster([pool_of("a-on-demand", 1, "on-demand"), pool_of("b-spot", 9, "spot")]);
    let mut memory = ProvisionMemory::default();
    for i in 0..2 {
        // The easy ones are larger and so placed first, and the first claim by name suits them too.
        put(&mut snapshot, &format!("easy-{i}"), shape("easy", 1500, 1), 0);
        let mut picky = shape("picky", 1000, 1);
        picky.selector = crate::fixtures::requirements_in(&[(crate::model::labels::CAPACITY_TYPE, &["on-demand"])]);
        put(&mut snapshot, &format!("picky-{i}"), picky, 0);
    }
    let _ = run(&snapshot, &mut memory, 0);
    for draft in drafts(run(&snapshot, &mut memory, 1000)) {
        snapshot.put_claim(created(&draft));
    }
    let mut forgetful = memory.clone();
    forgetful.claim_of_pod.clear();
    assert!(drafts(run(&snapshot, &mut memory, 20_000)).is_empty());
    assert!(!drafts(run(&snapshot, &mut forgetful, 20_000)).is_empty(), "the test would show nothing otherwise");
}

#[test]
fn counts_that_have_grown_too_old_are_news_once() {
    let mut snapshot = cluster([crate::fixtures::pool_with_capacity_types("paid", &["reserved"])]);
    crate::fixtures::reserve(&mut snapshot, at(0), &[("Standard_D2s_v5", 1, 1, 1)]);
    let mut memory = ProvisionMemory::default();
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    let _ = run(&snapshot, &mut memory, 1_000);
    let looked_at = |memory: &ProvisionMemory| memory.last_pass.map(|last| last.at);
    assert_eq!(looked_at(&memory), Some(at(1)));
    let old = STALE_AFTER + SignedDuration::from_secs(1);
    assert_eq!(run(&snapshot, &mut memory, 60_000).next, Some(at(0) + old));
    let _ = run(&snapshot, &mut memory, old.as_millis() as i64);
    assert_eq!(looked_at(&memory), Some(at(0) + old), "stale numbers do not cause a launch");
    assert_eq!(run(&snapshot, &mut memory, old.as_millis() as i64 + 60_000).next, None);
    assert_eq!(looked_at(&memory), Some(at(0) + old));
}

#[test]
fn pods_that_lack_an_address_are_looked_at_again_when_azure_has_counted_again() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    snapshot.set_infrastructure(full_subnet(at(0)));
    put(&mut snapshot, "p", shape("a", 100, 1), 0);
    let _ = run(&snapshot, &mut memory, 0);
    assert!(run(&snapshot, &mut memory, 1_000).commands.is_empty() && memory.unplaced.len() == 1);
    // Nothing has changed: it is tried again when the count is stale.
    let old = STALE_AFTER + SignedDuration::from_secs(1);
    assert_eq!(run(&snapshot, &mut memory, 60_000).next, Some(at(0) + old));
    // The same numbers at a later time may include launches that were counted separately.
    snapshot.set_infrastructure(full_subnet(at(180)));
    assert_eq!(run(&snapshot, &mut memory, 181_000).next, Some(at(191)), "it is looked at, in vain");
    assert_eq!(memory.last_pass.map(|last| last.at), Some(at(181)));
    // Stale numbers limit nothing.
    assert_eq!(drafts(run(&snapshot, &mut memory, 181_000 + old.as_millis() as i64)).len(), 1);
}

#[test]
fn pods_that_are_too_many_for_one_pass_are_placed_by_the_next_ones() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = ProvisionMemory::default();
    // A pass takes nine of them. No node holds the first twelve.
    for i in 0..20 {
        let mut shape = shape(&format!("a-{i}"), if i < 12 { 900_000 } else { 100 }, 1);
        let labels = |n: i32| (1, crate::fixtures::requirements_in(&[("unknown", &[&n.to_string()])]));
        shape.preferences = Some(Box::new(Preferences { node: (0..32).map(labels).collect(), ..Default::default() }));
        put(&mut snapshot, &format!("p-{i:02}"), shape, 0);
    }
    let unplaced = |memory: &ProvisionMemory| memory.unplaced.iter().map(|group| group.pods.len()).sum::<usize>();
    let _ = run(&snapshot, &mut memory, 0);
    let first = run(&snapshot, &mut memory, 1000);
    assert_eq!((first.next, memory.deferred, unplaced(&memory)), (Some(at(2)), 11, 9));
    let _ = run(&snapshot, &mut memory, 1500);
    assert_eq!(memory.deferred, 11, "a second passes before the next");
    let second = drafts(run(&snapshot, &mut memory, 2000));
    assert_eq!((second.len(), memory.deferred, unplaced(&memory)), (1, 2, 12));
    snapshot.put_claim(created(&second[0]));
    assert!(run(&snapshot, &mut memory, 3000).commands.is_empty(), "the last two share the claim in flight");
    assert_eq!((memory.deferred, unplaced(&memory)), (0, 12), "they are known, whether or not a pass has had them");
    // All are tried again after a change, in as many passes as it takes.
    let _ = run(&snapshot, &mut memory, 13_000);
    assert!(memory.deferred > 0);
    let _ = run(&snapshot, &mut memory, 14_000);
    assert_eq!((memory.deferred, unplaced(&memory)), (0, 12));
    assert_eq!(run(&snapshot, &mut memory, 60_000).next, None, "nothing has changed since");
}

#[test]
fn pods_that_lose_their_node_get_another_whatever_they_refuse() {
    use crate::model::cluster::claim::ForcefulReason;
    let general = pool("general");
    let cases = [
        (None, None, 0),
        (Some(ForcefulReason::Interrupted), None, 1),
        // A notice during a drain that has begun before.
        (None, Some(30), 1),
        (None, Some(3_600), 0),
    ];
    for (forced, deadline, launched) in cases {
        let mut snapshot = cluster([general.clone()]);
        let (mut claim, node) = managed("c00", &general, offering("Standard_D2s_v5", 1, OnDemand));
        (claim.deleting_at, claim.status.forced) = (Some(start()), forced);
        claim.termination_at = deadline.map(|seconds| start() + SignedDuration::from_secs(seconds));
        let running = running("p", &Arc::new(shape("a", 500, 1)), &node);
        snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..running });
        snapshot.put_node(Node { taints: vec![Taint::disrupted()], ..node });
        snapshot.put_claim(claim);
        let mut memory = ProvisionMemory::default();
        let _ = run(&snapshot, &mut memory, 0);
        assert_eq!(drafts(run(&snapshot, &mut memory, 1000)).len(), launched, "{forced:?} {deadline:?}");
    }
}

#[test]
fn no_node_is_launched_for_pods_that_a_budget_never_lets_go() {
    let general = pool("general");
    for (is_fully_blocking, launched) in [(false, 1), (true, 0)] {
        let mut snapshot = cluster([general.clone()]);
        let (claim, node) = managed("c00", &general, offering("Standard_D2s_v5", 1, OnDemand));
        let draining = Claim { deleting_at: Some(start()), ..claim };
        snapshot.put_pod(running("p", &Arc::new(shape("a", 500, 1)), &node));
        snapshot.put_node(Node { taints: vec![Taint::disrupted()], ..node });
        snapshot.put_claim(draining);
        let budget = PodDisruptionBudget { is_fully_blocking, ..disruption_budget("a", 0) };
        snapshot.put_disruption_budget(budget.key.clone(), budget);
        let mut memory = ProvisionMemory::default();
        let _ = run(&snapshot, &mut memory, 0);
        assert_eq!(drafts(run(&snapshot, &mut memory, 1000)).len(), launched, "never: {is_fully_blocking}");
    }
}
