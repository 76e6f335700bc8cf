//! Worlds in which NodePools are deleted.

use super::crash_safety::budget_of;
use super::drift::nodes as all_nodes;
use super::*;
use crate::cluster::Propagation;
use crate::workload::BudgetLimit;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::status::ConditionType;

/// After how many minutes a NodePool is deleted.
const DELETED: i64 = 60;
/// Pods, each of which needs a node.
const PODS: u32 = 10;

fn named(name: &str) -> NodePoolName {
    NodePoolName::new(name).unwrap()
}

/// A NodePool of small nodes, two of which may go at once.
fn small(name: &str, weight: i32) -> NodePool {
    let mut pool = mk_pool(name, weight, &["on-demand"], 200);
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D2s_v5"]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: None, window: None }];
    pool
}

/// Ten nodes of the NodePool `old`, of which at most one pod may be missing; the NodePool `new` is used for what `old` does not take.
/// NodePools are deleted after an hour.
fn world_with(seed: u64, others: &[NodePool], deleted: &[&str], propagation: Propagation) -> WorldSetup {
    let mut setup = mk_start(seed);
    setup.manifests.pools = std::iter::once(small("old", 50)).chain(others.iter().cloned()).collect();
    setup.manifests.workloads = vec![mk_deployment("web", PODS, 1500, 1024)];
    setup.manifests.budgets = vec![budget_of("web", BudgetLimit::MaxUnavailable(1))];
    let delete = |name: &&str| after(DELETED, Action::DeletePool { pool: named(name), propagation });
    setup.actions = deleted.iter().map(delete).collect();
    setup
}

fn nodes_of<'w>(world: &'w World, pool: &str) -> Vec<&'w Node> {
    all_nodes(world).into_iter().filter(|node| node.label(labels::NODEPOOL) == Some(pool)).collect()
}

/// Runs until so many minutes after the start, and returns the most nodes of the NodePool `old` that were going at once, and the
/// fewest pods that were ready since its deletion.
fn watched(world: &mut World, mins: i64) -> (usize, usize) {
    let start = world.started_at();
    world.run_until(start + SignedDuration::from_mins(DELETED)).unwrap();
    let (mut most_going, mut fewest) = (0, usize::MAX);
    for second in (DELETED * 60..mins * 60).step_by(15) {
        if let Err(violation) = world.run_until(start + SignedDuration::from_secs(second)) {
            print(world);
            panic!("{violation}");
        }
        let is_going = |node: &&&Node| node.deleting_at.is_some() || node.is_tainted(labels::TAINT_DISRUPTED);
        most_going = most_going.max(nodes_of(world, "old").iter().filter(is_going).count());
        fewest = fewest.min(world.cluster().state().pods().values().filter(|pod| pod.ready).count());
    }
    (most_going, fewest)
}

fn has_pool(world: &World, name: &str) -> bool {
    world.cluster().state().pools().get(&named(name)).is_some()
}

fn message(world: &World, pool: &str) -> String {
    let pool = world.cluster().state().pools().get(&named(pool)).unwrap();
    pool.status.conditions.get(ConditionType::NodesRemoved).unwrap().message.to_string()
}

/// As kubectl and Flux delete it, and as Argo CD does.
#[test]
fn a_deleted_pool_hands_its_pods_over_within_its_budget() {
    for (seed, propagation) in [(0, Propagation::Background), (1, Propagation::Foreground)] {
        let setup = world_with(seed, &[small("new", 10)], &["old"], propagation);
        let mut world = World::new(catalog(), setup).unwrap();
        let start = world.started_at();
        world.run_until(start + SignedDuration::from_mins(DELETED)).unwrap();
        let before = nodes_of(&world, "old").len();
        assert_eq!((before, nodes_of(&world, "new").len()), (10, 0), "{propagation:?}");
        let (most_going, fewest) = watched(&mut world, 180);
        let evictions = world.summary().disruption.all.voluntary_evictions;
        let is_gone = !has_pool(&world, "old") && nodes_of(&world, "old").is_empty();
        if !is_gone || most_going > 2 || evictions > 12 {
            print(&world);
        }
        assert!(is_gone, "{propagation:?}");
        assert!((1..=2).contains(&most_going), "{propagation:?}: {most_going} at once");
        assert!(fewest >= 9, "{propagation:?}: only {fewest} pods were ready");
        assert!(evictions <= 12, "{propagation:?}: {evictions} evictions of 10 pods");
        assert_eq!(nodes_of(&world, "new").len(), 10);
    }
}

/// Nothing but the order of the steps keeps the pods running here.
#[test]
fn a_node_goes_once_its_replacement_is_ready_also_without_a_pod_disruption_budget() {
    let mut setup = world_with(6, &[small("new", 10)], &["old"], Propagation::Background);
    setup.manifests.budgets.clear();
    let mut world = World::new(catalog(), setup).unwrap();
    let start = world.started_at();
    for second in (DELETED * 60..180 * 60).step_by(5) {
        world.run_until(start + SignedDuration::from_secs(second)).unwrap();
        let of_old = |claim: &&Arc<Claim>| claim.spec.pool == Some(named("old")) && claim.deleting_at.is_none();
        let left = world.cluster().state().claims().values().filter(of_old).count();
        let ready = nodes_of(&world, "new").into_iter().filter(|node| node.ready).count();
        assert!(left + ready >= PODS as usize, "{left} nodes are left, and {ready} new ones ready");
    }
    assert!(!has_pool(&world, "old"));
    assert_eq!((nodes_of(&world, "old").len(), nodes_of(&world, "new").len()), (0, PODS as usize));
}

#[test]
fn nothing_is_evicted_that_has_nowhere_to_go_and_that_is_told() {
    let mut setup = world_with(2, &[], &["old"], Propagation::Background);
    // It would let one pod at a time go, and none before that runs again.
    setup.manifests.budgets.clear();
    // A load that falls empties some nodes.
    setup.actions.push(after(90, Action::Scale { workload: key("web"), replicas: 6 }));
    let mut world = World::new(catalog(), setup).unwrap();
    let (_, fewest) = watched(&mut world, 85);
    assert_eq!((fewest, nodes_of(&world, "old").len()), (10, 10));
    assert_eq!(world.summary().disruption.all.voluntary_evictions, 0);
    let told = message(&world, "old");
    assert!(told.starts_with("10 nodes are left, of which 0 are going; "), "{told}");
    assert!(told.contains("stay: node aks-old-"), "{told}");
    assert!(told.contains("can be scheduled nowhere else: "), "{told}");
    assert!(told.contains("delete nodeclaims -l karpenter.sh/nodepool=old"), "{told}");
    let (_, fewest) = watched(&mut world, 150);
    assert_eq!((fewest, nodes_of(&world, "old").len()), (6, 6), "empty nodes go");
    assert!(has_pool(&world, "old"));
    // A user deletes what is left.
    for claim in claims(&world) {
        let now = world.now();
        world.cluster.delete_claim(&claim, now);
    }
    world.run_until(world.now() + SignedDuration::from_mins(30)).unwrap();
    assert!(!has_pool(&world, "old"));
    assert_eq!(nodes_of(&world, "old").len(), 0);
}

/// As in a wrong commit: what is left takes the pods of both, and none goes from one to the other.
#[test]
fn of_two_pools_that_are_deleted_together_each_pod_moves_once() {
    let others = [small("second", 20), small("new", 10)];
    let mut setup = world_with(3, &others, &["old", "second"], Propagation::Background);
    // The second NodePool takes what the first one's limit leaves.
    setup.manifests.pools[0].limits.resources.insert(Arc::from("cpu"), 12_000);
    let mut world = World::new(catalog(), setup).unwrap();
    let start = world.started_at();
    world.run_until(start + SignedDuration::from_mins(DELETED)).unwrap();
    assert_eq!((nodes_of(&world, "old").len(), nodes_of(&world, "second").len()), (6, 4));
    let (most_going, fewest) = watched(&mut world, 180);
    let evictions = world.summary().disruption.all.voluntary_evictions;
    if evictions > 12 || has_pool(&world, "old") || has_pool(&world, "second") {
        print(&world);
    }
    assert!(!has_pool(&world, "old") && !has_pool(&world, "second"));
    assert!(most_going <= 2 && fewest >= 9, "{most_going} at once, {fewest} ready");
    assert!(evictions <= 12, "{evictions} evictions of 10 pods");
    assert_eq!(nodes_of(&world, "new").len(), 10);
}

#[test]
fn an_orphaning_deletion_keeps_the_nodes() {
    let mut world = World::new(catalog(), world_with(4, &[], &["old"], Propagation::Orphan)).unwrap();
    let (most_going, fewest) = watched(&mut world, 120);
    assert!(!has_pool(&world, "old"));
    assert_eq!((most_going, fewest, nodes_of(&world, "old").len()), (0, 10, 10));
}

/// An earlier version has made the NodePool the owner of its NodeClaims.
#[test]
fn after_an_update_no_pool_owns_its_claims() {
    let mut world =
        World::new(catalog(), world_with(5, &[small("new", 10)], &["old"], Propagation::Foreground)).unwrap();
    let start = world.started_at();
    world.run_until(start + SignedDuration::from_mins(DELETED - 10)).unwrap();
    for claim in claims(&world) {
        let now = world.now();
        world.cluster.own_claim(&claim, now);
    }
    let (most_going, fewest) = watched(&mut world, 180);
    assert!(!has_pool(&world, "old") && nodes_of(&world, "old").is_empty());
    assert!(most_going <= 2 && fewest >= 9, "{most_going} at once, {fewest} ready");
}
