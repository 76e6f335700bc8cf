//! Clocks for what decides by the time.

use jiff::Timestamp;
use napkeeper_core::engine::clock::Clock;

/// The time of this machine, without an offset.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

/// A clock that always shows 1970-01-01T00:00:00Z.
#[derive(Debug)]
pub struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}
