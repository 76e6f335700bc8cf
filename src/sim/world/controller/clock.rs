//! The controller's clock, which may be ahead of the API server's or behind it.

use crate::world::World;
use crate::world::timeline::EventKind;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::clock::MAX_SKEW;
use napkeeper_core::engine::leader_election::{RENEW_DEADLINE, RETRY_PERIOD};

/// The clock of the controller.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::world) struct ControllerClock {
    /// How far it is ahead.
    ahead: SignedDuration,
    /// How far it was ahead when the API server last answered.
    known: SignedDuration,
    /// When the API server answers next: the Lease is renewed.
    compared_at: Option<Timestamp>,
    /// The controller decides and acts however wrong its clock is.
    pub(in crate::world) is_unchecked: bool,
}

impl ControllerClock {
    /// The controller's time.
    pub(super) fn time(self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.ahead).unwrap_or(now)
    }

    /// The real instant of one by the controller's clock.
    pub(super) fn real(self, at: Timestamp) -> Timestamp {
        at.saturating_sub(self.ahead).unwrap_or(at)
    }

    /// The API server has answered.
    pub(super) fn compare(&mut self) {
        self.known = self.ahead;
        self.compared_at = None;
    }

    /// Times can be compared, as far as the controller knows.
    pub(in crate::world) fn is_tolerable(self) -> bool {
        self.is_unchecked || self.known.abs() <= MAX_SKEW
    }

    /// When the controller compares its clock next.
    pub(super) fn compared_at(self) -> Option<Timestamp> {
        self.compared_at
    }
}

impl World {
    /// The controller's time.
    pub(in crate::world) fn controller_time(&self) -> Timestamp {
        self.controller.clock.time(self.now)
    }

    /// The controller's clock is so far ahead from now on.
    pub(in crate::world) fn set_controller_clock(&mut self, ahead: SignedDuration) {
        self.log(EventKind::Controller, "controller", format!("its clock is ahead by {ahead:#}"));
        let clock = &mut self.controller.clock;
        let step = ahead - clock.ahead;
        clock.ahead = ahead;
        clock.compared_at = Some(self.now + RETRY_PERIOD);
        self.truth.allow_clock_error(ahead);
        // The Lease seems to have expired, until it is renewed.
        if step >= RENEW_DEADLINE && self.controller.is_up() {
            self.controller.crash(self.now + RETRY_PERIOD);
        }
    }

    /// Compares clocks, when that is due; true when it was.
    pub(in crate::world) fn compare_clocks(&mut self) -> bool {
        let is_due = self.controller.clock.compared_at.is_some_and(|at| at <= self.now);
        if is_due {
            self.controller.clock.compare();
        }
        is_due
    }
}
