//! The methods: which command each of them would begin.

use super::balanced::{PoolTotals, approves, could_approve};
use super::budgets::{Allowed, take};
use super::candidates::{Candidate, sort};
use super::command::Command;
use super::consolidation::{below, cheapest, command, consolidate};
use crate::karpenter::Rules;
use crate::karpenter::scheduling::{PlannedClaim, Results};
use crate::karpenter::view::View;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::NodePoolName;
use std::collections::{BTreeMap, BTreeSet};

/// The binary search begins between two candidates and one more than this.
const MOST_AT_ONCE: usize = 100;

/// What a method has found.
#[derive(Debug)]
pub(in crate::karpenter) struct Found {
    pub(in crate::karpenter) command: Option<Command>,
    /// A budget kept it from some candidates, so that it looks again although nothing has changed.
    pub(in crate::karpenter) constrained: bool,
    /// There was something to look at: without candidates a method does not remember that it found nothing.
    pub(in crate::karpenter) had_candidates: bool,
}

/// What the methods of underutilized nodes look at beside their candidates.
#[derive(Debug, Clone, Copy)]
pub(in crate::karpenter) struct Scope<'s> {
    pub(in crate::karpenter) view: &'s View,
    pub(in crate::karpenter) rules: Rules,
    pub(in crate::karpenter) totals: &'s PoolTotals,
}

/// Deletes all empty nodes within their budgets.
pub(in crate::karpenter) fn emptiness(view: &View, mut candidates: Vec<Candidate<'_>>, mut allowed: Allowed) -> Found {
    sort(&mut candidates);
    let before = candidates.len();
    candidates.retain(|candidate| take(&mut allowed, candidate.pool()));
    let constrained = candidates.len() < before;
    let found = || command(&candidates, None, &Results::default(), view);
    Found { command: (!candidates.is_empty()).then(found), constrained, had_candidates: before > 0 }
}

/// The most candidates, in order, that can be deleted or replaced together, as a binary search finds it.
pub(in crate::karpenter) fn multi_node(
    scope: Scope<'_>,
    mut candidates: Vec<Candidate<'_>>,
    mut allowed: Allowed,
) -> Found {
    sort(&mut candidates);
    let before = candidates.len();
    candidates.retain(|candidate| take(&mut allowed, candidate.pool()));
    let constrained = candidates.len() < before;
    let mut found = Found { command: None, constrained, had_candidates: before > 0 };
    if candidates.len() < 2 {
        return found;
    }
    let (mut low, mut high) = (1, candidates.len().min(MOST_AT_ONCE));
    if candidates.len() <= high {
        high = candidates.len() - 1;
    }
    while low <= high {
        let middle = usize::midpoint(low, high);
        match together(scope, &candidates[..=middle]) {
            Some(command) => {
                found.command = Some(command);
                low = middle + 1;
            }
            None => high = middle - 1,
        }
    }
    found
}

/// The command for several candidates, if it makes sense.
fn together(scope: Scope<'_>, candidates: &[Candidate<'_>]) -> Option<Command> {
    let Scope { view, rules, totals } = scope;
    let mut command = consolidate(view, rules, candidates).ok()?;
    if let Some(replacement) = command.replacement.take() {
        let replacement = below(view, replacement.clone(), price_of_same(candidates, &replacement)).ok()?;
        command.replacement_price = cheapest(view, &replacement);
        command.replacement = Some(replacement);
    }
    approves(view, totals, &command).then_some(command)
}

/// Where the replacement could be of the type of one of the candidates, the price of the cheapest such: instead of
/// buying one that costs as much, that one is kept.
fn price_of_same(candidates: &[Candidate<'_>], replacement: &PlannedClaim) -> HourlyPrice {
    let same = candidates.iter().filter(|candidate| {
        let name = &candidate.claim.instance.facts.name;
        replacement.types.iter().any(|instance| instance.facts.name == *name)
    });
    same.map(|candidate| candidate.node.price()).min().unwrap_or(HourlyPrice::from_nanos(i64::MAX))
}

/// The first candidate that can be deleted or replaced, the pools in turn. `unseen` are pools that the last pass had no
/// time for, and become those of this one.
pub(in crate::karpenter) fn single_node(
    scope: Scope<'_>,
    candidates: Vec<Candidate<'_>>,
    allowed: &Allowed,
    unseen: &mut BTreeSet<NodePoolName>,
) -> Found {
    let Scope { view, rules, totals } = scope;
    let ordered = in_turn(candidates, unseen);
    let (mut constrained, had_candidates) = (false, !ordered.is_empty());
    for candidate in ordered {
        if allowed.get(candidate.pool()).is_none_or(|left| *left == 0) {
            constrained = true;
            continue;
        }
        if !could_approve(totals, &candidate) {
            continue;
        }
        let Ok(command) = consolidate(view, rules, std::slice::from_ref(&candidate)) else { continue };
        if approves(view, totals, &command) {
            return Found { command: Some(command), constrained, had_candidates: true };
        }
    }
    // Computing takes no time here, so that no pool is ever left out.
    unseen.clear();
    Found { command: None, constrained, had_candidates }
}

/// The best candidate of each pool, then the second best of each, and so on.
pub(in crate::karpenter) fn in_turn<'v>(
    mut candidates: Vec<Candidate<'v>>,
    unseen: &BTreeSet<NodePoolName>,
) -> Vec<Candidate<'v>> {
    sort(&mut candidates);
    let mut ranked: Vec<(usize, bool, &NodePoolName, Candidate<'v>)> = Vec::new();
    let mut ranks: BTreeMap<&NodePoolName, usize> = BTreeMap::new();
    for candidate in candidates {
        let pool = candidate.pool();
        let rank = ranks.entry(pool).or_default();
        ranked.push((*rank, !unseen.contains(pool), pool, candidate));
        *rank += 1;
    }
    ranked.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    ranked.into_iter().map(|(.., candidate)| candidate).collect()
}
