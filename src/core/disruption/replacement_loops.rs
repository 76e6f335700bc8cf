//! Loops of replacements: nodes that are replaced again and again for one cause, since what replaces them has it too.
//!
//! Each NodeClaim that replaces others records why, and how often in a row. From [`LOOP_LENGTH`] on, the next replacement in its
//! NodePool for the same cause waits, and then it is one alone. What budgets do not limit never waits.

use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::replacement::{LOOP_LENGTH, RecurringCause, Replacement};
use crate::model::names::NodePoolName;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Nodes of a NodePool that are replaced again and again for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacementLoop {
    /// Why nodes are replaced.
    pub reason: DisruptionReason,
    /// How many replacements have followed each other.
    pub in_a_row: u32,
    /// When the next may begin.
    pub next_at: Timestamp,
    /// How the last one has drifted itself, for people; `None` where it has not.
    pub drift: Option<Arc<str>>,
    /// The last one does not differ, as it seems: nothing waits.
    pub is_effective: bool,
}

impl ReplacementLoop {
    /// The next replacement must not begin yet.
    #[must_use]
    pub fn waits(&self, now: Timestamp) -> bool {
        !self.is_effective && self.next_at > now
    }
}

impl fmt::Display for ReplacementLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, in_a_row, next_at, drift, is_effective } = self;
        let drift = drift.as_ref().map(|drift| format!(" ({drift})")).unwrap_or_default();
        let reason = reason.as_str();
        write!(f, "{in_a_row} replacements in a row, each of the one before, for the same cause: {reason}{drift}; ")?;
        match is_effective {
            true => f.write_str("the last one does not differ now"),
            false => write!(f, "the next one waits until {next_at}"),
        }
    }
}

/// The loops of all NodePools, by the NodePool of the last replacement and the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacementLoops(BTreeMap<(NodePoolName, RecurringCause), ReplacementLoop>);

impl ReplacementLoops {
    /// Those that the NodeClaims show.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let mut loops: BTreeMap<_, ReplacementLoop> = BTreeMap::new();
        for claim in snapshot.claims().values().filter(|claim| claim.is_ours()) {
            let Some((record, pool)) = claim.spec.replacement.as_ref().zip(claim.spec.pool.clone()) else { continue };
            if record.in_a_row < LOOP_LENGTH || record.over_at(claim) <= now {
                continue;
            }
            let found = ReplacementLoop {
                reason: record.cause.reason,
                in_a_row: record.in_a_row,
                next_at: record.next_at(claim),
                drift: claim.status.drifted.as_ref().map(|drifted| Arc::clone(&drifted.message)),
                is_effective: record.is_effective(claim, now),
            };
            let last = loops.entry((pool, record.cause.clone())).or_insert_with(|| found.clone());
            if found.next_at > last.next_at {
                *last = found;
            }
        }
        Self(loops)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&NodePoolName, &ReplacementLoop)> {
        self.0.iter().map(|((pool, _), one)| (pool, one))
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The loop that nodes of a NodePool would go on with if they were replaced for a cause.
    #[must_use]
    pub fn get(&self, pool: &NodePoolName, cause: &RecurringCause) -> Option<&ReplacementLoop> {
        self.0.get(&(pool.clone(), cause.clone()))
    }

    /// What a replacement of a node of a NodePool records: after the last one of a loop, whichever node that was of.
    pub(crate) fn continued(&self, pool: &NodePoolName, record: Replacement) -> Replacement {
        let found = self.get(pool, &record.cause).filter(|found| !found.is_effective && record.cause.change.is_some());
        let least = found.map_or(0, |found| found.in_a_row.saturating_add(1));
        Replacement { in_a_row: record.in_a_row.max(least), ..record }
    }

    /// When the next of those that wait now may go on.
    pub(crate) fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.values().filter(|one| one.waits(now)).map(|one| one.next_at).min()
    }
}
