//! Worlds in which the statuses of NodePools and AKSNodeClasses are read.

use super::drift::relabelled;
use super::*;
use napkeeper_core::model::cluster::status::{ConditionType, PoolStatus};

fn pool_name() -> NodePoolName {
    NodePoolName::new("general-purpose").unwrap()
}

/// Twenty pods of two cores; the label `team` of their NodePool changes after an hour, and they leave after four.
fn setup(seed: u64) -> WorldSetup {
    let mut setup = relabelled(seed);
    setup.actions.push(after(240, Action::Scale { workload: key("web"), replicas: 0 }));
    setup
}

fn status(world: &World) -> &PoolStatus {
    &world.cluster().state().pools().get(&pool_name()).unwrap().status
}

fn holds(world: &World, kind: ConditionType) -> Option<bool> {
    status(world).conditions.get(kind).map(|condition| condition.holds)
}

#[test]
fn the_status_of_a_pool_follows_its_nodes_and_its_generation() {
    for seed in 0..5 {
        let mut world = World::new(catalog(), setup(seed)).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(59)).unwrap();
        let nodes = i64::try_from(world.cluster().state().claims().len()).unwrap();
        let before = status(&world).clone();
        assert!(nodes >= 10, "seed {seed}: {nodes} nodes");
        assert_eq!((before.nodes, before.resources.extended("nodes")), (Some(nodes), nodes), "seed {seed}");
        assert_eq!(before.resources.cpu_millis, nodes * 4_000, "seed {seed}");
        assert_eq!(before.conditions.observed_generation, Some(1), "seed {seed}");
        assert_eq!(holds(&world, ConditionType::NodesUpToDate), Some(true), "seed {seed}");

        let mut were_drifted = false;
        for minute in 60..240 {
            world.run_until(start + SignedDuration::from_mins(minute)).unwrap();
            assert_eq!(holds(&world, ConditionType::Ready), Some(true), "seed {seed}, minute {minute}");
            were_drifted |= holds(&world, ConditionType::NodesUpToDate) == Some(false);
        }
        assert!(were_drifted, "seed {seed}");
        assert_eq!(status(&world).conditions.observed_generation, Some(2), "seed {seed}");
        assert_eq!(holds(&world, ConditionType::NodesUpToDate), Some(true), "seed {seed}: the roll is over");
        world.run_until(start + SignedDuration::from_mins(360)).unwrap();
        assert_eq!((status(&world).nodes, status(&world).resources.cpu_millis), (Some(0), 0), "seed {seed}");
        let class = world.cluster().state().classes().values().next().unwrap();
        assert!(class.conditions.get(ConditionType::Ready).is_some_and(|ready| ready.holds), "seed {seed}");
    }
}
