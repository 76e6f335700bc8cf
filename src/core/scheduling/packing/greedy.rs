//! Greedy packing of unconstrained pods, NodePool by NodePool.
//!
//! Pools go by weight. Within a pool, nodes are bought one after another, each the one that is [best filled](super::fill).

use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::pod_needs::PodAddition;
use crate::scheduling::nodes::state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::packing::fill::{Fill, FillGroup, FillOrder, PoolFiller};
use crate::scheduling::pods::class::{PodClassId, PodGroup};
use std::sync::Arc;

/// Buys nodes for the demands, which keep the pods that found no place.
pub(crate) fn open_greedily(state: &mut SchedulingState, groups: &mut [PodGroup]) {
    for pool in 0..state.open.candidate_sets.pool_count() {
        if groups.iter().all(|demand| demand.pods.is_empty()) {
            return;
        }
        let pool_offerings = Arc::clone(state.open.candidate_sets.pool_offerings(pool));
        let fill_groups = groups.iter().map(|demand| fill_group(state, pool, demand)).collect();
        let mut counter =
            PoolFiller::new(&pool_offerings, fill_groups, FillOrder::LargestFirst, state.open.min_values_policy);
        while let Some((candidate, fill)) = counter.next_node(&state.open.limits) {
            open_filled(state, pool, (candidate, &fill), groups);
        }
    }
}

fn fill_group(state: &mut SchedulingState, pool: usize, group: &PodGroup) -> FillGroup {
    let class = state.constraints.classes.get(group.relaxation.required_only);
    let accepted = state.open.candidate_sets.accepted_zones(pool, class.filter, &state.constraints.filters);
    FillGroup { accepted_zones: accepted, requests: class.shape.requests.clone(), pending: group.pods.len() }
}

/// Thinks of a node for a fill, and takes its pods out of the demand.
fn open_filled(state: &mut SchedulingState, pool: usize, (candidate, fill): (usize, &Fill), groups: &mut [PodGroup]) {
    let taken: Vec<(usize, usize)> = fill.taken.iter().copied().enumerate().filter(|(_, taken)| *taken > 0).collect();
    let classes: Vec<PodClassId> = taken.iter().map(|(d, _)| groups[*d].relaxation.required_only).collect();
    let root = state.open.candidate_sets.root(pool);
    let Some(node) = open_candidate(state, root, (candidate, fill.zones), &classes) else { return };
    let best = state.open.nodes[node].candidate;
    for ((demand, pods), class) in taken.into_iter().zip(classes) {
        let set_id = state.open.nodes[node].candidate_set;
        let pod_addition = state.pin_domains(
            node,
            PodAddition { added_cost: 0, utilization: 0, candidate_set: set_id, candidate: best },
            class,
        );
        state.open.add_pods(node, pod_addition, state.constraints.pod_needs(class), pods as u32);
        state.count_on_open(node, class, pods as u32);
        let bound = groups[demand].pods.drain(..pods);
        state.placed.extend(bound.map(|pod| (pod, class, NodeRef::Open(node))));
    }
}

/// Opens a node that is a candidate of a candidate set in some zones, and that may become whatever suits pods of these
/// classes. The candidate suits all of them: whoever filled it has seen to it.
pub(crate) fn open_candidate(
    state: &mut SchedulingState,
    from: CandidateSetId,
    (candidate, zones): (usize, u32),
    classes: &[PodClassId],
) -> Option<OpenNodeId> {
    let filters = classes.iter().map(|class| Narrowing::Filter(state.constraints.classes.get(*class).filter));
    let mut by = filters.chain([Narrowing::Zones(zones)]);
    let set_id = by.try_fold(from, |set_id, by| {
        state.open.candidate_sets.narrow(set_id, by, state.constraints.filters_and_keys())
    })?;
    Some(state.open.open(set_id, candidate as CandidateIndex, state.constraints.pod_needs(*classes.first()?)))
}
