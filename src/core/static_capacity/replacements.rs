//! Replacements of a static pool's outdated nodes, one for one.
//!
//! A replacement names the node that it is made for (annotation `napkeeper.io/replaces`), and only that one goes for it. All is
//! read from the NodeClaims, so that nothing is forgotten by a restart, and the history of nodes knows what came in place of which.

use super::scale_down_order::{PoolMember, standing_claims};
use super::{StaticPool, StaticPoolReconciler};
use crate::disruption::{BUDGET_RETRY, DriftDetector, Expiry};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::replacement::Replacement;
use crate::model::names::ClaimName;
use crate::model::settings::Settings;
use crate::plan::ClaimDraft;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A replacement that is ready, and has not been needed by then, is surplus.
const REPLACEMENT_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);

/// A NodeClaim that was created to replace another, while both stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct StaticReplacement<'a> {
    pub(super) new: &'a Arc<Claim>,
    pub(super) old: &'a Arc<Claim>,
}

/// The replacements among the NodeClaims of a static pool that stand: those that are not ready yet, then the newest.
fn replacements<'a>(standing: &[&'a Arc<Claim>], now: Timestamp) -> Vec<StaticReplacement<'a>> {
    let is_awaited = |new: &Claim| match new.status.initialized {
        Some(at) => now.duration_since(at) < REPLACEMENT_TIMEOUT,
        None => true,
    };
    let named = |new: &Claim| standing.iter().find(|old| new.spec.replaces.contains(&old.name)).copied();
    let awaited = standing.iter().filter(|new| !new.spec.replaces.is_empty() && is_awaited(new));
    let mut found: Vec<_> = awaited.filter_map(|new| Some(StaticReplacement { new, old: named(new)? })).collect();
    found.sort_by_key(|one| (one.new.status.initialized.is_some(), Reverse(one.new.created_at), one.new.name.clone()));
    found
}

/// Those of nodes that are still outdated, or that are not ready yet. One that the pool needs to be complete is none: it takes the
/// place of a node that is gone. Why a node has drifted may not be known right after a start, but its NodeClaim says that it has.
fn needed_replacements<'a>(
    standing: &[&'a Arc<Claim>],
    (replicas, now): (usize, Timestamp),
    has_cause: impl Fn(&Claim) -> bool,
) -> Vec<StaticReplacement<'a>> {
    let mut found = replacements(standing, now);
    let is_outdated = |old: &Claim| old.status.drifted.is_some() || has_cause(old);
    found.retain(|one| one.new.status.initialized.is_none() || is_outdated(one.old));
    found.truncate(standing.len().saturating_sub(replicas));
    found
}

/// The nodes of a static pool for which a replacement is on its way or ready.
pub(crate) fn nodes_being_replaced(
    snapshot: &Snapshot,
    pool: &NodePool,
    settings: &Settings,
    now: Timestamp,
) -> Vec<ClaimName> {
    let Some(replicas) = pool.replicas else { return Vec::new() };
    let standing: Vec<&Arc<Claim>> = standing_claims(pool, snapshot).collect();
    if standing.iter().all(|claim| claim.spec.replaces.is_empty()) {
        return Vec::new();
    }
    let detector = DriftDetector::new(pool, snapshot, now);
    let has_cause = |old: &Claim| detector.drift_of(old).is_some() || Expiry::soon(old, settings, now).is_some();
    let needed = needed_replacements(&standing, (usize::try_from(replicas).unwrap_or(usize::MAX), now), has_cause);
    needed.into_iter().map(|one| one.old.name.clone()).collect()
}

impl<'a> StaticPoolReconciler<'a, '_> {
    /// The replacements that count beside the nodes that a pool should have.
    pub(super) fn replacements_of(&self, static_pool: &StaticPool<'a>) -> Vec<StaticReplacement<'a>> {
        let has_cause = |old: &Claim| {
            let is_outdated = |m: &PoolMember<'_>| m.claim.name == old.name && m.cause.is_some();
            static_pool.members.iter().any(is_outdated)
        };
        needed_replacements(&static_pool.standing(), (static_pool.replicas, self.now), has_cause)
    }

    /// Those whose cause has gone, and those that the pool needs to be complete, too.
    pub(super) fn all_replacements(&self, static_pool: &StaticPool<'a>) -> Vec<StaticReplacement<'a>> {
        replacements(&static_pool.standing(), self.now)
    }

    /// Deletes the outdated nodes whose replacement is ready.
    pub(super) fn delete_replaced(&mut self, static_pool: &mut StaticPool<'a>) {
        for StaticReplacement { new, old } in self.replacements_of(static_pool) {
            let is_ready = new.status.initialized.is_some() && new.status.forced.is_none();
            let may_go = |m: &PoolMember<'_>| m.claim.name == old.name && m.may_be_replaced();
            let Some(index) = static_pool.members.iter().position(may_go).filter(|_| is_ready) else { continue };
            if static_pool.budget == 0 {
                self.plan.wake_at(self.now + BUDGET_RETRY);
                return;
            }
            static_pool.budget -= 1;
            let member = static_pool.members.swap_remove(index);
            let why = format!("{}; its replacement {} is ready", member.cause(), new.name);
            self.delete_claim(&member, member.reason().category(), &why);
        }
    }

    /// The outdated nodes whose replacement may begin, in order. Of those that are replaced again and again for one cause, one
    /// shows whether this goes on.
    pub(super) fn replaceable<'m>(&self, static_pool: &'m StaticPool<'a>) -> Vec<&'m PoolMember<'a>> {
        let replacements = self.all_replacements(static_pool);
        let named: BTreeSet<&ClaimName> = replacements.iter().map(|one| &one.old.name).collect();
        let has_one = |m: &PoolMember<'_>| named.contains(&m.claim.name);
        let may_begin = |m: &&PoolMember<'_>| m.replacement_may_begin(self.settings, self.now);
        let mut found: Vec<_> = static_pool.members.iter().filter(may_begin).collect();
        found.sort_by_key(|m| (!has_one(m), m.replacement_order(self.settings, self.now)));
        let mut tried = BTreeSet::new();
        found.retain(|m| m.replacement_loop.as_ref().is_none_or(|found| tried.insert(&found.cause)));
        found.retain(|m| !has_one(m));
        found
    }

    /// Makes a new NodeClaim the replacement of an outdated node, the first that may be replaced but for so many. Says why that is,
    /// for people.
    pub(super) fn assign_replaced(
        &self,
        static_pool: &StaticPool<'a>,
        draft: &mut ClaimDraft,
        number: usize,
    ) -> Option<String> {
        let replaced = self.replaceable(static_pool).get(number).copied()?;
        draft.spec.replaces = vec![replaced.claim.name.clone()];
        draft.spec.replacement = self.record(static_pool.pool, replaced);
        draft.reason = Some(replaced.reason());
        Some(replaced.cause())
    }

    /// What the NodeClaim records that replaces a node.
    fn record(&self, pool: &NodePool, member: &PoolMember<'_>) -> Option<Replacement> {
        match member.replacement(pool, self.now) {
            Some(record) => Some(self.loops.continued(&pool.name, record)),
            None => self.loops.kept(member.claim).cloned(),
        }
    }
}
