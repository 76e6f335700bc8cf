//! More offerings never raise the price, as long as nothing is scarce and pods have no topology constraints.

use crate::model::cluster::pool::Limits;
use crate::model::names::ObjectKey;
use crate::scheduling::tests::random_cluster::random_cluster;
use crate::scheduling::tests::*;

/// The cluster of a seed without limits, and its pods without pod constraints.
fn cluster_without_limits(seed: u64) -> (Snapshot, Vec<Arc<Pod>>) {
    let (mut snapshot, waiting) = random_cluster(seed);
    let pools: Vec<NodePool> = snapshot.pools().values().map(|pool| NodePool::clone(pool)).collect();
    for pool in pools {
        snapshot.put_pool(pool.name.clone(), NodePool { limits: Limits::default(), ..pool });
    }
    let plain = |pod: &Arc<Pod>| {
        let mut shape = crate::model::cluster::pod::PodShape::clone(&pod.shape);
        (shape.spread, shape.affinity, shape.preferences) = (Vec::new(), None, None);
        Arc::new(Pod { shape: Arc::new(shape), ..Pod::clone(pod) })
    };
    let running: Vec<Arc<Pod>> = snapshot.pods().values().map(plain).collect();
    running.into_iter().for_each(|pod| snapshot.put_pod(pod));
    (snapshot, waiting.iter().map(plain).collect())
}

fn unschedulable(snapshot: &Snapshot, pods: &[Arc<Pod>]) -> BTreeSet<ObjectKey> {
    solve(snapshot, pods).unschedulable.iter().flat_map(|group| &group.pods).map(|pod| pod.key.clone()).collect()
}

#[test]
fn adding_a_pool_or_removing_a_taint_makes_no_pod_unschedulable() {
    let (mut helped, mut left_out) = (0, 0);
    for seed in 0..600 {
        let (snapshot, pods) = cluster_without_limits(seed);
        let before = unschedulable(&snapshot, &pods);
        left_out += before.len();
        let mut more = snapshot.clone();
        let extra = pool("extra");
        more.put_pool(extra.name.clone(), extra);
        let after = unschedulable(&more, &pods);
        assert!(after.is_subset(&before), "seed {seed}: {:?} no longer placed after adding a pool", &after - &before);
        helped += before.len() - after.len();
        let mut untainted = snapshot.clone();
        for pool in snapshot.pools().values() {
            untainted.put_pool(pool.name.clone(), NodePool { taints: Vec::new(), ..NodePool::clone(pool) });
        }
        let after = unschedulable(&untainted, &pods);
        assert!(
            after.is_subset(&before),
            "seed {seed}: {:?} no longer placed after removing a taint",
            &after - &before
        );
    }
    assert!(helped > 20 && left_out > 100, "{helped} of {left_out}: too few cases");
}
