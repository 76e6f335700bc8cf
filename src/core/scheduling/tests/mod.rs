//! Tests of scheduling: rules by example here, and a checker of random clusters in `checker`.

mod binding;
mod checker;
mod explain;
mod greedy;
mod incremental;
mod label_variants;
mod min_values;
mod monotone;
mod pod_affinity;
mod quota;
mod random_cluster;
mod repack;
mod reservation;
mod subnet;
mod topology_table;
mod volume_limits;
mod zonal_binding;

use crate::catalog::CapacityType::{OnDemand, Spot};
use crate::fixtures::{
    GIB, cluster, node, offering, pod, pods, pool, requirements_in, running, shape, spread, start, zone,
};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{HostPort, Pod, Taint, TaintEffect};
use crate::model::cluster::pool::NodePool;
use crate::model::labels;
use crate::model::names::ObjectName;
use crate::scheduling::{
    AvailableOfferings, IncrementalScheduler, Input, MAX_NEW_NODES, SchedulingResult, Target, UnavailableOfferings,
    UnschedulableReason, schedule,
};
use crate::snapshot::Snapshot;
use crate::snapshot::spread_defaults::{DEFAULT_SCHEDULER, DefaultSpread, SchedulerProfiles};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn solve(snapshot: &Snapshot, pods: &[Arc<Pod>]) -> SchedulingResult {
    solve_with(snapshot, pods, MAX_NEW_NODES)
}

/// Plans for a cluster whose only NodePool is on demand.
fn with_on_demand_pool<T>(plan: impl FnOnce(Input<'_>) -> T) -> T {
    let on_demand = requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]);
    plan_for(&cluster([NodePool { requirements: on_demand, ..pool("general") }]), plan)
}

/// Plans for a cluster in which nothing has been refused or planned before.
fn plan_for<T>(snapshot: &Snapshot, plan: impl FnOnce(Input<'_>) -> T) -> T {
    let available = AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), start());
    let input = Input {
        snapshot,
        available: &available,
        excluded_nodes: &BTreeSet::new(),
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &BTreeMap::new(),
    };
    plan(input)
}

fn solve_with(snapshot: &Snapshot, pods: &[Arc<Pod>], new_nodes: usize) -> SchedulingResult {
    let available_offerings = AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    schedule(
        Input {
            snapshot,
            available: &available_offerings,
            excluded_nodes: &excluded_nodes,
            max_new_nodes: new_nodes,
            claim_of_pod: &claim_of_pod,
        },
        pods,
    )
}

/// How many pods go to each new node's zone.
fn by_zone(outcome: &SchedulingResult) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for node in &outcome.new_nodes {
        let zone = node.zone().map_or_else(|| "any".to_owned(), |z| z.to_string());
        *zones.entry(zone).or_insert(0) += node.pods.len();
    }
    zones
}

#[test]
fn nodes_that_exist_are_filled_before_claims_in_flight_and_those_before_new_nodes() {
    let general = pool("general");
    let mut snapshot = cluster([general.clone()]);
    snapshot.put_node(node("old", 1, 2));
    let in_flight = crate::fixtures::claim("general-a", &general, vec![offering("Standard_D4s_v5", 1, Spot)]);
    snapshot.put_claim(in_flight.clone());
    let outcome = solve(&snapshot, &pods("p", shape("a", 1000, 1), 10));
    let targets: Vec<(&Target, usize)> = outcome.targets().into_iter().collect();
    let claim = Target::Claim(in_flight.name);
    let old = Target::Node(node("old", 1, 2).name);
    assert_eq!(targets[..2], [(&old, 2), (&claim, 3)]);
    assert!(targets[2..].iter().all(|(t, _)| matches!(t, Target::New(_))) && outcome.unschedulable_pods() == 0);
}

#[test]
fn the_heavier_pool_comes_first_even_when_it_is_more_expensive() {
    let expensive = NodePool {
        weight: 10,
        requirements: requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]),
        ..pool("expensive")
    };
    let outcome = solve(&cluster([expensive, pool("cheap")]), &pods("p", shape("a", 1000, 1), 3));
    assert!(outcome.new_nodes.iter().all(|n| n.pool.as_str() == "expensive"), "{outcome:?}");
}

#[test]
fn spot_goes_first_because_it_is_cheaper() {
    let outcome = solve(&cluster([pool("general")]), &pods("p", shape("a", 1000, 1), 1));
    let offerings = &outcome.new_nodes[0].offerings;
    assert_eq!(offerings[0].key.capacity_type, Spot);
    assert!(offerings.iter().any(|o| o.key.capacity_type == OnDemand));
}

#[test]
fn no_more_new_nodes_than_allowed() {
    let one_each = shape("a", 1000, 1);
    let one_each = crate::model::cluster::pod::PodShape { spread: vec![spread(labels::HOSTNAME, "a", 1)], ..one_each };
    let outcome = solve_with(&cluster([pool("general")]), &pods("p", one_each, 5), 2);
    assert_eq!((outcome.new_nodes.len(), outcome.unschedulable_pods()), (2, 3));
    assert!(outcome.unschedulable[0].reasons.iter().any(|(_, reason)| *reason == UnschedulableReason::NewNodeLimit));
}

#[test]
fn limits_hold_and_are_named() {
    let mut small = pool("small");
    small.limits.resources.insert(Arc::from("cpu"), 8_000);
    let outcome = solve(&cluster([small]), &pods("p", shape("a", 1500, 1), 20));
    let most: i64 = outcome.new_nodes.len() as i64;
    assert!(most >= 1 && outcome.unschedulable_pods() > 0);
    assert!(
        outcome
            .unschedulable
            .iter()
            .flat_map(|u| &u.reasons)
            .all(|(_, reason)| *reason == UnschedulableReason::LimitsExceeded)
    );
}

#[test]
fn a_size_within_limits_is_chosen_though_a_larger_and_cheaper_one_dominates_it() {
    let mut small = pool("small");
    let sizes = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D8s_v5", "Standard_F8s_v2"])]);
    small.requirements = sizes;
    let outcome = solve(&cluster([small.clone()]), &pods("p", shape("a", 6000, 4), 1));
    assert_eq!(outcome.unschedulable_pods(), 0);
    // On-demand F8s is dominated by spot D8s, which is too large for the limit.
    small.limits.resources.insert(Arc::from("memory"), 16 * GIB);
    let mut all = cluster([small]);
    let types: Vec<_> = all.instance_types.values().next().unwrap().iter().cloned().collect();
    let no_spot_f8 = types.into_iter().map(|mut t| {
        let f8 = t.facts.name.as_str() == "Standard_F8s_v2";
        Arc::make_mut(&mut t).offerings.retain(|o| !f8 || o.capacity_type == OnDemand);
        t
    });
    let types = Arc::new(no_spot_f8.collect());
    all.instance_types.insert(crate::fixtures::class().name, types);
    let outcome = solve(&all, &pods("p", shape("a", 6000, 4), 1));
    assert_eq!(outcome.unschedulable_pods(), 0, "{:?}", outcome.unschedulable);
}

#[test]
fn a_zone_without_a_node_that_suits_the_pods_is_no_domain_of_their_spread() {
    let zonal = NodePool { requirements: requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]), ..pool("zonal") };
    let zonal = NodePool { labels: [(Arc::from("team"), Arc::from("ml"))].into(), ..zonal };
    let mut snapshot = cluster([zonal]);
    snapshot.put_node(node("system-2", 2, 2));
    snapshot.put_node(node("system-3", 3, 2));
    let mut spreading = shape("a", 1000, 1);
    spreading.selector = requirements_in(&[("team", &["ml"])]);
    spreading.spread = vec![spread(labels::ZONE, "a", 1)];
    let outcome = solve(&snapshot, &pods("p", spreading, 6));
    assert_eq!(outcome.unschedulable_pods(), 0, "zones 2 and 3 have no node for team ml: {:?}", outcome.unschedulable);
}

#[test]
fn a_zone_whose_only_nodes_are_tainted_is_a_domain_all_the_same() {
    // kube-scheduler's nodeTaintsPolicy is Ignore by default: the empty tainted zone keeps the least count at 0.
    let zonal = NodePool { requirements: requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]), ..pool("zonal") };
    let mut snapshot = cluster([zonal]);
    let mut tainted = node("system-2", 2, 8);
    tainted.taints = vec![Taint { key: Arc::from("system"), value: Arc::from(""), effect: TaintEffect::NoSchedule }];
    snapshot.put_node(tainted);
    let mut spreading = shape("a", 1000, 1);
    spreading.spread = vec![spread(labels::ZONE, "a", 1)];
    let outcome = solve(&snapshot, &pods("p", spreading, 3));
    assert_eq!(outcome.unschedulable_pods(), 2, "{:?}", outcome.placements);
}

#[test]
fn pods_of_a_leaving_node_are_not_counted_where_they_are_about_to_leave() {
    let general = pool("general");
    let mut snapshot = cluster([general.clone()]);
    let mut spreading = shape("a", 1000, 1);
    spreading.spread = vec![spread(labels::ZONE, "a", 1)];
    let spreading = Arc::new(spreading);
    for n in 1..=3 {
        let (mut claim, mut node) =
            crate::fixtures::managed(&format!("c{n}"), &general, offering("Standard_D2s_v5", n, Spot));
        node.allocatable.cpu_millis = 1000;
        if n == 2 {
            claim.deleting_at = Some(start());
        }
        snapshot.put_pod(running(&format!("p{n}"), &spreading, &node));
        crate::fixtures::put(&mut snapshot, (claim, node));
    }
    let key = running("p2", &spreading, &node("x", 1, 1)).key;
    let moving = Arc::clone(snapshot.pods().get(&key).unwrap());
    let outcome = solve(&snapshot, &[moving]);
    assert_eq!(outcome.new_nodes[0].zone(), Some(zone(2)), "zone 2 will be the empty one");
}

#[test]
fn pods_of_two_shapes_share_the_cap_of_their_host_name_constraint() {
    let with = |cpu: i64| {
        let mut shape = shape("a", cpu, 1);
        shape.spread = vec![spread(labels::HOSTNAME, "a", 1)];
        shape
    };
    let mut all = pods("old", with(500), 3);
    all.extend(pods("new", with(600), 3));
    let outcome = solve(&cluster([pool("general")]), &all);
    assert_eq!(outcome.new_nodes.len(), 6, "one pod of app a per node, whatever its shape");
}

#[test]
fn incompatible_pods_get_nodes_of_their_own() {
    let any = NodePool {
        requirements: requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D4s_v5", "Standard_D8ps_v5"])]),
        ..pool("any")
    };
    let mut choosy = shape("choosy", 1500, 1);
    let arm = requirements_in(&[(labels::ZONE, &[zone(1).as_str()]), (labels::ARCH, &["arm64"])]);
    let amd = requirements_in(&[(labels::ZONE, &[zone(2).as_str()]), (labels::ARCH, &["amd64"])]);
    choosy.alternatives = vec![arm, amd];
    let mut fixed = shape("fixed", 1000, 1);
    fixed.selector = requirements_in(&[(labels::ZONE, &[zone(1).as_str()]), (labels::ARCH, &["amd64"])]);
    let mut all = pods("c", choosy, 1);
    all.extend(pods("f", fixed, 1));
    let outcome = solve(&cluster([any]), &all);
    assert_eq!(outcome.unschedulable_pods(), 0, "{:?}", outcome.unschedulable);
}

#[test]
fn a_system_pod_gets_no_node_of_mode_user() {
    let mut system = shape("a", 1000, 1);
    system.selector = requirements_in(&[(labels::MODE, &["system"])]);
    let outcome = solve(&cluster([pool("general")]), &pods("p", system.clone(), 1));
    assert_eq!(outcome.unschedulable_pods(), 1, "nodes of a pool that does not require mode system are of mode user");
    let mut for_system = pool("system");
    for_system.requirements.add_all(&requirements_in(&[(labels::MODE, &["system"])]));
    let outcome = solve(&cluster([for_system]), &pods("p", system, 1));
    assert_eq!(outcome.new_nodes[0].labels.get(labels::MODE).map(|v| &**v), Some("system"));
}

#[test]
fn higher_priority_gets_the_last_capacity() {
    let mut small = pool("small");
    small.limits.nodes = Some(0);
    let mut snapshot = cluster([small]);
    snapshot.put_node(node("only", 1, 1));
    let urgent = crate::model::cluster::pod::PodShape { priority: 100, ..shape("urgent", 600, 1) };
    let mut all = pods("a", shape("a", 900, 1), 1);
    all.extend(pods("u", urgent, 1));
    let outcome = solve(&snapshot, &all);
    assert_eq!(outcome.placements.len(), 1);
    assert_eq!(outcome.placements[0].pod.name.as_str(), "u-000");
}

#[test]
fn pods_spread_over_zones_evenly() {
    let mut spreading = shape("a", 1000, 1);
    spreading.spread = vec![spread(labels::ZONE, "a", 1)];
    let outcome = solve(&cluster([pool("general")]), &pods("p", spreading, 9));
    assert_eq!(by_zone(&outcome).into_values().collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn daemon_set_overhead_is_subtracted_on_new_nodes() {
    let mut snapshot = cluster([pool("general")]);
    let daemon = Arc::new(shape("agent", 500, 1));
    let key = pod("agent", &daemon).key;
    snapshot.put_daemon_set(key, crate::model::cluster::pool::DaemonSet { shape: daemon });
    let outcome = solve(&snapshot, &pods("p", shape("a", 1000, 1), 1));
    let wanted = Resources { pods: 2, ..Resources::cpu_memory(1500, 2 * GIB) };
    assert_eq!(outcome.new_nodes[0].requests, wanted);
}

#[test]
fn pods_without_constraints_get_the_default_spread_constraints() {
    let mut snapshot = cluster([pool("general")]);
    let of_set = |pod: &Arc<Pod>| Arc::new(Pod { of_set: true, ..Pod::clone(pod) });
    let pods: Vec<_> = pods("p", shape("a", 500, 1), 6).iter().map(of_set).collect();
    assert_eq!(by_zone(&solve(&snapshot, &pods)).len(), 1, "one node is cheapest without spread constraints");
    let zones = DefaultSpread { spread: spread(labels::ZONE, "a", 1), is_hard: true };
    let defaults = BTreeMap::from([(Arc::from(DEFAULT_SCHEDULER), vec![zones])]);
    snapshot.put_scheduler(ObjectName::new("upstream").unwrap(), SchedulerProfiles { defaults });
    let outcome = solve(&snapshot, &pods);
    assert_eq!(by_zone(&outcome).into_values().collect::<Vec<_>>(), [2, 2, 2], "{outcome:?}");
    // So are pods that come one at a time.
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 10,
        claim_of_pod: &claim_of_pod,
    };
    let mut scheduler = IncrementalScheduler::new(input);
    let mut zones = BTreeMap::new();
    for pod in &pods {
        let placement = scheduler.find(pod).unwrap();
        let crate::scheduling::Placement::New(planned) = &placement else { panic!("{placement:?}") };
        *zones.entry(planned.cheapest.key.zone.to_string()).or_insert(0) += 1;
        assert!(scheduler.take(pod, &placement));
    }
    assert_eq!(zones.into_values().collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn a_pod_that_kube_scheduler_makes_room_for_keeps_its_capacity_and_ports() {
    let mut with_port = shape("b", 100, 1);
    with_port.ports = vec![HostPort { port: 8080, protocol: Arc::from("TCP"), address: None }];
    let with_port = Arc::new(with_port);
    for (nominated, waiting) in
        [(shape("a", 1500, 1), shape("a", 1500, 1)), ((*with_port).clone(), (*with_port).clone())]
    {
        let target = |nominates: bool| {
            let mut snapshot = cluster([pool("general")]);
            let host = node("old", 1, 2);
            snapshot.put_node(host.clone());
            let preemptor = pod("preemptor", &Arc::new(nominated.clone()));
            snapshot.put_pod(Pod { nominated: nominates.then_some(host.name), ..preemptor });
            let outcome = solve(&snapshot, &pods("p", waiting.clone(), 1));
            outcome.new_nodes.len()
        };
        assert_eq!([target(false), target(true)], [0, 1], "{waiting:?}");
    }
}
