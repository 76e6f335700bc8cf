//! Stories of the how-to, one by one.

use super::*;
use crate::world::Kind;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::cluster::volume::ReclaimPolicy;

fn told(world: &World, kind: Kind, subject: &str, words: &str) -> usize {
    let fits = |e: &&crate::world::Entry| e.kind == kind && e.subject.contains(subject) && e.text.contains(words);
    world.timeline().iter().filter(fits).count()
}

fn days(n: i64) -> i64 {
    n * 24
}

#[test]
fn ten_pods_get_spot_nodes_and_run() {
    let world = run(mk_start(1), 1);
    assert!(world.cluster().state().pending().is_empty());
    assert_eq!(told(&world, Kind::Provision, "spot-preferred", "spot"), 2, "7 pods and 3 pods");
    assert_eq!(world.summary().spot_percent, 100);
}

#[test]
fn scaling_up_and_down_leaves_small_nodes() {
    let mut start = mk_start(2);
    start.deeds = vec![
        after(15, Deed::Scale { workload: key("inflate"), replicas: 100 }),
        after(45, Deed::Scale { workload: key("inflate"), replicas: 2 }),
    ];
    let world = run(start, 4);
    print(&world);
    assert!(world.cluster().state().pending().is_empty());
    assert!(world.summary().nodes_now <= 2);
    let nodes = world.cluster().state().nodes();
    let biggest = nodes.values().map(|n| n.capacity.cpu_millis).max();
    assert!(biggest <= Some(4000), "two pods of one core do not need {biggest:?}");
}

#[test]
fn an_eviction_is_made_good() {
    let mut start = mk_start(3);
    start.deeds = vec![after(20, Deed::EvictSpot { count: 1 })];
    let world = run(start, 2);
    assert_eq!(world.summary().evictions, 1);
    assert!(world.cluster().state().pending().is_empty());
    assert_eq!(
        world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Nic).count(),
        world.summary().nodes_now
    );
}

#[test]
fn a_quota_failure_leaves_no_nic() {
    let mut start = mk_start(4);
    start.deeds = vec![
        after(5, Deed::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores: Some(12) }),
        after(5, Deed::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: Some(0) }),
        after(10, Deed::Scale { workload: key("inflate"), replicas: 30 }),
        after(60, Deed::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: None }),
    ];
    let world = run(start, 3);
    print(&world);
    assert!(world.summary().refusals > 0);
    assert!(world.cluster().state().pending().is_empty());
    let claims = world.cluster().state().claims().len();
    assert_eq!(world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Nic).count(), claims);
}

#[test]
fn leaks_are_collected_with_proof_and_the_rest_is_kept() {
    let mut start = mk_start(5);
    let volume = |name: &str, claim: Option<&str>, reclaim| Deed::AddVolume {
        name: ObjectName::new(name).unwrap(),
        claim: claim.map(key),
        reclaim,
        size_gib: 128,
    };
    start.deeds = vec![
        after(30, Deed::LeakNic { name: ObjectName::new("leaked-nic").unwrap() }),
        after(30, Deed::ForeignVm { name: ObjectName::new("bastion").unwrap() }),
        after(30, volume("pvc-detached", Some("data"), ReclaimPolicy::Delete)),
        after(30, volume("pvc-retain", None, ReclaimPolicy::Retain)),
        after(30, volume("pvc-orphan", None, ReclaimPolicy::Delete)),
        after(120, Deed::LoseVolume { name: ObjectName::new("pvc-orphan").unwrap() }),
        after(125, Deed::LoseVolume { name: ObjectName::new("pvc-retain").unwrap() }),
        after(60 * 24 * 2, Deed::Approve {}),
    ];
    let world = run(start, days(9));
    print(&world);
    assert_eq!(told(&world, Kind::Collected, "leaked-nic", ""), 1);
    assert_eq!(told(&world, Kind::Collected, "pvc-orphan", ""), 1);
    assert_eq!(world.summary().collected, 2);
    for kept in ["bastion", "pvc-detached", "pvc-retain"] {
        assert!(world.cloud().resources().keys().any(|id| id.name() == kept), "{kept} is kept");
    }
}

#[test]
fn an_emptied_api_server_trips_the_breaker() {
    let mut start = mk_start(6);
    start.workloads = vec![mk_deployment("inflate", 60, 1000, 1024)];
    start.deeds = vec![after(60, Deed::EmptyApiServer {}), after(60 * 24, Deed::Approve {})];
    let world = run(start, days(3));
    print(&world);
    assert_eq!(told(&world, Kind::Breaker, "", "Git"), 1);
    assert_eq!(world.summary().collected, 0);
}

#[test]
fn a_crash_at_a_write_neither_leaks_nor_doubles() {
    for when in [crate::world::When::Before, crate::world::When::After] {
        let mut start = mk_start(7);
        let lasting = SignedDuration::from_mins(1);
        start.deeds = (0..20)
            .map(|i| (SignedDuration::from_secs(i * 7), Deed::Crash { lasting, write: Some(when) }))
            .chain([after(30, Deed::Scale { workload: key("inflate"), replicas: 40 })])
            .collect();
        let world = run(start, 3);
        assert!(told(&world, Kind::Controller, "controller", "write") >= 10, "{when:?}");
        assert!(world.cluster().state().pending().is_empty());
        let claims = world.cluster().state().claims().len();
        assert_eq!(world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Vm).count(), claims);
    }
}

#[test]
fn every_node_is_counted_by_aks_wherever_the_controller_crashes() {
    use crate::world::{Crash, Moment, When};
    for (write, when) in (0..14).flat_map(|n| [(n, When::Before), (n, When::After)]) {
        let mut start = mk_start(8);
        start.workloads = vec![mk_deployment("inflate", 1, 1000, 1024)];
        let mut world = World::begin(catalog(), start).unwrap();
        world.set_billing(true);
        let down_for = SignedDuration::from_mins(1);
        world.controller.crashes.push(Crash { at: Moment::Write(write), when, down_for });
        world.run_until(world.now() + SignedDuration::from_mins(40)).unwrap();
        assert_eq!(told(&world, Kind::Controller, "controller", "crashed"), 1, "{write} {when:?}");
        let claims: Vec<_> = world.cluster().state().claims().values().collect();
        let is_counted = |claim: &napkeeper_core::cluster::claim::Claim| {
            let vm = claim.status.provider_id.as_ref().map(|id| id.vm().clone());
            claim.status.billed.is_some() && vm.is_some_and(|vm| world.cloud().is_billed(&vm))
        };
        assert!(!claims.is_empty() && claims.iter().all(|claim| is_counted(claim)), "{write} {when:?}");
    }
}

#[test]
fn an_extension_that_azure_refuses_is_put_again_and_holds_no_node_up() {
    let mut start = mk_start(8);
    start.workloads = vec![mk_deployment("inflate", 1, 1000, 1024)];
    let mut world = World::begin(catalog(), start).unwrap();
    world.set_billing(true);
    world.run_until(world.now() + SignedDuration::from_secs(20)).unwrap();
    world.cloud.faults.policies = vec![crate::cloud::Policy {
        assignment: std::sync::Arc::from("no extensions"),
        of: Some(crate::cloud::ListedKind::Vms),
        deletes: false,
        lasting: crate::cloud::Lasting::Until(world.now() + SignedDuration::from_mins(10)),
    }];
    world.run_until(world.now() + SignedDuration::from_mins(8)).unwrap();
    let status = |world: &World| world.cluster().state().claims().values().next().unwrap().status.clone();
    assert!(status(&world).initialized.is_some() && status(&world).billed.is_none(), "{:?}", status(&world));
    world.run_until(world.now() + SignedDuration::from_mins(10)).unwrap();
    assert!(status(&world).billed.is_some());
}
