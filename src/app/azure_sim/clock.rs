//! Whose time does the simulated Azure live in?

use crate::clock::WallClock;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::clock::Clock;
use std::sync::{Mutex, PoisonError};

/// The clock of the simulated Azure.
#[derive(Debug)]
pub(crate) enum SimClock {
    /// Real time, shifted or not.
    Wall(WallClock),
    /// It stands still until somebody moves it.
    Virtual(Mutex<Timestamp>),
}

impl SimClock {
    /// A clock that stands still at this time.
    pub(crate) fn at(start: Timestamp) -> Self {
        Self::Virtual(Mutex::new(start))
    }

    /// The present instant.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Wall(clock) => clock.now(),
            Self::Virtual(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// As requests name it.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            Self::Wall(_) => "wall",
            Self::Virtual(_) => "virtual",
        }
    }

    /// Moves a virtual clock ahead; `None` for the wall clock, and beyond the end of the calendar.
    pub(crate) fn advance(&self, by: SignedDuration) -> Option<Timestamp> {
        let Self::Virtual(now) = self else { return None };
        let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.checked_add(by).ok()?;
        Some(*now)
    }
}
