//! Ledger: how many bytes of requests are here, and whose must go when there are too many?
//!
//! To refuse whoever comes when the room is full would let a few large requests that never end keep all others out. So
//! the connection goes on which most bytes are still arriving. It holds at least the average, which is
//! [`Limits::requests`](crate::Limits::requests) by [`Limits::connections`](crate::Limits::connections), 128 KiB: one
//! that asks about a pod of some kilobytes is never pushed out. What has arrived whole is never dropped, for its answer
//! frees the room soon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What still arrives on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arriving {
    bytes: usize,
    /// Tells it from what arrived on the same connection before that had to go.
    round: u64,
}

/// Who holds how much; a value without locks or waiting. Connections go by number.
#[derive(Debug)]
struct Books {
    most: usize,
    /// Bytes of all requests that are here, whole or not.
    total: usize,
    round: u64,
    arriving: BTreeMap<u64, Arriving>,
    /// The same by size.
    order: BTreeSet<(usize, u64)>,
}

impl Books {
    fn new(most: usize) -> Self {
        Self { most, total: 0, round: 0, arriving: BTreeMap::new(), order: BTreeSet::new() }
    }

    fn set(&mut self, whose: u64, now: Option<Arriving>) {
        let before = match now {
            Some(now) => self.arriving.insert(whose, now),
            None => self.arriving.remove(&whose),
        };
        if let Some(before) = before {
            self.order.remove(&(before.bytes, whose));
        }
        if let Some(now) = now {
            self.order.insert((now.bytes, whose));
        }
    }

    /// Takes `more` bytes of a connection in, as part of what arrives on it. Returns the round, and which connections
    /// have to go for it; nothing when there is no room and no connection on which more is arriving.
    fn take(&mut self, whose: u64, more: usize) -> Option<(u64, Vec<u64>)> {
        let mine = self.arriving.get(&whose).copied();
        let whole = mine.map_or(0, |mine| mine.bytes) + more;
        let (mut room, mut victims) = (self.most.saturating_sub(self.total), Vec::new());
        for (bytes, other) in self.order.iter().rev().copied().filter(|(_, other)| *other != whose) {
            if room >= more || bytes <= whole {
                break;
            }
            room += bytes;
            victims.push((bytes, other));
        }
        if room < more {
            return None;
        }
        for (bytes, other) in &victims {
            self.total -= bytes;
            self.set(*other, None);
        }
        let round = mine.map_or_else(
            || {
                self.round += 1;
                self.round
            },
            |mine| mine.round,
        );
        self.total += more;
        self.set(whose, Some(Arriving { bytes: whole, round }));
        Some((round, victims.into_iter().map(|(_, other)| other).collect()))
    }

    /// As [`Self::take`], for a request that has begun in this round; nothing also when its connection had to go.
    fn grow(&mut self, (whose, round): (u64, u64), more: usize) -> Option<Vec<u64>> {
        self.arriving.get(&whose).filter(|mine| mine.round == round)?;
        self.take(whose, more).map(|(_, victims)| victims)
    }

    /// So many bytes arrive no more; false when they had to go before.
    fn settle(&mut self, (whose, round): (u64, u64), bytes: usize) -> bool {
        let Some(mine) = self.arriving.get(&whose).copied().filter(|mine| mine.round == round) else { return false };
        let left = mine.bytes.saturating_sub(bytes);
        self.set(whose, (left > 0).then_some(Arriving { bytes: left, round }));
        true
    }
}

/// Bytes of requests over all connections of a server.
#[derive(Debug)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

impl Ledger {
    pub(crate) fn new(most: usize) -> Self {
        Self { books: Mutex::new(Books::new(most)) }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a request that begins to arrive on a connection, and which others have to be closed for it.
    pub(crate) fn enter(self: &Arc<Self>, whose: u64, bytes: usize) -> Option<(Held, Vec<u64>)> {
        let (round, victims) = self.lock().take(whose, bytes)?;
        Some((Held { ledger: Arc::clone(self), key: (whose, round), bytes, whole: false }, victims))
    }
}

/// Room that a request holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    ledger: Arc<Ledger>,
    key: (u64, u64),
    bytes: usize,
    whole: bool,
}

impl Held {
    /// More room, and which connections have to be closed for it; nothing when the request has to go.
    pub(crate) fn grow(&mut self, more: usize) -> Option<Vec<u64>> {
        let victims = self.ledger.lock().grow(self.key, more)?;
        self.bytes += more;
        Some(victims)
    }

    /// The request is here whole: it is not sent away any more. False when it has been.
    pub(crate) fn arrived(&mut self) -> bool {
        self.whole = self.ledger.lock().settle(self.key, self.bytes);
        self.whole
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut books = self.ledger.lock();
        if self.whole || books.settle(self.key, self.bytes) {
            books.total -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn the_connection_on_which_most_arrives_goes_for_one_with_less() {
        let mut books = Books::new(100);
        assert_eq!(books.take(1, 40), Some((1, vec![])));
        assert_eq!(books.take(2, 50), Some((2, vec![])));
        assert_eq!(books.take(3, 20), Some((3, vec![2])));
        assert_eq!(books.total, 60);
        assert_eq!(books.grow((2, 2), 1), None, "it had to go");
        assert!(!books.settle((2, 2), 50));
        // What arrives on it anew has nothing to do with that.
        assert_eq!(books.take(2, 5), Some((4, vec![])));
        assert!(!books.settle((2, 2), 50) && books.settle((2, 4), 5));
    }

    #[test]
    fn many_small_requests_of_one_connection_count_as_one_large_one() {
        let mut books = Books::new(100);
        for _ in 0..100 {
            books.take(1, 1).unwrap();
        }
        assert_eq!(books.take(2, 10), Some((2, vec![1])));
        assert_eq!(books.total, 10);
    }

    #[test]
    fn the_one_with_most_gets_no_more_room() {
        let mut books = Books::new(100);
        books.take(1, 30);
        books.take(2, 60);
        assert_eq!(books.grow((2, 2), 20), None);
        assert_eq!(books.take(3, 101), None, "more than all");
        assert_eq!(books.total, 90, "and nobody went for it");
    }

    #[test]
    fn who_holds_less_than_the_average_is_never_pushed_out() {
        let mut books = Books::new(64 * KIB * KIB);
        for whose in 0..511 {
            while books.total < 64 * KIB * KIB
                && books.take(whose, 16 * KIB).is_some_and(|_| books.arriving[&whose].bytes < 256 * KIB)
            {}
        }
        let (_, mut gone) = books.take(511, 64 * KIB).unwrap();
        for whose in 0..511 {
            for _ in 0..20 {
                gone.extend(books.take(whose, 16 * KIB).map(|(_, victims)| victims).into_iter().flatten());
            }
        }
        assert!(!gone.is_empty() && !gone.contains(&511), "{gone:?}");
        assert!(books.total <= books.most);
    }

    #[test]
    fn what_is_here_whole_stays_and_keeps_its_room_until_it_leaves() {
        let ledger = Arc::new(Ledger::new(100));
        let (mut first, _) = ledger.enter(1, 60).unwrap();
        assert_eq!(first.grow(30), Some(vec![]));
        assert!(first.arrived());
        assert!(ledger.enter(2, 20).is_none());
        drop(first);
        let (mut second, _) = ledger.enter(2, 20).unwrap();
        let (third, gone) = ledger.enter(3, 85).map_or((None, vec![]), |(held, gone)| (Some(held), gone));
        assert!(third.is_none() && gone.is_empty(), "it would be the largest");
        let (fourth, gone) = ledger.enter(4, 80).unwrap();
        assert!(gone.is_empty());
        assert_eq!(second.grow(1), Some(vec![4]));
        drop(fourth);
        drop(second);
        let books = ledger.lock();
        assert_eq!((books.total, books.arriving.len(), books.order.len()), (0, 0, 0));
    }
}
