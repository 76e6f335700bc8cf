//! The requests of a connection: how long it may go without one, and whether it may be closed for another connection.

use crate::server::limits::Limits;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    opened: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that have no answer yet.
    open: usize,
    /// Those of them that have been received completely.
    received: usize,
    /// When the last of them began.
    begun: Option<Instant>,
    /// When the last of them ended; absent before the first.
    ended: Option<Instant>,
    /// Since when a head may be arriving.
    reading: Option<Instant>,
    http2: bool,
    /// Must end, to make room for another connection.
    closed: bool,
    /// The task that has to know of it.
    waker: Option<Waker>,
}

impl ConnectionActivity {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), state: Mutex::default() }
    }

    /// Since when no request of it is being answered; `None` if one is. A request that has not been received completely
    /// is not being answered.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        let state = self.lock();
        let last = state.begun.max(state.ended).unwrap_or(self.opened);
        (state.received == 0).then_some(last)
    }

    /// Ends the connection with its next read or write.
    pub(crate) fn close(&self) {
        let waker = {
            let mut state = self.lock();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once it has been closed.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when it may stay open without a request; none while there is one, which has limits of its own. Bytes do not
    /// extend it: a slow client has to complete a request.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let state = self.lock();
        if state.open > 0 {
            return None;
        }
        let Some(ended) = state.ended else { return Some(self.opened + limits.head_within) };
        let idle = ended + limits.idle;
        // Between requests HTTP/2 sends pings and the like.
        let head = state.reading.filter(|_| !state.http2).map(|since| since + limits.head_within);
        Some(head.map_or(idle, |head| head.min(idle)))
    }

    /// Bytes were received.
    pub(crate) fn read(&self) {
        let mut state = self.lock();
        if state.open == 0 && state.ended.is_some() && state.reading.is_none() {
            state.reading = Some(Instant::now());
        }
    }

    /// A request's head has been read.
    pub(crate) fn begin(self: &Arc<Self>, http2: bool) -> OpenRequest {
        let mut state = self.lock();
        state.open += 1;
        state.begun = Some(Instant::now());
        state.http2 = http2;
        state.reading = None;
        drop(state);
        OpenRequest { connection: Arc::clone(self), received: false }
    }
}

/// A request that has begun, until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    connection: Arc<ConnectionActivity>,
    received: bool,
}

impl OpenRequest {
    /// It has been received completely, and is being answered now.
    pub(crate) fn received(&mut self) {
        if !std::mem::replace(&mut self.received, true) {
            self.connection.lock().received += 1;
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        state.open -= 1;
        state.received -= usize::from(self.received);
        state.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_head_has_less_time_than_the_next_request() {
        let (limits, one) = (Limits::default(), Arc::new(ConnectionActivity::new()));
        let left =
            |one: &ConnectionActivity| one.deadline(&limits).map(|at| at.saturating_duration_since(Instant::now()));
        let about = |left: Option<Duration>, of: Duration| {
            assert!(left.is_some_and(|left| left <= of && left + Duration::from_secs(5) > of), "{left:?} of {of:?}");
        };
        one.read();
        about(left(&one), limits.head_within);
        let request = one.begin(false);
        assert_eq!(left(&one), None, "a request has bounds of its own");
        one.read();
        drop(request);
        about(left(&one), limits.idle);
        one.read();
        about(left(&one), limits.head_within);
        drop(one.begin(true));
        one.read();
        about(left(&one), limits.idle);
    }
}
