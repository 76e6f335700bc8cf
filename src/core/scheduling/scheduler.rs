//! The scheduling loop: groups of pods by priority, with retries.
//!
//! A pod goes to an existing node or NodeClaim in flight, if one takes it; else to an open node, if that costs no more
//! than a new one; else to a new node. Pods without topology constraints are left to
//! [`open_greedily`](super::packing::greedy), which packs all of them together. Placed pods may make others
//! schedulable, so groups are tried again while that helps.

use crate::model::cluster::pod::Pod;
use crate::model::labels;
use crate::model::names::{NodePoolName, ObjectKey};
use crate::scheduling::explain::{Explanations, explanations, unschedulable};
use crate::scheduling::nodes::planned_offerings;
use crate::scheduling::nodes::simulation_state::{RejectedPod, SchedulingState, Solution};
use crate::scheduling::packing::binding_order::plan_for_binding;
use crate::scheduling::packing::greedy::open_greedily;
use crate::scheduling::packing::lower_bound;
use crate::scheduling::packing::repack::repack;
use crate::scheduling::packing::zonal_binding::add_nodes_for_spread_pods;
use crate::scheduling::pods::pod_class::{PodClassId, PodClasses, PodGroup, largest_first};
use crate::scheduling::pods::volume_limits::{PodVolumes, VolumeIndex};
use crate::scheduling::topology::domain::{HOSTNAME_KEY, ZONE_KEY};
use crate::scheduling::topology::{LateDomains, Topology};
use crate::scheduling::{Input, PlanCost, SchedulingResult, Target, UnschedulableReason};
use crate::snapshot::spread_defaults::SpreadDefaults;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often a plan is recomputed because a topology domain appeared after pods had been placed without it.
const MAX_ATTEMPTS: usize = 4;

/// How often unplaced groups are tried again after others were placed.
const MAX_ROUNDS: usize = 8;

/// Places pods: existing nodes first, then NodeClaims in flight, then new nodes.
#[must_use]
pub fn schedule(input: Input<'_>, pods: &[Arc<Pod>]) -> SchedulingResult {
    result_of(&mut solve(input, pods))
}

/// The same, where some of them are known to go to these nodes and NodeClaims in flight: they are placed there before all others, if
/// they fit.
#[must_use]
pub(crate) fn schedule_around(
    input: Input<'_>,
    known: &BTreeMap<ObjectKey, Target>,
    pods: &[Arc<Pod>],
) -> SchedulingResult {
    result_of(&mut solve_without_limits(input, known, pods, &BTreeSet::new()))
}

/// The same, with the cost of the new nodes and its lower bound.
#[must_use]
pub fn schedule_with_cost(input: Input<'_>, pods: &[Arc<Pod>]) -> (SchedulingResult, PlanCost) {
    let mut solved = solve(input, pods);
    (result_of(&mut solved), lower_bound::plan_cost(&mut solved.state))
}

/// Places pods as [`schedule`] does, and explains those that `about` selects.
#[must_use]
pub fn explain(input: Input<'_>, pods: &[Arc<Pod>], about: impl Fn(&ObjectKey) -> bool) -> Explanations {
    let mut explained = explanations(input, solve(input, pods), about);
    // A suggestion is computed for one pod, but a limit must have room for all of them together.
    let limited = explained.pools_with_low_limits();
    if !limited.is_empty() {
        let unlimited = solve_without_limits(input, &BTreeMap::new(), pods, &limited);
        explained.raise_limits(input.snapshot, &unlimited.state.open.limits);
    }
    explained
}

fn solve(input: Input<'_>, pods: &[Arc<Pod>]) -> Solution {
    solve_without_limits(input, &BTreeMap::new(), pods, &BTreeSet::new())
}

/// Places pods as if some pools had no limits, some of them where they are known to go.
fn solve_without_limits(
    input: Input<'_>,
    known: &BTreeMap<ObjectKey, Target>,
    pods: &[Arc<Pod>],
    lifted: &BTreeSet<NodePoolName>,
) -> Solution {
    match SpreadDefaults::of(input.snapshot) {
        Some(defaults) => {
            let complete = |pod: &Arc<Pod>| defaults.complete(pod).unwrap_or_else(|| Arc::clone(pod));
            attempt(input, known, &pods.iter().map(complete).collect::<Vec<_>>(), lifted)
        }
        None => attempt(input, known, pods, lifted),
    }
}

fn attempt(
    input: Input<'_>,
    known: &BTreeMap<ObjectKey, Target>,
    pods: &[Arc<Pod>],
    lifted: &BTreeSet<NodePoolName>,
) -> Solution {
    // Pods that are to be rescheduled leave their current node.
    let leaving: BTreeSet<&ObjectKey> = pods.iter().filter(|p| p.node.is_some()).map(|p| &p.key).collect();
    let is_topological = pods.iter().any(|pod| {
        let shape = &pod.shape;
        shape.affinity.is_some() || shape.preferences.is_some() || !shape.spread.is_empty()
    });
    let volumes = VolumeIndex::of(input, pods);
    let mut late_domains = LateDomains::new();
    let mut attempts = 1..=MAX_ATTEMPTS;
    loop {
        attempts.next();
        let mut state = SchedulingState::new((input, &volumes), &leaving, is_topological, late_domains);
        state.open.limits.lift(lifted);
        let (pending, rejected) = pods_to_place((input, &volumes), known, pods, &mut state);
        let unschedulable = state.solve(pending);
        match state.constraints.topology.late_domains().filter(|_| !attempts.is_empty()) {
            Some(late) => late_domains = late,
            None => return Solution { state, unschedulable, rejected },
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

/// Pods to place, with their volumes, except those that go where they are known to go, or stay on their planned claim; and those
/// that no node can help.
fn pods_to_place(
    (input, volume_index): (Input<'_>, &VolumeIndex),
    known: &BTreeMap<ObjectKey, Target>,
    pods: &[Arc<Pod>],
    state: &mut SchedulingState,
) -> (Vec<(Arc<Pod>, PodVolumes)>, Vec<RejectedPod>) {
    let (mut pending, mut rejected) = (Vec::with_capacity(pods.len()), Vec::new());
    for pod in pods {
        match volume_index.volumes_of(input.snapshot, pod) {
            _ if pod.claims_devices => rejected.push((Arc::clone(pod), UnschedulableReason::DynamicResources)),
            Err(trouble) => rejected.push((Arc::clone(pod), UnschedulableReason::Volume(trouble))),
            Ok(volumes) => {
                let planned = input.claim_of_pod.get(&pod.key).map(|claim| Target::Claim(claim.clone()));
                let target = known.get(&pod.key).or(planned.as_ref());
                if !target.is_some_and(|target| state.place_on(pod, &volumes, target)) {
                    pending.push((Arc::clone(pod), volumes));
                }
            }
        }
    }
    (pending, rejected)
}

impl SchedulingState {
    /// Places pods; returns those that were not placed.
    pub(super) fn solve(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let (chunks, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| pod.is_chunk());
        let mut left = self.place_all(pods);
        if !chunks.is_empty() {
            // After all pods, which are not tried again: chunks do not affect topology constraints.
            left.extend(self.place_all(chunks));
        }
        left
    }

    fn place_all(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let mut groups = self.group_pods(pods);
        self.find_counting_filters();
        sort_groups(&mut groups, &self.constraints.classes, &self.constraints.topology);
        let mut left: Vec<PodGroup> = Vec::new();
        for tier in priority_tiers(groups, &self.constraints.classes) {
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
        let repacked = repack(self);
        let replanned = plan_for_binding(self);
        add_nodes_for_spread_pods(self);
        if (replanned || repacked) && !left.is_empty() {
            // Cheaper nodes may have freed capacity below a limit.
            left = self.place_round(left);
        }
        left
    }

    /// Tries each group once; returns those that were not placed.
    fn place_round(&mut self, groups: Vec<PodGroup>) -> Vec<PodGroup> {
        let (mut left, mut plain) = (Vec::new(), Vec::new());
        for mut group in groups {
            if self.is_unconstrained(&group) {
                self.place_identical(&mut group);
                plain.extend((!group.pods.is_empty()).then_some(group));
            } else {
                self.place_one_by_one(&mut group);
                left.extend((!group.pods.is_empty()).then_some(group));
            }
        }
        open_greedily(self, &mut plain);
        let sets = &self.open.candidate_sets;
        let has_min_values = (0..sets.pool_count()).any(|pool| !sets.pool_offerings(pool).min_values.is_empty());
        for mut group in plain.into_iter().filter(|group| !group.pods.is_empty()) {
            // A full node may have too few alternative offerings for `minValues`.
            if has_min_values {
                self.place_one_by_one(&mut group);
            }
            left.extend((!group.pods.is_empty()).then_some(group));
        }
        left
    }

    /// True when only resource requests and node filters matter to the pods.
    fn is_unconstrained(&self, group: &PodGroup) -> bool {
        let class = group.relaxation.required_only;
        group.relaxation.steps.len() == 1
            && self.constraints.pod_needs(class).is_resources_only()
            && self.constraints.topology.constrained_keys(class).next().is_none()
    }

    /// Groups pods by class, the oldest first.
    fn group_pods(&mut self, mut pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        // Watched pods share equal shapes, so comparing addresses suffices.
        pods.sort_unstable_by(|(a, v), (b, w)| (Arc::as_ptr(&a.shape), v).cmp(&(Arc::as_ptr(&b.shape), w)));
        let mut by_kind: BTreeMap<PodClassId, PodGroup> = BTreeMap::new();
        for equal in pods.chunk_by(|(a, v), (b, w)| Arc::ptr_eq(&a.shape, &b.shape) && v == w) {
            let Some((first, volumes)) = equal.first() else { continue };
            let relaxation = self.register_shape(&first.shape, volumes.clone());
            let group =
                by_kind.entry(relaxation.required_only).or_insert_with(|| PodGroup { relaxation, pods: Vec::new() });
            group.pods.extend(equal.iter().map(|(pod, _)| Arc::clone(pod)));
        }
        let mut groups: Vec<PodGroup> = by_kind.into_values().collect();
        for group in &mut groups {
            group.pods.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        }
        groups
    }
}

/// Groups of one priority each, in order.
fn priority_tiers(groups: Vec<PodGroup>, classes: &PodClasses) -> Vec<Vec<PodGroup>> {
    let mut tiers: Vec<(i32, Vec<PodGroup>)> = Vec::new();
    for group in groups {
        let priority = classes.get(group.relaxation.required_only).shape.priority;
        match tiers.last_mut() {
            Some((last, tier)) if *last == priority => tier.push(group),
            _ => tiers.push((priority, vec![group])),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}

/// Sorts groups for placement: higher priority first; then those with constraints on hosts, since they determine the
/// number of nodes; then those with constraints on zones; then larger pods, which are harder to place.
fn sort_groups(groups: &mut [PodGroup], classes: &PodClasses, topology: &Topology) {
    groups.sort_by_cached_key(|group| {
        let class = group.relaxation.required_only;
        let shape = &classes.get(class).shape;
        let topology_keys: Vec<usize> = topology.constrained_keys(class).collect();
        let prefers_host = group
            .relaxation
            .steps
            .iter()
            .flat_map(|class| topology.constrained_keys(*class))
            .any(|topology_key| topology_key == HOSTNAME_KEY);
        let host = topology_keys.contains(&HOSTNAME_KEY) || prefers_host || !shape.ports.is_empty();
        let zone = topology_keys.iter().any(|topology_key| *topology_key >= ZONE_KEY);
        let zones = shape.selector.get(labels::ZONE).and_then(|r| r.values()).map_or(usize::MAX, |zones| zones.len());
        (Reverse(shape.priority), Reverse(host), Reverse(zone), zones, largest_first(shape))
    });
}
