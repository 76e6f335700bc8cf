//! Explanation of placed pods.

use crate::catalog::CapacityType;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::labels;
use crate::model::names::{NodePoolName, ObjectKey, VmSize};
use crate::scheduling::Input;
use crate::scheduling::explain::size::{Size, SizeExplanation};
use crate::scheduling::explain::unschedulable::pool_reason;
use crate::scheduling::explain::{
    ExplainedResult, Explanation, Explanations, NewNodesSummary, PlacementExplanation, PlacementSummary, TopologyCause,
    TopologyDecision,
};
use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::pods::pod_class::PodClassId;
use crate::scheduling::pods::preferences::{Preference, preferences_in_order, relaxed_preferences};
use crate::scheduling::pods::volume_limits::TrackedVolumes;
use crate::scheduling::result::{SchedulingResult, Target};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most node names and label values of one explanation.
const MAX_NAMES: usize = 16;

/// A finished simulation: its input and its result.
type FinishedSimulation<'a> = (Input<'a>, &'a SchedulingResult);

/// Placements that are explained together: of the same kind, and new nodes of the same pool and size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PlacementSort {
    Existing,
    InFlight,
    New(NodePoolName, VmSize, CapacityType),
}

/// Pods of one class with one kind of placement.
#[derive(Default)]
struct PlacedGroup {
    pods: Vec<Arc<Pod>>,
    /// Each node, by index, with the number of these pods.
    existing: BTreeMap<usize, usize>,
    open: BTreeMap<OpenNodeId, usize>,
}

/// Adds the explanations of placed pods.
pub(crate) fn explain_placed(
    state: &mut SchedulingState,
    finished: FinishedSimulation<'_>,
    about: impl Fn(&ObjectKey) -> bool,
    explanations: &mut Explanations,
) {
    let mut groups: BTreeMap<(PodClassId, PlacementSort), PlacedGroup> = BTreeMap::new();
    for (pod, class, node_ref) in state.placed.iter().filter(|(pod, _, _)| about(&pod.key)) {
        let Some(sort) = placement_sort(state, finished.1, *node_ref) else { continue };
        let group = groups.entry((*class, sort)).or_default();
        group.pods.push(Arc::clone(pod));
        match *node_ref {
            NodeRef::Existing(index) => *group.existing.entry(index).or_default() += 1,
            NodeRef::Open(node) => *group.open.entry(node).or_default() += 1,
        }
    }
    for ((class, sort), group) in groups {
        let PlacedGroup { pods, existing: existing_nodes, open: nodes } = group;
        explanations.add_group(pods, |pods| {
            let placement = match sort {
                PlacementSort::Existing => existing_summary(state, &existing_nodes),
                PlacementSort::InFlight => in_flight_summary(state, finished.0, &existing_nodes, pods),
                PlacementSort::New(..) => {
                    PlacementSummary::New(Box::new(new_nodes_summary(state, finished.1, class, &nodes)?))
                }
            };
            let on_existing = existing_nodes.iter().map(|(index, pods)| (NodeRef::Existing(*index), *pods));
            let on_open = nodes.iter().map(|(node, pods)| (NodeRef::Open(*node), *pods));
            let node_refs: Vec<(NodeRef, usize)> = on_existing.chain(on_open).collect();
            let topology_decisions = topology_decisions(state, finished, class, &node_refs);
            let (satisfied_preferences, relaxed) =
                if nodes.is_empty() { (0, Vec::new()) } else { satisfied_and_relaxed(state, class) };
            Some(Explanation::of(
                pods,
                ExplainedResult::Placed(Box::new(PlacementExplanation {
                    placement,
                    topology_decisions,
                    relaxed,
                    satisfied_preferences,
                })),
            ))
        });
    }
}

fn placement_sort(state: &SchedulingState, result: &SchedulingResult, node_ref: NodeRef) -> Option<PlacementSort> {
    match node_ref {
        NodeRef::Existing(index) => Some(match state.existing.target(index) {
            Target::Claim(_) => PlacementSort::InFlight,
            Target::Node(_) | Target::New(_) => PlacementSort::Existing,
        }),
        NodeRef::Open(node) => {
            let new = result.new_nodes.get(node)?;
            let key = &new.offerings.first()?.key;
            Some(PlacementSort::New(new.pool.clone(), key.size.clone(), key.capacity_type))
        }
    }
}

fn existing_summary(state: &SchedulingState, existing_nodes: &BTreeMap<usize, usize>) -> PlacementSummary {
    let named = existing_nodes.iter().filter_map(|(index, pods)| match state.existing.target(*index) {
        Target::Node(name) => Some((name.clone(), *pods)),
        Target::Claim(_) | Target::New(_) => None,
    });
    PlacementSummary::Existing { nodes: named.take(MAX_NAMES).collect(), count: existing_nodes.len() }
}

fn in_flight_summary(
    state: &SchedulingState,
    input: Input<'_>,
    existing_nodes: &BTreeMap<usize, usize>,
    pods: &[Arc<Pod>],
) -> PlacementSummary {
    let named = existing_nodes.iter().filter_map(|(index, pods)| match state.existing.target(*index) {
        Target::Claim(name) => Some((name.clone(), *pods)),
        Target::Node(_) | Target::New(_) => None,
    });
    let claims = named.take(MAX_NAMES).collect();
    let planned_pods = pods.iter().filter(|pod| input.claim_of_pod.contains_key(&pod.key)).count();
    PlacementSummary::InFlight { claims, count: existing_nodes.len(), planned_pods }
}

/// Summary of new nodes; its pods and sizes are those of the first.
fn new_nodes_summary(
    state: &mut SchedulingState,
    result: &SchedulingResult,
    class: PodClassId,
    nodes: &BTreeMap<OpenNodeId, usize>,
) -> Option<NewNodesSummary> {
    let (node, own) = nodes.first_key_value()?;
    let new = result.new_nodes.get(*node)?;
    let zone = state.open.zone(*node);
    let alone = state.cheapest_new_node(class, zone).map(|pod_addition| {
        Size::of(state.open.candidate_sets.candidate(pod_addition.candidate_set, pod_addition.candidate))
    });
    let pool = state.open.candidate_sets.get(state.open.nodes[*node].candidate_set).pool;
    // Variants of one pool are adjacent, and a pool does not come before itself.
    let name_of =
        |state: &SchedulingState, pool: usize| state.open.candidate_sets.pool_offerings(pool).pool.name.clone();
    let mut skipped_pools: Vec<(_, _)> = Vec::new();
    for other in 0..pool {
        let name = name_of(state, other);
        let reason = if name == new.pool { None } else { pool_reason(state, class, other) };
        skipped_pools.extend(reason.map(|reason| (name, reason)));
    }
    skipped_pools.dedup_by(|(b, _), (a, _)| a == b);
    skipped_pools.truncate(MAX_NAMES);
    let others = new.pods.len().saturating_sub(*own);
    let mut zones = BTreeMap::new();
    for first in nodes.keys().filter_map(|node| result.new_nodes.get(*node)?.offerings.first()) {
        *zones.entry(first.key.zone.clone()).or_default() += 1;
    }
    Some(NewNodesSummary {
        node_count: nodes.len(),
        pool: new.pool.clone(),
        skipped_pools,
        first_offering: new.offerings.first()?.clone(),
        zones,
        offering_count: new.offerings.len(),
        own_pods: *own,
        other_pods: others,
        requests: state.open.nodes[*node].requests.clone(),
        size: SizeExplanation::of_open(state, &state.open.nodes[*node]),
        size_without_own: (others > 0).then(|| size_without(state, *node, class, *own)).flatten(),
        size_for_one_pod: alone,
    })
}

/// The size of an open node without some pods of a class.
fn size_without(state: &SchedulingState, node: OpenNodeId, class: PodClassId, pods: usize) -> Option<Size> {
    let (open, needs) = (&state.open.nodes[node], state.constraints.pod_needs(class));
    let times = i64::try_from(pods).unwrap_or(i64::MAX);
    let requests = open.requests.minus(&needs.requests.times(times));
    // Disks that other pods share remain attached.
    let own = needs.disks - needs.tracked_volumes.map_or(0, TrackedVolumes::shared_disks);
    let disks = open.disks.saturating_sub(own.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)));
    let mut compatible = state.open.candidate_sets.candidates_in(open.candidate_set).map(|(candidate, _)| candidate);
    compatible.find(|candidate| candidate.holds(&requests, disks)).map(Size::of)
}

/// How many preferences of a pod class are satisfied, and those that were relaxed.
fn satisfied_and_relaxed(state: &SchedulingState, class: PodClassId) -> (usize, Vec<Preference>) {
    let Some(origin) = state.constraints.classes.origin(class) else { return (0, Vec::new()) };
    let step = origin.relaxation.steps.iter().position(|step| *step == class).unwrap_or_default();
    let relaxed = relaxed_preferences(origin.shape, step, origin.relaxation.steps.len());
    (preferences_in_order(origin.shape, origin.relaxation.steps.len()).len().saturating_sub(relaxed.len()), relaxed)
}

/// The node labels that topology constraints or volumes of the pods decided.
fn topology_decisions(
    state: &SchedulingState,
    finished: FinishedSimulation<'_>,
    class: PodClassId,
    node_refs: &[(NodeRef, usize)],
) -> Vec<TopologyDecision> {
    let shape = &state.constraints.classes.get(class).shape;
    let mut causes = topology_causes(shape);
    if let Some(origin) = state.constraints.classes.origin(class) {
        let keys = origin.volumes.alternatives.iter().flat_map(|term| term.iter().map(|(key, _)| Arc::clone(key)));
        let shares = origin.volumes.tracked.iter().any(|tracked| !tracked.unprovisioned.is_empty());
        let zone = shares.then(|| labels::interned(labels::ZONE));
        causes.extend(keys.chain(zone).map(|key| (TopologyCause::Volume, key)));
    }
    causes.sort();
    causes.dedup();
    let decision = |(cause, key): (TopologyCause, Arc<str>)| {
        let mut values: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let named = node_refs.iter().filter(|_| *key != *labels::HOSTNAME);
        for (value, pods) in
            named.filter_map(|(node_ref, pods)| Some((label_of_node(state, finished, *node_ref, &key)?, pods)))
        {
            if values.len() < MAX_NAMES || values.contains_key(&value) {
                *values.entry(value).or_default() += pods;
            }
        }
        TopologyDecision { cause, key, values }
    };
    causes.into_iter().map(decision).collect()
}

/// The topology keys of a shape's constraints.
fn topology_causes(shape: &PodShape) -> Vec<(TopologyCause, Arc<str>)> {
    let spread = shape.spread.iter().map(|spread| (TopologyCause::TopologySpread, Arc::clone(&spread.topology_key)));
    let affinity = shape.affinity.as_deref();
    let near = affinity
        .into_iter()
        .flat_map(|affinity| &affinity.near)
        .map(|term| (TopologyCause::PodAffinity, &term.topology_key));
    let apart = affinity
        .into_iter()
        .flat_map(|affinity| &affinity.apart)
        .map(|term| (TopologyCause::PodAntiAffinity, &term.topology_key));
    spread.chain(near.chain(apart).map(|(cause, key)| (cause, Arc::clone(key)))).collect()
}

/// The value of a label of a node.
fn label_of_node(
    state: &SchedulingState,
    (input, result): FinishedSimulation<'_>,
    node_ref: NodeRef,
    key: &str,
) -> Option<Arc<str>> {
    match node_ref {
        NodeRef::Existing(index) => match state.existing.target(index) {
            Target::Node(name) => input.snapshot.nodes().get(name)?.labels.get(key).cloned(),
            Target::Claim(name) => label_of_claim(input.snapshot.claims().get(name)?, key),
            Target::New(_) => None,
        },
        NodeRef::Open(node) => {
            let new = result.new_nodes.get(node)?;
            if key == labels::ZONE {
                return new.zone().map(|zone| zone.text());
            }
            let open = &state.open.nodes[node];
            let pool_offerings =
                state.open.candidate_sets.pool_offerings(state.open.candidate_sets.get(open.candidate_set).pool);
            let own = new.labels.get(key).cloned();
            own.or_else(|| pool_offerings.candidate_label(&pool_offerings.candidates[open.candidate as usize], key))
        }
    }
}

/// The value of a label that a claim's node will have for certain.
fn label_of_claim(claim: &Claim, key: &str) -> Option<Arc<str>> {
    let mut zones = match &claim.intent {
        Some(intent) => vec![&intent.offering.key.zone],
        None => claim.spec.planned.iter().map(|planned| &planned.key.zone).collect(),
    };
    zones.dedup();
    match zones[..] {
        [zone] if key == labels::ZONE => Some(zone.text()),
        _ => claim.spec.labels.get(key).cloned(),
    }
}
