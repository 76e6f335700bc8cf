use super::*;
use crate::cluster::Propagation;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::claim::{LaunchIntent, PlannedOffering};
use napkeeper_core::model::cluster::pod::PodPhase;
use napkeeper_core::model::cluster::pool::{ConsolidationPolicy, Disruption, Limits, NodePool};
use napkeeper_core::model::orphans::record::{DeletionRecord, Sighting};
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};
use napkeeper_core::model::settings::{Pause, PauseSwitch};
use napkeeper_core::plan::{ClusterRead, ClusterWrite, PoolRelease, RecordChange, SweepReport};

/// A claim whose VM runs, and whose Node has joined, is registered and ready.
fn launched(cluster: &mut Cluster, name: &str, now: i64) -> Arc<Claim> {
    let machine = machine(name, 4, 1);
    let claim = launch(cluster, &machine, at(now));
    cluster.kubelet_joins(machine, at(now), at(now));
    cluster.advance(at(now + 51));
    let node = cluster.state().nodes().get(&NodeName::new(name).unwrap()).unwrap().clone();
    let step = NodeUpdate::Register { labels: Labels::new(), annotations: Labels::new(), taints: vec![startup()] };
    perform(cluster, ClusterWrite::UpdateNode(node.name.clone(), node.uid.clone(), step), at(now + 51)).unwrap();
    cluster.advance(at(now + 90));
    cluster.state().claims().get(&claim.name).unwrap().clone()
}

fn node(cluster: &Cluster, name: &str) -> Option<Arc<napkeeper_core::model::cluster::node::Node>> {
    cluster.state().nodes().get(&NodeName::new(name).unwrap()).cloned()
}

#[test]
fn a_node_takes_pods_once_it_is_ready_registered_and_set_up() {
    let mut cluster = cluster();
    cluster.apply_workload(key("web"), deployment(shape("web", 500), 1), at(0));
    create(&mut cluster, "c", at(0));
    cluster.kubelet_joins(machine("c", 4, 1), at(0), at(0));
    cluster.advance(at(19));
    assert_eq!(node(&cluster, "c"), None);
    cluster.advance(at(200));
    let joined = node(&cluster, "c").unwrap();
    assert!(joined.ready);
    assert_eq!(joined.taints.len(), 1, "unregistered only: {:?}", joined.taints);
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 1)]));

    let mut cluster = super::cluster();
    cluster.apply_workload(key("web"), deployment(shape("web", 500), 1), at(0));
    launched(&mut cluster, "c", 0);
    assert!(node(&cluster, "c").unwrap().taints.is_empty());
    assert_eq!(by_node(&cluster, "web"), counts(&[("c", 1)]));
}

#[test]
fn the_finalizer_keeps_a_claim_until_it_is_released() {
    let mut cluster = cluster();
    let claim = create(&mut cluster, "c", at(0));
    let reference = claim.reference();
    perform(&mut cluster, ClusterWrite::DeleteClaim(reference.clone()), at(1)).unwrap();
    perform(&mut cluster, ClusterWrite::DeleteClaim(reference.clone()), at(2)).unwrap();
    let deleting = cluster.state().claims().get(&claim.name).unwrap();
    assert_eq!(deleting.deleting_at, Some(at(1)));
    let again = perform(&mut cluster, ClusterWrite::RemoveFinalizer(reference.clone()), at(3));
    assert_eq!(again, Ok(Reply::Done));
    let read = cluster.read(&ClusterRead::Claim(claim.name.clone()), at(3));
    assert_eq!(read, Ok(Reply::Claim(None)));
    let late = perform(&mut cluster, ClusterWrite::RemoveFinalizer(reference), at(3));
    assert_eq!(late, Err(ClusterError::NotFound));
}

#[test]
fn writes_to_another_incarnation_conflict() {
    let mut cluster = cluster();
    let first = create(&mut cluster, "c", at(0)).reference();
    let draft = ClaimDraft { name: first.name.clone(), spec: spec(), reason: None, pods: Vec::new() };
    let twice = perform(&mut cluster, ClusterWrite::CreateClaim(Box::new(draft)), at(0));
    assert_eq!(twice, Err(ClusterError::Conflict));
    perform(&mut cluster, ClusterWrite::DeleteClaim(first.clone()), at(1)).unwrap();
    perform(&mut cluster, ClusterWrite::RemoveFinalizer(first.clone()), at(1)).unwrap();
    let second = create(&mut cluster, "c", at(2)).reference();
    assert_ne!(first.uid, second.uid);
    for effect in [
        ClusterWrite::DeleteClaim(first.clone()),
        ClusterWrite::UpdateClaim(first.clone(), ClaimUpdate::Initialized),
        ClusterWrite::RemoveFinalizer(first),
    ] {
        assert_eq!(perform(&mut cluster, effect, at(3)), Err(ClusterError::Conflict));
    }
}

#[test]
fn an_unreachable_api_server_does_nothing() {
    let mut cluster = cluster();
    let claim = create(&mut cluster, "c", at(0));
    cluster.unavailable(at(10));
    let delete = ClusterWrite::DeleteClaim(claim.reference());
    assert_eq!(perform(&mut cluster, delete.clone(), at(5)), Err(ClusterError::Unavailable));
    assert!(cluster.list_claims(at(5)).is_err());
    assert_eq!(cluster.state().claims().get(&claim.name).unwrap().deleting_at, None);
    assert_eq!(perform(&mut cluster, delete, at(10)), Ok(Reply::Done));
    assert_eq!(cluster.list_claims(at(10)).unwrap().len(), 1);
}

#[test]
fn the_node_of_a_lost_vm_is_deleted_unless_our_finalizer_holds_it() {
    let mut cluster = cluster();
    cluster.add_unmanaged_node(machine("plain", 4, 1), at(0));
    launched(&mut cluster, "ours", 0);
    cluster.apply_workload(key("web"), deployment(shape("web", 500), 4), at(90));
    cluster.advance(at(100));
    assert_eq!(by_node(&cluster, "web"), counts(&[("ours", 2), ("plain", 2)]));
    for name in ["plain", "ours"] {
        cluster.kubelet_lost(&ProviderId::of_vm(&vm(name)), at(100));
    }
    cluster.advance(at(139));
    assert!(node(&cluster, "ours").unwrap().ready);
    cluster.advance(at(140));
    assert!(!node(&cluster, "ours").unwrap().ready);
    cluster.advance(at(220));
    assert_eq!(node(&cluster, "plain"), None);
    assert!(node(&cluster, "ours").unwrap().deleting_at.is_some());
    // The pods of the deleted node are recreated at once, those of the other after 5 min; they remain as long as the
    // Node object, because no kubelet confirms their end.
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 2), ("ours", 2)]));
    cluster.advance(at(140 + 300));
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 4), ("ours", 2)]));
    cluster.advance(at(1000));
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 4), ("ours", 2)]));
    let node = node(&cluster, "ours").unwrap();
    perform(&mut cluster, ClusterWrite::DeleteNode(node.name.clone(), node.uid.clone()), at(1000)).unwrap();
    cluster.advance(at(1000));
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 4)]));
}

#[test]
fn a_silent_kubelet_runs_its_pods_and_ends_deleted_ones_once_it_is_back() {
    let mut cluster = cluster();
    launched(&mut cluster, "ours", 0);
    cluster.apply_workload(key("web"), deployment(shape("web", 500), 2), at(90));
    cluster.advance(at(100));
    let name = NodeName::new("ours").unwrap();
    cluster.silence_kubelet(&name, at(100));
    cluster.advance(at(139));
    assert!(node(&cluster, "ours").unwrap().ready && cluster.is_silent(&name));
    cluster.advance(at(140));
    let unready = node(&cluster, "ours").unwrap();
    assert_eq!((unready.unready_from(), unready.is_tainted(labels::TAINT_UNREACHABLE)), (Some(at(140)), true));
    // Its pods are deleted after 5 min and recreated, but they do not end.
    cluster.advance(at(3600));
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 2), ("ours", 2)]));
    assert!(node(&cluster, "ours").unwrap().deleting_at.is_none(), "its VM exists");
    cluster.reconnect_kubelet(&name, at(3600));
    let back = node(&cluster, "ours").unwrap();
    assert_eq!((back.ready_from(), back.is_tainted(labels::TAINT_UNREACHABLE)), (Some(at(3600)), false));
    cluster.advance(at(3629));
    assert_eq!(by_node(&cluster, "web"), counts(&[("ours", 4)]), "with their whole grace period");
    cluster.advance(at(3631));
    assert_eq!(by_node(&cluster, "web"), counts(&[("ours", 2)]));
    cluster.advance(at(3660));
    assert!(pods_of(&cluster, "web").iter().all(|pod| pod.deleting_at.is_none() && pod.started_at.is_some()));
}

#[test]
fn the_node_of_a_vm_that_is_shut_down_is_tainted_and_stays() {
    let mut cluster = cluster();
    launched(&mut cluster, "ours", 0);
    cluster.advance(at(100));
    cluster.kubelet_stopped(&ProviderId::of_vm(&vm("ours")), at(100));
    cluster.put_out_of_service(&NodeName::new("ours").unwrap(), at(100));
    cluster.advance(at(220));
    let off = node(&cluster, "ours").unwrap();
    assert!(!off.ready && off.deleting_at.is_none() && off.is_tainted(labels::TAINT_SHUTDOWN));
    assert!(!off.is_tainted(labels::TAINT_OUT_OF_SERVICE), "it was ready then");
    cluster.put_out_of_service(&off.name, at(220));
    assert!(node(&cluster, "ours").unwrap().is_tainted(labels::TAINT_OUT_OF_SERVICE));
}

#[test]
fn a_vm_deleted_before_it_joins_never_joins() {
    let mut cluster = cluster();
    cluster.kubelet_joins(machine("n", 4, 1), at(0), at(0));
    cluster.kubelet_lost(&ProviderId::of_vm(&vm("n")), at(10));
    cluster.advance(at(500));
    assert!(cluster.state().nodes().is_empty());
}

/// As Kubernetes: a finalizer keeps the NodePool. What it owns is deleted with it, in the foreground before it, and what it does
/// not own never.
#[test]
fn a_deleted_pool_waits_for_its_finalizer_and_takes_what_it_owns_with_it() {
    for (propagation, is_owned, goes_at) in [
        (Propagation::Background, true, Some(at(2))),
        (Propagation::Background, false, None),
        (Propagation::Foreground, true, Some(at(1))),
        (Propagation::Foreground, false, None),
        (Propagation::Orphan, true, None),
    ] {
        let mut cluster = cluster();
        cluster.apply_pool(pool());
        let (name, uid) = (pool().name, pool().uid);
        perform(&mut cluster, ClusterWrite::HoldPool(name.clone(), uid.clone()), at(0)).unwrap();
        let claim = create(&mut cluster, "c", at(0));
        if is_owned {
            cluster.own_claim(&claim.name, at(0));
        }
        cluster.delete_pool(&name, propagation, at(1));
        let deleted_at =
            |cluster: &Cluster| cluster.state().claims().get(&claim.name).and_then(|claim| claim.deleting_at);
        assert_eq!(deleted_at(&cluster), goes_at.filter(|goes_at| *goes_at == at(1)));
        assert_eq!(cluster.state().pools().get(&name).unwrap().deletion.requested_at, Some(at(1)));
        let hold = ClusterWrite::HoldPool(name.clone(), uid.clone());
        assert_eq!(perform(&mut cluster, hold, at(1)), Err(ClusterError::NotFound));
        let release = PoolRelease { pool: name.clone(), uid, keeps_nodes: true };
        perform(&mut cluster, ClusterWrite::ReleasePool(Box::new(release)), at(2)).unwrap();
        assert!(cluster.state().pools().get(&name).is_none());
        assert_eq!(deleted_at(&cluster), goes_at, "{propagation:?}");
    }
}

#[test]
fn an_emptied_api_server_has_workloads_but_no_nodes() {
    let mut cluster = cluster();
    launched(&mut cluster, "c", 0);
    cluster.apply_workload(key("web"), deployment(shape("web", 500), 2), at(90));
    cluster.advance(at(100));
    cluster.empty(at(100));
    cluster.advance(at(100));
    assert!(cluster.state().nodes().is_empty() && cluster.state().claims().is_empty());
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 2)]));
    assert!(pods_of(&cluster, "web").iter().all(|p| p.phase == PodPhase::Pending));
}

fn pool() -> NodePool {
    NodePool {
        name: NodePoolName::new("general").unwrap(),
        uid: Uid::new("pool").unwrap(),
        weight: 0,
        requirements: Requirements::new(),
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: Limits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption { policy: ConsolidationPolicy::WhenEmpty, consolidate_after: None, budgets: Vec::new() },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

fn sweep() -> Sweep {
    Sweep {
        name: ObjectName::new("nightly").unwrap(),
        uid: Uid::new("sweep").unwrap(),
        inventory_interval: SignedDuration::from_mins(10),
        schedule: None,
        mode: SweepMode::Report,
        kinds: ResourceKind::ALL.into_iter().collect(),
        minimum_age: BTreeMap::new(),
        approval_required: std::collections::BTreeSet::new(),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    }
}

#[test]
fn applied_and_deleted_objects_reach_the_watcher() {
    let mut cluster = cluster();
    let mut followed = Snapshot::default();
    let mut follow = |cluster: &mut Cluster| {
        cluster.watch().iter().for_each(|delta| apply_delta(delta, &mut followed));
        assert_same(&cluster.relist(), &followed);
    };
    cluster.apply_pool(pool());
    cluster.apply_sweep(sweep());
    cluster.apply_daemon_set(key("agent"), &PodTemplate::new(shape("agent", 100)), at(0));
    cluster.set_pause(Pause::of([PauseSwitch::Delete]));
    let observed = RecordChange { inventory_at: Some(at(0)), ..RecordChange::default() };
    perform(&mut cluster, ClusterWrite::WriteRecords(Box::new(observed)), at(0)).unwrap();
    follow(&mut cluster);
    assert_eq!(cluster.state().records.last_inventory_at, Some(at(0)));
    cluster.delete_pool(&pool().name, Propagation::Background, at(1));
    cluster.delete_sweep(&sweep().name);
    cluster.delete_daemon_set(&key("agent"), at(1));
    follow(&mut cluster);
    assert!(cluster.state().pools().is_empty() && cluster.state().sweeps().is_empty());
}

#[test]
fn a_report_is_written_to_an_existing_sweep() {
    let mut cluster = cluster();
    let report = SweepReport {
        sweep: sweep().name,
        uid: Uid::new("u").unwrap(),
        observed_at: Some(at(0)),
        generation: None,
        findings: Vec::new(),
        totals: std::collections::BTreeMap::new(),
        report_only: Vec::new(),
        discrepancies: Vec::new(),
        halted: None,
        summary: Default::default(),
    };
    let effect = ClusterWrite::ReportSweep(Box::new(report.clone()));
    assert_eq!(perform(&mut cluster, effect.clone(), at(0)), Err(ClusterError::NotFound));
    cluster.apply_sweep(sweep());
    perform(&mut cluster, effect, at(0)).unwrap();
    assert_eq!(cluster.report(&report.sweep), Some(&report));
}

#[test]
fn old_deletions_are_forgotten_and_cleared_sightings_dropped() {
    let deletion = |second| DeletionRecord {
        id: disk("d"),
        incarnation: Arc::from("1"),
        kind: ResourceKind::DataDisk,
        at: at(second),
        evidence: Vec::new(),
        failures: 0,
        refused: None,
    };
    let sighting = Sighting {
        kind: ResourceKind::DataDisk,
        incarnation: Arc::from("1"),
        tags: BTreeMap::new(),
        first_seen: at(0),
        last_seen: at(0),
        times: 1,
    };
    let mut cluster = cluster();
    let first = RecordChange {
        deletions: vec![deletion(0), deletion(5)],
        sightings: vec![(disk("d"), sighting.clone()), (disk("e"), sighting)],
        ..RecordChange::default()
    };
    let second = RecordChange {
        removed_sightings: vec![disk("D")],
        forget_deletions_before: Some(at(5)),
        ..RecordChange::default()
    };
    for change in [first, second] {
        perform(&mut cluster, ClusterWrite::WriteRecords(Box::new(change)), at(5)).unwrap();
    }
    let records = &cluster.state().records;
    assert_eq!(records.deletions, [deletion(5)]);
    assert_eq!(records.sightings.keys().collect::<Vec<_>>(), [&disk("e")]);
}

fn intent() -> LaunchIntent {
    LaunchIntent {
        offering: PlannedOffering { key: offering(), price: HourlyPrice::default() },
        vm: vm("c"),
        nic: vm("nic"),
        os_disk: disk("os"),
        machine: None,
        reservation: None,
        written_at: at(0),
        refused: 0,
        operation: None,
    }
}

#[test]
fn no_intent_is_written_on_a_claim_that_is_being_deleted() {
    let mut cluster = cluster();
    let claim = create(&mut cluster, "c", at(0)).reference();
    let write = ClusterWrite::WriteIntent(claim.clone(), Box::new(intent()));
    perform(&mut cluster, write.clone(), at(0)).unwrap();
    assert_eq!(cluster.state().claims().get(&claim.name).unwrap().intent, Some(intent()));
    perform(&mut cluster, ClusterWrite::DeleteClaim(claim), at(1)).unwrap();
    assert_eq!(perform(&mut cluster, write, at(1)), Err(ClusterError::Conflict));
}

#[test]
fn the_node_of_a_released_claim_stays() {
    let mut cluster = cluster();
    let claim = launched(&mut cluster, "c", 0).reference();
    perform(&mut cluster, ClusterWrite::DeleteClaim(claim.clone()), at(100)).unwrap();
    perform(&mut cluster, ClusterWrite::RemoveFinalizer(claim), at(110)).unwrap();
    assert_eq!(node(&cluster, "c").unwrap().deleting_at, None, "no NodeClaim is the owner of a Node");
}
