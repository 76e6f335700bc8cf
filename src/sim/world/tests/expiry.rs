//! Worlds in which nodes expire.

use super::drift::nodes;
use super::*;
use napkeeper_core::model::cluster::node::Node;

/// Pods that need a node each, all launched together, of a NodePool ten nodes of which may go at once.
fn of_one_age(seed: u64, count: u32, expire_after: SignedDuration) -> WorldSetup {
    let mut setup = mk_start(seed);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 1_000);
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D2s_v5"]).unwrap();
    pool.expire_after = Some(expire_after);
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(10), reasons: None, window: None }];
    setup.manifests.pools = vec![pool];
    setup.manifests.workloads = vec![mk_deployment("web", count, 1500, 1024)];
    setup
}

fn is_going(node: &&&Node) -> bool {
    node.deleting_at.is_some() || node.is_tainted(labels::TAINT_DISRUPTED)
}

#[test]
fn a_hundred_nodes_of_one_age_are_replaced_within_the_budget_before_they_expire() {
    for seed in 0..2 {
        let mut world = World::new(catalog(), of_one_age(seed, 100, SignedDuration::from_hours(24))).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(60)).unwrap();
        let before: BTreeSet<_> = nodes(&world).iter().map(|node| node.name.clone()).collect();
        assert_eq!(before.len(), 100);
        world.run_until(start + SignedDuration::from_mins(21 * 60)).unwrap();
        let none_went = nodes(&world).iter().all(|node| before.contains(&node.name));
        let mut most_going = 0;
        for minute in 21 * 60..25 * 60 {
            world.run_until(start + SignedDuration::from_mins(minute)).unwrap();
            most_going = most_going.max(nodes(&world).iter().filter(is_going).count());
        }
        let left = nodes(&world).iter().filter(|node| before.contains(&node.name)).count();
        let expired = world.timeline().iter().filter(|e| e.text.contains("older than expireAfter")).count();
        if !none_went || left > 0 || expired > 0 || most_going > 10 {
            print(&world);
        }
        assert!(none_went, "seed {seed}: nodes went before their lead time");
        assert_eq!((left, expired), (0, 0), "seed {seed}");
        assert!((1..=10).contains(&most_going), "seed {seed}: {most_going} at once");
    }
}

/// As in Karpenter: `expireAfter` is the longest time that a node lives.
#[test]
fn nodes_that_budgets_keep_expire_at_their_time() {
    let mut setup = of_one_age(1, 3, SignedDuration::from_hours(10));
    for pool in &mut setup.manifests.pools {
        pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    }
    let mut world = World::new(catalog(), setup).unwrap();
    let start = world.now();
    world.run_until(start + SignedDuration::from_mins(595)).unwrap();
    assert_eq!(nodes(&world).iter().filter(is_going).count(), 0, "nothing goes before");
    world.run_until(start + SignedDuration::from_mins(640)).unwrap();
    let expired = world.timeline().iter().filter(|e| e.text.contains("older than expireAfter")).count();
    assert_eq!(expired, 3);
}
