//! Connections: which are open, how long may each stay silent, and which is closed for a newcomer?

use crate::claims::{Claim, Room, room};
use crate::limits::Limits;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    reason: &'static str,
}

/// How many connections have been closed for others. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closed(Family<ClosedLabels, Counter>);

impl Closed {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let closed = Self::default();
        let help =
            "Connections closed to free resources, by reason: too many connections, or too many bytes of requests";
        registry.register("connections_closed", help, closed.0.clone());
        closed
    }
}

/// Why a connection is closed for others.
#[derive(Debug, Clone, Copy)]
enum Crowd {
    Connections,
    Bytes,
}

impl Crowd {
    fn reason(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Bytes => "bytes",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Connections => "too many connections",
            Self::Bytes => "too many bytes of requests in memory",
        }
    }
}

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    all: BTreeMap<u64, (Arc<Connection>, oneshot::Sender<()>)>,
    told: Option<Instant>,
    closed: Closed,
}

/// Who waits for room looks this often whether somebody has gone by itself.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A warning about a crowd is written once in so many seconds.
const TOLD_EVERY: Duration = Duration::from_secs(60);

impl Connections {
    pub(crate) fn new(limits: Limits, closed: Closed) -> Self {
        Self { limits, open: Mutex::new(Open { closed, ..Open::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more, and makes it.
    pub(crate) async fn room(&self) {
        while let Some(wait) = self.make_room() {
            tokio::time::sleep(wait.min(LOOK_EVERY)).await;
        }
    }

    /// Closes the one with the least claim where there is no room; how long to wait when it may stay for now.
    fn make_room(&self) -> Option<Duration> {
        let (mut open, now) = (self.lock(), Instant::now());
        if open.all.len() < self.limits.connections.max(1) {
            return None;
        }
        match room(open.all.iter().map(|(id, (one, _))| (*id, one.claim())), now)? {
            Room::Close(id) => {
                open.close(id, Crowd::Connections);
                None
            }
            Room::Wait(until) => Some(until.saturating_duration_since(now)),
        }
    }

    /// A new connection.
    pub(crate) fn admit(self: &Arc<Self>) -> Guest {
        let mut open = self.lock();
        open.last += 1;
        let id = open.last;
        let connection = Arc::new(Connection::new(id));
        let (close, closed) = oneshot::channel();
        open.all.insert(id, (Arc::clone(&connection), close));
        Guest { connection, closed, table: Arc::clone(self) }
    }

    /// Closes connections on which too much arrives.
    pub(crate) fn close(&self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        let mut open = self.lock();
        for id in ids {
            open.close(*id, Crowd::Bytes);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().all.len()
    }
}

impl Open {
    fn close(&mut self, id: u64, why: Crowd) {
        let Some((_, close)) = self.all.remove(&id) else { return };
        self.closed.0.get_or_create(&ClosedLabels { reason: why.reason() }).inc();
        // It may be closing by itself.
        let _ = close.send(());
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            tracing::warn!(
                open = self.all.len(),
                why = why.told(),
                "closing the least active connections; is a client holding connections open?"
            );
        }
    }
}

/// A place among the open connections, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) connection: Arc<Connection>,
    /// Is told when the connection has to be closed.
    pub(crate) closed: oneshot::Receiver<()>,
    table: Arc<Connections>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.table.lock().all.remove(&self.connection.id);
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u64,
    opened: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that have begun and have no answer yet, and those of them that are here whole.
    begun: usize,
    working: usize,
    /// When the last of them ended; absent before the first.
    ended: Option<Instant>,
    answered: Option<Instant>,
    /// Since when a head may be arriving.
    reading: Option<Instant>,
    http2: bool,
}

impl Connection {
    fn new(id: u64) -> Self {
        Self { id, opened: Instant::now(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self) -> Claim {
        let state = self.lock();
        Claim { opened: self.opened, answered: state.answered, working: state.working > 0 }
    }

    /// Until when it may go on without a request; nothing while there is one, which has bounds of its own. Bytes are
    /// no sign of life: whoever trickles has to finish something.
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

    /// A request's head is here whole.
    pub(crate) fn begin(self: &Arc<Self>, http2: bool) -> Visit {
        let mut state = self.lock();
        state.begun += 1;
        state.http2 = http2;
        state.reading = None;
        drop(state);
        Visit { connection: Arc::clone(self), working: false, answered: false }
    }
}

/// A request that has begun, until this is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    connection: Arc<Connection>,
    working: bool,
    answered: bool,
}

impl Visit {
    pub(crate) fn whose(&self) -> u64 {
        self.connection.id
    }

    /// It is here whole, and is being answered.
    pub(crate) fn work(&mut self) {
        self.working = true;
        self.connection.lock().working += 1;
    }

    /// It has an answer that is no refusal.
    pub(crate) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        let now = Instant::now();
        state.begun -= 1;
        state.working -= usize::from(self.working);
        state.ended = Some(now);
        if self.answered {
            state.answered = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::STAY;

    fn limits() -> Limits {
        Limits { connections: 2, ..Limits::default() }
    }

    async fn newcomer(table: &Arc<Connections>) -> Guest {
        table.room().await;
        table.admit()
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_one_with_the_least_claim() {
        let table = Arc::new(Connections::new(limits(), Closed::default()));
        let (mut good, mut silent) = (newcomer(&table).await, newcomer(&table).await);
        good.connection.begin(false).answered();
        let start = Instant::now();
        let mut third = newcomer(&table).await;
        assert!(start.elapsed() >= STAY / 2, "the silent one had no time to ask");
        assert!(silent.closed.try_recv().is_ok() && good.closed.try_recv().is_err());
        let counted = |reason| table.lock().closed.0.get_or_create(&ClosedLabels { reason }).get();
        assert_eq!((counted("connections"), counted("bytes")), (1, 0));
        drop(silent);
        assert_eq!(table.len(), 2);
        third.connection.begin(false).answered();
        drop(newcomer(&table).await);
        assert!(good.closed.try_recv().is_ok() && third.closed.try_recv().is_err());
        assert_eq!(table.len(), 1);
    }

    #[tokio::test]
    async fn a_refusal_gives_no_claim_and_work_gives_most() {
        let table = Arc::new(Connections::new(limits(), Closed::default()));
        let (mut refused, busy) = (newcomer(&table).await, newcomer(&table).await);
        drop(refused.connection.begin(false));
        let mut visit = busy.connection.begin(false);
        visit.work();
        let _newcomer = newcomer(&table).await;
        assert!(refused.closed.try_recv().is_ok());
    }

    #[test]
    fn a_head_is_waited_for_shortly_and_the_next_request_for_long() {
        let (limits, one) = (limits(), Arc::new(Connection::new(1)));
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
