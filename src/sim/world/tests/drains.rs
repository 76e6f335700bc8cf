//! Drains of nodes whose pods do not leave.

use super::*;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, Toleration};

/// The first NodeClaim of six is deleted after 20 min.
fn deleted(change: impl FnOnce(&mut PodTemplate)) -> WorldSetup {
    let mut start = steady(1, vec![after(20, Action::DeleteClaim { nth: 0 })]);
    change(&mut start.manifests.workloads[0].1.template);
    start
}

#[test]
fn pods_that_tolerate_the_taint_of_a_drain_end_with_their_vm() {
    let start = deleted(|template| {
        let key = Some(Arc::from(labels::TAINT_DISRUPTED));
        Arc::make_mut(&mut template.shape).tolerations.push(Toleration { key, value: None, effect: None });
    });
    let first = claims(&run_to(&start, 19))[0].clone();
    let world = run_to(&start, 40);
    assert!(!claims(&world).contains(&first));
    let running = world.cluster().state().pods().values().filter(|pod| pod.started_at.is_some()).count();
    assert_eq!((running, created_claims(&world)), (12, 7));
}

#[test]
fn evictions_count_under_the_reason_of_their_disruption() {
    let reasons = |start: &WorldSetup, minutes| {
        let pods = run_to(start, minutes).summary().disruption.all;
        pods.evictions_by_reason.into_iter().map(|(reason, n)| (reason.to_string(), n)).collect::<Vec<_>>()
    };
    // A user deletes a NodeClaim: napkeeper drains it, for no reason of its own.
    assert_eq!(reasons(&deleted(|_| {}), 21), [("unspecified".to_owned(), 2)]);
    // Twelve pods on six nodes become six.
    let scaled = steady(1, vec![after(20, Action::Scale { workload: key("inflate"), replicas: 6 })]);
    let found = reasons(&scaled, 120);
    assert!(!found.is_empty() && found.iter().all(|(reason, _)| reason == "underutilized"), "{found:?}");
}

#[test]
fn no_node_is_bought_for_pods_that_refuse_to_leave() {
    let start = deleted(|template| template.do_not_disrupt = Some(DoNotDisrupt::Always));
    let world = run_to(&start, 60 * 12);
    assert_eq!((claims(&world).len(), created_claims(&world)), (6, 6));
    assert_eq!(pods(&world), pods(&run_to(&start, 19)));
}

#[test]
fn pods_that_refuse_to_leave_end_before_the_grace_period_of_their_node_does() {
    let mut start = deleted(|template| template.do_not_disrupt = Some(DoNotDisrupt::Always));
    for pool in &mut start.manifests.pools {
        pool.termination_grace_period = Some(SignedDuration::from_mins(10));
    }
    let first = claims(&run_to(&start, 19))[0].clone();
    // It is deleted after 20 min; its pods have 30 s to end.
    let leaving = |seconds: i64| {
        let mut world = World::new(catalog(), start.clone()).unwrap();
        let end = world.now() + SignedDuration::from_mins(29) + SignedDuration::from_secs(seconds);
        world.run_until(end).unwrap();
        let leaving = world.cluster().state().pods().values().filter(|pod| pod.deleting_at.is_some()).count();
        (leaving, claims(&world).contains(&first))
    };
    assert_eq!(leaving(28), (0, true));
    assert_eq!(leaving(35), (2, true), "they have been asked to");
    assert!(!claims(&run_to(&start, 40)).contains(&first));
}
