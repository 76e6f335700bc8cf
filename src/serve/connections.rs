//! Connections: how long may each go on without a request?

use crate::limits::Limits;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    opened: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that have begun and have no answer yet.
    begun: usize,
    /// When the last of them ended; absent before the first.
    ended: Option<Instant>,
    /// Since when a head may be arriving.
    reading: Option<Instant>,
    http2: bool,
}

impl Connection {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when it may go on without a request; nothing while there is one, which has limits of its own. Bytes do not
    /// extend it: a slow client has to finish something.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let state = self.lock();
        if state.begun > 0 {
            return None;
        }
        let Some(ended) = state.ended else { return Some(self.opened + limits.head_within) };
        let idle = ended + limits.idle;
        // Between requests HTTP/2 sends pings and the like.
        let head = state.reading.filter(|_| !state.http2).map(|since| since + limits.head_within);
        Some(head.map_or(idle, |head| head.min(idle)))
    }

    /// Bytes have come.
    pub(crate) fn read(&self) {
        let mut state = self.lock();
        if state.begun == 0 && state.ended.is_some() && state.reading.is_none() {
            state.reading = Some(Instant::now());
        }
    }

    /// A request's head has been read.
    pub(crate) fn begin(self: &Arc<Self>, http2: bool) -> Visit {
        let mut state = self.lock();
        state.begun += 1;
        state.http2 = http2;
        state.reading = None;
        drop(state);
        Visit { connection: Arc::clone(self) }
    }
}

/// A request that has begun, until this is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    connection: Arc<Connection>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        state.begun -= 1;
        state.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_head_is_waited_for_shortly_and_the_next_request_for_long() {
        let (limits, one) = (Limits::default(), Arc::new(Connection::new()));
        let left = |one: &Connection| one.deadline(&limits).map(|at| at.saturating_duration_since(Instant::now()));
        let about = |left: Option<Duration>, of: Duration| {
            assert!(left.is_some_and(|left| left <= of && left + Duration::from_secs(5) > of), "{left:?} of {of:?}");
        };
        one.read();
        about(left(&one), limits.head_within);
        let visit = one.begin(false);
        assert_eq!(left(&one), None, "a request has bounds of its own");
        one.read();
        drop(visit);
        about(left(&one), limits.idle);
        one.read();
        about(left(&one), limits.head_within);
        drop(one.begin(true));
        one.read();
        about(left(&one), limits.idle);
    }
}
