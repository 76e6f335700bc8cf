//! Worlds in which the statuses of NodePools, AKSNodeClasses and NodeClaims are read.

use super::drift::relabelled;
use super::*;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::status::{ConditionType, PoolStatus};
use napkeeper_core::model::support::write_times::WRITE_INTERVAL;

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

/// The NodeClaims whose nodes are initialized and stay, each with whether its NodePool lets it be consolidated now; those of which
/// that may not be written yet are left out.
fn consolidatable(world: &World) -> Vec<(&Claim, bool)> {
    let (state, now) = (world.cluster().state(), world.now());
    let allowed = |claim: &Claim| {
        let pool = state.pools().get(claim.spec.pool.as_ref()?)?;
        let from = pool.consolidatable_from(claim.status.quiet_since()?)?;
        let may_be_late = from <= now && now < from + WRITE_INTERVAL * 2;
        (!claim.is_leaving() && !may_be_late).then_some(from <= now)
    };
    state.claims().values().filter_map(|claim| Some((&**claim, allowed(claim)?))).collect()
}

#[test]
fn claims_say_whether_they_may_be_consolidated_and_are_what_was_launched() {
    for seed in 0..5 {
        let mut world = World::new(catalog(), setup(seed)).unwrap();
        let start = world.now();
        let mut seen = [0; 2];
        for half_minute in 10..480 {
            world.run_until(start + SignedDuration::from_secs(30 * half_minute)).unwrap();
            for (claim, allowed) in consolidatable(&world) {
                let status = &claim.status;
                assert_eq!(status.consolidatable, allowed, "seed {seed}, {half_minute}: {}, {status:?}", claim.name);
                seen[usize::from(allowed)] += 1;
                let initialized = status.initialized.unwrap();
                let consistent = status.consistent_state.as_ref().map(|state| state.holds);
                let may_be_late = world.now() < initialized + WRITE_INTERVAL * 2;
                assert!(consistent == Some(true) || may_be_late && consistent.is_none(), "{status:?}");
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "seed {seed}: {seen:?}");
    }
}
