//! Takes away outdated nodes, which have drifted or expire soon: those whose pods fit on others at once, others once their
//! replacements are ready.
//!
//! It costs what it costs: nothing is compared with prices, and as in Karpenter nothing has to hold for a while.

use super::super::cause::ReplacementCause;
use super::super::{BUDGET_RETRY, RemainingBudgets};
use super::components::Component;
use super::search::{Pass, Search, each};
use super::{Candidate, MoveMemory};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName};
use crate::plan::{Command, Plan};
use crate::scheduling::MAX_NEW_NODES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    let mut candidates: Vec<_> = candidates.iter().filter(|candidate| !memory.holds(candidate.claim)).collect();
    // Those that could not be replaced lately wait until the others have been tried.
    candidates.sort_by_key(|candidate| memory.irreplaceable.get(&candidate.claim.name).copied());
    let mut left = budgets.clone();
    let (allowed, kept): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| left.consume(candidate, reason));
    if !kept.is_empty() {
        plan.wake_at(search.now + BUDGET_RETRY);
    }
    if allowed.is_empty() {
        return false;
    }
    plan.wake_at(search.now + search.settings.disruption_poll_interval);
    let Some(simulation) = search.simulation(leaving) else { return false };
    Pass::new(search, simulation, memory, budgets, plan).replace(&allowed, reason, causes)
}

impl Pass<'_, '_, '_> {
    fn replace(
        &mut self,
        allowed: &[&Candidate<'_>],
        reason: DisruptionReason,
        causes: &BTreeMap<ClaimName, ReplacementCause>,
    ) -> bool {
        let sources = self.simulation.largest_set(Vec::new(), &each(allowed.to_vec()), MAX_NEW_NODES).concat();
        let found: BTreeSet<&ClaimName> = sources.iter().map(|source| &source.claim.name).collect();
        for candidate in allowed.iter().filter(|candidate| !found.contains(&candidate.claim.name)) {
            self.memory.irreplaceable.insert(candidate.claim.name.clone(), self.search.now);
        }
        let moves = self.filter.all_moves(&self.simulation, &sources, MAX_NEW_NODES);
        let any = !moves.is_empty();
        for (index, found) in moves.into_iter().enumerate() {
            if !self.budgets.consume_all(&found.sources, reason) {
                continue;
            }
            let why = why(&found, causes);
            if found.new_nodes.is_empty() {
                self.delete_outdated(&found, reason, &why);
            } else {
                self.start(found, reason, (index, &why));
            }
        }
        any
    }

    fn delete_outdated(&mut self, found: &Component<'_, '_>, reason: DisruptionReason, why: &str) {
        let Some(outcome) = self.simulation.without(&found.sources, 0) else { return };
        let preconditions = Arc::new(self.preconditions(&found.sources, &outcome));
        for source in &found.sources {
            let command = Command::DeleteClaim { claim: source.claim.reference(), category: reason.category() };
            self.plan.push_if(&preconditions, command, why);
        }
    }
}

/// Why the nodes of a move are replaced, for people.
fn why(found: &Component<'_, '_>, causes: &BTreeMap<ClaimName, ReplacementCause>) -> String {
    let causes = found.sources.iter().filter_map(|source| causes.get(&source.claim.name));
    let texts: BTreeSet<String> = causes.map(ToString::to_string).collect();
    format!("because of {}", texts.into_iter().collect::<Vec<_>>().join("; "))
}
