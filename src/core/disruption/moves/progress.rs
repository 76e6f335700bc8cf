//! Carries out moves that have replacements, and takes back those that fail.
//!
//! Each step follows from what is written on the objects, so that a restart continues where the last run stopped:
//! the sources get the condition `DisruptionReason`, then the taint `karpenter.sh/disrupted`; then the replacements are
//! created, which name the sources and each other; once all replacements are initialized, the sources are deleted. A source that is
//! marked and that no replacement names is unmarked.

use super::super::budget::remaining_deletions;
use super::super::candidate::{is_disruptable, passes_blockers};
use super::super::{BUDGET_RETRY, is_in_progress};
use super::{CREATION_TIMEOUT, FailedAttempt, Move, MoveMemory, REPLACEMENT_TIMEOUT, WRITE_TIMEOUT};
use crate::model::cluster::claim::{Claim, PlannedOffering};
use crate::model::cluster::pod::Taint;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::DisruptionScope;
use crate::plan::{ClaimUpdate, Command, NodeUpdate, Plan};
use crate::provisioning::has_unobserved_claims;
use crate::scheduling::may_launch;
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A NodeClaim that is being created is mostly seen within this time.
const OBSERVED_WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// Takes the next step of every move.
pub(in crate::disruption) fn continue_moves(
    snapshot: &Snapshot,
    memory: &mut MoveMemory,
    now: Timestamp,
    plan: &mut Plan,
) {
    memory.moves.retain(|_, one| !is_overtaken(snapshot, one, now));
    adopt(snapshot, memory, now);
    let mut ended = Vec::new();
    for (name, one) in &mut memory.moves {
        let mut progress = Progress { snapshot, now, plan };
        if progress.step(one) {
            ended.push(name.clone());
        }
    }
    for one in ended.iter().filter_map(|name| memory.moves.remove(name)) {
        // Where its replacement has failed, others take their turn first.
        let is_outdated = one.reason.is_outdated();
        let failed = || FailedAttempt { at: now, kept_by: None };
        let tried = one.sources.iter().filter(|_| is_outdated).map(|source| (source.name.clone(), failed()));
        memory.irreplaceable.extend(tried);
        memory.failed.extend(one.sources.into_iter().map(|source| source.name));
    }
    unmark(snapshot, memory, now, plan);
}

/// Finds moves that an earlier run has begun, by the replacements that name their sources.
///
/// A move that has ended is not found again: either its sources are being deleted, or they are about to be unmarked.
fn adopt(snapshot: &Snapshot, memory: &mut MoveMemory, now: Timestamp) {
    let mut known: BTreeSet<ClaimName> =
        memory.moves.values().flat_map(|one| &one.sources).map(|source| source.name.clone()).collect();
    let is_marked = |name: &ClaimName| snapshot.claims().get(name).is_some_and(|claim| is_marked(claim));
    memory.failed.retain(is_marked);
    let is_replacement = |claim: &&Arc<Claim>| claim.is_ours() && is_of_move(snapshot, claim);
    let mut replacements: Vec<&Arc<Claim>> = snapshot.claims().values().filter(is_replacement).collect();
    // Those of a move that was taken back may be in use by now: the marks are of the move whose replacements are newest.
    replacements.sort_by_key(|claim| Reverse(claim.created_at));
    for replacement in replacements {
        let is_left = |name: &&ClaimName| is_marked(name) && !known.contains(*name) && !memory.failed.contains(*name);
        let sources = replacement.spec.replaces.iter().filter(is_left);
        let sources: Vec<_> = sources.filter_map(|name| Some(snapshot.claims().get(name)?.reference())).collect();
        let Some(first) = sources.first().map(|source| source.name.clone()) else { continue };
        known.extend(sources.iter().map(|source| source.name.clone()));
        if !is_awaited(replacement, now) {
            memory.failed.extend(sources.into_iter().map(|source| source.name));
            continue;
        }
        let reason = snapshot.claims().get(&first).and_then(|claim| claim.status.disrupted);
        // Without one of them, the others have no room for all pods: it fails.
        let replacements = std::iter::once(&replacement.name).chain(&replacement.spec.replaces_with).cloned().collect();
        let one = Move {
            sources,
            reason: reason.unwrap_or(DisruptionReason::Underutilized),
            drafts: Vec::new(),
            replacements,
            planned: BTreeMap::new(),
            since: replacement.created_at,
            worth_from: None,
            causes: BTreeSet::new(),
        };
        memory.moves.insert(first, one);
    }
}

/// A request of an earlier run has created a replacement since this move began, before its own: the move goes on with that
/// one, if its sources are marked.
fn is_overtaken(snapshot: &Snapshot, one: &Move, now: Timestamp) -> bool {
    let replaces = |claim: &Claim| one.sources.iter().any(|source| claim.spec.replaces.contains(&source.name));
    let mut others = snapshot.claims().values().filter(|claim| is_awaited(claim, now) && is_of_move(snapshot, claim));
    !one.drafts.is_empty() && others.any(|claim| claim.created_at >= one.since && replaces(claim))
}

/// It replaces nodes that a move takes away. In NodePools of fixed size, where moves launch nothing, it replaces one by other rules.
fn is_of_move(snapshot: &Snapshot, claim: &Claim) -> bool {
    let pool = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name));
    !claim.spec.replaces.is_empty() && pool.is_none_or(|pool| pool.replicas.is_none())
}

/// A source of a move that is carried out, or has failed.
fn is_marked(claim: &Claim) -> bool {
    claim.is_ours() && claim.status.disrupted.is_some() && claim.deleting_at.is_none()
}

/// The disruption of a node for this reason is paused: it, and its marks, stay as they are.
pub(super) fn is_paused(snapshot: &Snapshot, claim: &Claim, reason: DisruptionReason, now: Timestamp) -> bool {
    let disrupted = DisruptionScope::of(claim, Some(reason));
    snapshot.pause.blocks_disruption(&disrupted, now)
}

/// A replacement that is ready, or may still become so in time.
fn is_awaited(claim: &Claim, now: Timestamp) -> bool {
    !claim.spec.replaces.is_empty()
        && claim.is_ours()
        && !claim.is_leaving()
        && claim.status.launch_failed.is_none()
        && (claim.status.initialized.is_some() || claim.created_at + REPLACEMENT_TIMEOUT > now)
}

/// Removes the marks of NodeClaims that are of no move.
fn unmark(snapshot: &Snapshot, memory: &mut MoveMemory, now: Timestamp, plan: &mut Plan) {
    let mut untainted_since = BTreeMap::new();
    let marked = snapshot.claims().values().filter(|claim| is_marked(claim));
    for claim in marked.filter(|claim| !memory.involves(&claim.name)) {
        let is_stopped = claim.status.disrupted.is_some_and(|reason| is_paused(snapshot, claim, reason, now));
        let node = snapshot.node_of(claim);
        let is_written = node.is_some_and(|node| snapshot.in_progress.contains(&CommandKey::Node(node.name.clone())));
        if is_written || is_stopped {
            continue;
        }
        if let Some(node) = node.filter(|node| node.taints.contains(&Taint::disrupted())) {
            plan.update_node(node, NodeUpdate::RemoveTaint(Taint::disrupted()), "it is not replaced after all");
            continue;
        }
        let since = memory.untainted_since.get(&claim.name).copied().unwrap_or(now);
        let due = since + WRITE_TIMEOUT;
        if due > now {
            plan.wake_at(due);
        } else if !is_in_progress(snapshot, &claim.name) {
            let command = Command::UpdateClaim { claim: claim.reference(), update: ClaimUpdate::NotDisrupted };
            plan.push(command, "it is not replaced after all");
        }
        untainted_since.insert(claim.name.clone(), since);
    }
    memory.untainted_since = untainted_since;
}

/// One move.
struct Progress<'p> {
    snapshot: &'p Snapshot,
    now: Timestamp,
    plan: &'p mut Plan,
}

impl Progress<'_> {
    /// Takes the next step; true when the move has ended.
    fn step(&mut self, one: &mut Move) -> bool {
        let left: Vec<&Arc<Claim>> = one.sources_left(self.snapshot).collect();
        if left.is_empty() {
            return true;
        }
        if one.is_paused(self.snapshot, self.now) {
            // The time of a pause does not count.
            one.since = self.now;
            return false;
        }
        let deadline = one.since + REPLACEMENT_TIMEOUT;
        let is_kept = one.reason == DisruptionReason::NodePoolDeleted && left.iter().any(|claim| self.is_kept(claim));
        if deadline <= self.now || is_kept {
            return true;
        }
        self.plan.wake_at(deadline);
        let (forced, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|claim| claim.status.forced.is_some());
        if !one.drafts.is_empty() {
            // Its node is unhealthy or about to be lost: what replaces it need not be ordered any more.
            return !forced.is_empty() || self.mark_and_create(one, &others);
        }
        // What has been ordered is of use also where the node is well again before it is deleted.
        self.finish(one, &others)
    }

    /// The deletion of its NodePool does not take this node away any more: somebody has removed the finalizer, or chosen to keep
    /// the nodes.
    fn is_kept(&self, claim: &Claim) -> bool {
        let is_unreadable = claim.spec.pool.as_ref().is_some_and(|pool| self.snapshot.is_unreadable_pool(pool));
        !is_unreadable && self.snapshot.deleted_pool_of(claim).is_none()
    }

    /// Marks the sources, and creates the replacements once all are marked; true when they cannot be disrupted any more.
    fn mark_and_create(&mut self, one: &mut Move, sources: &[&Arc<Claim>]) -> bool {
        if sources.len() < one.sources.len() || !sources.iter().all(|claim| self.is_disruptable(claim, one.reason)) {
            return true;
        }
        let mut are_marked = true;
        for claim in sources {
            are_marked &= self.mark(claim, one.reason);
        }
        if !are_marked {
            return false;
        }
        if has_unobserved_claims(self.snapshot) {
            // What is being created may need what is left of a limit.
            self.plan.wake_at(self.now + OBSERVED_WITHIN);
            return false;
        }
        if !self.are_within_limits(one) {
            return true;
        }
        one.since = self.now;
        for (draft, reason) in one.drafts.drain(..) {
            one.replacements.push(draft.name.clone());
            one.planned.extend(draft.pods.iter().map(|pod| (pod.clone(), draft.name.clone())));
            self.plan.push(Command::CreateClaim(Box::new(draft)), reason);
        }
        self.plan.wake_at(self.now + CREATION_TIMEOUT);
        false
    }

    /// The limits of NodePools allow what is to be created, also beside what has been launched since it was planned.
    fn are_within_limits(&self, one: &Move) -> bool {
        let mut planned: BTreeMap<&NodePoolName, Vec<&PlannedOffering>> = BTreeMap::new();
        for spec in one.drafts.iter().map(|(draft, _)| &draft.spec) {
            if let (Some(pool), Some(best)) = (&spec.pool, spec.planned.first()) {
                planned.entry(pool).or_default().push(best);
            }
        }
        planned.into_iter().all(|(pool, planned)| {
            self.snapshot.pools().get(pool).is_none_or(|pool| may_launch(self.snapshot, pool, &planned))
        })
    }

    /// Marks a source: the condition first, which tells whose the taint is. True once both are to be seen.
    fn mark(&mut self, claim: &Claim, reason: DisruptionReason) -> bool {
        if claim.status.disrupted.is_none() {
            if !is_in_progress(self.snapshot, &claim.name) {
                let update = ClaimUpdate::Disrupted(reason);
                let command = Command::UpdateClaim { claim: claim.reference(), update };
                self.plan.push(command, "it is going to be replaced");
            }
            return false;
        }
        let Some(node) = self.snapshot.node_of(claim) else { return false };
        if node.taints.contains(&Taint::disrupted()) {
            return true;
        }
        if !self.snapshot.in_progress.contains(&CommandKey::Node(node.name.clone())) {
            let update = NodeUpdate::AddTaint(Taint::disrupted());
            self.plan.update_node(node, update, "it is going to be replaced: no new pods");
        }
        false
    }

    /// Deletes the sources once all replacements are ready for pods; true when a replacement has failed.
    fn finish(&mut self, one: &Move, sources: &[&Arc<Claim>]) -> bool {
        let mut are_ready = true;
        for name in &one.replacements {
            match self.snapshot.claims().get(name) {
                Some(claim) if claim.is_leaving() || claim.status.launch_failed.is_some() => return true,
                Some(claim) => are_ready &= self.is_ready(claim),
                None => {
                    let due = one.since + CREATION_TIMEOUT;
                    if due > self.now {
                        self.plan.wake_at(due);
                    } else if !is_in_progress(self.snapshot, name) {
                        return true;
                    }
                    are_ready = false;
                }
            }
        }
        let replacements: Vec<&str> = one.replacements.iter().map(ClaimName::as_str).collect();
        for claim in sources {
            // A request of an earlier run may have removed a mark.
            if self.mark(claim, one.reason) && are_ready {
                self.delete(claim, one.reason, &replacements.join(", "));
            }
        }
        false
    }

    /// A replacement has become ready for pods, and kube-scheduler may still bind them to it.
    fn is_ready(&self, replacement: &Claim) -> bool {
        let node = self.snapshot.node_of(replacement);
        replacement.status.initialized.is_some() && node.is_some_and(|node| node.is_open())
    }

    /// Deletes a source. What must not be disrupted now, or what the budget has no room for, may go later: until the
    /// deadline it is waited for.
    fn delete(&mut self, claim: &Claim, reason: DisruptionReason, replacements: &str) {
        let name = claim.spec.pool.as_ref();
        let pool = name.and_then(|name| self.snapshot.pools().get(name));
        // What the budgets of one that cannot be read allow is not known.
        let is_unreadable = name.is_some_and(|name| self.snapshot.is_unreadable_pool(name));
        let without = if is_unreadable { 0 } else { u32::MAX };
        let left = pool.map_or(without, |pool| {
            let left = remaining_deletions(self.snapshot, pool, reason, self.now);
            left.saturating_sub(self.deleted_of(&pool.name))
        });
        if left == 0 {
            return self.plan.wake_at(self.now + BUDGET_RETRY);
        }
        let is_in_progress = is_in_progress(self.snapshot, &claim.name);
        if !is_in_progress && self.is_disruptable(claim, reason) {
            let command = Command::delete_claim(claim.reference(), reason.category());
            self.plan.push(command, format!("its replacement is ready: {replacements}"));
        }
    }

    /// How many nodes of a pool this plan deletes.
    fn deleted_of(&self, pool: &NodePoolName) -> u32 {
        let of_pool = |name: &&ClaimName| {
            let claim = self.snapshot.claims().get(*name);
            claim.is_some_and(|claim| claim.spec.pool.as_ref() == Some(pool))
        };
        u32::try_from(self.plan.deleted_claims().filter(of_pool).count()).unwrap_or(u32::MAX)
    }

    fn is_disruptable(&self, claim: &Claim, reason: DisruptionReason) -> bool {
        let node = self.snapshot.node_of(claim);
        let past_blockers = passes_blockers(claim, reason);
        node.is_some_and(|node| is_disruptable(self.snapshot, node, past_blockers, self.now))
    }
}
