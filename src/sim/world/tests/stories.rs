//! Tests of scenarios from the user guide.

use super::*;
use crate::world::EventKind;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{ArmId, VmSize, Zone};

fn count_logged(world: &World, kind: EventKind, subject: &str, words: &str) -> usize {
    let fits =
        |e: &&crate::world::TimelineEntry| e.kind == kind && e.subject.contains(subject) && e.text.contains(words);
    world.timeline().iter().filter(fits).count()
}

fn days(n: i64) -> i64 {
    n * 24
}

#[test]
fn ten_pods_get_spot_nodes_and_run() {
    let world = run(mk_start(1), 1);
    assert!(world.cluster().state().pending().is_empty());
    assert_eq!(count_logged(&world, EventKind::Provision, "spot-preferred", "spot"), 2, "7 pods and 3 pods");
    assert_eq!(world.summary().spot_percent, 100);
}

#[test]
fn scaling_up_and_down_leaves_small_nodes() {
    let mut start = mk_start(2);
    start.actions = vec![
        after(15, Action::Scale { workload: key("inflate"), replicas: 100 }),
        after(45, Action::Scale { workload: key("inflate"), replicas: 2 }),
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
fn an_eviction_is_replaced() {
    let mut start = mk_start(3);
    start.actions = vec![after(20, Action::EvictSpot { count: 1 })];
    let world = run(start, 2);
    assert_eq!(world.summary().spot_evictions, 1);
    assert!(world.cluster().state().pending().is_empty());
    assert_eq!(
        world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Nic).count(),
        world.summary().nodes_now
    );
}

#[test]
fn a_quota_failure_leaves_no_nic() {
    let mut start = mk_start(4);
    start.actions = vec![
        after(5, Action::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores: Some(12) }),
        after(5, Action::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: Some(0) }),
        after(10, Action::Scale { workload: key("inflate"), replicas: 30 }),
        after(60, Action::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: None }),
    ];
    let world = run(start, 3);
    print(&world);
    assert!(world.summary().refusals > 0);
    assert!(world.cluster().state().pending().is_empty());
    let claims = world.cluster().state().claims().len();
    assert_eq!(world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Nic).count(), claims);
}

#[test]
fn proven_leaks_are_collected_and_the_rest_is_retained() {
    let mut start = mk_start(5);
    let volume = |name: &str, claim: Option<&str>, reclaim| Action::AddVolume {
        name: ObjectName::new(name).unwrap(),
        claim: claim.map(key),
        reclaim,
        size_gib: 128,
    };
    start.actions = vec![
        after(30, Action::LeakNic { name: ObjectName::new("leaked-nic").unwrap() }),
        after(30, Action::ForeignVm { name: ObjectName::new("bastion").unwrap() }),
        after(30, volume("pvc-detached", Some("data"), ReclaimPolicy::Delete)),
        after(30, volume("pvc-retain", None, ReclaimPolicy::Retain)),
        after(30, volume("pvc-orphan", None, ReclaimPolicy::Delete)),
        after(120, Action::LoseVolume { name: ObjectName::new("pvc-orphan").unwrap() }),
        after(125, Action::LoseVolume { name: ObjectName::new("pvc-retain").unwrap() }),
        after(60 * 24 * 2, Action::Approve {}),
    ];
    let world = run(start, days(9));
    print(&world);
    assert_eq!(count_logged(&world, EventKind::Collected, "leaked-nic", ""), 1);
    assert_eq!(count_logged(&world, EventKind::Collected, "pvc-orphan", ""), 1);
    assert_eq!(world.summary().collected, 2);
    for name in ["bastion", "pvc-detached", "pvc-retain"] {
        assert!(world.cloud().resources().keys().any(|id| id.name() == name), "{name} is kept");
    }
}

#[test]
fn an_emptied_api_server_trips_the_breaker() {
    let mut start = mk_start(6);
    start.manifests.workloads = vec![mk_deployment("inflate", 60, 1000, 1024)];
    start.actions = vec![after(60, Action::EmptyApiServer {}), after(60 * 24, Action::Approve {})];
    let world = run(start, days(3));
    print(&world);
    assert_eq!(count_logged(&world, EventKind::Breaker, "", "Git"), 1);
    assert_eq!(world.summary().collected, 0);
}

#[test]
fn a_crash_at_a_write_neither_leaks_nor_doubles() {
    for when in [crate::world::WriteSide::Before, crate::world::WriteSide::After] {
        let mut start = mk_start(7);
        let duration = SignedDuration::from_mins(1);
        start.actions = (0..20)
            .map(|i| (SignedDuration::from_secs(i * 7), Action::Crash { duration, write: Some(when) }))
            .chain([after(30, Action::Scale { workload: key("inflate"), replicas: 40 })])
            .collect();
        let world = run(start, 3);
        assert!(count_logged(&world, EventKind::Controller, "controller", "write") >= 10, "{when:?}");
        assert!(world.cluster().state().pending().is_empty());
        let claims = world.cluster().state().claims().len();
        assert_eq!(world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Vm).count(), claims);
    }
}

#[test]
fn every_node_is_counted_by_aks_wherever_the_controller_crashes() {
    use crate::world::{Crash, CrashPoint, WriteSide};
    for (write, side) in (0..14).flat_map(|n| [(n, WriteSide::Before), (n, WriteSide::After)]) {
        let mut start = mk_start(8);
        start.manifests.workloads = vec![mk_deployment("inflate", 1, 1000, 1024)];
        let mut world = World::new(catalog(), start).unwrap();
        world.set_billing(true);
        let down_for = SignedDuration::from_mins(1);
        world.controller.crashes.push(Crash { at: CrashPoint::Write(write), side, down_for });
        world.run_until(world.now() + SignedDuration::from_mins(40)).unwrap();
        assert_eq!(count_logged(&world, EventKind::Controller, "controller", "crashed"), 1, "{write} {side:?}");
        let claims: Vec<_> = world.cluster().state().claims().values().collect();
        let is_counted = |claim: &napkeeper_core::model::cluster::claim::Claim| {
            let vm = claim.status.provider_id.as_ref().map(|id| id.vm().clone());
            claim.status.billed.is_some() && vm.is_some_and(|vm| world.cloud().is_billed(&vm))
        };
        assert!(!claims.is_empty() && claims.iter().all(|claim| is_counted(claim)), "{write} {side:?}");
    }
}

#[test]
fn a_rejected_extension_is_put_again_and_delays_no_node() {
    let mut start = mk_start(8);
    start.manifests.workloads = vec![mk_deployment("inflate", 1, 1000, 1024)];
    let mut world = World::new(catalog(), start).unwrap();
    world.set_billing(true);
    world.run_until(world.now() + SignedDuration::from_secs(20)).unwrap();
    world.cloud.faults.policies = vec![crate::cloud::PolicyAssignment {
        assignment: std::sync::Arc::from("no extensions"),
        of: Some(crate::cloud::ListedKind::Vms),
        deletes: false,
        duration: crate::cloud::FaultDuration::Until(world.now() + SignedDuration::from_mins(10)),
    }];
    world.run_until(world.now() + SignedDuration::from_mins(8)).unwrap();
    let status = |world: &World| world.cluster().state().claims().values().next().unwrap().status.clone();
    assert!(status(&world).initialized.is_some() && status(&world).billed.is_none(), "{:?}", status(&world));
    world.run_until(world.now() + SignedDuration::from_mins(10)).unwrap();
    assert!(status(&world).billed.is_some());
}

/// A fleet beside an elastic pool that its pods may not use.
fn mk_fleet(seed: u64, replicas: u64) -> WorldSetup {
    let mut start = mk_start(seed);
    let mut fleet = mk_pool("fleet", 0, &["on-demand"], 0);
    fleet.limits = Limits { nodes: Some(7), resources: BTreeMap::new() };
    fleet.replicas = Some(replicas);
    fleet.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: None, window: None }];
    start.manifests.pools.push(fleet);
    start
}

/// Nodes of the fleet that are ready for pods, and NodeClaims of it.
fn fleet_of(world: &World) -> (usize, usize) {
    let state = world.cluster().state();
    let of_fleet = |c: &&std::sync::Arc<napkeeper_core::model::cluster::claim::Claim>| {
        c.spec.pool.as_ref().is_some_and(|pool| pool.as_str() == "fleet")
    };
    let claims: Vec<_> = state.claims().values().filter(of_fleet).collect();
    (claims.iter().filter(|c| c.status.initialized.is_some()).count(), claims.len())
}

#[test]
fn a_fleet_follows_git_through_its_whole_history() {
    let pool = || NodePoolName::new("fleet").unwrap();
    let mut start = mk_fleet(9, 3);
    start.actions = vec![
        after(20, Action::ScalePool { pool: pool(), replicas: 5 }),
        after(60, Action::LabelPool { pool: pool(), label: "tier".into(), value: "gold".into() }),
        after(180, Action::DeleteNode { nth: 0 }),
        after(240, Action::ScalePool { pool: pool(), replicas: 2 }),
    ];
    let mut world = World::new(catalog(), start).unwrap();
    let begin = world.now();
    let mut least = usize::MAX;
    for minute in 0..300 {
        world.run_until(begin + SignedDuration::from_mins(minute)).unwrap_or_else(|v| {
            print(&world);
            panic!("{v}")
        });
        let (ready, claims) = fleet_of(&world);
        assert!(claims <= 7, "limits.nodes, in minute {minute}");
        match minute {
            19 => assert_eq!((ready, claims), (3, 3)),
            59 => assert_eq!((ready, claims), (5, 5)),
            // While all are replaced there are never fewer than five.
            60..180 => least = least.min(ready),
            239 => assert_eq!((ready, claims), (5, 5), "the lost one has been made good"),
            299 => assert_eq!((ready, claims), (2, 2)),
            _ => {}
        }
        if minute == 179 {
            let nodes = world.cluster().state().nodes();
            let gold = nodes.values().filter(|n| n.label("tier") == Some("gold")).count();
            assert_eq!(gold, 5, "all have the new label");
        }
    }
    assert_eq!(least, 5);
    assert_eq!(count_logged(&world, EventKind::Disrupt, "fleet", "drifted"), 5);
    assert_eq!(count_logged(&world, EventKind::Disrupt, "fleet", "scaled_down"), 3);
    assert_eq!(
        count_logged(&world, EventKind::Provision, "fleet", "the NodePool wants"),
        6,
        "3, 2 more, and 1 for the lost one"
    );
    assert_eq!(world.orphans().found, 0, "nothing is left behind");
}

#[test]
fn a_fleet_comes_up_whatever_azure_refuses_and_wherever_the_controller_crashes() {
    for when in [crate::world::WriteSide::Before, crate::world::WriteSide::After] {
        let mut start = mk_fleet(10, 6);
        let duration = SignedDuration::from_secs(50);
        let pool = NodePoolName::new("fleet").unwrap();
        let shortage = crate::world::ShortageSpec { size: None, zone: None, capacity_type: None, duration: None };
        start.actions = (0..20)
            .map(|i| (SignedDuration::from_secs(i * 11), Action::Crash { duration, write: Some(when) }))
            .chain((0..5).map(|i| (SignedDuration::from_secs(i * 3), Action::NoCapacity(shortage.clone()))))
            .chain([
                after(5, Action::LabelPool { pool, label: "tier".into(), value: "gold".into() }),
                after(60, Action::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: Some(0) }),
                after(61, Action::DeleteClaim { nth: 0 }),
                after(90, Action::Quota { family: None, capacity_type: Some(CapacityType::OnDemand), cores: None }),
            ])
            .collect();
        let world = run(start, 6);
        assert_eq!(fleet_of(&world), (6, 6), "{when:?}");
        let vms = world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Vm).count();
        assert_eq!(vms, world.cluster().state().claims().len(), "{when:?}");
    }
}

#[test]
fn missing_nodes_of_a_fleet_are_explained_once() {
    let mut start = mk_fleet(11, 9);
    start.manifests.workloads.clear();
    let world = run(start, 2);
    assert_eq!(fleet_of(&world), (7, 7));
    assert_eq!(count_logged(&world, EventKind::Waiting, "fleet", "2 nodes are missing: its limits are reached"), 1);
}

#[test]
fn an_overlay_changes_launches_and_an_ignored_one_is_reported() {
    let overlay = |name: &str, family: &str, change: &str| napkeeper_core::catalog::overlay::Overlay {
        name: ObjectName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight: 1,
        requirements: {
            let mut requirements = Requirements::new();
            requirements.add_entry(labels::SKU_VERSION, Operator::In, &[family]).unwrap();
            requirements
        },
        price: Some(napkeeper_core::catalog::overlay::PriceAdjustment::parse_adjustment(change).unwrap()),
        capacity: BTreeMap::new(),
        generation: 1,
        conditions: Default::default(),
    };
    let versions = |world: &World| {
        let nodes = world.cluster().state().nodes();
        let version =
            |n: &&std::sync::Arc<napkeeper_core::model::cluster::node::Node>| n.label(labels::NODEPOOL).is_some();
        let sizes = nodes.values().filter(version).filter_map(|n| n.label(labels::INSTANCE_TYPE).map(str::to_owned));
        sizes.collect::<BTreeSet<String>>()
    };
    let plain = run(mk_start(12), 1);
    assert!(!versions(&plain).iter().any(|size| size.ends_with("_v3")), "{:?}", versions(&plain));
    let mut start = mk_start(12);
    start.manifests.overlays = vec![overlay("old", "3", "-90%"), overlay("again", "3", "-10%")];
    let world = run(start, 1);
    assert!(versions(&world).iter().all(|size| size.ends_with("_v3")), "{:?}", versions(&world));
    assert_eq!(
        count_logged(&world, EventKind::Kept, "again", "NodeOverlay old has the same weight and also sets price"),
        1
    );
    let ready = |name: &str| {
        let overlay = world.cluster().state().overlays().get(&ObjectName::new(name).unwrap()).unwrap();
        let ready = overlay.conditions.get(napkeeper_core::model::cluster::status::ConditionType::Ready).unwrap();
        (ready.holds, ready.reason.to_string(), overlay.conditions.observed_generation)
    };
    assert_eq!((ready("old"), ready("again")), ((true, "Ready".into(), Some(1)), (false, "Conflict".into(), Some(1))));
}

/// Nodes by their capacity type.
fn nodes_by_capacity_type(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in world.cluster().state().nodes().values() {
        if let Some(way) = node.label(labels::CAPACITY_TYPE) {
            *counts.entry(way.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn reserved_capacity_is_used_first_and_again_when_free() {
    let group = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/paid";
    let group = ArmId::new(group).unwrap();
    let mut start = mk_start(9);
    let mut pool = mk_pool("paid", 0, &["reserved", "on-demand"], 1_000);
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D4s_v5"]).unwrap();
    start.manifests.pools = vec![pool];
    start.manifests.classes = vec![NodeClass { reservations: Some(group.clone()), ..mk_class() }];
    // Three pods on a node.
    start.manifests.workloads = vec![mk_deployment("inflate", 6, 1_000, 1_024)];
    let size = VmSize::new("Standard_D4s_v5").unwrap();
    let zone = Some(Zone::of(&start.region, 2));
    let reserve = |capacity| Action::Reserve { group: group.clone(), size: size.clone(), zone: zone.clone(), capacity };
    // A reservation needs no quota: launches beyond it wait for some.
    let quota = |cores| Action::Quota { family: None, capacity_type: None, cores };
    start.actions = vec![
        after(0, reserve(Some(3))),
        after(0, quota(Some(0))),
        after(20, Action::Scale { workload: key("inflate"), replicas: 15 }),
        after(30, quota(None)),
        after(90, Action::Scale { workload: key("inflate"), replicas: 3 }),
        after(150, Action::Scale { workload: key("inflate"), replicas: 9 }),
    ];
    let mut world = World::new(catalog(), start).unwrap();
    let begun = world.now();
    let mut until = |mins: i64| {
        world.run_until(begun + SignedDuration::from_mins(mins)).unwrap();
        assert!(world.cloud().reserved().iter().all(|room| room.used <= room.capacity), "no more than are reserved");
        (nodes_by_capacity_type(&world), world.cluster().state().pending().len())
    };
    let ways = |reserved: usize, on_demand: usize| -> BTreeMap<String, usize> {
        let all = [("reserved".to_owned(), reserved), ("on-demand".to_owned(), on_demand)];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    };
    assert_eq!(until(19), (ways(2, 0), 0), "no quota is needed");
    let (nodes, waiting) = until(29);
    assert_eq!((nodes, waiting > 0), (ways(3, 0), true), "the third is used, and beyond it there is no quota");
    assert_eq!(until(89), (ways(3, 2), 0));
    assert_eq!(until(149), (ways(1, 0), 0), "one node holds the pods, and it is a reserved one");
    assert_eq!(until(200), (ways(3, 0), 0), "what was freed is used again");
    assert_eq!(count_logged(&world, EventKind::Refused, "", "reserved"), 0, "nothing of it was asked for in vain");
}
