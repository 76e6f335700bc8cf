//! The waterfall of a pool: what of all that it may buy is left for pods of a kind, after each thing that they ask for?

use super::candidates::{Candidate, Offers};
use super::filter::NodeFilter;
use super::kinds::KindId;
use super::outcome::WhyNot;
use super::solve::Solver;
use super::why::of_pool as why_not_of;
use crate::model::cluster::pod::Toleration;
use crate::model::names::NodePoolName;
use crate::model::requirements::Requirements;
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
    /// What is left of reservations.
    Reservation,
    /// Addresses of the subnet of its nodes.
    Subnet,
    /// The variety that the pool asks for by `minValues`.
    Variety,
    /// Constraints on the pods in the same domain.
    Topology(WhyNot),
}

impl fmt::Display for StepWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered => f.write_str("available"),
            Self::Taint(key) => write!(f, "taint {key}"),
            Self::Label(key, asked) => write!(f, "{key} {asked}"),
            Self::Alternatives(number) => write!(f, "{number} alternative node affinity terms or volume zones"),
            Self::Room => f.write_str("pod requests"),
            Self::Limits => f.write_str("NodePool limits"),
            Self::Quota => f.write_str("Azure quota"),
            Self::Reservation => f.write_str("capacity reservations"),
            Self::Subnet => f.write_str("free subnet addresses"),
            Self::Variety => f.write_str("minValues"),
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

/// The waterfalls of all pools for pods of a kind.
pub(super) fn waterfalls(solver: &mut Solver, kind: KindId) -> Vec<PoolWaterfall> {
    let mut falls: Vec<PoolWaterfall> = Vec::new();
    for pool in 0..solver.shop.choices.pools() {
        // What is left when all is looked at that the pool says itself is lost to variety or to neighbours.
        let last = match why_not_of(solver, kind, pool) {
            Some(WhyNot::MinValues { .. }) => StepWhat::Variety,
            _ => StepWhat::Topology(solver.unmet(kind, pool)),
        };
        let fall = of_pool(solver, kind, solver.shop.choices.offers(pool), last);
        match falls.last_mut().filter(|before| before.pool == fall.pool) {
            // Of the variants of a pool the one that gets furthest speaks for it.
            Some(before) if before.steps.len() < fall.steps.len() => *before = fall,
            Some(_) => {}
            None => falls.push(fall),
        }
    }
    falls
}

fn of_pool(solver: &Solver, kind: KindId, offers: &Offers, last: StepWhat) -> PoolWaterfall {
    let filter = solver.known.filters.get(solver.known.kinds.get(kind).filter);
    let left = offers.candidates.iter().map(|candidate| candidate.zones).collect();
    let mut fall = Fall { offers, steps: Vec::new(), left };
    fall.note(StepWhat::Offered);
    if let Some(taint) = filter.untolerated(&offers.pool.taints) {
        fall.keep(StepWhat::Taint(Arc::clone(&taint.key)), |_| false);
    }
    for (key, asked) in filter.certain().flat_map(Requirements::iter) {
        let mut only = Requirements::new();
        only.add(key, asked.clone());
        let filter = NodeFilter { selector: only, ..tolerant() };
        fall.keep_zones(StepWhat::Label(Arc::clone(key), asked.to_string()), &offers.accepted(&filter));
    }
    for list in filter.alternatives.iter().filter(|list| list.len() > 1) {
        let filter = NodeFilter { alternatives: vec![list.clone()], ..tolerant() };
        fall.keep_zones(StepWhat::Alternatives(list.len()), &offers.accepted(&filter));
    }
    let requests = solver.known.kinds.requests(kind);
    let disks = solver.known.kinds.get(kind).disks;
    let allowance = &solver.shop.allowance;
    fall.keep(StepWhat::Room, |c| c.holds(requests, disks));
    fall.keep(StepWhat::Limits, |c| allowance.within_limits(&offers.pool, &c.instance.capacity));
    fall.keep(StepWhat::Quota, |c| c.reserved.is_some() || allowance.quota_allows(c));
    fall.keep(StepWhat::Reservation, |c| allowance.quota_allows(c));
    fall.keep(StepWhat::Subnet, |_| allowance.addresses().allows(&offers.pool.class));
    fall.keep(last, |_| false);
    PoolWaterfall { pool: offers.pool.name.clone(), steps: fall.steps }
}

struct Fall<'o> {
    offers: &'o Offers,
    steps: Vec<PoolStep>,
    /// By candidate: bits of the zones that are left.
    left: Vec<u32>,
}

impl Fall<'_> {
    /// Keeps the candidates of which something holds.
    fn keep(&mut self, what: StepWhat, holds: impl Fn(&Candidate) -> bool) {
        let zones: Vec<u32> = self.offers.candidates.iter().map(|c| if holds(c) { u32::MAX } else { 0 }).collect();
        self.keep_zones(what, &zones);
    }

    /// Keeps these zones of each candidate; a step that takes nothing away is none.
    fn keep_zones(&mut self, what: StepWhat, zones: &[u32]) {
        let before = self.count();
        self.left.iter_mut().zip(zones).for_each(|(left, zones)| *left &= zones);
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
        let left = self.offers.candidates.iter().zip(&self.left).filter(|(_, zones)| **zones != 0);
        let sizes: BTreeSet<_> = left.map(|(c, _)| &c.instance.facts.name).collect();
        (sizes.len(), self.left.iter().map(|zones| zones.count_ones() as usize).sum())
    }
}

/// A filter that asks for nothing, whatever the taints.
fn tolerant() -> NodeFilter {
    let any = Toleration { key: None, value: None, effect: None };
    NodeFilter { selector: Requirements::new(), alternatives: Vec::new(), tolerations: vec![any], avoids: false }
}
