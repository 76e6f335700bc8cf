//! Takes away outdated nodes, which have drifted or expire soon: those whose pods fit on others at once, others once their
//! replacements are ready.
//!
//! It costs what it costs: nothing is compared with prices, and as in Karpenter nothing has to hold for a while.

use super::super::BUDGET_RETRY;
use super::super::budget::RemainingBudgets;
use super::super::causes::ReplacementCause;
use super::carry_out::MoveReason;
use super::search::{Pass, Search, each};
use super::{Candidate, FailedAttempt, MoveMemory, names_of};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName};
use crate::plan::{Command, Plan};
use crate::scheduling::MAX_NEW_NODES;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most nodes that are simulated together in one pass.
const MAX_SOURCES: usize = 100;
/// How soon a node is tried again that could not be replaced.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Of how many nodes that could not be replaced one pass finds out why, as each costs a simulation; but for those of deleted
/// NodePools, which nothing else replaces.
const MAX_EXAMINED: usize = 5;

/// Nodes that are outdated for one reason.
pub(in crate::disruption) struct Outdated<'c, 'a> {
    /// The reason.
    pub(in crate::disruption) reason: DisruptionReason,
    /// Those that may be disrupted, in order.
    pub(in crate::disruption) candidates: &'c [Candidate<'a>],
    /// Why each is replaced.
    pub(in crate::disruption) causes: &'c BTreeMap<ClaimName, ReplacementCause>,
    /// Nodes that are being deleted anyway.
    pub(in crate::disruption) leaving: BTreeSet<NodeName>,
}

/// Begins to take away as many outdated nodes as budgets allow, true if there are any.
pub(in crate::disruption) fn replace_outdated(
    search: &Search<'_>,
    outdated: Outdated<'_, '_>,
    memory: &mut MoveMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) -> bool {
    let Outdated { reason, candidates, causes, leaving } = outdated;
    let mut left = budgets.clone();
    let (mut allowed, mut is_waiting) = (Vec::new(), false);
    // One that pods of a move will go to is replaced after that.
    let is_free = |one: &&Candidate<'_>| !memory.holds(one.claim) && !search.reserved.is_on(&one.node.name);
    let candidates = candidates.iter().filter(is_free);
    for candidate in one_of_each_loop(candidates, search, causes, memory) {
        if allowed.len() < MAX_SOURCES
            && !tried_lately(memory, candidate, search.now)
            && left.consume(candidate, reason)
        {
            allowed.push(candidate);
        } else {
            is_waiting = true;
        }
    }
    if is_waiting {
        plan.wake_at(search.now + BUDGET_RETRY);
    }
    if allowed.is_empty() {
        return false;
    }
    plan.wake_at(search.now + search.settings.disruption_poll_interval);
    if memory.creates_soon(search.snapshot, search.now) {
        return false;
    }
    let simulation = search.simulation(leaving);
    memory.awaits_launch = simulation.is_none();
    let Some(simulation) = simulation else { return false };
    Pass::new(search, simulation, memory, budgets, plan).replace(&allowed, reason, causes)
}

fn tried_lately(memory: &MoveMemory, candidate: &Candidate<'_>, now: Timestamp) -> bool {
    let tried = memory.irreplaceable.get(&candidate.claim.name);
    tried.is_some_and(|tried| now.duration_since(tried.at).abs() < RETRY_AFTER)
}

/// These nodes, but of those that are replaced again and again for one cause none while the next replacement waits, and then
/// one.
fn one_of_each_loop<'c, 'a>(
    candidates: impl Iterator<Item = &'c Candidate<'a>>,
    search: &Search<'_>,
    causes: &BTreeMap<ClaimName, ReplacementCause>,
    memory: &MoveMemory,
) -> Vec<&'c Candidate<'a>> {
    if search.loops.is_empty() {
        return candidates.collect();
    }
    let mut tried = BTreeSet::new();
    let is_next = |candidate: &&Candidate<'_>| {
        let cause = causes.get(&candidate.claim.name).and_then(|cause| cause.recurring(candidate.pool));
        let Some(cause) = cause.map(|cause| cause.in_pool(&candidate.pool.name)) else { return true };
        let Some(found) = search.loops.get(&cause) else { return true };
        let is_due = !found.waits && !memory.replaces_for(&cause);
        is_due && !tried_lately(memory, candidate, search.now) && tried.insert(cause)
    };
    candidates.filter(is_next).collect()
}

impl Pass<'_, '_, '_> {
    /// Takes away as many of these nodes as can be; true if there are any.
    fn replace(
        &mut self,
        allowed: &[&Candidate<'_>],
        reason: DisruptionReason,
        causes: &BTreeMap<ClaimName, ReplacementCause>,
    ) -> bool {
        let sources = self.simulation.largest_set(Vec::new(), &each(allowed.to_vec()), MAX_NEW_NODES).concat();
        let moves = self.filter.all_moves(&self.simulation, &sources, MAX_NEW_NODES);
        let (replaced, deleted): (Vec<_>, Vec<_>) = moves.into_iter().partition(|found| !found.new_nodes.is_empty());
        let mut begun: BTreeSet<ClaimName> = BTreeSet::new();
        let replaced_sources: Vec<&Candidate<'_>> = replaced.iter().flat_map(|found| found.sources.clone()).collect();
        for (index, found) in replaced.into_iter().enumerate() {
            let names = names_of(&found.sources);
            let text = why(&found.sources, causes);
            let why = MoveReason { reason, causes, number: index, text: &text };
            if self.budgets.consume_all(&found.sources, reason) && self.start(found, &why) {
                begun.extend(names);
            }
        }
        let groups = deleted.into_iter().map(|found| found.sources).collect();
        begun.extend(self.delete_outdated(groups, &replaced_sources, reason, causes));
        let known = |name: &ClaimName, memory: &MoveMemory| memory.irreplaceable.get(name)?.kept_by.clone();
        let is_unknown =
            |c: &&&Candidate<'_>| !begun.contains(&c.claim.name) && known(&c.claim.name, self.memory).is_none();
        // Those first of which nothing has been found out yet.
        let unknown = allowed.iter().filter(is_unknown).count().min(MAX_EXAMINED);
        let mut left = [MAX_EXAMINED - unknown, unknown];
        for candidate in allowed {
            if begun.contains(&candidate.claim.name) {
                self.memory.irreplaceable.remove(&candidate.claim.name);
                continue;
            }
            let before = known(&candidate.claim.name, self.memory);
            let left = &mut left[usize::from(before.is_none())];
            let is_examined = *left > 0 || reason == DisruptionReason::NodePoolDeleted;
            *left = left.saturating_sub(1);
            let kept_by = if is_examined { self.simulation.pod_without_room(candidate) } else { before };
            let tried = FailedAttempt { at: self.search.now, kept_by };
            self.memory.irreplaceable.insert(candidate.claim.name.clone(), tried);
        }
        !begun.is_empty()
    }

    /// Deletes those of these nodes whose pods find room on others however they are placed, but not on these others, which are
    /// going to be replaced.
    fn delete_outdated(
        &mut self,
        groups: Vec<Vec<&Candidate<'_>>>,
        others: &[&Candidate<'_>],
        reason: DisruptionReason,
        causes: &BTreeMap<ClaimName, ReplacementCause>,
    ) -> BTreeSet<ClaimName> {
        let simulation = self.simulation.excluding(others);
        let mut groups = simulation.largest_set(Vec::new(), &groups, 0);
        groups.retain(|group| self.budgets.consume_all(group, reason));
        let sources = groups.concat();
        if sources.is_empty() {
            return BTreeSet::new();
        }
        let Some(outcome) = simulation.without(&sources, 0) else { return BTreeSet::new() };
        let preconditions = Arc::new(self.preconditions(&sources, &outcome));
        for source in &sources {
            let command = Command::delete_claim(source.claim.reference(), reason.category());
            self.plan.push_if(&preconditions, command, why(&[*source], causes));
        }
        names_of(&sources)
    }
}

/// Why the nodes of a move are replaced, for people.
fn why(sources: &[&Candidate<'_>], causes: &BTreeMap<ClaimName, ReplacementCause>) -> String {
    let causes = sources.iter().filter_map(|source| causes.get(&source.claim.name));
    let texts: BTreeSet<String> = causes.map(ToString::to_string).collect();
    format!("because of {}", texts.into_iter().collect::<Vec<_>>().join("; "))
}
