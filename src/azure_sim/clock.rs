//! The clock of the simulated Azure: real or virtual time.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::clock::Clock;
use std::sync::{Arc, Mutex, PoisonError};

/// The clock of the simulated Azure.
#[derive(Debug)]
pub enum SimClock {
    /// Real time, shifted or not.
    Wall(Arc<dyn Clock>),
    /// It only moves when it is advanced.
    Virtual(Mutex<Timestamp>),
}

impl SimClock {
    /// A clock that stands at this time.
    pub fn at(start: Timestamp) -> Self {
        Self::Virtual(Mutex::new(start))
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Wall(clock) => clock.now(),
            Self::Virtual(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The name of the mode in the control endpoint.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Wall(_) => "wall",
            Self::Virtual(_) => "virtual",
        }
    }

    /// Moves a virtual clock ahead; `None` for the wall clock, or beyond the end of the calendar.
    pub fn advance(&self, by: SignedDuration) -> Option<Timestamp> {
        let Self::Virtual(now) = self else { return None };
        let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.checked_add(by).ok()?;
        Some(*now)
    }
}
