//! Scheduling: on which nodes, existing or new, will the waiting pods run?
//!
//! A simulation of what kube-scheduler will do, and of what it could do with new nodes. It tries, in this order:
//! nodes that exist (those that nobody manages too), NodeClaims in flight, and new nodes of each NodePool by weight.
//! Nothing is read but the Snapshot, and nothing is written but the [`SchedulingResult`].
//!
//! `solve` goes through the pods; `kinds` says which are alike, `topology` counts neighbours, `bins` is the room
//! that there is, `open` the nodes that are thought of, `choice` what those may become, `buy` what is bought for
//! pods that ask nothing of each other.

mod available;
mod buckets;
mod candidate_sets;
mod class;
mod constraint;
mod display;
mod domain;
mod existing;
mod existing_pods;
mod explain;
mod fill;
mod filter_steps;
mod greedy;
mod group;
mod incremental;
mod label_variants;
mod labels;
mod limits;
mod lower_bound;
mod min_values;
mod new_node_domains;
mod node_filter;
mod node_overlays;
pub mod offerings;
mod open;
mod place;
mod placed;
mod planned_offerings;
mod preferences;
mod repack;
mod result;
mod scheduler;
mod search;
mod size;
mod stock;
mod suggestion;
mod topology;
mod unavailable;
mod unschedulable;
mod volume_limits;

use crate::model::cluster::pod::Pod;
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::snapshot::Snapshot;
use crate::snapshot::spread_defaults::SpreadDefaults;
pub use available::AvailableOfferings;
pub(crate) use available::claim_requirements;
use class::PodGroup;
pub use explain::{
    ExplainedResult, Explanation, Explanations, NewNodesSummary, PlacementExplanation, PlacementSummary, TopologyCause,
    TopologyDecision, UnschedulableExplanation, explain,
};
pub use filter_steps::{FilterCriterion, FilterStep, PoolFilterSteps};
pub use incremental::{IncrementalScheduler, Placement, PlannedNode, Unschedulable};
pub use lower_bound::PlanCost;
pub use node_overlays::{OverlaidInstanceTypes, OverlayConflict, OverlayMemory};
pub use preferences::Preference;
pub use result::{
    NewNode, NoReservation, PodPlacement, SchedulingResult, Target, UnschedulablePods, UnschedulableReason,
};
use scheduler::SchedulingState;
pub use size::{Size, SizeExplanation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use stock::StaticShortfall;
pub(crate) use stock::{plan_static_nodes, unmet_requirement};
pub use suggestion::{SuggestedChange, Suggestion};
use topology::LateDomains;
pub use unavailable::{UnavailableOfferings, UnavailableScope};
use volume_limits::{PodVolumes, VolumeIndex};

/// What is to be simulated.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What its pools may buy.
    pub available: &'a AvailableOfferings,
    /// Nodes that are to be taken as gone.
    pub excluded_nodes: &'a BTreeSet<NodeName>,
    /// How many new nodes may be bought at the most.
    pub max_new_nodes: usize,
    /// The NodeClaims in flight that pods were planned for before: what was bought for a pod is kept for it.
    pub claim_of_pod: &'a BTreeMap<ObjectKey, ClaimName>,
}

/// How often a plan is made anew because a domain came up after pods had been placed as if it were not there.
const MAX_ATTEMPTS: usize = 4;

/// Most new nodes of one simulation.
pub const MAX_NEW_NODES: usize = 5_000;

/// Places pods: existing nodes first, then NodeClaims in flight, then new nodes.
#[must_use]
pub fn schedule(input: Input<'_>, pods: &[Arc<Pod>]) -> SchedulingResult {
    result_of(&mut solve(input, pods))
}

/// The same, and says how dear the new nodes are beside the least that they could cost.
#[must_use]
pub fn schedule_with_cost(input: Input<'_>, pods: &[Arc<Pod>]) -> (SchedulingResult, PlanCost) {
    let mut solved = solve(input, pods);
    (result_of(&mut solved), lower_bound::plan_cost(&mut solved.state))
}

/// A simulation that is over.
struct Solution {
    state: SchedulingState,
    /// What found no place.
    unschedulable: Vec<PodGroup>,
    rejected: Vec<RejectedPod>,
}

fn solve(input: Input<'_>, pods: &[Arc<Pod>]) -> Solution {
    match SpreadDefaults::of(input.snapshot) {
        Some(defaults) => {
            let complete = |pod: &Arc<Pod>| defaults.complete(pod).unwrap_or_else(|| Arc::clone(pod));
            attempt(input, &pods.iter().map(complete).collect::<Vec<_>>())
        }
        None => attempt(input, pods),
    }
}

fn attempt(input: Input<'_>, pods: &[Arc<Pod>]) -> Solution {
    // Pods that are to be placed anew leave the place where they run now.
    let leaving: BTreeSet<&ObjectKey> = pods.iter().filter(|p| p.node.is_some()).map(|p| &p.key).collect();
    let is_topological = pods.iter().any(|pod| {
        let shape = &pod.shape;
        shape.affinity.is_some() || shape.preferences.is_some() || !shape.spread.is_empty()
    });
    let volumes = VolumeIndex::of(input, pods);
    let mut known_domains = LateDomains::new();
    let mut attempts = 1..=MAX_ATTEMPTS;
    loop {
        attempts.next();
        let mut solver = SchedulingState::new((input, &volumes), &leaving, is_topological, known_domains);
        let (waiting, refused) = pods_to_place((input, &volumes), pods, &mut solver);
        let homeless = solver.solve(waiting);
        match solver.constraints.topology.late_domains().filter(|_| !attempts.is_empty()) {
            Some(surprises) => known_domains = surprises,
            None => return Solution { state: solver, unschedulable: homeless, rejected: refused },
        }
    }
}

fn result_of(
    Solution { state: solver, unschedulable: homeless, rejected: refused }: &mut Solution,
) -> SchedulingResult {
    let mut outcome = SchedulingResult::default();
    refused.drain(..).for_each(|(pod, why)| outcome.add_unschedulable(vec![pod], vec![(None, why)]));
    planned_offerings::write_result(solver, &mut outcome);
    for demand in homeless.drain(..) {
        let why = unschedulable::unschedulable_reasons(solver, demand.relaxation.required_only);
        outcome.add_unschedulable(demand.pods, why);
    }
    outcome
}

/// A pod for which nothing can be done, and why.
type RejectedPod = (Arc<Pod>, UnschedulableReason);

/// Pods that are to be placed, with what their volumes ask for, without those that keep the claim they were promised; and
/// those that no node helps.
fn pods_to_place(
    (input, book): (Input<'_>, &VolumeIndex),
    pods: &[Arc<Pod>],
    state: &mut SchedulingState,
) -> (Vec<(Arc<Pod>, PodVolumes)>, Vec<RejectedPod>) {
    let (mut waiting, mut refused) = (Vec::with_capacity(pods.len()), Vec::new());
    for pod in pods {
        match book.volumes_of(input.snapshot, pod) {
            _ if pod.claims_devices => refused.push((Arc::clone(pod), UnschedulableReason::DynamicResources)),
            Err(trouble) => refused.push((Arc::clone(pod), UnschedulableReason::Volume(trouble))),
            Ok(volumes) => {
                let promised = input.claim_of_pod.get(&pod.key);
                if !promised.is_some_and(|claim| state.place_on_planned_claim(pod, &volumes, claim)) {
                    waiting.push((Arc::clone(pod), volumes));
                }
            }
        }
    }
    (waiting, refused)
}

#[cfg(test)]
mod tests;
