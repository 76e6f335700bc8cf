//! How many offerings of a NodePool remain after each scheduling criterion.

use crate::model::cluster::pod::Toleration;
use crate::model::names::NodePoolName;
use crate::model::requirements::Requirements;
use crate::scheduling::explain::unschedulable::pool_reason;
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::pods::pod_class::PodClassId;
use crate::scheduling::result::UnschedulableReason;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The remaining offerings of a pool, step by step. Nothing remains after the last step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFilterSteps {
    /// The pool.
    pub pool: NodePoolName,
    /// All available offerings, then the steps that remove some.
    pub steps: Vec<FilterStep>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterStep {
    /// The criterion.
    pub criterion: FilterCriterion,
    /// VM sizes that remain.
    pub sizes: usize,
    /// Offerings that remain.
    pub offerings: usize,
}

/// The criterion of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterCriterion {
    /// None: everything that the pool may launch.
    Available,
    /// A taint of the pool.
    Taint(Arc<str>),
    /// A label, with the requirement on it.
    Label(Arc<str>, String),
    /// The node affinity terms, or the zones of a volume.
    Alternatives(usize),
    /// The pod's requests, beside those of DaemonSets.
    Resources,
    /// The pool's limits.
    Limits,
    /// Azure's quotas.
    Quota,
    /// Capacity reservations.
    Reservation,
    /// Free addresses of the subnet.
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
            Self::Label(key, requirement) => write!(f, "{key} {requirement}"),
            Self::Alternatives(number) => write!(f, "{number} alternative node affinity terms or volume zones"),
            Self::Resources => f.write_str("pod requests"),
            Self::Limits => f.write_str("NodePool limits"),
            Self::Quota => f.write_str("Azure quota"),
            Self::Reservation => f.write_str("capacity reservations"),
            Self::Subnet => f.write_str("free subnet addresses"),
            Self::MinValues => f.write_str("minValues"),
            Self::Topology(reason) => write!(f, "{reason}"),
        }
    }
}

/// One line: what remains after each step.
impl fmt::Display for PoolFilterSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.pool)?;
        for (i, FilterStep { criterion, sizes, .. }) in self.steps.iter().enumerate() {
            let s = if *sizes == 1 { "" } else { "s" };
            match i {
                0 => write!(f, "{sizes} size{s} {criterion}")?,
                _ => write!(f, ", {sizes} after {criterion}")?,
            }
        }
        Ok(())
    }
}

/// The filter steps of all pools for pods of a class.
pub(crate) fn filter_steps(state: &mut SchedulingState, class: PodClassId) -> Vec<PoolFilterSteps> {
    let mut all: Vec<PoolFilterSteps> = Vec::new();
    for pool in 0..state.open.candidate_sets.pool_count() {
        // Offerings that remain after all other steps fail `minValues` or topology constraints.
        let last = match pool_reason(state, class, pool) {
            Some(UnschedulableReason::MinValues { .. }) => FilterCriterion::MinValues,
            _ => FilterCriterion::Topology(state.topology_reason(class, pool)),
        };
        let steps = pool_filter_steps(state, class, state.open.candidate_sets.pool_offerings(pool), last);
        match all.last_mut().filter(|before| before.pool == steps.pool) {
            // A pool is represented by the variant that passes the most steps.
            Some(before) if before.steps.len() < steps.steps.len() => *before = steps,
            Some(_) => {}
            None => all.push(steps),
        }
    }
    all
}

fn pool_filter_steps(
    state: &SchedulingState,
    class: PodClassId,
    pool_offerings: &PoolOfferings,
    last: FilterCriterion,
) -> PoolFilterSteps {
    let filter = state.constraints.filters.get(state.constraints.classes.get(class).filter);
    let left = pool_offerings.candidates.iter().map(|candidate| candidate.zones).collect();
    let mut builder = FilterStepsBuilder { pool_offerings, steps: Vec::new(), left };
    builder.push_step(FilterCriterion::Available);
    if let Some(taint) = filter.untolerated(&pool_offerings.pool.taints) {
        builder.retain(FilterCriterion::Taint(Arc::clone(&taint.key)), |_| false);
    }
    for (key, requirement) in filter.unconditional().flat_map(Requirements::iter) {
        let mut only = Requirements::new();
        only.add(key, requirement.clone());
        let filter = NodeFilter { selector: only, ..tolerate_all() };
        builder.retain_zones(
            FilterCriterion::Label(Arc::clone(key), requirement.to_string()),
            &pool_offerings.accepted_zones(&filter),
        );
    }
    for list in filter.alternatives.iter().filter(|list| list.len() > 1) {
        let filter = NodeFilter { alternatives: vec![list.clone()], ..tolerate_all() };
        builder.retain_zones(FilterCriterion::Alternatives(list.len()), &pool_offerings.accepted_zones(&filter));
    }
    let requests = state.constraints.classes.requests(class);
    let disks = state.constraints.classes.get(class).disks;
    let launch_limits = &state.open.limits;
    builder.retain(FilterCriterion::Resources, |c| c.holds(requests, disks));
    builder
        .retain(FilterCriterion::Limits, |c| launch_limits.within_limits(&pool_offerings.pool, &c.instance.capacity));
    builder.retain(FilterCriterion::Quota, |c| c.reservation.is_some() || launch_limits.quota_allows(c));
    builder.retain(FilterCriterion::Reservation, |c| launch_limits.quota_allows(c));
    builder.retain(FilterCriterion::Subnet, |_| launch_limits.subnets().allows(&pool_offerings.pool.class));
    builder.retain(last, |_| false);
    PoolFilterSteps { pool: pool_offerings.pool.name.clone(), steps: builder.steps }
}

struct FilterStepsBuilder<'o> {
    pool_offerings: &'o PoolOfferings,
    steps: Vec<FilterStep>,
    /// By candidate: bits of the zones that remain.
    left: Vec<u32>,
}

impl FilterStepsBuilder<'_> {
    /// Retains the candidates that satisfy a predicate.
    fn retain(&mut self, criterion: FilterCriterion, holds: impl Fn(&InstanceCandidate) -> bool) {
        let zones: Vec<u32> =
            self.pool_offerings.candidates.iter().map(|c| if holds(c) { u32::MAX } else { 0 }).collect();
        self.retain_zones(criterion, &zones);
    }

    /// Retains these zones of each candidate. A step is added only if that removes something.
    fn retain_zones(&mut self, criterion: FilterCriterion, zones: &[u32]) {
        let before = self.count();
        self.left.iter_mut().zip(zones).for_each(|(left, zones)| *left &= zones);
        if self.count() != before {
            self.push_step(criterion);
        }
    }

    fn push_step(&mut self, criterion: FilterCriterion) {
        let (sizes, offerings) = self.count();
        self.steps.push(FilterStep { criterion, sizes, offerings });
    }

    /// Sizes and offerings that remain.
    fn count(&self) -> (usize, usize) {
        let left = self.pool_offerings.candidates.iter().zip(&self.left).filter(|(_, zones)| **zones != 0);
        let sizes: BTreeSet<_> = left.map(|(c, _)| &c.instance.facts.name).collect();
        (sizes.len(), self.left.iter().map(|zones| zones.count_ones() as usize).sum())
    }
}

/// A filter that requires nothing and tolerates all taints.
fn tolerate_all() -> NodeFilter {
    let any = Toleration { key: None, value: None, effect: None };
    NodeFilter {
        selector: Requirements::new(),
        alternatives: Vec::new(),
        tolerations: vec![any],
        avoid_prefer_no_schedule: false,
    }
}
