//! Carries out what has been found, if it still holds.

use super::super::candidate::Candidate;
use super::super::causes::ReplacementCause;
use super::super::replacement_loops::ReplacementLoops;
use super::super::{BUDGET_RETRY, VALIDATION_DELAY};
use super::components::Component;
use super::search::Pass;
use super::{Finding, Move};
use crate::catalog::CapacityType;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::Pod;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::replacement::{PoolCause, RecurringCause, Replacement};
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::plan::{Command, Preconditions};
use crate::provisioning::claim_draft;
use crate::scheduling::{NewNode, SchedulingResult, Target};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why the nodes of a move are replaced.
pub(super) struct MoveReason<'r> {
    /// The reason.
    pub(super) reason: DisruptionReason,
    /// Why each of them is outdated.
    pub(super) causes: &'r BTreeMap<ClaimName, ReplacementCause>,
    /// The number of the move in its pass.
    pub(super) number: usize,
    /// For people.
    pub(super) text: &'r str,
}

impl MoveReason<'_> {
    /// The cause for which the same may have to be done with what replaces a node.
    fn recurring(&self, source: &Candidate<'_>) -> Option<RecurringCause> {
        match self.reason {
            DisruptionReason::Underutilized => Some(RecurringCause::CONSOLIDATION),
            DisruptionReason::Empty
            | DisruptionReason::Drifted
            | DisruptionReason::Expiring
            | DisruptionReason::NodePoolDeleted => self.causes.get(&source.claim.name)?.recurring(source.pool),
        }
    }

    /// Why nodes of which NodePools are replaced, where what one of them shows is true of all.
    fn causes_of_pools(&self, sources: &[&Candidate<'_>]) -> BTreeSet<PoolCause> {
        let in_pool = |source: &&Candidate<'_>| {
            let cause = self.recurring(source).filter(|cause| cause.change.is_some())?;
            Some(cause.in_pool(&source.pool.name))
        };
        sources.iter().filter_map(in_pool).collect()
    }

    /// What the NodeClaim of each new node records: it goes on with the row of one of the nodes, the longest first.
    pub(super) fn replacements(
        &self,
        component: &Component<'_, '_>,
        loops: &ReplacementLoops,
        now: Timestamp,
    ) -> Vec<Option<Replacement>> {
        let row = |source: &&Candidate<'_>| {
            let record = source.claim.spec.replacement.as_ref()?;
            (Some(&record.cause) == self.recurring(source).as_ref()).then(|| record.count(source.claim))
        };
        let mut sources = component.sources.clone();
        sources.sort_by_key(|source| Reverse(row(source)));
        let record = |(i, node): (usize, &NewNode)| {
            if let Some(kept) = self.kept(&sources, node, loops) {
                return Some(kept.clone());
            }
            let source = sources.get(i).or_else(|| sources.last())?;
            let is_merged = component.new_nodes.len() < component.sources.len();
            let record = Replacement::after(source.claim, &self.recurring(source)?, is_merged, now);
            Some(loops.continued(&source.pool.name, record))
        };
        component.new_nodes.iter().enumerate().map(record).collect()
    }

    /// The record of one of these nodes that one of its own NodePool keeps, which replaces it for anything but its drift.
    fn kept<'s>(
        &self,
        sources: &'s [&Candidate<'_>],
        node: &NewNode,
        loops: &ReplacementLoops,
    ) -> Option<&'s Replacement> {
        let of_pool = sources.iter().filter(|source| source.pool.name == node.pool);
        let kept = of_pool.filter_map(|source| loops.kept(source.claim)).max_by_key(|record| record.in_a_row);
        kept.filter(|_| self.reason != DisruptionReason::Drifted)
    }
}

impl Pass<'_, '_, '_> {
    /// Deletes those of these nodes, whose pods fit on others, of which that has been so for long enough.
    pub(super) fn delete_together(&mut self, deletable: &[&Candidate<'_>]) {
        let now = self.search.now;
        self.memory.is_blocked = false;
        let mut deleted = Vec::new();
        for source in deletable {
            let since = self.memory.deletable_since.get(&source.claim.name).copied().unwrap_or(now);
            if since + VALIDATION_DELAY > now {
                self.retry(since + VALIDATION_DELAY);
            } else if self.budgets.consume(source, DisruptionReason::Underutilized) {
                deleted.push(*source);
            } else {
                self.memory.is_blocked = true;
                self.retry(now + BUDGET_RETRY);
            }
        }
        if deleted.is_empty() {
            return;
        }
        let Some(outcome) = self.simulation.without(&deleted, 0) else { return };
        let preconditions = Arc::new(self.preconditions(&deleted, &outcome));
        deleted.iter().for_each(|source| self.delete(source, &preconditions));
    }

    /// What the deletion of these nodes rests on.
    pub(super) fn preconditions(&self, deleted: &[&Candidate<'_>], outcome: &SchedulingResult) -> Preconditions {
        let moved = deleted.iter().flat_map(|source| &source.pods);
        let moved: BTreeMap<&ObjectKey, &Arc<Pod>> = moved.map(|pod| (&pod.key, pod)).collect();
        let mut destinations: BTreeMap<NodeName, Resources> = BTreeMap::new();
        for placement in &outcome.placements {
            if let (Target::Node(node), Some(pod)) = (&placement.target, moved.get(&placement.pod)) {
                destinations.entry(node.clone()).or_default().add(&pod.shape.requests);
            }
        }
        let nodes = deleted.iter().map(|source| &source.node.name);
        Preconditions { destinations, ..Preconditions::same_pods(self.search.snapshot, nodes) }
    }

    /// Simulates again what was found, beside nodes that are or may be deleted, and replaces what is still worth it.
    pub(super) fn carry_out(&mut self, candidates: &[&Candidate<'_>], deletable: &[&Candidate<'_>]) {
        let by_name: BTreeMap<&ClaimName, &Candidate<'_>> = candidates.iter().map(|c| (&c.claim.name, *c)).collect();
        let findings = std::mem::take(&mut self.memory.findings);
        let sources = |finding: &Finding| finding.sources.iter().map(|name| by_name.get(name).copied()).collect();
        let groups: Vec<Vec<&Candidate<'_>>> = findings.iter().filter_map(sources).collect();
        let simulation = self.simulation.beside(deletable);
        let new_nodes = groups.iter().map(Vec::len).sum();
        let sources = simulation.largest_set(Vec::new(), &groups, new_nodes).concat();
        if sources.is_empty() {
            return;
        }
        let components = self.filter.replacements(&simulation, &sources, sources.len());
        for (index, component) in components.into_iter().enumerate() {
            if self.budgets.consume_all(&component.sources, DisruptionReason::Underutilized) {
                let (pods, saving) = (component.pods(), component.saving());
                let text = format!("for {pods} pods saves {saving}/h");
                let (reason, causes) = (DisruptionReason::Underutilized, &BTreeMap::new());
                self.start(component, &MoveReason { reason, causes, number: index, text: &text });
            } else {
                self.retry(self.search.now + BUDGET_RETRY);
            }
        }
    }

    /// Begins a move of nodes of which none waits in a loop of replacements. False if nothing may be launched for it.
    pub(super) fn start(&mut self, component: Component<'_, '_>, why: &MoveReason<'_>) -> bool {
        let causes = why.causes_of_pools(&component.sources);
        if !self.may_launch(&component.new_nodes, why.reason) {
            return false;
        }
        let worth_from = component.worth_from(self.search.now);
        let records = why.replacements(&component, self.search.loops, self.search.now);
        let old: Vec<&str> = component.sources.iter().map(|source| source.node.name.as_str()).collect();
        let mut drafts = Vec::new();
        for (i, (node, record)) in component.new_nodes.into_iter().zip(records).enumerate() {
            let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
            let text = format!("replacing {} with {best} {}", old.join(", "), why.text);
            let number = usize::MAX - why.number * 1_000 - i;
            let Some(mut draft) = claim_draft(self.search.snapshot, node, self.search.seed, self.search.now, number)
            else {
                return false;
            };
            draft.spec.replaces = component.sources.iter().map(|source| source.claim.name.clone()).collect();
            draft.spec.replacement = record;
            draft.reason = Some(why.reason);
            drafts.push((draft, text));
        }
        let names: Vec<ClaimName> = drafts.iter().map(|(draft, _)| draft.name.clone()).collect();
        for (draft, _) in &mut drafts {
            draft.spec.replaces_with = names.iter().filter(|name| **name != draft.name).cloned().collect();
        }
        let sources: Vec<_> = component.sources.iter().map(|source| source.claim.reference()).collect();
        let Some(first) = sources.first().map(|source| source.name.clone()) else { return false };
        let (reason, since) = (why.reason, self.search.now);
        let (replacements, planned) = Default::default();
        let one = Move { sources, reason, drafts, replacements, planned, since, worth_from, causes };
        self.memory.moves.insert(first, one);
        true
    }

    /// True if these nodes may be launched. The one node that a NodePool tries after failures is for pods that wait, or for what is
    /// outdated: a corrected image may be what is tried.
    fn may_launch(&self, new_nodes: &[NewNode], reason: DisruptionReason) -> bool {
        let snapshot = self.search.snapshot;
        let is_outdated = reason.is_outdated();
        let has_begun = |node: &NewNode| {
            let mut drafts = self.memory.moves.values().flat_map(|one| &one.drafts);
            drafts.any(|(draft, _)| draft.spec.pool.as_ref() == Some(&node.pool))
        };
        let is_the_one = |node: &NewNode| {
            is_outdated && new_nodes.len() == 1 && snapshot.tries_one_node(&node.pool) && !has_begun(node)
        };
        let may = |node: &NewNode| !snapshot.pool_holds.contains_key(&node.pool) || is_the_one(node);
        !snapshot.holds_launches(self.search.now) && new_nodes.iter().all(may)
    }

    fn delete(&mut self, source: &Candidate<'_>, preconditions: &Arc<Preconditions>) {
        let category = DisruptionReason::Underutilized.category();
        let command = Command::delete_claim(source.claim.reference(), category);
        let gain = match source.capacity_type {
            CapacityType::Reserved => "frees reserved capacity".to_owned(),
            CapacityType::Spot | CapacityType::OnDemand => format!("saves {}/h", source.price),
        };
        let pods = source.pods.len();
        let fit = if pods == 1 { "its pod can move to".to_owned() } else { format!("its {pods} pods can move to") };
        self.plan.push_if(preconditions, command, format!("{fit} other nodes, which {gain}"));
    }
}
