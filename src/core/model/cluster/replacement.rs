//! Why NodeClaims were created to replace others, and how often in a row.

use super::claim::Claim;
use super::pool::DisruptionReason;
use crate::model::names::NodePoolName;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// So many replacements in a row for one cause are a loop. Two may be chance: a change that comes while the first is carried
/// out.
pub const LOOP_LENGTH: u32 = 3;
/// How long the next replacement waits then, from the creation of the last one. It doubles with each.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(30);
/// The longest such time, so that one node a day shows whether the cause is gone.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);
/// A replacement of consolidation that is still in use for so long after the next one might have begun has had an effect. It is
/// as long as a saving is expected to last at most.
const HAS_EFFECT_AFTER: SignedDuration = SignedDuration::from_hours(4);
/// Most offerings of a row that are recorded, the last ones.
const MOST_OFFERINGS: usize = 8;

/// A cause for which nodes may be replaced again and again. What has the same cause is equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecurringCause {
    /// The reason of the disruption.
    pub reason: DisruptionReason,
    /// A hash of all that has changed, and what it is now; `None` of consolidation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl RecurringCause {
    /// The pods fit elsewhere, or on something cheaper.
    pub const CONSOLIDATION: Self = Self { reason: DisruptionReason::Underutilized, change: None };

    /// That of the nodes of this NodePool.
    #[must_use]
    pub fn in_pool(self, pool: &NodePoolName) -> PoolCause {
        PoolCause { pool: pool.clone(), cause: self }
    }
}

/// A cause for which nodes of a NodePool may be replaced again and again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolCause {
    /// The NodePool.
    pub pool: NodePoolName,
    /// Why its nodes are replaced.
    pub cause: RecurringCause,
}

/// What a NodeClaim records that was created to replace others (annotation `napkeeper.io/replacement`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Why they were replaced.
    pub cause: RecurringCause,
    /// How many replacements for it have followed each other: of drift in the NodePool, this one included; of consolidation those
    /// before this one, each of the one before, of which only those count that bring an offering of the row back.
    pub in_a_row: u32,
    /// Of consolidation: size and capacity type of nodes before it in the row, which it counts to bring back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offerings: Vec<String>,
    /// Of consolidation: size and capacity type of the node that it replaces. The same at a lower price, as in another zone, is a
    /// saving; but where it merges several nodes of a row, this is among [`Self::offerings`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
}

impl Replacement {
    /// What a NodeClaim records that is created because its NodePool has changed.
    #[must_use]
    pub const fn new(cause: RecurringCause, in_a_row: u32) -> Self {
        Self { cause, in_a_row, offerings: Vec::new(), replaced: None }
    }

    /// What the replacement of a node for this cause records. `is_merged`: by fewer nodes than it and others.
    #[must_use]
    pub fn after(source: &Claim, cause: &RecurringCause, is_merged: bool, now: Timestamp) -> Self {
        let before = source.spec.replacement.as_ref();
        let before = before.filter(|before| before.cause == *cause && !before.has_had_effect(source, now));
        let in_a_row = before.map_or(0, |before| before.count(source));
        if cause.change.is_some() {
            return Self::new(cause.clone(), in_a_row.saturating_add(1));
        }
        let own = source.intent.as_ref().map(|intent| intent.offering.key.size_and_type());
        let replaced = own.clone().filter(|_| !is_merged || before.is_none());
        let mut offerings = before.map(|before| before.offerings.clone()).unwrap_or_default();
        for offering in before.and_then(|before| before.replaced.clone()).into_iter().chain(own) {
            offerings.retain(|known| *known != offering);
            offerings.push(offering);
        }
        offerings.retain(|offering| Some(offering) != replaced.as_ref());
        let excess = offerings.len().saturating_sub(MOST_OFFERINGS);
        offerings.drain(..excess);
        Self { cause: cause.clone(), in_a_row, offerings, replaced }
    }

    /// How many replacements have followed each other with this one, by what was launched for it.
    #[must_use]
    pub fn count(&self, claim: &Claim) -> u32 {
        self.in_a_row.saturating_add(u32::from(self.brings_back(claim)))
    }

    /// Its node is of a size and capacity type that its row had before.
    fn brings_back(&self, claim: &Claim) -> bool {
        let own = claim.intent.as_ref().map(|intent| intent.offering.key.size_and_type());
        own.is_some_and(|own| self.offerings.contains(&own))
    }

    /// Its node has been of use for so long that what replaces it is not in a row with it. The same change of a field never is:
    /// each replacement should have ended it, and how long the next one cannot begin, as outside of a maintenance window, shows
    /// nothing.
    #[must_use]
    pub fn has_had_effect(&self, claim: &Claim, now: Timestamp) -> bool {
        let over_at = self.next_at(claim).saturating_add(HAS_EFFECT_AFTER).unwrap_or(Timestamp::MAX);
        self.cause.change.is_none() && over_at <= now
    }

    /// When the next replacement for the same cause may begin.
    #[must_use]
    pub fn next_at(&self, claim: &Claim) -> Timestamp {
        claim.created_at.saturating_add(wait(self.count(claim))).unwrap_or(Timestamp::MAX)
    }
}

/// How long the next replacement waits after so many.
fn wait(in_a_row: u32) -> SignedDuration {
    let Some(more) = in_a_row.checked_sub(LOOP_LENGTH) else { return SignedDuration::ZERO };
    let times = 1_i32.checked_shl(more).filter(|times| *times > 0).unwrap_or(i32::MAX);
    FIRST_WAIT.checked_mul(times).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
}
