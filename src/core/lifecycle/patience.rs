//! Patience: how long may one run of a script take, and how long does it wait for the next try?
//!
//! A claim may not be held up for as long as Azure asks: a wait that is longer than what is left ends the run, and the
//! lifecycle decides anew.

use crate::model::errors::CloudError;
use crate::model::names::Uid;
use crate::model::support::jitter::{A_QUARTER, jittered};
use jiff::{SignedDuration, Timestamp};

/// How often an operation, and a resource that is being made or deleted, is looked at.
pub(super) const POLL_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// The patience of one run.
#[derive(Debug)]
pub(super) struct Patience {
    longest: SignedDuration,
    /// Wait after a passing failure, unless Azure names one.
    again: SignedDuration,
    who: Uid,
    started: Option<Timestamp>,
    retries: u32,
}

impl Patience {
    /// Of a run for this claim that takes so long at most, and waits so long after a passing failure.
    pub(super) fn new(longest: SignedDuration, again: SignedDuration, who: Uid) -> Self {
        Self { longest, again, who, started: None, retries: 0 }
    }

    /// What is left of the run, which begins with the first call; `None` when it is over.
    pub(super) fn left(&mut self, now: Timestamp) -> Option<SignedDuration> {
        let started = *self.started.get_or_insert(now);
        let left = self.longest - now.duration_since(started);
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

    /// Counts a passing failure; the wait after it: what Azure asks for, if it does. Many that were turned away at once
    /// do not come back at once.
    pub(super) fn sit_out(&mut self, error: Option<&CloudError>) -> SignedDuration {
        self.retries += 1;
        let wait = error.map_or(self.again, |error| error.wait(self.again));
        jittered(wait, A_QUARTER, self.who.as_str(), self.retries)
    }

    /// Counts a passing failure that calls for a look soon, unless Azure names a time.
    pub(super) fn look_soon(&mut self, error: &CloudError) -> SignedDuration {
        self.retries += 1;
        error.wait(POLL_EVERY)
    }
}
