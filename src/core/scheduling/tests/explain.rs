//! Tests of explanations: they agree with the plan, and stay short for many pods.

use crate::fixtures::bound_claim;
use crate::model::cluster::pod::{Pod, PodAffinity, PodShape, PodTerm, Preferences, Taint, TaintEffect};
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::volume::{DISK_DRIVER, ReclaimPolicy, Volume, driver};
use crate::model::labels;
use crate::model::names::{ClaimName, Namespace, ObjectKey, ObjectName, Uid};
use crate::model::requirements::Requirements;
use crate::scheduling::tests::{
    GIB, OnDemand, cluster, node, offering, pod, pods, pool, requirements_in, shape, spread, start, zone,
};
use crate::scheduling::{
    AvailableOfferings, ExplainedResult, Explanations, FilterCriterion, Input, MAX_NEW_NODES, NewNodesSummary,
    PlacementExplanation, PlacementSummary, Preference, SuggestedChange, TopologyCause, TopologyDecision,
    UnavailableOfferings, UnschedulableExplanation, UnschedulableReason, explain, schedule,
};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn explanations(snapshot: &Snapshot, pods: &[Arc<Pod>]) -> Explanations {
    explanations_with(snapshot, pods, &BTreeMap::new())
}

fn explanations_with(
    snapshot: &Snapshot,
    pods: &[Arc<Pod>],
    claim_of_pod: &BTreeMap<ObjectKey, ClaimName>,
) -> Explanations {
    let available_offerings = AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), start());
    let excluded_nodes = BTreeSet::new();
    let input = Input {
        snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod,
    };
    explain(input, pods, |_| true)
}

/// The only explanation of placed pods.
fn placement_explanation(all: &Explanations) -> &PlacementExplanation {
    let mut placed = all.explanations.iter().filter_map(|explanation| match &explanation.result {
        ExplainedResult::Placed(placement) => Some(&**placement),
        ExplainedResult::Unschedulable(_) => None,
    });
    placed.next().unwrap()
}

fn new_nodes_summary(explained: &Explanations) -> &NewNodesSummary {
    let PlacementSummary::New(summary) = &placement_explanation(explained).placement else {
        panic!("no new node: {explained:?}")
    };
    summary
}

fn unschedulable_explanation(explained: &Explanations) -> &UnschedulableExplanation {
    let ExplainedResult::Unschedulable(unschedulable) = &explained.explanations[0].result else {
        panic!("placed: {explained:?}")
    };
    unschedulable
}

fn changes(explained: &Explanations) -> &[SuggestedChange] {
    &unschedulable_explanation(explained).suggestion.as_ref().unwrap().changes
}

#[test]
fn pods_on_existing_and_in_flight_nodes_are_explained_by_node() {
    let general = pool("general");
    let mut snapshot = cluster([general.clone()]);
    snapshot.put_node(node("old", 1, 2));
    let in_flight = crate::fixtures::claim("general-a", &general, vec![offering("Standard_D4s_v5", 1, OnDemand)]);
    snapshot.put_claim(in_flight.clone());
    let pending = pods("p", shape("a", 1000, 1), 4);
    let claim_of_pod = BTreeMap::from([(pending[0].key.clone(), in_flight.name.clone())]);
    let explained = explanations_with(&snapshot, &pending, &claim_of_pod);
    let placements: Vec<&PlacementSummary> = explained
        .explanations
        .iter()
        .map(|explanation| match &explanation.result {
            ExplainedResult::Placed(placement) => &placement.placement,
            ExplainedResult::Unschedulable(_) => panic!("{explanation:?}"),
        })
        .collect();
    let old = PlacementSummary::Existing { nodes: vec![(node("old", 1, 2).name, 2)], count: 1 };
    let claims = PlacementSummary::InFlight { claims: vec![(in_flight.name, 2)], count: 1, planned_pods: 1 };
    assert_eq!(placements, [&old, &claims]);
}

#[test]
fn cheaper_sizes_are_counted_by_reason() {
    let mut limited = pool("limited");
    limited.requirements.add_all(&requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]));
    let snapshot = cluster([limited]);
    let pending = pods("p", shape("a", 2500, 1), 1);
    let explained = explanations(&snapshot, &pending);
    let new_nodes = new_nodes_summary(&explained);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let pool_offerings = &available_offerings.pools[0];
    let index = pool_offerings
        .candidates
        .iter()
        .position(|c| c.instance.facts.name == new_nodes.first_offering.key.size)
        .unwrap();
    let cheaper = &pool_offerings.candidates[..index];
    assert!(!cheaper.is_empty() && cheaper.iter().all(|c| !pending[0].shape.requests.fits(&c.pod_capacity)));
    assert_eq!(
        (new_nodes.size.too_small, new_nodes.size.incompatible, new_nodes.size.over_limits),
        (cheaper.len(), 0, 0)
    );
    let (nearest, lacks) = new_nodes.size.priciest_too_small.as_ref().unwrap();
    assert_eq!((nearest.name.clone(), &**lacks), (cheaper.last().unwrap().instance.facts.name.clone(), "cpu"));
    let holding = pool_offerings.candidates.iter().filter(|c| pending[0].shape.requests.fits(&c.pod_capacity)).count();
    assert_eq!(new_nodes.size.fitting, holding);
    assert!(new_nodes.size.next_fitting.as_ref().unwrap().price >= new_nodes.first_offering.price);
    assert_eq!(
        (new_nodes.node_count, new_nodes.own_pods, new_nodes.other_pods, &new_nodes.size_without_own),
        (1, 1, 0, &None)
    );
}

#[test]
fn incompatible_sizes_are_distinguished_from_too_small_ones() {
    let mut requested = shape("a", 500, 1);
    requested.selector = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_E4s_v5"])]);
    let snapshot = cluster([pool("general")]);
    let explained = explanations(&snapshot, &pods("p", requested, 1));
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let price = new_nodes_summary(&explained).first_offering.price;
    let cheaper = available_offerings.pools[0].candidates.iter().filter(|candidate| candidate.price < price).count();
    let size = &new_nodes_summary(&explained).size;
    assert_eq!((size.fitting, size.incompatible, size.too_small), (2, cheaper, 0), "on spot and on demand");
    assert!(cheaper > 0);
}

#[test]
fn a_pod_on_a_shared_node_shows_the_size_without_it_and_alone() {
    let snapshot = cluster([pool("general")]);
    let mut pending = pods("large", shape("large", 3000, 4), 1);
    pending.extend(pods("small", shape("small", 300, 1), 1));
    let all = explanations(&snapshot, &pending);
    let small = all.explanations.iter().find(|explanation| explanation.pods[0].name.as_str() == "small-000").unwrap();
    let ExplainedResult::Placed(placement) = &small.result else { panic!("{small:?}") };
    let PlacementSummary::New(new_nodes) = &placement.placement else { panic!("{small:?}") };
    assert_eq!((new_nodes.own_pods, new_nodes.other_pods), (1, 1));
    let (without, alone) = (new_nodes.size_without_own.as_ref().unwrap(), new_nodes.size_for_one_pod.as_ref().unwrap());
    let only_large = explanations(&snapshot, &pending[..1]);
    assert_eq!(without.price, new_nodes_summary(&only_large).first_offering.price);
    let only_small = explanations(&snapshot, &pending[1..]);
    assert_eq!(alone.price, new_nodes_summary(&only_small).first_offering.price);
}

#[test]
fn a_preference_that_no_node_can_meet_is_relaxed_and_the_others_are_satisfied() {
    let mut requested = shape("a", 500, 1);
    let near = PodTerm {
        topology_key: Arc::from(labels::ZONE),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector: requirements_in(&[("app", &["nobody"])]),
    };
    requested.preferences = Some(Box::new(Preferences {
        node: vec![(1, requirements_in(&[(labels::ARCH, &["amd64"])]))],
        near: vec![(10, near)],
        ..Preferences::default()
    }));
    let explained = explanations(&cluster([pool("general")]), &pods("p", requested, 1));
    let placement = placement_explanation(&explained);
    assert_eq!(
        (placement.relaxed.clone(), placement.satisfied_preferences),
        (vec![Preference::PodAffinity(Arc::from(labels::ZONE))], 1)
    );
}

#[test]
fn prefer_no_schedule_is_relaxed_last() {
    let taint = Taint { key: Arc::from("old"), value: Arc::from(""), effect: TaintEffect::PreferNoSchedule };
    let tainted = NodePool { taints: vec![taint], ..pool("tainted") };
    let explained = explanations(&cluster([tainted]), &pods("p", shape("a", 500, 1), 1));
    assert_eq!(
        (placement_explanation(&explained).relaxed.clone(), placement_explanation(&explained).satisfied_preferences),
        (vec![Preference::PreferNoSchedule], 0)
    );
}

#[test]
fn zones_decided_by_topology_spread_are_counted_over_all_nodes() {
    let mut requested = shape("a", 1000, 1);
    requested.spread = vec![spread(labels::ZONE, "a", 1), spread(labels::HOSTNAME, "a", 1)];
    let explained = explanations(&cluster([pool("general")]), &pods("p", requested, 6));
    let values = (1..=3).map(|n| (zone(n).text(), 2)).collect();
    let by_zone = TopologyDecision { cause: TopologyCause::TopologySpread, key: Arc::from(labels::ZONE), values };
    let by_host = TopologyDecision {
        cause: TopologyCause::TopologySpread,
        key: Arc::from(labels::HOSTNAME),
        values: BTreeMap::new(),
    };
    assert_eq!(placement_explanation(&explained).topology_decisions, [by_host, by_zone]);
    assert_eq!(new_nodes_summary(&explained).node_count, 6);
}

#[test]
fn a_skipped_pool_is_named_with_the_reason() {
    let taint = Taint { key: Arc::from("gpu"), value: Arc::from(""), effect: TaintEffect::NoSchedule };
    let first = NodePool { weight: 10, taints: vec![taint.clone()], ..pool("first") };
    let explained = explanations(&cluster([first, pool("second")]), &pods("p", shape("a", 500, 1), 1));
    let first = pool("first").name;
    assert_eq!(
        new_nodes_summary(&explained).skipped_pools,
        [(first, UnschedulableReason::UntoleratedTaint(taint.key))]
    );
}

/// Pods with a claim on a volume in a zone, in a cluster that has both.
fn with_volume(snapshot: &mut Snapshot, requested: PodShape, zone_number: u8) -> Vec<Arc<Pod>> {
    let name = ObjectName::new("data").unwrap();
    let key = ObjectKey { namespace: requested.namespace.clone(), name: name.clone() };
    let uid = Uid::new("data").unwrap();
    let affinity = vec![requirements_in(&[(labels::ZONE, &[zone(zone_number).as_str()])])];
    let volume = Volume {
        name: name.clone(),
        uid,
        handle: None,
        reclaim: ReclaimPolicy::Delete,
        claim: Some(key.clone()),
        affinity,
        driver: Some(driver(DISK_DRIVER)),
        deleting: false,
    };
    snapshot.put_volume(name.clone(), volume);
    let claim = bound_claim(&key, &name);
    snapshot.put_volume_claim(key, claim);
    vec![Arc::new(Pod { volumes: vec![name], ..pod("p", &Arc::new(requested)) })]
}

#[test]
fn a_pool_outside_the_zone_of_a_volume_is_suggested_to_allow_the_zone() {
    let mut snapshot = cluster([pool("general")]);
    let pending = with_volume(&mut snapshot, shape("a", 500, 1), 2);
    let placed = explanations(&snapshot, &pending);
    let values = [(zone(2).text(), 1)].into();
    assert_eq!(
        placement_explanation(&placed).topology_decisions,
        [TopologyDecision { cause: TopologyCause::Volume, key: Arc::from(labels::ZONE), values }]
    );
    let mut elsewhere = pool("elsewhere");
    elsewhere.requirements.add_all(&requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]));
    let mut snapshot = cluster([elsewhere]);
    // The watch may have added the zone of their volume to their own selector.
    for narrowed in [false, true] {
        let mut requested = shape("a", 500, 1);
        if narrowed {
            requested.selector = requirements_in(&[(labels::ZONE, &[zone(2).as_str()])]);
        }
        let pending = with_volume(&mut snapshot, requested, 2);
        let offer = SuggestedChange::AllowLabel(Arc::from(labels::ZONE), format!("In [{}]", zone(2)));
        assert_eq!(changes(&explanations(&snapshot, &pending)), [offer], "narrowed: {narrowed}");
    }
}

#[test]
fn where_only_pod_affinity_blocks_the_suggestion_is_to_prefer_it() {
    let term = |app: &str| PodTerm {
        topology_key: Arc::from(labels::ZONE),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector: requirements_in(&[("app", &[app])]),
    };
    let near = PodAffinity { near: vec![term("nobody")], apart: Vec::new() };
    let apart = PodAffinity { near: Vec::new(), apart: vec![term("a")] };
    let with = |affinity| PodShape { affinity: Some(Box::new(affinity)), ..shape("a", 500, 1) };
    let racks = PodShape { spread: vec![spread("example.com/rack", "a", 1)], ..shape("a", 500, 1) };
    let cases = [
        (with(near), 1, UnschedulableReason::PodAffinity),
        (with(apart), 4, UnschedulableReason::PodAntiAffinity),
        (racks, 1, UnschedulableReason::MissingTopologyKey(Arc::from("example.com/rack"))),
    ];
    let snapshot = cluster([pool("general")]);
    for (shape, count, reason) in cases {
        let all = explanations(&snapshot, &pods("p", shape.clone(), count));
        assert_eq!(changes(&all), [SuggestedChange::MakePreferred(reason.clone())]);
        let last = unschedulable_explanation(&all).filter_steps[0].steps.last().unwrap();
        assert_eq!((last.criterion.clone(), last.sizes), (FilterCriterion::Topology(reason), 0));
        let softened = PodShape { affinity: None, spread: Vec::new(), ..shape };
        assert!(explanations(&snapshot, &pods("p", softened, count)).all_placed());
    }
}

#[test]
fn a_pod_with_resource_claims_is_explained() {
    let requested = Arc::new(shape("a", 500, 1));
    let pending = [Arc::new(Pod { claims_devices: true, ..pod("p", &requested) })];
    let explained = explanations(&cluster([pool("general")]), &pending);
    assert_eq!(unschedulable_explanation(&explained).reasons, [(None, UnschedulableReason::DynamicResources)]);
}

#[test]
fn ten_thousand_unschedulable_pods_have_a_short_explanation() {
    let snapshot = cluster([pool("general"), pool("other")]);
    let equal = explanations(&snapshot, &pods("p", shape("a", 900_000, 1), 10_000));
    assert_eq!((equal.explanations.len(), equal.explanations[0].pods.len(), equal.omitted_groups), (1, 10_000, 0));
    let different: Vec<Arc<Pod>> =
        (0..2_000).flat_map(|n| pods(&format!("p{n}"), shape("a", 900_000 + n, 1), 5)).collect();
    let explained = explanations(&snapshot, &different);
    let pods: usize = explained.explanations.iter().map(|explanation| explanation.pods.len()).sum();
    assert_eq!(
        (explained.explanations.len(), explained.omitted_groups, pods + explained.omitted_pods),
        (32, 1_968, 10_000)
    );
}

#[test]
fn an_explanation_is_of_the_actual_result_and_of_the_requested_pods() {
    let snapshot = cluster([pool("general")]);
    let mut requested = shape("a", 700, 2);
    requested.requests.memory = 2 * GIB;
    let mut pending = pods("p", requested, 40);
    pending.extend(pods("q", PodShape { selector: Requirements::new(), ..shape("b", 1300, 1) }, 25));
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 100,
        claim_of_pod: &claim_of_pod,
    };
    let explained = explain(input, &pending, |key| key.name.as_str() == "p-007");
    assert_eq!(explained.explanations.len(), 1);
    assert_eq!(explained.explanations[0].pods, [pending[7].key.clone()]);
    let outcome = schedule(input, &pending);
    let new = outcome.new_nodes.iter().find(|new| new.pods.iter().any(|pod| pod.key == pending[7].key)).unwrap();
    let new_nodes = new_nodes_summary(&explained);
    assert_eq!((&new_nodes.first_offering, new_nodes.offering_count), (&new.offerings[0], new.offerings.len()));
    assert_eq!(new_nodes.own_pods + new_nodes.other_pods, new.pods.len());
}

#[test]
fn raised_limits_are_enough_for_all_pods() {
    for (cpu, count) in [(4_000, 12), (10_000, 12), (18_000, 30), (40_000, 100)] {
        let mut limited = pool("limited");
        limited.limits.resources.insert(Arc::from("cpu"), cpu);
        limited.limits.resources.insert(Arc::from("memory"), 64 * GIB);
        limited.limits.nodes = Some(9);
        let pending = [pods("p", shape("a", 1500, 1), count), pods("q", shape("b", 700, 2), 5)].concat();
        let explained = explanations(&cluster([limited.clone()]), &pending);
        let suggestion = unschedulable_explanation(&explained).suggestion.clone().unwrap();
        for change in suggestion.changes {
            let SuggestedChange::RaiseLimit(name, to) = change else { panic!("{change:?}") };
            match &*name {
                "nodes" => limited.limits.nodes = Some(to),
                _ => drop(limited.limits.resources.insert(name, to)),
            }
        }
        let explained = explanations(&cluster([limited]), &pending);
        assert!(explained.all_placed(), "{cpu} {count}: {explained:?}");
    }
}

#[test]
fn all_zones_of_new_nodes_are_named() {
    let spread_pods = PodShape { spread: vec![spread(labels::ZONE, "a", 1)], ..shape("a", 1500, 1) };
    let explained = explanations(&cluster([pool("general")]), &pods("p", spread_pods, 3));
    let nodes = new_nodes_summary(&explained);
    assert!(nodes.node_count > 1, "{nodes:?}");
    assert_eq!(nodes.zones.len(), 3, "{nodes:?}");
    assert_eq!(nodes.zones.values().sum::<usize>(), nodes.node_count);
}
