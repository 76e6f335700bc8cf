//! Expiry of nodes (`expireAfter`).
//!
//! As in Karpenter a node is deleted when it is older than `expireAfter`, whatever budgets say. In the time before that it is
//! replaced within budgets, the new node first, so that nodes of one age do not all go at once.

use super::super::is_in_progress;
use crate::model::cluster::claim::Claim;
use crate::model::names::ClaimName;
use crate::model::settings::{DisruptionScope, Settings};
use crate::plan::{Command, Plan};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The part of `expireAfter` in which a node is replaced, unless the longest such time is shorter: a tenth.
const LEAD_DIVISOR: i32 = 10;

/// A node that is going to expire soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// When it is deleted if it still exists.
    pub at: Timestamp,
}

impl Expiry {
    /// The expiry of a NodeClaim; `None` where it never expires.
    fn of(claim: &Claim) -> Option<Self> {
        let after = claim.spec.expire_after?;
        Some(Self { at: claim.created_at.saturating_add(after).unwrap_or(Timestamp::MAX) })
    }

    /// From when on a NodeClaim is to be replaced because it expires; `None` where it never does, or has expired already.
    /// `longest_lead` is the longest time before.
    #[must_use]
    pub fn replaced_from(claim: &Claim, longest_lead: SignedDuration, now: Timestamp) -> Option<(Timestamp, Self)> {
        let expiry = Self::of(claim).filter(|expiry| expiry.at > now)?;
        let lead = (claim.spec.expire_after? / LEAD_DIVISOR).min(longest_lead);
        Some((expiry.at.saturating_sub(lead).unwrap_or(Timestamp::MIN), expiry))
    }

    /// The expiry of a NodeClaim that is to be replaced now because of it.
    pub(crate) fn soon(claim: &Claim, settings: &Settings, now: Timestamp) -> Option<Self> {
        Self::replaced_from(claim, settings.expiry_lead, now).filter(|(from, _)| *from <= now).map(|(_, expiry)| expiry)
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expireAfter ends at {}", self.at)
    }
}

/// The NodeClaims that may expire: not those of NodePools that cannot be read, for which nothing can be launched.
fn standing(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Claim>> {
    let is_unreadable = |claim: &Claim| claim.spec.pool.as_ref().is_some_and(|name| snapshot.is_unreadable_pool(name));
    let stands = move |claim: &&Arc<Claim>| claim.is_ours() && claim.deleting_at.is_none() && !is_unreadable(claim);
    snapshot.claims().values().filter(stands)
}

/// Deletes expired nodes.
pub(in crate::disruption) fn delete_expired(snapshot: &Snapshot, now: Timestamp, plan: &mut Plan) {
    for claim in standing(snapshot) {
        let Some(Expiry { at }) = Expiry::of(claim) else { continue };
        let disrupted = DisruptionScope::of(claim, None);
        if at > now {
            plan.wake_at(at);
        } else if !is_in_progress(snapshot, &claim.name) && !snapshot.pause.blocks_disruption(&disrupted, now) {
            let command = Command::delete_claim(claim.reference(), "expired");
            let after = claim.spec.expire_after.unwrap_or_default();
            plan.push(command, format!("older than expireAfter ({after:#})"));
        }
    }
}

/// The nodes that are to be replaced because they expire soon. Requests a wake-up for when the next becomes one of them.
pub(in crate::disruption) fn expiring(
    snapshot: &Snapshot,
    settings: &Settings,
    now: Timestamp,
    plan: &mut Plan,
) -> BTreeMap<ClaimName, Expiry> {
    let mut found = BTreeMap::new();
    for claim in standing(snapshot).filter(|claim| claim.status.initialized.is_some()) {
        match Expiry::replaced_from(claim, settings.expiry_lead, now) {
            Some((from, _)) if from > now => plan.wake_at(from),
            soon => found.extend(soon.map(|(_, expiry)| (claim.name.clone(), expiry))),
        }
    }
    found
}
