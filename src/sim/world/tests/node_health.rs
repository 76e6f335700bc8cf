//! Nodes that are sick, and VMs of which Azure announces the end.

use super::crash_safety::budget_of;
use super::*;
use crate::workload::BudgetLimit;
use napkeeper_core::lifecycle::RepairBlock;
use napkeeper_core::model::cluster::node::ConditionStatus;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, Pod};
use napkeeper_core::model::settings::NodeHealthRules;

/// When the conditions change.
const NOTICE_AT: SignedDuration = SignedDuration::from_mins(20);

fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn unhealthy(nth: usize, is_healthy: bool) -> Action {
    let status = if is_healthy { ConditionStatus::True } else { ConditionStatus::False };
    let kind = Arc::from("kubernetes.azure.com/NodeHealthy");
    Action::SetNodeCondition { nth, kind, status, message: Arc::from(""), begins_in: None }
}

/// Two pods on each node of this capacity type, which end in 10 s and which no budget lets go.
fn two_pods_each(seed: u64, capacity_type: &str, replicas: u32, actions: Vec<(SignedDuration, Action)>) -> WorldSetup {
    let mut start = steady(seed, actions);
    let pool = &mut start.manifests.pools[0];
    pool.requirements.remove(labels::CAPACITY_TYPE);
    pool.requirements.add_entry(labels::CAPACITY_TYPE, Operator::In, &[capacity_type]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    let (_, workload) = &mut start.manifests.workloads[0];
    workload.kind = WorkloadKind::Deployment { replicas };
    workload.template.grace = secs(10);
    start
}

/// At this time after the start, with the rules or without them.
fn world_at(start: &WorldSetup, time: SignedDuration, has_rules: bool) -> World {
    let mut world = World::new(catalog(), start.clone()).unwrap();
    if !has_rules {
        world.settings.node_health = Arc::new(NodeHealthRules::new(Vec::new()));
    }
    let end = world.now() + time;
    if let Err(violation) = world.run_until(end) {
        print(&world);
        panic!("{violation}");
    }
    world
}

fn running(world: &World) -> Vec<Arc<Pod>> {
    let all = world.cluster().state().pods().values();
    all.filter(|pod| pod.started_at.is_some() && pod.deleting_at.is_none()).cloned().collect()
}

/// The node that gets a notice, and the pods that it has right before.
fn announced(start: &WorldSetup, has_rules: bool) -> (NodeName, Vec<ObjectKey>) {
    let at_notice = world_at(start, NOTICE_AT, has_rules);
    let mut nodes = at_notice.cluster().state().nodes().values();
    let node = nodes.find(|node| !node.conditions.is_empty()).unwrap().name.clone();
    let before = world_at(start, NOTICE_AT - secs(1), has_rules);
    let pods = before.cluster().state().pods_on(&node).map(|pod| pod.key.clone()).collect();
    (node, pods)
}

#[test]
fn pods_of_an_evicted_vm_run_elsewhere_before_its_notice_is_over() {
    for seed in 1..=2 {
        // Four of twelve pods end, and those that are left have room on any two nodes.
        let scaled = (SignedDuration::from_mins(10), Action::Scale { workload: key("inflate"), replicas: 8 });
        let evicted = (NOTICE_AT, Action::EvictSpotAnnounced { count: 1 });
        let mut start = two_pods_each(seed, "spot", 12, vec![scaled, evicted]);
        let moved = |start: &WorldSetup, has_rules, seconds| {
            let (node, before) = announced(start, has_rules);
            assert!(!before.is_empty(), "seed {seed}: busy ones go first");
            let world = world_at(start, NOTICE_AT + secs(seconds), has_rules);
            let state = world.cluster().state();
            let left = before.iter().filter(|pod| state.pods().get(pod).is_some()).count();
            let elsewhere = running(&world).iter().filter(|pod| pod.node.as_ref() != Some(&node)).count();
            (before.len() - left, elsewhere, before.len())
        };
        let (ended, elsewhere, pods) = moved(&start, true, 20);
        assert_eq!((ended, elsewhere), (pods, 8), "seed {seed}: its pods have ended in order, and all run elsewhere");
        let (ended, elsewhere, pods) = moved(&start, false, 29);
        assert_eq!((ended, elsewhere), (0, 8 - pods), "seed {seed}: without rules they end with their VM");
        start.manifests.workloads[0].1.template.do_not_disrupt = Some(DoNotDisrupt::Always);
        let elsewhere = moved(&start, true, 29).1;
        assert_eq!(elsewhere, 8, "seed {seed}: those that refuse go when only their grace period is left");
    }
}

#[test]
fn nodes_for_the_pods_of_an_evicted_vm_are_launched_at_once() {
    for seed in 1..=2 {
        let evicted = (NOTICE_AT, Action::EvictSpotAnnounced { count: 2 });
        let start = two_pods_each(seed, "spot", 12, vec![evicted]);
        let created = |has_rules, after| created_claims(&world_at(&start, NOTICE_AT + secs(after), has_rules));
        assert_eq!((created(true, -1), created(true, 2)), (6, 8), "seed {seed}");
        assert_eq!(created(false, 29), 6, "seed {seed}: nobody knows of it");
        let over = world_at(&start, SignedDuration::from_mins(40), true);
        assert!(over.cluster().state().pending().is_empty() && nodes(&over, false).is_empty(), "seed {seed}");
        assert_eq!(logged(&over, EventKind::Disrupt, "preempted"), 2, "seed {seed}");
        assert_eq!(running(&over).len(), 12);
    }
}

/// Azure takes the VM of the first node away an hour after the notice.
fn taken_away_in_an_hour(seed: u64) -> WorldSetup {
    let (kind, message) = (Arc::from("VMEventScheduled"), Arc::from("Redeploy Scheduled: ."));
    let begins_in = Some(SignedDuration::from_hours(1));
    let notice = Action::SetNodeCondition { nth: 0, kind, status: ConditionStatus::True, message, begins_in };
    two_pods_each(seed, "on-demand", 12, vec![(NOTICE_AT, notice)])
}

#[test]
fn a_node_is_replaced_before_its_pods_leave_where_azure_gives_time() {
    for seed in 1..=2 {
        let start = taken_away_in_an_hour(seed);
        let (_, before) = announced(&start, true);
        let mut world = world_at(&start, NOTICE_AT, true);
        let is_left = |world: &World| before.iter().any(|pod| world.cluster().state().pods().get(pod).is_none());
        let ready = |world: &World| nodes(world, true).len();
        let end = world.now() + SignedDuration::from_mins(15);
        while !is_left(&world) && world.now() < end {
            let next = world.now() + secs(1);
            world.run_until(next).unwrap();
        }
        assert!(is_left(&world), "seed {seed}: its pods have not left");
        assert_eq!(ready(&world), 7, "seed {seed}: the new node is in use, and the old one is still there");
        world.run_until(end).unwrap();
        assert_eq!((claims(&world).len(), running(&world).len()), (6, 12), "seed {seed}");
        assert_eq!(logged(&world, EventKind::Disrupt, "interrupted"), 1, "seed {seed}");
    }
}

#[test]
fn without_room_pods_leave_five_minutes_before_azure_takes_the_node_away() {
    let mut start = taken_away_in_an_hour(1);
    start.manifests.pools[0].limits.nodes = Some(6);
    let (_, before) = announced(&start, true);
    // Their own ten seconds come on top.
    let begins = NOTICE_AT + SignedDuration::from_mins(55) - secs(10);
    for (after, left) in [(-5, 0), (30, before.len())] {
        let world = world_at(&start, begins + secs(after), true);
        let gone = before.iter().filter(|pod| world.cluster().state().pods().get(pod).is_none()).count();
        assert_eq!(gone, left, "{after} s after the time at which they have to leave");
    }
    assert_eq!(running(&world_at(&start, NOTICE_AT + SignedDuration::from_mins(70), true)).len(), 12);
}

/// No PodDisruptionBudget lets a pod go, so that the node that is launched for them is empty until their time is over.
#[test]
fn a_node_that_waits_for_its_pods_is_not_deleted_for_being_empty() {
    let mut start = taken_away_in_an_hour(1);
    start.manifests.pools[0].disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }];
    start.manifests.budgets = vec![budget_of("inflate", BudgetLimit::MaxUnavailable(0))];
    let world = world_at(&start, NOTICE_AT + SignedDuration::from_mins(50), true);
    assert_eq!((created_claims(&world), nodes(&world, true).len(), running(&world).len()), (7, 7, 12));
    let over = world_at(&start, NOTICE_AT + SignedDuration::from_mins(70), true);
    assert_eq!((created_claims(&over), nodes(&over, true).len(), running(&over).len()), (7, 6, 12));
}

#[test]
fn a_freeze_of_some_seconds_disrupts_nothing() {
    let freeze = Action::SetNodeCondition {
        nth: 0,
        kind: Arc::from("VMEventScheduled"),
        status: ConditionStatus::True,
        message: Arc::from("Freeze Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. DurationInSeconds: 5."),
        begins_in: None,
    };
    let start = two_pods_each(1, "on-demand", 12, vec![(NOTICE_AT, freeze)]);
    assert_eq!(pods(&run_to(&start, 60)), pods(&run_to(&start, 19)));
}

#[test]
fn a_sick_node_is_replaced_whatever_its_pods_and_budgets_say() {
    for seed in 1..=2 {
        let mut start = two_pods_each(seed, "on-demand", 12, vec![(NOTICE_AT, unhealthy(0, false))]);
        start.manifests.workloads[0].1.template.do_not_disrupt = Some(DoNotDisrupt::Always);
        let first = claims(&run_to(&start, 19))[0].clone();
        let world = run_to(&start, 40);
        assert!(!claims(&world).contains(&first), "seed {seed}");
        assert_eq!((claims(&world).len(), running(&world).len(), vms(&world)), (6, 12, 6), "seed {seed}");
        assert_eq!(logged(&world, EventKind::Disrupt, "unhealthy"), 1);
    }
}

#[test]
fn a_node_that_is_not_ready_for_ten_minutes_is_replaced() {
    use crate::world::{FaultyNodes, InjectedFault, NodeFault};
    let silence = |minutes| {
        let fault = NodeFault::Silence(FaultyNodes::Nth(0), SignedDuration::from_mins(minutes));
        (NOTICE_AT, Action::InjectFault(InjectedFault::Nodes(fault)))
    };
    for (minutes, is_replaced) in [(9, false), (60, true)] {
        let start = two_pods_each(1, "on-demand", 12, vec![silence(minutes)]);
        let first = claims(&run_to(&start, 19))[0].clone();
        assert!(claims(&run_to(&start, 30)).contains(&first));
        let world = run_to(&start, 50);
        assert_eq!(!claims(&world).contains(&first), is_replaced, "not ready for {minutes} min");
        assert_eq!(running(&world).len(), 12);
    }
}

#[test]
fn five_sick_nodes_of_ten_are_not_repaired_and_reported() {
    for seed in 1..=2 {
        let mut actions: Vec<_> = (0..5).map(|nth| (NOTICE_AT, unhealthy(nth, false))).collect();
        let well = SignedDuration::from_mins(60);
        actions.extend((0..3).map(|nth| (well, unhealthy(nth, true))));
        let start = two_pods_each(seed, "on-demand", 20, actions);
        let before = run_to(&start, 19);
        assert_eq!(claims(&before).len(), 10);
        let sick = run_to(&start, 59);
        assert_eq!((claims(&sick), pods(&sick)), (claims(&before), pods(&before)), "seed {seed}");
        let blocked = &sick.controller.inner.memory().lifecycle.blocked_repairs;
        assert_eq!(blocked.len(), 5, "seed {seed}");
        assert!(blocked.values().all(|block| matches!(block, RepairBlock::Pool { .. })));
        let world = run_to(&start, 90);
        let replaced = claims(&before).iter().filter(|name| !claims(&world).contains(name)).count();
        assert_eq!((replaced, running(&world).len()), (2, 20), "seed {seed}: two of ten are repaired");
        assert!(world.controller.inner.memory().lifecycle.blocked_repairs.is_empty());
    }
}

#[test]
fn nodes_that_become_sick_one_after_the_other_are_not_all_replaced() {
    for seed in 1..=2 {
        // Each is a tenth of the NodePool, and so is its successor.
        let signs = (0..60).map(|n| (NOTICE_AT + secs(60 * n), unhealthy(usize::try_from(n % 10).unwrap(), false)));
        let start = two_pods_each(seed, "on-demand", 20, signs.collect());
        let repaired = |mins| logged(&run_to(&start, mins), EventKind::Disrupt, "unhealthy");
        assert_eq!((repaired(49), running(&run_to(&start, 49)).len()), (2, 20), "seed {seed}");
    }
}

#[test]
fn an_agent_that_announces_the_end_of_every_vm_does_not_end_them() {
    let notice = |nth| {
        let (kind, message) = (Arc::from("VMEventScheduled"), Arc::from("Terminate Scheduled: ."));
        (NOTICE_AT, Action::SetNodeCondition { nth, kind, status: ConditionStatus::True, message, begins_in: None })
    };
    let start = two_pods_each(1, "on-demand", 20, (0..10).map(notice).collect());
    assert_eq!(pods(&run_to(&start, 60)), pods(&run_to(&start, 19)));
}

#[test]
fn a_crash_at_any_step_of_an_interruption_or_a_repair_changes_nothing_but_its_time() {
    use crate::world::{Crash, CrashPoint, WriteSide};
    let sick = two_pods_each(1, "on-demand", 12, vec![(NOTICE_AT, unhealthy(0, false))]);
    let evicted = two_pods_each(1, "spot", 12, vec![(NOTICE_AT, Action::EvictSpotAnnounced { count: 1 })]);
    let announced = taken_away_in_an_hour(1);
    let mut without_room = taken_away_in_an_hour(1);
    without_room.manifests.pools[0].limits.nodes = Some(6);
    for (start, category) in
        [(sick, "unhealthy"), (evicted, "preempted"), (announced, "interrupted"), (without_room, "interrupted")]
    {
        let writes = world_at(&start, NOTICE_AT - secs(1), true).controller.writes;
        let first = claims(&run_to(&start, 19));
        for (write, side) in (writes..writes + 8).flat_map(|n| [(n, WriteSide::Before), (n, WriteSide::After)]) {
            let mut world = World::new(catalog(), start.clone()).unwrap();
            world.plan_crashes([Crash { at: CrashPoint::Write(write), side, down_for: secs(20) }]);
            let end = world.now() + SignedDuration::from_mins(90);
            world.run_until(end).unwrap();
            let left = claims(&world).iter().filter(|name| first.contains(name)).count();
            assert_eq!((left, claims(&world).len(), running(&world).len()), (5, 6, 12), "{category}: write {write}");
            let marked =
                world.cluster().state().claims().values().filter(|claim| claim.status.forced.is_some()).count();
            assert_eq!(marked, 0, "{category}: write {write}, {side:?}");
        }
    }
}
