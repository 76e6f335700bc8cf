//! Moves: sets of nodes that are disrupted together, and the nodes that replace them.
//!
//! A move is found by a simulation (`search`), must hold in another one 15 s later, and is then carried out
//! (`progress`). Several that share nothing are carried out at once. Nodes that need no replacement are deleted. Those
//! that do are marked first, so that no pods come to them; then the replacements are created, and once these are ready
//! for pods, the old nodes are deleted. If that fails, the marks are removed.

mod carry_out;
mod components;
mod outdated;
mod payback;
mod progress;
mod reserved;
mod scatter;
mod search;
mod simulation;
mod soft_taints;
#[cfg(test)]
mod tests;

use super::VALIDATION_DELAY;
use super::candidate::Candidate;
use crate::model::cluster::claim::{Claim, ClaimRef};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::replacement::PoolCause;
use crate::model::labels::TAINT_DISRUPTED;
use crate::model::names::{ClaimName, NodePoolName, ObjectKey};
use crate::plan::ClaimDraft;
use crate::provisioning::StateGenerations;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
pub(super) use outdated::{Outdated, replace_outdated};
pub(super) use progress::continue_moves;
pub(super) use reserved::ReservedRoom;
pub(super) use search::{Candidates, Search, consolidate, deletion_worth_from};
pub use simulation::PodWithoutRoom;
pub(super) use simulation::SimulationInput;
pub(super) use soft_taints::soft_taint_deleted_pools;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A replacement that is not ready after this time has failed; the old nodes are kept.
pub(super) const REPLACEMENT_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
/// A NodeClaim that is not to be seen so long after its creation was requested was not created.
const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);
/// A write has taken effect and is to be seen so long after it was requested, also by an earlier run: kube-apiserver ends
/// requests after a minute.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);

/// Moves that are found or carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MoveMemory {
    /// Since when the pods of each of these nodes fit on others, together, as every pass has found. If lost, it counts from
    /// the next pass.
    deletable_since: BTreeMap<ClaimName, Timestamp>,
    /// When it becomes worth it to delete the next of them, if nothing changes. If lost, the next pass computes it again.
    worth_at: Option<Timestamp>,
    /// A budget keeps some of them.
    is_blocked: bool,
    /// In the last pass nothing was looked for, since pods waited for a node that is not launched yet.
    pub(super) awaits_launch: bool,
    /// Replacements that have been found and must hold. If lost, they must be found again.
    findings: Vec<Finding>,
    /// Moves with replacements that are carried out, by the first of their sources. They are durable: the sources carry
    /// the condition `DisruptionReason` and then the taint `karpenter.sh/disrupted`, and the replacements name them.
    moves: BTreeMap<ClaimName, Move>,
    /// Outdated nodes that were found to be without a replacement. If lost, they are tried before others once more.
    irreplaceable: BTreeMap<ClaimName, FailedAttempt>,
    /// Sources of moves that have failed, until their marks are removed. After a restart in between the moves fail again.
    failed: BTreeSet<ClaimName>,
    /// Since when the nodes of NodeClaims that are to be unmarked have had no taint. If lost, it counts from the next pass.
    untainted_since: BTreeMap<ClaimName, Timestamp>,
    /// The state in which nothing more was found, and when that is looked for again: more is worth it the longer nothing
    /// changes.
    exhausted: Option<(StateGenerations, Timestamp)>,
    /// How many nodes could be disrupted for each reason, by the last pass: for metrics. If lost, the next pass counts them.
    pub(super) eligible: BTreeMap<DisruptionReason, usize>,
    /// When each NodeClaim was last simulated alone without result, and in which state unless it is tried once more.
    pub(super) unconsolidatable: BTreeMap<ClaimName, (Timestamp, Option<StateGenerations>)>,
}

/// A node could not be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailedAttempt {
    /// When that was last tried.
    at: Timestamp,
    /// Which of its pods can be scheduled nowhere else, if that was asked.
    kept_by: Option<PodWithoutRoom>,
}

/// Nodes that others could replace together, by the names of their NodeClaims.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    sources: BTreeSet<ClaimName>,
    found_at: Timestamp,
}

/// A move with replacements that is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    /// What is deleted at its end.
    pub(crate) sources: Vec<ClaimRef>,
    /// Why.
    reason: DisruptionReason,
    /// What is created once the sources are marked, with the reason for people; empty once it is.
    pub(crate) drafts: Vec<(ClaimDraft, String)>,
    /// The replacements.
    replacements: Vec<ClaimName>,
    /// The pods for which each of them was planned. If lost, a simulation says where they go.
    planned: BTreeMap<ObjectKey, ClaimName>,
    /// When it began, or was found after a restart.
    since: Timestamp,
    /// Since when it has been worth what it costs, where it must be.
    pub(crate) worth_from: Option<Timestamp>,
    /// Why nodes of which NodePools are replaced, where that may recur. If lost, one more may be replaced for the same.
    causes: BTreeSet<PoolCause>,
}

impl Move {
    /// Its sources that are there and not being deleted.
    fn sources_left<'s>(&self, snapshot: &'s Snapshot) -> impl Iterator<Item = &'s Arc<Claim>> {
        let sources = self.sources.iter().filter_map(|source| snapshot.claims().get(&source.name));
        sources.filter(|claim| claim.deleting_at.is_none())
    }

    /// The disruption of a source is paused.
    fn is_paused(&self, snapshot: &Snapshot, now: Timestamp) -> bool {
        self.sources_left(snapshot).any(|claim| progress::is_paused(snapshot, claim, self.reason, now))
    }
}

impl MoveMemory {
    /// The move of which a node is a source.
    pub(super) fn move_of(&self, claim: &ClaimName) -> Option<&Move> {
        self.moves.values().find(|one| one.sources.iter().any(|source| source.name == *claim))
    }

    /// True while a node is of a move, or is still to be unmarked after one: it is not disrupted otherwise.
    pub(super) fn holds(&self, claim: &Claim) -> bool {
        self.involves(&claim.name) || claim.status.disrupted.is_some()
    }

    /// True while a node is a source or a replacement of a move.
    fn involves(&self, claim: &ClaimName) -> bool {
        let is_of = |one: &Move| one.sources.iter().any(|s| s.name == *claim) || one.replacements.contains(claim);
        self.moves.values().any(is_of)
    }

    /// A budget keeps nodes that would be deleted.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// A node of this NodePool is being replaced for this cause.
    fn replaces_for(&self, cause: &PoolCause) -> bool {
        self.moves.values().any(|one| one.causes.contains(cause))
    }

    /// When the findings are simulated again.
    pub(super) fn validation_due(&self) -> Option<Timestamp> {
        self.findings.iter().map(|finding| finding.found_at + VALIDATION_DELAY).min()
    }

    /// When the next of the nodes whose pods fit elsewhere has been such a node for long enough, or is worth it.
    pub(super) fn next_deletable_at(&self, now: Timestamp) -> Option<Timestamp> {
        let validated = self.deletable_since.values().map(|since| *since + VALIDATION_DELAY);
        validated.chain(self.worth_at).filter(|at| *at > now).min()
    }

    /// The NodePools of sources that are not marked yet.
    pub(super) fn unmarked_sources(&self, snapshot: &Snapshot) -> impl Iterator<Item = NodePoolName> {
        let sources = self.moves.values().flat_map(|one| one.sources_left(snapshot));
        sources.filter_map(|claim| {
            let node = snapshot.node_of(claim)?;
            claim.spec.pool.clone().filter(|_| !node.is_tainted(TAINT_DISRUPTED))
        })
    }

    /// A move is about to create its replacements: until then the room of its pods is not known.
    fn creates_soon(&self, snapshot: &Snapshot, now: Timestamp) -> bool {
        self.moves
            .values()
            .any(|one| !one.drafts.is_empty() && one.since + CREATION_TIMEOUT > now && !one.is_paused(snapshot, now))
    }

    /// Forgets which nodes could not be replaced, but for these.
    pub(super) fn retain_irreplaceable(&mut self, is_outdated: impl Fn(&ClaimName) -> bool) {
        self.irreplaceable.retain(|name, _| is_outdated(name));
    }

    /// Nodes with pods that can be scheduled nowhere else.
    pub(super) fn irreplaceable(&self) -> BTreeMap<ClaimName, PodWithoutRoom> {
        self.irreplaceable.iter().filter_map(|(name, tried)| Some((name.clone(), tried.kept_by.clone()?))).collect()
    }

    /// What was found must be found again.
    pub(super) fn forget_findings(&mut self) {
        self.findings.clear();
        self.deletable_since.clear();
        self.worth_at = None;
        self.exhausted = None;
    }

    /// Ends all moves: their sources are unmarked, but for those that are being deleted.
    pub(super) fn give_up(&mut self) {
        let moves = std::mem::take(&mut self.moves).into_values();
        self.failed.extend(moves.flat_map(|one| one.sources).map(|source| source.name));
    }

    fn forget_deleted(&mut self, exists: impl Fn(&ClaimName) -> bool) {
        self.unconsolidatable.retain(|name, _| exists(name));
    }
}

/// Names of candidates.
fn names_of(sources: &[&Candidate<'_>]) -> BTreeSet<ClaimName> {
    sources.iter().map(|candidate| candidate.claim.name.clone()).collect()
}
