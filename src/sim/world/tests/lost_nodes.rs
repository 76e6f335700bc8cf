//! Nodes that are not ready, and those that are lost.

use super::*;
use crate::world::{EventKind, FaultyNodes, InjectedFault, NodeFault};

fn strike(mins: i64, fault: NodeFault) -> (SignedDuration, Action) {
    after(mins, Action::InjectFault(InjectedFault::Nodes(fault)))
}

const ONE: FaultyNodes = FaultyNodes::Nth(0);
const ALL: FaultyNodes = FaultyNodes::Every(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[test]
fn a_deleted_node_whose_kubelet_is_silent_keeps_its_vm_until_it_is_back() {
    let silent = strike(20, NodeFault::Silence(ONE, HOUR * 2));
    let start = steady(1, vec![silent, strike(25, NodeFault::DeleteUnready { every: 1 })]);
    let before = run_to(&start, 19);
    let lasting = run_to(&start, 139);
    assert_eq!(nodes(&lasting, false).len(), 1, "its pods run on for two hours");
    assert!(vms(&lasting) >= vms(&before));
    let over = run_to(&start, 150);
    assert_eq!(nodes(&over, false).len(), 0);
    assert!(!claims(&over).contains(&claims(&before)[0]), "drained as soon as its kubelet was back");
}

#[test]
fn the_grace_period_ends_the_drain_of_a_silent_node() {
    let silent = strike(20, NodeFault::Silence(ONE, HOUR * 2));
    let mut start = steady(1, vec![silent, strike(25, NodeFault::DeleteUnready { every: 1 })]);
    start.manifests.pools[0].termination_grace_period = Some(SignedDuration::from_mins(30));
    assert_eq!(nodes(&run_to(&start, 54), false).len(), 1);
    assert_eq!(nodes(&run_to(&start, 60), false).len(), 0);
}

#[test]
fn an_outage_of_all_kubelets_deletes_no_vm_and_passes() {
    let silent = strike(20, NodeFault::Silence(ALL, HOUR));
    let mut start = steady(2, vec![silent, strike(25, NodeFault::DeleteUnready { every: 2 })]);
    start.manifests.pools[0].termination_grace_period = Some(SignedDuration::from_mins(10));
    start.manifests.pools[0].expire_after = Some(SignedDuration::from_mins(40));
    let before = run_to(&start, 19);
    let lasting = run_to(&start, 79);
    assert_eq!(nodes(&lasting, false), nodes(&before, true), "past grace period and expiry");
    assert!(claims(&before).iter().all(|name| claims(&lasting).contains(name)));
    assert_eq!(logged(&lasting, EventKind::Disrupt, "expireAfter"), 0);
    let over = run_to(&start, 180);
    assert!(logged(&over, EventKind::Disrupt, "expireAfter") > 0, "what was held back follows");
    assert!(claims(&before).iter().all(|name| !claims(&over).contains(name)));
    assert!(over.cluster().state().pending().is_empty() && nodes(&over, false).is_empty());
}

#[test]
fn a_deallocated_vm_is_replaced_and_a_stopped_one_is_repaired_or_ends_once_a_person_says_so() {
    for deallocate in [true, false] {
        let off = strike(20, NodeFault::ShutDown { nth: 0, deallocate });
        let start = steady(3, vec![off.clone()]);
        let before = run_to(&start, 19);
        let first = claims(&before)[0].clone();
        let soon = run_to(&start, 30);
        assert_eq!(!claims(&soon).contains(&first), deallocate, "it may be started again");
        let world = run_to(&start, 40);
        assert!(!claims(&world).contains(&first) && nodes(&world, false).is_empty(), "deallocated: {deallocate}");
        assert_eq!(logged(&world, EventKind::Disrupt, "unhealthy"), usize::from(!deallocate));
    }
    let off = strike(20, NodeFault::ShutDown { nth: 0, deallocate: false });
    let deleted = strike(30, NodeFault::DeleteUnready { every: 1 });
    let start = steady(3, vec![off, deleted, strike(120, NodeFault::OutOfService)]);
    assert_eq!(nodes(&run_to(&start, 119), false).len(), 1, "it may be started again");
    assert_eq!(nodes(&run_to(&start, 125), false).len(), 0);
}

#[test]
fn an_evicted_vm_is_replaced_within_minutes() {
    let mut start = mk_start(4);
    start.actions = vec![after(20, Action::EvictSpot { count: 1 })];
    let mut world = World::new(catalog(), start).unwrap();
    let end = world.now() + SignedDuration::from_mins(25);
    world.run_until(end).unwrap();
    assert_eq!(world.summary().spot_evictions, 1);
    assert!(nodes(&world, false).is_empty() && world.cluster().state().pending().is_empty());
}

#[test]
fn an_eviction_without_a_spot_vm_is_said() {
    let mut start = mk_start(4);
    start.actions = vec![after(20, Action::EvictSpot { count: 900 })];
    let mut world = World::new(catalog(), start).unwrap();
    let end = world.now() + SignedDuration::from_mins(21);
    world.run_until(end).unwrap();
    let said = world.timeline().iter().find(|entry| entry.text.ends_with(" of 900 evictions: no more spot VMs exist"));
    assert!(said.is_some(), "{:?}", world.timeline());
}
