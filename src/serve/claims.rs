//! Claims: whose connection is closed when there is room for no more?
//!
//! A newcomer is never refused: whoever holds all connections and says nothing would keep everybody else out. The one
//! with the least claim goes instead. Those come first that have never had an answer, the oldest first, since an honest
//! client asks as soon as it is connected; then those that had their last one longest ago. None goes whose request is here
//! whole and is being answered: that takes no longer than the newcomer can wait.
//!
//! But each has some time to ask first, and newcomers wait at the port for so long: in a crowd that comes at once the
//! honest one would be pushed out before its handshake has had its turn.

use std::time::{Duration, Instant};

/// For so long nobody is pushed out who has had no answer yet. With 512 connections, 1,024 newcomers a second are let in.
pub(crate) const STAY: Duration = Duration::from_millis(500);

/// What counts for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// When it was accepted.
    pub(crate) opened: Instant,
    /// When it was last given an answer that is no refusal.
    pub(crate) answered: Option<Instant>,
    /// True while a request of it that is here whole is being answered.
    pub(crate) working: bool,
}

impl Claim {
    fn rank(self) -> (u8, Instant) {
        match self.answered {
            _ if self.working => (2, self.answered.unwrap_or(self.opened)),
            Some(answered) => (1, answered),
            None => (0, self.opened),
        }
    }
}

/// How room is made for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room<I> {
    /// This one is closed.
    Close(I),
    /// Nobody goes before this time.
    Wait(Instant),
}

/// How room is made among these; nothing where nobody is.
pub(crate) fn room<I>(claims: impl IntoIterator<Item = (I, Claim)>, now: Instant) -> Option<Room<I>> {
    let (whose, claim) = claims.into_iter().min_by_key(|(_, claim)| claim.rank())?;
    if claim.working {
        // All are being answered, which takes a moment: to break one off would be to refuse it.
        return Some(Room::Wait(now + STAY));
    }
    let stays = claim.opened + STAY;
    let waits = claim.answered.is_none() && stays > now;
    Some(if waits { Room::Wait(stays) } else { Room::Close(whose) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it came and was last answered, in seconds, and whether it is being answered.
    fn gone(claims: &[(u64, Option<u64>, bool)]) -> Option<usize> {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let claims = claims.iter().enumerate().map(|(n, (opened, answered, working))| {
            (n, Claim { opened: at(*opened), answered: answered.map(at), working: *working })
        });
        match room(claims, at(1000))? {
            Room::Close(whose) => Some(whose),
            Room::Wait(until) => panic!("all had time to ask: {until:?}"),
        }
    }

    #[test]
    fn who_has_just_come_has_time_to_ask() {
        let now = Instant::now();
        let claim = |ago: Duration| Claim { opened: now - ago, answered: None, working: false };
        let (new, newer) = (claim(STAY / 2), claim(STAY / 4));
        assert_eq!(room([(1, newer), (2, new)], now), Some(Room::Wait(new.opened + STAY)));
        assert_eq!(room([(1, newer), (2, new)], now + STAY / 2), Some(Room::Close(2)));
        // Who was answered goes at once when there is nobody else, and not before one that was not.
        let answered = Claim { answered: Some(now), ..new };
        assert_eq!(room([(1, answered)], now), Some(Room::Close(1)));
        assert_eq!(room([(1, answered), (2, newer)], now), Some(Room::Wait(newer.opened + STAY)));
    }

    #[test]
    fn who_never_had_an_answer_goes_first_and_the_oldest_of_them() {
        assert_eq!(gone(&[]), None);
        assert_eq!(gone(&[(0, Some(1), false), (9, None, false), (8, None, false)]), Some(2));
    }

    #[test]
    fn then_who_had_its_answer_longest_ago() {
        assert_eq!(gone(&[(0, Some(7), false), (5, Some(6), false), (1, Some(8), false)]), Some(1));
    }

    #[test]
    fn nobody_goes_who_is_being_answered() {
        assert_eq!(gone(&[(0, None, true), (1, Some(9), false)]), Some(1));
        let now = Instant::now();
        let working = Claim { opened: now, answered: None, working: true };
        assert_eq!(room([(1, working), (2, working)], now), Some(Room::Wait(now + STAY)));
    }

    #[test]
    fn a_newcomer_outlasts_all_that_were_silent_before_it() {
        let mut silent: Vec<_> = (0..100).map(|n| (n, None, false)).collect();
        silent.push((100, None, false));
        while silent.len() > 1 {
            let gone = gone(&silent).unwrap();
            assert_ne!(silent[gone].0, 100);
            silent.remove(gone);
        }
    }
}
