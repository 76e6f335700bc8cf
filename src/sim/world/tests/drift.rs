//! Worlds in which a NodePool or an AKSNodeClass changes under its nodes.

use super::*;
use jiff::tz::Offset;
use napkeeper_core::disruption::budget_calendar::forecast;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::status::ConditionType;
use napkeeper_core::model::names::NodeName;
use napkeeper_core::model::settings::{MaintenanceSchedule, MaintenanceWindow};
use napkeeper_core::outlook::{OutlookInput, outlook};

/// Twenty pods of two cores in one NodePool, three nodes of which may go at once; its label `team` changes after an hour.
pub(super) fn relabelled(seed: u64) -> WorldSetup {
    let mut setup = mk_start(seed);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 200);
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D4s_v5"]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(3), reasons: None, window: None }];
    setup.manifests.pools = vec![pool];
    setup.manifests.workloads = vec![mk_deployment("web", 20, 1500, 1024)];
    let label = Action::LabelPool {
        pool: NodePoolName::new("general-purpose").unwrap(),
        label: Arc::from("team"),
        value: Arc::from("a"),
    };
    setup.actions = vec![after(60, label)];
    setup
}

pub(super) fn nodes(world: &World) -> Vec<&Node> {
    world
        .cluster()
        .state()
        .nodes()
        .values()
        .map(|node| &**node)
        .filter(|n| n.label(labels::NODEPOOL).is_some())
        .collect()
}

#[test]
fn a_changed_label_rolls_through_the_budget_and_moves_each_pod_once() {
    for seed in 0..5 {
        let mut world = World::new(catalog(), relabelled(seed)).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(60)).unwrap();
        let before = nodes(&world).len();
        assert!(before >= 10, "{before} nodes");
        let mut most_going = 0;
        for minute in 61..240 {
            world.run_until(start + SignedDuration::from_mins(minute)).unwrap();
            let is_going = |node: &&&Node| node.deleting_at.is_some() || node.is_tainted(labels::TAINT_DISRUPTED);
            most_going = most_going.max(nodes(&world).iter().filter(is_going).count());
        }
        let old = nodes(&world).into_iter().filter(|node| node.label("team") != Some("a")).count();
        let drifted = world.timeline().iter().filter(|e| e.text.starts_with("drifted: ")).count();
        let evictions = world.summary().disruption.all.voluntary_evictions;
        if old > 0 || most_going > 3 || drifted < before || evictions > 30 {
            print(&world);
        }
        assert_eq!(old, 0, "seed {seed}");
        assert!(drifted >= before, "seed {seed}: {drifted} deleted by drift");
        assert!((1..=3).contains(&most_going), "seed {seed}: {most_going} at once");
        assert!(evictions <= 30, "seed {seed}: {evictions} evictions of 20 pods");
    }
}

/// What is told beforehand against what then comes: the NodePool may only be disrupted in every second hour.
#[test]
fn a_roll_ends_within_its_forecast_and_begins_with_the_nodes_that_were_told() {
    for seed in 0..4 {
        let mut setup = relabelled(seed);
        let closed = (Arc::from("0 */2 * * *"), SignedDuration::from_hours(1));
        let budgets = &mut setup.manifests.pools[0].disruption.budgets;
        budgets.push(Budget { nodes: BudgetNodes::Count(0), reasons: None, window: Some(closed) });
        setup.manifests.pools[0].termination_grace_period = Some(SignedDuration::from_mins(10));
        let mut world = World::new(catalog(), setup).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(60)).unwrap();
        let before: BTreeSet<NodeName> = nodes(&world).iter().map(|node| node.name.clone()).collect();
        world.run_until(start + SignedDuration::from_secs(3_602)).unwrap();
        let (now, snapshot) = (world.now(), world.controller.inner.snapshot());
        let pool = snapshot.pools().values().next().unwrap();
        let roll = forecast(snapshot, &world.settings, pool, (now, now + SignedDuration::from_hours(48))).roll.unwrap();
        let provision = Default::default();
        let input = OutlookInput { snapshot, provision: &provision, settings: &world.settings, now, seed: 1 };
        let told = outlook(input).moves;
        assert_eq!(roll.nodes as usize, before.len());
        let nodes_of = |now: bool| {
            let moves = told.iter().filter(move |one| one.obstacles.is_empty() == now);
            moves.flat_map(|one| &one.sources).filter_map(|source| source.node.clone()).collect::<BTreeSet<_>>()
        };
        let first = nodes_of(true);
        assert_eq!((first.len(), first.union(&nodes_of(false)).count()), (3, before.len()), "seed {seed}: {told:#?}");
        let (mut begun, mut end) = (BTreeSet::new(), None);
        for minute in 61..24 * 60 {
            world.run_until(start + SignedDuration::from_mins(minute)).unwrap();
            let is_going = |node: &&&Node| node.deleting_at.is_some() || node.is_tainted(labels::TAINT_DISRUPTED);
            if begun.is_empty() {
                begun.extend(nodes(&world).iter().filter(is_going).map(|node| node.name.clone()));
            }
            if left(&world, &before) == 0 {
                end = Some(world.now());
                break;
            }
        }
        assert_eq!(begun, first, "seed {seed}");
        assert!(roll.earliest <= end && end.is_some() && end <= roll.latest, "seed {seed}: {end:?} not in {roll:?}");
    }
}

/// Nodes with pods, and an upgrade of Kubernetes after an hour that new nodes follow or not.
fn upgraded(seed: u64, new_nodes: bool) -> WorldSetup {
    let mut setup = relabelled(seed);
    setup.actions = vec![after(60, Action::UpgradeKubernetes { version: Arc::from("v1.34.1"), new_nodes })];
    setup
}

#[test]
fn an_upgrade_rolls_all_nodes_where_new_ones_follow_and_one_where_they_do_not() {
    for (seed, new_nodes) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut world = World::new(catalog(), upgraded(seed, new_nodes)).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(60)).unwrap();
        let before: BTreeSet<_> = nodes(&world).iter().map(|node| node.name.clone()).collect();
        world.run_until(start + SignedDuration::from_hours(5)).unwrap();
        let left = nodes(&world).iter().filter(|node| before.contains(&node.name)).count();
        let expected = if new_nodes { 0 } else { before.len() - 1 };
        if left != expected {
            print(&world);
        }
        assert_eq!(left, expected, "seed {seed}, new nodes follow: {new_nodes}");
    }
}

/// When a maintenance window of the Kubernetes version opens, counted from the start; it is open for four hours a day.
const OPENS: SignedDuration = SignedDuration::from_hours(6);

/// A world with an upgrade after an hour that waits for that window, and this action after an hour and a half. Run until just
/// before the window opens.
fn waiting(action: Option<Action>) -> (World, BTreeSet<NodeName>) {
    let mut setup = upgraded(0, true);
    setup.actions.extend(action.map(|action| after(90, action)));
    let mut world = World::new(catalog(), setup).unwrap();
    let start = world.now();
    let opens = Offset::UTC.to_datetime(start + OPENS);
    world.settings.maintenance_windows.kubernetes_version = Some(MaintenanceWindow {
        schedule: MaintenanceSchedule::Daily { interval: 1 },
        start_time: opens.time(),
        duration: SignedDuration::from_hours(4),
        offset: Offset::UTC,
        start_date: opens.date(),
        not_allowed: Vec::new(),
    });
    world.run_until(start + SignedDuration::from_mins(60)).unwrap();
    let before = nodes(&world).iter().map(|node| node.name.clone()).collect();
    world.run_until(start + OPENS - SignedDuration::from_secs(1)).unwrap();
    (world, before)
}

fn left(world: &World, before: &BTreeSet<NodeName>) -> usize {
    nodes(world).iter().filter(|node| before.contains(&node.name)).count()
}

#[test]
fn a_roll_of_the_version_waits_for_its_maintenance_window_and_nothing_else_does() {
    let (mut world, before) = waiting(None);
    let (start, opens) = (world.now(), world.now() + SignedDuration::from_secs(1));
    assert_eq!(left(&world, &before), before.len(), "none before it");
    let told: Vec<_> = world.cluster().state().claims().values().filter_map(|c| c.status.drifted.clone()).collect();
    let waits = format!("; waits for the maintenance window until {opens}");
    assert!(!told.is_empty() && told.iter().all(|drifted| drifted.message.ends_with(&waits)), "{told:?}");
    let pool = world.cluster().state().pools().values().next().unwrap();
    let message = &pool.status.conditions.get(ConditionType::NodesUpToDate).unwrap().message;
    assert!(message.ends_with(&format!("for the maintenance window until {opens}")), "{message}");
    world.run_until(start + SignedDuration::from_hours(4)).unwrap();
    assert_eq!(left(&world, &before), 0, "all within it");

    let pool = NodePoolName::new("general-purpose").unwrap();
    let (label, value) = (Arc::from("maintained"), Arc::from("yes"));
    let (world, before) = waiting(Some(Action::LabelPool { pool, label, value }));
    assert_eq!(left(&world, &before), 0, "drift of a field does not wait");

    let (world, before) = waiting(Some(Action::Scale { workload: key("web"), replicas: 2 }));
    let left = left(&world, &before);
    assert!((1..before.len()).contains(&left), "consolidation does not wait: {left} of {}", before.len());
}
