//! The waterfall of a pool: what of all that it may buy is left for pods of a kind, after each thing that they ask for?

use super::candidates::{Candidate, Offers};
use super::filter::NodeFilter;
use super::kinds::KindId;
use super::outcome::WhyNot;
use super::solve::Solver;
use crate::cluster::pod::Toleration;
use crate::names::NodePoolName;
use crate::requirements::Requirements;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What is left of a pool, step by step. The last step is the one that leaves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolWaterfall {
    /// The pool.
    pub pool: NodePoolName,
    /// The steps that take something away, after the first, which takes nothing.
    pub steps: Vec<PoolStep>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStep {
    /// What is asked for.
    pub what: StepWhat,
    /// VM sizes that are left.
    pub sizes: usize,
    /// VM sizes at a capacity type in a zone that are left.
    pub offerings: usize,
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepWhat {
    /// Nothing: all that the pool may buy.
    Offered,
    /// That a taint of the pool is tolerated.
    Taint(Arc<str>),
    /// A label, with what is asked of it.
    Label(Arc<str>, String),
    /// One of the terms of node affinity, or one of the places of a volume.
    Alternatives(usize),
    /// Room for the pod beside the daemons.
    Room,
    /// The pool's limits.
    Limits,
    /// Azure's quotas.
    Quota,
    /// Constraints on the pods in the same domain.
    Topology(WhyNot),
}

impl fmt::Display for StepWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered => f.write_str("on offer"),
            Self::Taint(key) => write!(f, "taint {key}"),
            Self::Label(key, asked) => write!(f, "{key} {asked}"),
            Self::Alternatives(1) => f.write_str("node affinity or a volume's place"),
            Self::Alternatives(number) => write!(f, "one of {number} terms of node affinity or places of a volume"),
            Self::Room => f.write_str("room for the pod"),
            Self::Limits => f.write_str("the pool's limits"),
            Self::Quota => f.write_str("Azure's quotas"),
            Self::Topology(why) => write!(f, "{why}"),
        }
    }
}

/// In one line: what is left after each step.
impl fmt::Display for PoolWaterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.pool)?;
        for (i, PoolStep { what, sizes, .. }) in self.steps.iter().enumerate() {
            let s = if *sizes == 1 { "" } else { "s" };
            match i {
                0 => write!(f, "{sizes} size{s} {what}")?,
                _ => write!(f, ", {sizes} after {what}")?,
            }
        }
        Ok(())
    }
}

/// Candidates that are left, with the bits of their zones.
type Left<'o> = Vec<(&'o Candidate, u32)>;

/// The waterfalls of all pools for pods of a kind.
pub(super) fn waterfalls(solver: &Solver, kind: KindId) -> Vec<PoolWaterfall> {
    let unmet = solver.unmet(kind);
    let pools = 0..solver.shop.choices.pools();
    pools.map(|pool| of_pool(solver, kind, solver.shop.choices.offers(pool), unmet.clone())).collect()
}

fn of_pool(solver: &Solver, kind: KindId, offers: &Offers, unmet: Option<WhyNot>) -> PoolWaterfall {
    let filter = solver.known.filters.get(solver.known.kinds.get(kind).filter);
    let mut fall = Fall { steps: Vec::new(), left: offers.candidates.iter().map(|c| (c, c.zones)).collect() };
    fall.note(StepWhat::Offered);
    if let Some(taint) = filter.untolerated(&offers.pool.taints) {
        fall.keep(StepWhat::Taint(Arc::clone(&taint.key)), |_, _| 0);
    }
    for (key, asked) in filter.selector.iter() {
        let mut only = Requirements::new();
        only.add(key, asked.clone());
        let accepted = accepted(offers, NodeFilter { selector: only, ..tolerant() });
        fall.keep(StepWhat::Label(Arc::clone(key), asked.to_string()), |c, zones| zones & accepted(c));
    }
    for list in &filter.alternatives {
        let accepted = accepted(offers, NodeFilter { alternatives: vec![list.clone()], ..tolerant() });
        fall.keep(StepWhat::Alternatives(list.len()), |c, zones| zones & accepted(c));
    }
    let requests = solver.known.kinds.requests(kind);
    let disks = solver.known.kinds.get(kind).disks;
    let allowance = &solver.shop.allowance;
    let when = |holds: bool, zones: u32| if holds { zones } else { 0 };
    fall.keep(StepWhat::Room, |c, zones| when(c.holds(requests, disks), zones));
    fall.keep(StepWhat::Limits, |c, zones| {
        when(allowance.within_limits(&offers.pool, &c.instance.capacity, None), zones)
    });
    fall.keep(StepWhat::Quota, |c, zones| when(allowance.quota_allows(c), zones));
    if let Some(why) = unmet {
        fall.keep(StepWhat::Topology(why), |_, _| 0);
    }
    PoolWaterfall { pool: offers.pool.name.clone(), steps: fall.steps }
}

struct Fall<'o> {
    steps: Vec<PoolStep>,
    left: Left<'o>,
}

impl<'o> Fall<'o> {
    /// Keeps what has zones left; a step that takes nothing away is none.
    fn keep(&mut self, what: StepWhat, zones: impl Fn(&'o Candidate, u32) -> u32) {
        if self.left.is_empty() {
            return;
        }
        let before = self.count();
        self.left = self.left.iter().map(|(c, open)| (*c, zones(c, *open))).filter(|(_, zones)| *zones != 0).collect();
        if self.count() != before {
            self.note(what);
        }
    }

    fn note(&mut self, what: StepWhat) {
        let (sizes, offerings) = self.count();
        self.steps.push(PoolStep { what, sizes, offerings });
    }

    /// Sizes and offerings that are left.
    fn count(&self) -> (usize, usize) {
        let sizes: BTreeSet<_> = self.left.iter().map(|(c, _)| &c.instance.facts.name).collect();
        (sizes.len(), self.left.iter().map(|(_, zones)| zones.count_ones() as usize).sum())
    }
}

/// A filter that asks for nothing, whatever the taints.
fn tolerant() -> NodeFilter {
    let any = Toleration { key: None, value: None, effect: None };
    NodeFilter { selector: Requirements::new(), alternatives: Vec::new(), tolerations: vec![any], avoids: false }
}

/// The zones of each candidate of a pool that a filter lets through.
fn accepted(offers: &Offers, filter: NodeFilter) -> impl Fn(&Candidate) -> u32 {
    let by_size: std::collections::BTreeMap<_, u32> = offers
        .candidates
        .iter()
        .zip(offers.accepted(&filter))
        .map(|(c, zones)| ((c.instance.facts.name.clone(), c.capacity_type), zones))
        .collect();
    move |c| by_size.get(&(c.instance.facts.name.clone(), c.capacity_type)).copied().unwrap_or(0)
}
