//! Greedy packing of unconstrained pods, NodePool by NodePool.
//!
//! Pools go by weight. Within a pool, nodes are opened one after another, each the [best filled](super::fill)
//! candidate.

use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::pod_needs::PodAddition;
use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::packing::fill::{Fill, FillGroup, FillOrder, PoolFiller};
use crate::scheduling::pods::pod_class::{PodClassId, PodGroup};
use std::sync::Arc;

/// Opens nodes for groups of pods. Pods that are not placed remain in their group.
pub(crate) fn open_greedily(state: &mut SchedulingState, groups: &mut [PodGroup]) {
    for pool in 0..state.open.candidate_sets.pool_count() {
        if groups.iter().all(|group| group.pods.is_empty()) {
            return;
        }
        let pool_offerings = Arc::clone(state.open.candidate_sets.pool_offerings(pool));
        let fill_groups = groups.iter().map(|group| fill_group(state, pool, group)).collect();
        let mut filler =
            PoolFiller::new(&pool_offerings, fill_groups, FillOrder::LargestFirst, state.open.min_values_policy);
        while let Some((candidate, fill)) = filler.next_node(&state.open.limits) {
            open_filled(state, pool, (candidate, &fill), groups);
        }
    }
}

fn fill_group(state: &mut SchedulingState, pool: usize, group: &PodGroup) -> FillGroup {
    let class = state.constraints.classes.get(group.relaxation.required_only);
    let accepted = state.open.candidate_sets.accepted_zones(pool, class.filter, &state.constraints.filters);
    FillGroup { accepted_zones: accepted, requests: class.shape.requests.clone(), pending: group.pods.len() }
}

/// Opens a node for a fill, and removes its pods from their groups.
fn open_filled(state: &mut SchedulingState, pool: usize, (candidate, fill): (usize, &Fill), groups: &mut [PodGroup]) {
    let taken: Vec<(usize, usize)> = fill.taken.iter().copied().enumerate().filter(|(_, taken)| *taken > 0).collect();
    let classes: Vec<PodClassId> = taken.iter().map(|(d, _)| groups[*d].relaxation.required_only).collect();
    let root = state.open.candidate_sets.root(pool);
    let Some(node) = open_candidate(state, root, (candidate, fill.zones), &classes) else { return };
    let best = state.open.nodes[node].candidate;
    for ((group, pods), class) in taken.into_iter().zip(classes) {
        let candidate_set = state.open.nodes[node].candidate_set;
        let pod_addition = state.pin_domains(
            node,
            PodAddition { added_cost: 0, utilization: 0, candidate_set, candidate: best },
            class,
        );
        state.open.add_pods(node, pod_addition, state.constraints.pod_needs(class), pods as u32);
        state.count_on_open(node, class, pods as u32);
        let bound = groups[group].pods.drain(..pods);
        state.placed.extend(bound.map(|pod| (pod, class, NodeRef::Open(node))));
    }
}

/// Opens a node as a candidate of a candidate set in some zones, narrowed to what is compatible with these pod classes.
/// The candidate must be compatible with all of them.
pub(crate) fn open_candidate(
    state: &mut SchedulingState,
    base: CandidateSetId,
    (candidate, zones): (usize, u32),
    classes: &[PodClassId],
) -> Option<OpenNodeId> {
    let filters = classes.iter().map(|class| Narrowing::Filter(state.constraints.classes.get(*class).filter));
    let mut by = filters.chain([Narrowing::Zones(zones)]);
    let set =
        by.try_fold(base, |set, by| state.open.candidate_sets.narrow(set, by, state.constraints.filters_and_keys()))?;
    Some(state.open.open(set, candidate as CandidateIndex, state.constraints.pod_needs(*classes.first()?)))
}
