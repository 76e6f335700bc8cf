//! The refresh schedule of Azure facts.

use crate::model::support::jitter::{TENTH_JITTER, with_jitter};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts that are fetched, each on its own schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactKind {
    /// Sizes, zones and restrictions (Resource SKUs).
    Sizes,
    /// Quotas of cores.
    Quota,
    /// Retail prices.
    Prices,
    /// Versions of images.
    Images,
    /// Addresses of subnets.
    Subnets,
    /// Capacity reservations.
    Reservations,
    /// Locks.
    Locks,
}

impl FactKind {
    /// All of them, those that decisions need most first.
    pub const ALL: [Self; 7] =
        [Self::Sizes, Self::Quota, Self::Prices, Self::Subnets, Self::Reservations, Self::Locks, Self::Images];

    /// Its name in metrics, logs and the published object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::Quota => "quota",
            Self::Prices => "prices",
            Self::Images => "images",
            Self::Subnets => "subnets",
            Self::Reservations => "reservations",
            Self::Locks => "locks",
        }
    }

    /// How often it is fetched. Sizes and prices: as in karpenter-provider-azure (12 h each). Quota: upstream 10 min;
    /// here 2 min, because a running VM is counted twice until the next fetch; reservations as often, for the same
    /// reason. Subnets: upstream 3 min. Locks: 5 min, so that a lock that a person lifts is seen soon. Images: AKS
    /// publishes weekly, there they are cached for 3 days; here 12 h.
    #[must_use]
    pub fn period(self) -> SignedDuration {
        match self {
            Self::Sizes | Self::Prices | Self::Images => SignedDuration::from_hours(12),
            Self::Quota | Self::Reservations => SignedDuration::from_mins(2),
            Self::Subnets => SignedDuration::from_mins(3),
            Self::Locks => SignedDuration::from_mins(5),
        }
    }
}

/// The last attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFailure {
    /// When.
    pub at: Timestamp,
    /// The reason.
    pub reason: Arc<str>,
    /// How often in a row.
    pub consecutive: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ScheduledFact {
    due: Timestamp,
    last_success: Option<Timestamp>,
    failure: Option<FetchFailure>,
}

/// When each fact is due. Others are never fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactSchedule {
    entries: BTreeMap<FactKind, ScheduledFact>,
    seed: u64,
}

/// The wait after a first failure; it doubles with each further one.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(15);
/// The longest wait after a failure, unless the period is shorter.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_mins(15);

impl FactSchedule {
    /// A schedule in which some facts are due at once. `seed` spreads later times.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = FactKind>, now: Timestamp, seed: u64) -> Self {
        let entry = |kind| (kind, ScheduledFact { due: now, last_success: None, failure: None });
        Self { entries: kinds.into_iter().map(entry).collect(), seed }
    }

    /// The fact to fetch now: the one that is due for longest, `Sizes` first among equals.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Option<FactKind> {
        let due = self.entries.iter().filter(|(_, entry)| entry.due <= now);
        due.min_by_key(|(kind, entry)| (entry.due, **kind)).map(|(kind, _)| *kind)
    }

    /// When something is due next.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.entries.values().map(|entry| entry.due).min()
    }

    /// A fact was taken.
    pub fn record_success(&mut self, kind: FactKind, at: Timestamp) {
        let due = later(at, self.spread(kind, kind.period(), at));
        if let Some(entry) = self.entries.get_mut(&kind) {
            *entry = ScheduledFact { due, last_success: Some(at), failure: None };
        }
    }

    /// A fact is known from before, and is requested again when its period is over.
    pub fn restore(&mut self, kind: FactKind, as_of: Timestamp) {
        if let Some(entry) = self.entries.get_mut(&kind) {
            entry.last_success = Some(as_of);
            entry.due = entry.due.max(later(as_of, kind.period()));
        }
    }

    /// Records that a fact could not be fetched; the last good one is retained.
    pub fn record_failure(
        &mut self,
        kind: FactKind,
        at: Timestamp,
        reason: impl Into<Arc<str>>,
        wait: Option<SignedDuration>,
    ) {
        let times =
            self.entries.get(&kind).and_then(|e| e.failure.as_ref()).map_or(0, |f| f.consecutive).saturating_add(1);
        let doubled = FIRST_RETRY.saturating_mul(1 << times.saturating_sub(1).min(10));
        let retry = doubled.min(LONGEST_RETRY).min(kind.period()).max(wait.unwrap_or_default());
        let due = later(at, self.spread(kind, retry, at));
        if let Some(entry) = self.entries.get_mut(&kind) {
            entry.due = due;
            entry.failure = Some(FetchFailure { at, reason: reason.into(), consecutive: times });
        }
    }

    /// Every fact with its last success, and the failure since.
    pub fn entries(&self) -> impl Iterator<Item = (FactKind, Option<Timestamp>, Option<&FetchFailure>)> {
        self.entries.iter().map(|(kind, entry)| (*kind, entry.last_success, entry.failure.as_ref()))
    }

    /// A wait, longer by up to a tenth: so that replicas and clusters do not fetch at once.
    fn spread(&self, kind: FactKind, wait: SignedDuration, at: Timestamp) -> SignedDuration {
        let who = format!("{} of {}", kind.as_str(), self.seed);
        // Only how it differs from time to time counts, so the lower half of the seconds is enough.
        with_jitter(wait, TENTH_JITTER, &who, at.as_second() as u32)
    }
}

fn later(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::start;

    #[test]
    fn all_are_due_at_once_and_then_each_at_its_own_pace() {
        let mut book = FactSchedule::new(FactKind::ALL, start(), 7);
        let mut fetched = Vec::new();
        while let Some(kind) = book.due(start()) {
            fetched.push(kind);
            book.record_success(kind, start());
        }
        assert_eq!(fetched.len(), FactKind::ALL.len());
        assert_eq!(fetched[0], FactKind::Sizes);
        let next = book.next().unwrap();
        assert!(matches!(book.due(next), Some(FactKind::Quota | FactKind::Reservations)));
        let wait = next.duration_since(start());
        let period = FactKind::Quota.period();
        assert!(wait >= period && wait <= period + period / 10, "{wait:?}");
    }

    #[test]
    fn failures_are_retried_with_backoff_and_the_age_is_that_of_the_last_success() {
        let mut book = FactSchedule::new([FactKind::Sizes], start(), 1);
        book.record_success(FactKind::Sizes, start());
        let mut at = start();
        let mut waits = Vec::new();
        for _ in 0..8 {
            book.record_failure(FactKind::Sizes, at, "503", None);
            let next = book.next().unwrap();
            waits.push(next.duration_since(at).as_secs());
            at = next;
        }
        assert!((15..=16).contains(&waits[0]) && waits[7] >= 900 && waits[7] <= 990, "{waits:?}");
        let (_, taken, failure) = book.entries().next().unwrap();
        assert_eq!((taken, failure.unwrap().consecutive), (Some(start()), 8));
        book.record_failure(FactKind::Sizes, at, "429", Some(SignedDuration::from_hours(1)));
        assert!(book.next().unwrap() >= at + SignedDuration::from_hours(1), "Retry-After is respected");
        book.record_success(FactKind::Sizes, at);
        assert_eq!(book.entries().next().unwrap().2, None);
    }

    #[test]
    fn known_facts_are_fetched_when_they_are_due() {
        let mut book = FactSchedule::new([FactKind::Sizes, FactKind::Locks], start(), 1);
        book.restore(FactKind::Sizes, start() - SignedDuration::from_hours(1));
        assert_eq!(book.due(start()), Some(FactKind::Locks));
        book.record_success(FactKind::Locks, start());
        assert_eq!(book.due(start()), None);
        assert!(book.due(start() + SignedDuration::from_hours(11)).is_some());
    }
}
