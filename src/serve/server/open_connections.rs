//! The open connections of a server, and which of them is closed for a new one.
//!
//! A server that let new connections wait would be unreachable for everyone as soon as one client holds all of them. So
//! beyond the limit one is closed at once: of the client address that has most connections, the one that has gone
//! without an answer for longest. A client that opens many thereby closes its own, and no other client's.

use crate::server::activity::ConnectionActivity;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Most connections that have been closed for others and whose tasks have not ended, so still have a file descriptor.
const MAX_CLOSING: usize = 128;

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
    /// Connections that were closed for others, and whose tasks have not ended yet.
    closing: usize,
}

#[derive(Debug)]
struct Entry {
    source: IpAddr,
    activity: Arc<ConnectionActivity>,
}

impl OpenConnections {
    /// A table for at most so many, at least 1.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection from this address, for which another one may be closed; `None` if all are being answered: then it
    /// should be closed itself.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr) -> Option<OpenConnection> {
        let mut table = self.lock();
        if table.open.len() >= self.most {
            // The tasks of those that were closed get no turn: more connections would only add to them.
            if table.closing >= MAX_CLOSING {
                return None;
            }
            let id = table.least_useful()?;
            if let Some(closed) = table.open.remove(&id) {
                closed.activity.close();
                table.closing += 1;
            }
        }
        let (id, activity) = (table.next, Arc::new(ConnectionActivity::new()));
        table.next += 1;
        table.open.insert(id, Entry { source, activity: Arc::clone(&activity) });
        drop(table);
        Some(OpenConnection { id, activity, all: Arc::clone(self) })
    }
}

impl Table {
    /// Of the address with most connections that are not being answered, the one that has been so for longest.
    fn least_useful(&self) -> Option<u64> {
        let mut sources = BTreeMap::<IpAddr, (usize, Instant, u64)>::new();
        for (id, Entry { source, activity }) in &self.open {
            let Some(since) = activity.unanswered_since() else { continue };
            let (count, oldest, oldest_id) = sources.entry(*source).or_insert((0, since, *id));
            *count += 1;
            if since < *oldest {
                (*oldest, *oldest_id) = (since, *id);
            }
        }
        let (_, _, id) = sources.into_values().max_by_key(|(count, oldest, _)| (*count, std::cmp::Reverse(*oldest)))?;
        Some(id)
    }
}

/// Counts as an open connection until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    id: u64,
    activity: Arc<ConnectionActivity>,
    all: Arc<OpenConnections>,
}

impl OpenConnection {
    /// Its requests.
    pub(crate) fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        if table.open.remove(&self.id).is_none() {
            table.closing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::{Context, Waker};

    fn source(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn is_closed(one: &OpenConnection) -> bool {
        one.activity.poll_closed(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_client_with_many_connections_closes_its_own() {
        let all = Arc::new(OpenConnections::new(4));
        let alone = all.admit(source(1)).unwrap();
        let many: Vec<_> = (0..7).map(|_| all.admit(source(2)).unwrap()).collect();
        assert!(!is_closed(&alone), "the oldest, but the only one of its address");
        let closed: Vec<_> = many.iter().map(is_closed).collect();
        assert_eq!(closed, [true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_connection_that_is_being_answered_stays_open() {
        let all = Arc::new(OpenConnections::new(2));
        let (answered, receiving) = (all.admit(source(1)).unwrap(), all.admit(source(1)).unwrap());
        let mut request = answered.activity.begin(false);
        request.received();
        let incomplete = receiving.activity.begin(false);
        let third = all.admit(source(2)).unwrap();
        assert!(is_closed(&receiving) && !is_closed(&answered) && !is_closed(&third));
        drop(incomplete);
        let mut second = third.activity.begin(false);
        second.received();
        assert!(all.admit(source(3)).is_none(), "both are being answered");
        drop(request);
        assert!(all.admit(source(3)).is_some() && is_closed(&answered));
    }

    #[test]
    fn connections_that_do_not_end_are_bounded() {
        let all = Arc::new(OpenConnections::new(2));
        let mut held = Vec::new();
        while let Some(one) = all.admit(source(1)) {
            held.push(one);
            assert!(held.len() <= 2 + MAX_CLOSING, "closed ones count until they end");
        }
        assert_eq!(held.len(), 2 + MAX_CLOSING);
        held.remove(0);
        assert!(all.admit(source(1)).is_some());
    }
}
