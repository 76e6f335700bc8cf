//! Time limit and backoff of one script run.
//!
//! A run does not outlast its time limit, whatever Retry-After Azure returns: a longer wait ends the run, and the
//! lifecycle decides again.

use crate::model::errors::CloudError;
use crate::model::names::Uid;
use crate::model::support::jitter::{QUARTER_JITTER, with_jitter};
use jiff::{SignedDuration, Timestamp};

/// Poll interval of an operation, and of a resource that is being created or deleted.
pub(super) const POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// The retry budget of one run.
#[derive(Debug)]
pub(super) struct RetryBudget {
    max_duration: SignedDuration,
    /// Wait after a passing failure, unless Azure names one.
    default_backoff: SignedDuration,
    claim_uid: Uid,
    started: Option<Timestamp>,
    retries: u32,
}

impl RetryBudget {
    /// The budget of a run for this claim, with its longest duration and the wait after a transient failure.
    pub(super) fn new(longest: SignedDuration, again: SignedDuration, who: Uid) -> Self {
        Self { max_duration: longest, default_backoff: again, claim_uid: who, started: None, retries: 0 }
    }

    /// The remaining time of the run, which begins with the first call; `None` when it is over.
    pub(super) fn remaining(&mut self, now: Timestamp) -> Option<SignedDuration> {
        let started = *self.started.get_or_insert(now);
        let left = self.max_duration - now.duration_since(started);
        (!left.is_negative()).then_some(left)
    }

    /// When the run began.
    pub(super) fn started(&self) -> Timestamp {
        self.started.unwrap_or_default()
    }

    /// Passing failures that the run has sat out.
    pub(super) fn retries(&self) -> u32 {
        self.retries
    }

    /// Counts a transient failure and returns the wait after it: Azure's Retry-After, if given. Jitter spreads retries
    /// of requests that were throttled together.
    pub(super) fn backoff(&mut self, error: Option<&CloudError>) -> SignedDuration {
        self.retries += 1;
        let wait = error.map_or(self.default_backoff, |error| error.retry_delay(self.default_backoff));
        with_jitter(wait, QUARTER_JITTER, self.claim_uid.as_str(), self.retries)
    }

    /// Counts a passing failure that calls for a look soon, unless Azure names a time.
    pub(super) fn poll_backoff(&mut self, error: &CloudError) -> SignedDuration {
        self.retries += 1;
        error.retry_delay(POLL_INTERVAL)
    }
}
