//! Loops of replacements: nodes that are replaced again and again for one cause, since what replaces them has it too.
//!
//! Each NodeClaim that replaces others records why, and how often in a row. From [`LOOP_LENGTH`] on, the next replacement for the
//! same cause waits. Of drift that is every one in the NodePool, and then one goes alone; of consolidation that of the node itself.
//! What budgets do not limit never waits.

use super::causes::{Drift, DriftDetector};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::replacement::{LOOP_LENGTH, PoolCause, RecurringCause, Replacement};
use crate::model::names::{ClaimName, NodePoolName};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A node that has drifted shows it by then, counted from when it is ready for pods.
const DRIFT_SHOWS_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// Nodes of a NodePool that are replaced again and again for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacementLoop {
    /// Why nodes are replaced.
    pub cause: RecurringCause,
    /// How many replacements have followed each other.
    pub in_a_row: u32,
    /// The NodeClaim that was created by the last one.
    pub claim: ClaimName,
    /// When the next may begin.
    pub next_at: Timestamp,
    /// That is still to come.
    pub waits: bool,
    /// How the last one has drifted itself, for people; `None` where it has not, or that is not known yet.
    pub drift: Option<Arc<str>>,
}

impl ReplacementLoop {
    fn of(claim: &Claim, record: &Replacement, drift: Option<&Drift>, now: Timestamp) -> Self {
        let next_at = record.next_at(claim);
        Self {
            cause: record.cause.clone(),
            in_a_row: record.count(claim),
            claim: claim.name.clone(),
            next_at,
            waits: next_at > now,
            drift: drift.map(|drift| Arc::from(drift.to_string())),
        }
    }

    /// The loop of consolidations that a node waits for: its own. What is cheapest for its pods shows nothing about other nodes.
    pub(super) fn of_consolidated(claim: &Claim, now: Timestamp) -> Option<Self> {
        let record = claim.spec.replacement.as_ref().filter(|record| record.cause == RecurringCause::CONSOLIDATION)?;
        Some(Self::of(claim, record, None, now)).filter(|found| found.waits)
    }
}

impl fmt::Display for ReplacementLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, in_a_row, claim, next_at, waits, drift } = self;
        let drift = drift.as_ref().map(|drift| format!(" ({drift})")).unwrap_or_default();
        let reason = cause.reason.as_str();
        write!(
            f,
            "{in_a_row} replacements in a row without effect, for the same cause: {reason}{drift}, the last by NodeClaim {claim}; "
        )?;
        match waits {
            true => write!(f, "the next one waits until {next_at}"),
            false => write!(f, "the next one may begin since {next_at}"),
        }
    }
}

/// What a node shows that has replaced others.
enum Outcome {
    /// It is to be replaced for the same cause.
    Repeated(Drift),
    /// It is not: for others there is nothing to wait for.
    Effective,
    /// Neither is known.
    Unknown,
}

impl Outcome {
    /// Of consolidation nothing tells whether it goes on.
    fn of(detector: &DriftDetector<'_>, claim: &Claim, cause: &RecurringCause, now: Timestamp) -> Self {
        let Some(change) = &cause.change else { return Self::Unknown };
        let shows = |ready_at: Timestamp| now.duration_since(ready_at) >= DRIFT_SHOWS_AFTER;
        match detector.repeated(claim, change) {
            Some(drift) => Self::Repeated(drift),
            None if claim.status.initialized.is_some_and(shows) && detector.knows_all_of(claim) => Self::Effective,
            None => Self::Unknown,
        }
    }
}

/// The replacements in a NodePool for one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    /// When the newest node was created that shows whether it is to be replaced for the cause, and whether it is not.
    newest: Option<(Timestamp, bool)>,
    /// The highest count of those that are to be replaced for it.
    in_a_row: u32,
    /// The last replacement of a loop.
    last: Option<ReplacementLoop>,
}

impl Row {
    fn add(&mut self, claim: &Claim, record: &Replacement, outcome: &Outcome, now: Timestamp) {
        let drift = match outcome {
            Outcome::Repeated(drift) => Some(drift),
            Outcome::Effective | Outcome::Unknown => None,
        };
        let is_effective = matches!(outcome, Outcome::Effective);
        if is_effective || drift.is_some() {
            self.newest = self.newest.max(Some((claim.created_at, is_effective)));
        }
        if drift.is_some() {
            self.in_a_row = self.in_a_row.max(record.in_a_row);
        }
        if is_effective || record.count(claim) < LOOP_LENGTH || record.has_had_effect(claim, now) {
            return;
        }
        let found = ReplacementLoop::of(claim, record, drift, now);
        if self.last.as_ref().is_none_or(|last| found.next_at > last.next_at) {
            self.last = Some(found);
        }
    }

    /// The last replacement of which that is known has had an effect.
    fn is_effective(&self) -> bool {
        self.newest.is_some_and(|(_, is_effective)| is_effective)
    }
}

/// A node of the NodePool that was created for anything else, as for pods, since the newest one of a row is not to be replaced for
/// its cause.
fn has_ended_since(
    detector: &DriftDetector<'_>,
    (cause, row): (&PoolCause, &Row),
    snapshot: &Snapshot,
    now: Timestamp,
) -> bool {
    let Some((newest, _)) = row.newest else { return false };
    let is_newer = |claim: &Claim| claim.is_ours() && claim.created_at > newest;
    let is_of_pool = |claim: &Claim| claim.spec.pool.as_ref() == Some(&cause.pool);
    let is_effective = |claim: &Claim| matches!(Outcome::of(detector, claim, &cause.cause, now), Outcome::Effective);
    snapshot.claims().values().any(|claim| is_of_pool(claim) && is_newer(claim) && is_effective(claim))
}

/// The loops of all NodePools, by the NodePool of the last replacement and the cause. One that shows an effect is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacementLoops(BTreeMap<PoolCause, Row>);

impl ReplacementLoops {
    /// Those that the NodeClaims show.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let mut detectors: BTreeMap<&NodePoolName, DriftDetector<'_>> = BTreeMap::new();
        let mut rows: BTreeMap<_, Row> = BTreeMap::new();
        for claim in snapshot.claims().values().filter(|claim| claim.is_ours()) {
            let pool = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name));
            let Some((record, pool)) = claim.spec.replacement.as_ref().zip(pool) else { continue };
            let detector = detectors.entry(&pool.name).or_insert_with(|| DriftDetector::new(pool, snapshot, now));
            let outcome = Outcome::of(detector, claim, &record.cause, now);
            let row = rows.entry(record.cause.clone().in_pool(&pool.name)).or_default();
            row.add(claim, record, &outcome, now);
        }
        rows.retain(|key, row| {
            let detector = detectors.get(&key.pool);
            !row.is_effective()
                && !detector.is_some_and(|detector| has_ended_since(detector, (key, row), snapshot, now))
        });
        Self(rows)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&NodePoolName, &ReplacementLoop)> {
        self.0.iter().filter_map(|(key, row)| Some((&key.pool, row.last.as_ref()?)))
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The loop that nodes of a NodePool would go on with if they were replaced for a cause.
    #[must_use]
    pub fn get(&self, cause: &PoolCause) -> Option<&ReplacementLoop> {
        self.0.get(cause)?.last.as_ref()
    }

    /// What a replacement of a node of a NodePool records: that it follows those that had no effect, whichever nodes they have
    /// replaced. In a large NodePool each node would have its turn first otherwise, before any had its second.
    pub(crate) fn continued(&self, pool: &NodePoolName, record: Replacement) -> Replacement {
        let row = self.0.get(&record.cause.clone().in_pool(pool));
        let least = row.filter(|row| row.in_a_row > 0).map_or(0, |row| row.in_a_row.saturating_add(1));
        Replacement { in_a_row: record.in_a_row.max(least), ..record }
    }

    /// What the replacement of this node records that is replaced for anything but its drift, while its NodePool is in the loop for
    /// which it was created: the same. Else expiry and consolidation would have a loop forgotten whose next replacement waits.
    pub(crate) fn kept<'c>(&self, claim: &'c Claim) -> Option<&'c Replacement> {
        let record = claim.spec.replacement.as_ref().filter(|record| record.cause.change.is_some())?;
        self.get(&record.cause.clone().in_pool(claim.spec.pool.as_ref()?)).map(|_| record)
    }

    /// When the next of those that wait now may go on.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.iter().filter(|(_, one)| one.waits).map(|(_, one)| one.next_at).min()
    }
}
