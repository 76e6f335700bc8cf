//! Worlds in which a NodePool or an AKSNodeClass changes under its nodes.

use super::*;
use napkeeper_core::model::cluster::node::Node;

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
