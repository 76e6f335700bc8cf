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
    /// How many replacements for it have followed each other, this one included: of drift in the NodePool, of consolidation each
    /// of the one before. Of these only those count that bring an offering back which the row had before: others save something.
    pub in_a_row: u32,
    /// Of consolidation: size and capacity type of the nodes before it in the row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offerings: Vec<String>,
}

impl Replacement {
    /// What the replacement of a node for this cause records. Of consolidation it counts if this is the offering of one before;
    /// `None` where it saves something anyway.
    #[must_use]
    pub fn after(source: &Claim, cause: &RecurringCause, offering: Option<&str>, now: Timestamp) -> Self {
        let before = source.spec.replacement.as_ref();
        let before = before.filter(|before| before.cause == *cause && !before.has_had_effect(source, now));
        let in_a_row = before.map_or(0, |before| before.in_a_row);
        if cause.change.is_some() {
            return Self { cause: cause.clone(), in_a_row: in_a_row.saturating_add(1), offerings: Vec::new() };
        }
        let mut offerings = before.map(|before| before.offerings.clone()).unwrap_or_default();
        let own = source.intent.as_ref().map(|intent| intent.offering.key.size_and_type());
        offerings.extend(own.filter(|own| !offerings.contains(own)));
        let excess = offerings.len().saturating_sub(MOST_OFFERINGS);
        offerings.drain(..excess);
        let is_back = offering.is_some_and(|offering| offerings.iter().any(|before| before == offering));
        Self { cause: cause.clone(), in_a_row: in_a_row.saturating_add(u32::from(is_back)), offerings }
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
        claim.created_at.saturating_add(self.wait()).unwrap_or(Timestamp::MAX)
    }

    fn wait(&self) -> SignedDuration {
        let Some(more) = self.in_a_row.checked_sub(LOOP_LENGTH) else { return SignedDuration::ZERO };
        let times = 1_i32.checked_shl(more).filter(|times| *times > 0).unwrap_or(i32::MAX);
        FIRST_WAIT.checked_mul(times).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
    }
}
