//! Invariants about moves: a node is marked only for a move, is replaced once and by all that was planned for it, and no
//! move lasts indefinitely.
//!
//! The world keeps its own books: which replacements were planned together, which NodeClaims are marked (by the condition
//! `DisruptionReason` or the taint `karpenter.sh/disrupted`), and for how long the controller could have acted on them.

use super::Violation;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::labels::TAINT_DISRUPTED;
use napkeeper_core::model::names::{ClaimName, Uid};
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_core::plan::{ClaimDraft, Command};
use napkeeper_core::snapshot::CommandKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Longest time for which a node may be marked without a move while the controller can act, as after a restart.
const MARKED_ALONE: SignedDuration = SignedDuration::from_mins(2);
/// Longest time for which a node may be marked while the controller can act: then its move has ended, or was taken back.
const LONGEST_MOVE: SignedDuration = SignedDuration::from_mins(30);
/// A younger replacement may still become ready.
const AWAITED_FOR: SignedDuration = SignedDuration::from_mins(20);
/// A mark has two parts, and a change of each is heard of before the next step: so often a watch that is late delays it.
const STEPS_OF_A_MARK: i32 = 3;

/// What the world knows of moves.
#[derive(Debug, Clone, Default)]
pub(in crate::world) struct MoveBooks {
    /// All replacements that were ever planned.
    sets: Vec<ReplacementSet>,
    /// The marked NodeClaims.
    marks: BTreeMap<Uid, Mark>,
    /// When this was last brought up to date.
    checked_at: Timestamp,
    /// The controller has been able to act since then.
    can_act: bool,
}

/// Replacements that were planned together.
#[derive(Debug, Clone)]
pub(in crate::world) struct ReplacementSet {
    planned_at: Timestamp,
    /// What they replace.
    pub(in crate::world) sources: Vec<ClaimName>,
    /// Their names.
    pub(in crate::world) replacements: BTreeSet<ClaimName>,
}

/// A marked NodeClaim.
#[derive(Debug, Clone)]
struct Mark {
    claim: ClaimName,
    since: Timestamp,
    /// Nothing replaces it now.
    is_alone: bool,
    /// For how long nothing has replaced it while the controller could act, without interruption.
    alone: SignedDuration,
    /// For how long it has been marked while the controller could act.
    marked: SignedDuration,
}

impl MoveBooks {
    /// The controller has decided to create a NodeClaim.
    pub(in crate::world) fn plan(&mut self, draft: &ClaimDraft, now: Timestamp) {
        let sources = &draft.spec.replaces;
        if sources.is_empty() {
            return;
        }
        let of_this = |set: &&mut ReplacementSet| set.planned_at == now && set.sources == *sources;
        match self.sets.iter_mut().rev().find(of_this) {
            Some(set) => drop(set.replacements.insert(draft.name.clone())),
            None => self.sets.push(ReplacementSet {
                planned_at: now,
                sources: sources.clone(),
                replacements: BTreeSet::from([draft.name.clone()]),
            }),
        }
    }

    /// All replacements that were ever planned.
    #[cfg(test)]
    pub(in crate::world) fn sets(&self) -> &[ReplacementSet] {
        &self.sets
    }

    /// Those that were planned together with this one.
    fn set_of(&self, replacement: &ClaimName) -> Option<&ReplacementSet> {
        self.sets.iter().rev().find(|set| set.replacements.contains(replacement))
    }

    /// Time has passed since these books were brought up to date.
    fn pass(&mut self, now: Timestamp) {
        let passed = if self.can_act { now.duration_since(self.checked_at) } else { SignedDuration::ZERO };
        for mark in self.marks.values_mut() {
            mark.marked += passed;
            mark.alone = if mark.is_alone { mark.alone + passed } else { SignedDuration::ZERO };
        }
        self.checked_at = now;
    }
}

impl World {
    /// Every mark belongs to a move, and every move ends.
    pub(super) fn check_marks(&mut self) -> Result<(), Violation> {
        self.truth.moves.pass(self.now);
        let late = self.truth.clock_error + self.controller.watches.longest_lag() * STEPS_OF_A_MARK;
        for Mark { claim, since, alone, marked, .. } in self.truth.moves.marks.values() {
            if *alone > MARKED_ALONE + late {
                return Err(self.violation(
                    "marked-alone",
                    format!("{claim} is marked since {since}, and nothing has replaced it for {alone:#}"),
                ));
            }
            if *marked > LONGEST_MOVE + late {
                return Err(self.violation("move-ends", format!("{claim} has been marked since {since}")));
            }
        }
        let can_act = self.can_disrupt();
        let marks: Vec<(Uid, Mark)> =
            self.marked_claims().map(|claim| (claim.uid.clone(), self.mark(claim, can_act))).collect();
        (self.truth.moves.can_act, self.truth.moves.marks) = (can_act, marks.into_iter().collect());
        Ok(())
    }

    /// NodeClaims that carry a mark, or whose nodes do, and are not being deleted.
    fn marked_claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        let cluster = self.cluster.state();
        let is_tainted = |claim: &Claim| cluster.node_of(claim).is_some_and(|node| node.is_tainted(TAINT_DISRUPTED));
        let ours = cluster.claims().values().filter(|c| !c.spec.planned.is_empty() && c.deleting_at.is_none());
        ours.filter(move |claim| claim.status.disrupted.is_some() || is_tainted(claim))
    }

    /// The mark of this NodeClaim, as the books have it and as it is now.
    fn mark(&self, claim: &Claim, can_act: bool) -> Mark {
        let known = self.truth.moves.marks.get(&claim.uid);
        let since = known.map_or(self.now, |mark| mark.since);
        let is_alone = self.replacements(&claim.name, Some(since)).next().is_none();
        let alone = known.map(|mark| mark.alone).filter(|_| is_alone && can_act).unwrap_or_default();
        let marked = known.map(|mark| mark.marked).unwrap_or_default();
        Mark { claim: claim.name.clone(), since, is_alone, alone, marked }
    }

    /// NodeClaims that may still replace this one: created since it was marked, or not long ago.
    fn replacements(&self, source: &ClaimName, marked_since: Option<Timestamp>) -> impl Iterator<Item = &Arc<Claim>> {
        let is_awaited = move |claim: &&Arc<Claim>| {
            let is_of_move = marked_since.is_some_and(|since| claim.created_at >= since);
            let is_young = self.now.duration_since(claim.created_at) < AWAITED_FOR;
            claim.deleting_at.is_none() && claim.status.launch_failed.is_none() && (is_of_move || is_young)
        };
        let claims = self.cluster.state().claims().values();
        claims.filter(|claim| claim.spec.replaces.contains(source)).filter(is_awaited)
    }

    /// A node is replaced by one set of others, which were planned together.
    pub(super) fn check_replaced_once(&self, draft: &ClaimDraft) -> Result<(), Violation> {
        let own = self.truth.moves.set_of(&draft.name);
        let is_own = |claim: &ClaimName| own.is_some_and(|set| set.replacements.contains(claim));
        for source in &draft.spec.replaces {
            let marked_since = self.marked_since(source);
            // What became ready before this mark, for a move that was taken back, is a node as any other.
            let is_of_earlier =
                |other: &Claim| other.status.initialized.is_some_and(|at| at < marked_since.unwrap_or(self.now));
            let mut others = self.replacements(source, marked_since).filter(|other| !is_of_earlier(other));
            let other = others.find(|other| !is_own(&other.name));
            if let Some(other) = other.filter(|other| !self.has_failed(&other.name)) {
                let message = format!("{} is to replace {source}, as {} already does", draft.name, other.name);
                return Err(self.violation("replaced-once", message));
            }
        }
        Ok(())
    }

    fn marked_since(&self, claim: &ClaimName) -> Option<Timestamp> {
        let mark = self.truth.moves.marks.values().find(|mark| mark.claim == *claim);
        mark.map(|mark| mark.since)
    }

    /// One of the set of this replacement does not exist any more, or will not.
    fn has_failed(&self, replacement: &ClaimName) -> bool {
        let claims = self.cluster.state().claims();
        let is_lost = |name: &ClaimName| {
            let claim = claims.get(name);
            claim.is_none_or(|claim| claim.deleting_at.is_some() || claim.status.launch_failed.is_some())
        };
        self.truth.moves.set_of(replacement).is_some_and(|set| set.replacements.iter().any(is_lost))
    }

    /// A marked node is deleted only when all that was planned to replace it is ready for pods.
    pub(super) fn check_replaced(&self, claim: &ClaimName) -> Result<(), Violation> {
        let planned = self.controller.inner.running(&CommandKey::Claim(claim.clone()));
        let category = planned.map(|planned| &planned.command);
        let is_move = matches!(category, Some(Command::DeleteClaim { category: "underutilized", .. }));
        let claims = self.cluster.state().claims();
        let source = claims.get(claim).filter(|claim| claim.deleting_at.is_none() && claim.status.disrupted.is_some());
        // What has become of a replacement may not have arrived yet.
        let is_late = !self.controller.watches.longest_lag().is_zero() || self.controller.watches.is_silent(self.now);
        if !is_move || is_late || source.is_none() {
            return Ok(());
        }
        let is_ready = |name: &ClaimName| claims.get(name).is_some_and(|c| c.status.initialized.is_some());
        // Those of a move that was taken back may still come up.
        let replacements = self.replacements(claim, self.marked_since(claim));
        let sets: Vec<_> = replacements.filter_map(|one| self.truth.moves.set_of(&one.name)).collect();
        if sets.is_empty() || sets.iter().any(|set| set.replacements.iter().all(is_ready)) {
            return Ok(());
        }
        Err(self.violation("replaced", format!("{claim} is deleted, and not all that replaces it is ready: {sets:?}")))
    }

    /// The controller is able to carry out moves: it runs, hears and may write.
    fn can_disrupt(&self) -> bool {
        let cluster = self.cluster.state();
        self.controller.is_up()
            && self.controller.clock.is_tolerable()
            && !self.controller.watches.is_silent(self.now)
            && self.settings.mode == ControllerMode::Provisioner
            && !cluster.pause.blocks_any_disruption(self.now)
            && self.cluster.is_reachable(self.now)
            && !self.are_many_unready()
    }

    /// Nothing is disrupted while more than 20 % of all nodes, and at least 3, are not ready, whatever the cause.
    fn are_many_unready(&self) -> bool {
        let nodes = self.cluster.state().nodes();
        let unready = nodes.values().filter(|node| !node.ready).count();
        unready >= 3 && unready * 5 > nodes.len()
    }
}
