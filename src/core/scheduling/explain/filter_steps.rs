//! What each scheduling criterion leaves of a NodePool's offerings.

use crate::model::cluster::pod::Toleration;
use crate::model::names::NodePoolName;
use crate::model::requirements::Requirements;
use crate::scheduling::explain::unschedulable::pool_reason as why_not_of;
use crate::scheduling::nodes::state::SchedulingState;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::pods::class::PodClassId;
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::result::UnschedulableReason;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What is left of a pool, step by step. The last step is the one that leaves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFilterSteps {
    /// The pool.
    pub pool: NodePoolName,
    /// The steps that take something away, after the first, which takes nothing.
    pub steps: Vec<FilterStep>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterStep {
    /// What is asked for.
    pub criterion: FilterCriterion,
    /// VM sizes that are left.
    pub sizes: usize,
    /// VM sizes at a capacity type in a zone that are left.
    pub offerings: usize,
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterCriterion {
    /// Nothing: all that the pool may buy.
    Available,
    /// That a taint of the pool is tolerated.
    Taint(Arc<str>),
    /// A label, with what is asked of it.
    Label(Arc<str>, String),
    /// One of the terms of node affinity, or one of the places of a volume.
    Alternatives(usize),
    /// Room for the pod beside the daemons.
    Resources,
    /// The pool's limits.
    Limits,
    /// Azure's quotas.
    Quota,
    /// What is left of reservations.
    Reservation,
    /// Addresses of the subnet of its nodes.
    Subnet,
    /// The `minValues` of the pool.
    MinValues,
    /// Constraints on the pods in the same domain.
    Topology(UnschedulableReason),
}

impl fmt::Display for FilterCriterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available => f.write_str("available"),
            Self::Taint(key) => write!(f, "taint {key}"),
            Self::Label(key, asked) => write!(f, "{key} {asked}"),
            Self::Alternatives(number) => write!(f, "{number} alternative node affinity terms or volume zones"),
            Self::Resources => f.write_str("pod requests"),
            Self::Limits => f.write_str("NodePool limits"),
            Self::Quota => f.write_str("Azure quota"),
            Self::Reservation => f.write_str("capacity reservations"),
            Self::Subnet => f.write_str("free subnet addresses"),
            Self::MinValues => f.write_str("minValues"),
            Self::Topology(why) => write!(f, "{why}"),
        }
    }
}

/// In one line: what is left after each step.
impl fmt::Display for PoolFilterSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.pool)?;
        for (i, FilterStep { criterion: what, sizes, .. }) in self.steps.iter().enumerate() {
            let s = if *sizes == 1 { "" } else { "s" };
            match i {
                0 => write!(f, "{sizes} size{s} {what}")?,
                _ => write!(f, ", {sizes} after {what}")?,
            }
        }
        Ok(())
    }
}

/// The filter steps of all pools for pods of a class.
pub(crate) fn filter_steps(state: &mut SchedulingState, class: PodClassId) -> Vec<PoolFilterSteps> {
    let mut falls: Vec<PoolFilterSteps> = Vec::new();
    for pool in 0..state.open.candidate_sets.pool_count() {
        // What is left when all is looked at that the pool says itself is lost to `minValues` or to topology
        // constraints.
        let last = match why_not_of(state, class, pool) {
            Some(UnschedulableReason::MinValues { .. }) => FilterCriterion::MinValues,
            _ => FilterCriterion::Topology(state.topology_reason(class, pool)),
        };
        let fall = pool_filter_steps(state, class, state.open.candidate_sets.pool_offerings(pool), last);
        match falls.last_mut().filter(|before| before.pool == fall.pool) {
            // Of the variants of a pool the one that gets furthest speaks for it.
            Some(before) if before.steps.len() < fall.steps.len() => *before = fall,
            Some(_) => {}
            None => falls.push(fall),
        }
    }
    falls
}

fn pool_filter_steps(
    state: &SchedulingState,
    class: PodClassId,
    pool_offerings: &PoolOfferings,
    last: FilterCriterion,
) -> PoolFilterSteps {
    let filter = state.constraints.filters.get(state.constraints.classes.get(class).filter);
    let left = pool_offerings.candidates.iter().map(|candidate| candidate.zones).collect();
    let mut fall = FilterStepsBuilder { pool_offerings, steps: Vec::new(), left };
    fall.push_step(FilterCriterion::Available);
    if let Some(taint) = filter.untolerated(&pool_offerings.pool.taints) {
        fall.retain(FilterCriterion::Taint(Arc::clone(&taint.key)), |_| false);
    }
    for (key, asked) in filter.unconditional().flat_map(Requirements::iter) {
        let mut only = Requirements::new();
        only.add(key, asked.clone());
        let filter = NodeFilter { selector: only, ..tolerate_all() };
        fall.retain_zones(
            FilterCriterion::Label(Arc::clone(key), asked.to_string()),
            &pool_offerings.accepted_zones(&filter),
        );
    }
    for list in filter.alternatives.iter().filter(|list| list.len() > 1) {
        let filter = NodeFilter { alternatives: vec![list.clone()], ..tolerate_all() };
        fall.retain_zones(FilterCriterion::Alternatives(list.len()), &pool_offerings.accepted_zones(&filter));
    }
    let requests = state.constraints.classes.requests(class);
    let disks = state.constraints.classes.get(class).disks;
    let launch_limits = &state.open.limits;
    fall.retain(FilterCriterion::Resources, |c| c.holds(requests, disks));
    fall.retain(FilterCriterion::Limits, |c| launch_limits.within_limits(&pool_offerings.pool, &c.instance.capacity));
    fall.retain(FilterCriterion::Quota, |c| c.reservation.is_some() || launch_limits.quota_allows(c));
    fall.retain(FilterCriterion::Reservation, |c| launch_limits.quota_allows(c));
    fall.retain(FilterCriterion::Subnet, |_| launch_limits.subnets().allows(&pool_offerings.pool.class));
    fall.retain(last, |_| false);
    PoolFilterSteps { pool: pool_offerings.pool.name.clone(), steps: fall.steps }
}

struct FilterStepsBuilder<'o> {
    pool_offerings: &'o PoolOfferings,
    steps: Vec<FilterStep>,
    /// By candidate: bits of the zones that are left.
    left: Vec<u32>,
}

impl FilterStepsBuilder<'_> {
    /// Keeps the candidates of which something holds.
    fn retain(&mut self, what: FilterCriterion, holds: impl Fn(&InstanceCandidate) -> bool) {
        let zones: Vec<u32> =
            self.pool_offerings.candidates.iter().map(|c| if holds(c) { u32::MAX } else { 0 }).collect();
        self.retain_zones(what, &zones);
    }

    /// Keeps these zones of each candidate; a step that takes nothing away is none.
    fn retain_zones(&mut self, what: FilterCriterion, zones: &[u32]) {
        let before = self.count();
        self.left.iter_mut().zip(zones).for_each(|(left, zones)| *left &= zones);
        if self.count() != before {
            self.push_step(what);
        }
    }

    fn push_step(&mut self, what: FilterCriterion) {
        let (sizes, offerings) = self.count();
        self.steps.push(FilterStep { criterion: what, sizes, offerings });
    }

    /// Sizes and offerings that are left.
    fn count(&self) -> (usize, usize) {
        let left = self.pool_offerings.candidates.iter().zip(&self.left).filter(|(_, zones)| **zones != 0);
        let sizes: BTreeSet<_> = left.map(|(c, _)| &c.instance.facts.name).collect();
        (sizes.len(), self.left.iter().map(|zones| zones.count_ones() as usize).sum())
    }
}

/// A filter that asks for nothing, whatever the taints.
fn tolerate_all() -> NodeFilter {
    let any = Toleration { key: None, value: None, effect: None };
    NodeFilter {
        selector: Requirements::new(),
        alternatives: Vec::new(),
        tolerations: vec![any],
        avoid_prefer_no_schedule: false,
    }
}
