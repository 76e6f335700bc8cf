//! The policy Balanced: a command must save a share of its pool's cost that is worth the share of its pods disrupted.

use super::candidates::{Candidate, cost_of, in_nanos};
use super::command::Command;
use crate::karpenter::view::View;
use napkeeper_core::model::cluster::pool::ConsolidationPolicy;
use napkeeper_core::model::names::NodePoolName;
use std::collections::BTreeMap;

/// A command is approved when it saves at least one such part of what it disrupts.
const K: f64 = 2.0;

/// What a whole pool costs, and what disrupting all of it would.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::karpenter) struct Totals {
    /// Nano-USD an hour.
    pub(in crate::karpenter) price: f64,
    /// In the units of [`Candidate::cost`].
    pub(in crate::karpenter) cost: f64,
}

/// Totals of the pools with candidates. Nodes that are no candidates count in them too.
pub(in crate::karpenter) type PoolTotals = BTreeMap<NodePoolName, Totals>;

/// The totals, given all candidates.
pub(in crate::karpenter) fn totals(view: &View, candidates: &[Candidate<'_>]) -> PoolTotals {
    let mut all: PoolTotals = BTreeMap::new();
    for candidate in candidates {
        all.entry(candidate.pool().clone()).or_insert(Totals { price: 0.0, cost: 0.0 });
    }
    // Candidates are in the order of the nodes.
    let mut candidates = candidates.iter().peekable();
    for node in &view.nodes {
        let candidate = candidates.next_if(|candidate| candidate.node.name == node.name);
        let Some(claim) = &node.claim else { continue };
        let Some(totals) = all.get_mut(&claim.pool) else { continue };
        totals.price += in_nanos(node);
        totals.cost += candidate.map_or_else(|| cost_of(node), |candidate| candidate.cost);
    }
    all
}

/// The share of the cost saved, by the share of pods disrupted.
pub(in crate::karpenter) fn score(savings: f64, cost: f64, totals: Totals) -> f64 {
    if totals.price <= 0.0 || totals.cost <= 0.0 {
        return 0.0;
    }
    let (saved, disrupted) = (savings / totals.price, cost / totals.cost);
    if saved <= 0.0 {
        return 0.0;
    }
    if disrupted == 0.0 { f64::INFINITY } else { saved / disrupted }
}

/// The score is high enough.
pub(in crate::karpenter) fn is_approved(score: f64) -> bool {
    score >= 1.0 / K
}

/// Every pool of the command with this policy approves it. What a command saves is split over its pools by the price of
/// their nodes.
pub(in crate::karpenter) fn approves(view: &View, totals: &PoolTotals, command: &Command) -> bool {
    let all: f64 = command.prices.values().sum();
    let is_balanced = |name: &NodePoolName| {
        view.pool(name).is_some_and(|options| options.pool.disruption.policy == ConsolidationPolicy::Balanced)
    };
    command.prices.iter().filter(|(name, _)| is_balanced(name)).all(|(name, price)| {
        let share = if command.prices.len() > 1 && all > 0.0 { price / all } else { 1.0 };
        let cost = command.costs.get(name).copied().unwrap_or(0.0);
        let totals = totals.get(name).copied().unwrap_or(Totals { price: 0.0, cost: 0.0 });
        is_approved(score(command.savings() * share, cost, totals))
    })
}

/// Deleting the candidate, which saves the most, would be approved.
pub(in crate::karpenter) fn could_approve(totals: &PoolTotals, candidate: &Candidate<'_>) -> bool {
    if candidate.policy() != ConsolidationPolicy::Balanced {
        return true;
    }
    let totals = totals.get(candidate.pool()).filter(|totals| totals.price > 0.0);
    totals.is_none_or(|totals| is_approved(score(candidate.price, candidate.cost, *totals)))
}
