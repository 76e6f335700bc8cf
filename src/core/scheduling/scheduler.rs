//! The scheduling loop: groups of pods by priority, with retries.
//!
//! Demands go in order. A pod goes to a node that exists or is being made, if one takes it; else to an open node, if
//! that costs no more than a node of its own; else to a node of its own. Pods without topology
//! constraints are left to [`open_greedily`](super::buy), which looks at all of them together. What one pod could not
//! have, it may have after others were placed: demands are tried again while that helps.

use crate::model::cluster::pod::Pod;
use crate::model::labels;
use crate::model::names::ObjectKey;
use crate::scheduling::explain::{Explanations, explanations, unschedulable};
use crate::scheduling::nodes::planned_offerings;
use crate::scheduling::nodes::state::{RejectedPod, SchedulingState, Solution};
use crate::scheduling::packing::greedy::open_greedily;
use crate::scheduling::packing::lower_bound;
use crate::scheduling::packing::repack::repack;
use crate::scheduling::pods::class::{PodClassId, PodClasses, PodGroup, largest_first};
use crate::scheduling::pods::volume_limits::{PodVolumes, VolumeIndex};
use crate::scheduling::topology::domain::{HOSTNAME_KEY, ZONE_KEY};
use crate::scheduling::topology::{LateDomains, Topology};
use crate::scheduling::{Input, PlanCost, SchedulingResult, UnschedulableReason};
use crate::snapshot::spread_defaults::SpreadDefaults;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often a plan is rebuilt because a domain came up after pods had been placed as if it were not there.
const MAX_ATTEMPTS: usize = 4;

/// How often demands without a place are tried again after others found theirs.
const MAX_ROUNDS: usize = 8;

/// Places pods: existing nodes first, then NodeClaims in flight, then new nodes.
#[must_use]
pub fn schedule(input: Input<'_>, pods: &[Arc<Pod>]) -> SchedulingResult {
    result_of(&mut solve(input, pods))
}

/// The same, and says what the new nodes cost beside the least that they could cost.
#[must_use]
pub fn schedule_with_cost(input: Input<'_>, pods: &[Arc<Pod>]) -> (SchedulingResult, PlanCost) {
    let mut solved = solve(input, pods);
    (result_of(&mut solved), lower_bound::plan_cost(&mut solved.state))
}

/// Places pods as [`schedule`] does, and explains those that `about` picks.
#[must_use]
pub fn explain(input: Input<'_>, pods: &[Arc<Pod>], about: impl Fn(&ObjectKey) -> bool) -> Explanations {
    explanations(input, solve(input, pods), about)
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
    // Pods that are to be rescheduled leave the place where they run now.
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
        let mut scheduler = SchedulingState::new((input, &volumes), &leaving, is_topological, known_domains);
        let (waiting, refused) = pods_to_place((input, &volumes), pods, &mut scheduler);
        let homeless = scheduler.solve(waiting);
        match scheduler.constraints.topology.late_domains().filter(|_| !attempts.is_empty()) {
            Some(surprises) => known_domains = surprises,
            None => return Solution { state: scheduler, unschedulable: homeless, rejected: refused },
        }
    }
}

fn result_of(solution: &mut Solution) -> SchedulingResult {
    let mut result = SchedulingResult::default();
    let rejected = solution.rejected.drain(..);
    rejected.for_each(|(pod, reason)| result.add_unschedulable(vec![pod], vec![(None, reason)]));
    planned_offerings::write_result(&solution.state, &mut result);
    for group in solution.unschedulable.drain(..) {
        let reasons = unschedulable::unschedulable_reasons(&mut solution.state, group.relaxation.required_only);
        result.add_unschedulable(group.pods, reasons);
    }
    result
}

/// Pods that are to be placed, with what their volumes ask for, without those that keep the claim they were promised; and
/// those that no node helps.
fn pods_to_place(
    (input, volume_index): (Input<'_>, &VolumeIndex),
    pods: &[Arc<Pod>],
    state: &mut SchedulingState,
) -> (Vec<(Arc<Pod>, PodVolumes)>, Vec<RejectedPod>) {
    let (mut waiting, mut refused) = (Vec::with_capacity(pods.len()), Vec::new());
    for pod in pods {
        match volume_index.volumes_of(input.snapshot, pod) {
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

impl SchedulingState {
    /// Places what has a place. The rest comes back.
    pub(super) fn solve(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let (chunks, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| pod.is_chunk());
        let mut left = self.place_all(pods);
        if !chunks.is_empty() {
            // After all pods, which are not tried again: a chunk is nobody's neighbour.
            left.extend(self.place_all(chunks));
        }
        left
    }

    fn place_all(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let mut demands = self.group_pods(pods);
        self.find_counting_filters();
        sort_groups(&mut demands, &self.constraints.classes, &self.constraints.topology);
        let mut left: Vec<PodGroup> = Vec::new();
        for tier in priority_tiers(demands, &self.constraints.classes) {
            left.extend(self.place_round(tier));
        }
        for _ in 0..MAX_ROUNDS {
            let before = self.placed.len();
            if left.is_empty() {
                break;
            }
            left = self.place_round(left);
            if self.placed.len() == before {
                break;
            }
        }
        if repack(self) && !left.is_empty() {
            // Cheaper nodes may have left room below a limit.
            left = self.place_round(left);
        }
        left
    }

    /// Tries each demand once; those who find no place come back.
    fn place_round(&mut self, groups: Vec<PodGroup>) -> Vec<PodGroup> {
        let (mut left, mut plain) = (Vec::new(), Vec::new());
        for mut demand in groups {
            if self.is_unconstrained(&demand) {
                self.place_identical(&mut demand);
                plain.extend((!demand.pods.is_empty()).then_some(demand));
            } else {
                self.place_one_by_one(&mut demand);
                left.extend((!demand.pods.is_empty()).then_some(demand));
            }
        }
        open_greedily(self, &mut plain);
        let sets = &self.open.candidate_sets;
        let varied = (0..sets.pool_count()).any(|pool| !sets.pool_offerings(pool).min_values.is_empty());
        for mut demand in plain.into_iter().filter(|demand| !demand.pods.is_empty()) {
            // A node that is filled to the brim may have too few others that would do in its place.
            if varied {
                self.place_one_by_one(&mut demand);
            }
            left.extend((!demand.pods.is_empty()).then_some(demand));
        }
        left
    }

    /// True when nothing but the node itself matters to the pods.
    fn is_unconstrained(&self, group: &PodGroup) -> bool {
        let class = group.relaxation.required_only;
        group.relaxation.steps.len() == 1
            && self.constraints.pod_needs(class).is_resources_only()
            && self.constraints.topology.constrained_keys(class).next().is_none()
    }

    /// Groups pods by what they ask for; of equals the oldest comes first.
    fn group_pods(&mut self, mut pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        // Pods that are watched share equal shapes: by address those need not be compared in depth.
        pods.sort_unstable_by(|(a, v), (b, w)| (Arc::as_ptr(&a.shape), v).cmp(&(Arc::as_ptr(&b.shape), w)));
        let mut by_kind: BTreeMap<PodClassId, PodGroup> = BTreeMap::new();
        for alike in pods.chunk_by(|(a, v), (b, w)| Arc::ptr_eq(&a.shape, &b.shape) && v == w) {
            let Some((first, volumes)) = alike.first() else { continue };
            let relaxation = self.register_shape(&first.shape, volumes.clone());
            let demand =
                by_kind.entry(relaxation.required_only).or_insert_with(|| PodGroup { relaxation, pods: Vec::new() });
            demand.pods.extend(alike.iter().map(|(pod, _)| Arc::clone(pod)));
        }
        let mut demands: Vec<PodGroup> = by_kind.into_values().collect();
        for demand in &mut demands {
            demand.pods.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        }
        demands
    }
}

/// Demands of one priority each, in order.
fn priority_tiers(groups: Vec<PodGroup>, classes: &PodClasses) -> Vec<Vec<PodGroup>> {
    let mut tiers: Vec<(i32, Vec<PodGroup>)> = Vec::new();
    for demand in groups {
        let priority = classes.get(demand.relaxation.required_only).shape.priority;
        match tiers.last_mut() {
            Some((last, tier)) if *last == priority => tier.push(demand),
            _ => tiers.push((priority, vec![demand])),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}

/// In which order demands are placed: higher priority first; then those that are particular about their host, since they
/// decide how many nodes there are; then those that are particular about their zone; then larger pods, which are harder to
/// place.
fn sort_groups(groups: &mut [PodGroup], classes: &PodClasses, topology: &Topology) {
    groups.sort_by_cached_key(|demand| {
        let class = demand.relaxation.required_only;
        let shape = &classes.get(class).shape;
        let asked: Vec<usize> = topology.constrained_keys(class).collect();
        let wish = demand
            .relaxation
            .steps
            .iter()
            .flat_map(|class| topology.constrained_keys(*class))
            .any(|topology_key| topology_key == HOSTNAME_KEY);
        let host = asked.contains(&HOSTNAME_KEY) || wish || !shape.ports.is_empty();
        let zone = asked.iter().any(|topology_key| *topology_key >= ZONE_KEY);
        let zones = shape.selector.get(labels::ZONE).and_then(|r| r.values()).map_or(usize::MAX, |zones| zones.len());
        (Reverse(shape.priority), Reverse(host), Reverse(zone), zones, largest_first(shape))
    });
}
