//! Leader election over a Lease.
//!
//! A candidate believes to hold the Lease only for a while after it *sent* a renewal that succeeded. It takes over from
//! another only when it has *seen* no renewal for longer than that. Both are measured on the candidate's own steady
//! clock, never by times that another wrote, so that clocks which disagree do no harm; clocks may run at speeds
//! that differ by a fifth.
//!
//! Instants here are the time since some start of the process's own.

use jiff::SignedDuration;
use std::sync::Arc;

/// A Lease that has not been renewed for this long may be taken.
pub const LEASE_DURATION: SignedDuration = SignedDuration::from_secs(15);
/// A holder that has not renewed for this long acts as if it had lost the Lease.
pub const RENEW_DEADLINE: SignedDuration = SignedDuration::from_secs(10);
/// Interval of renewals and of reads.
pub const RETRY_PERIOD: SignedDuration = SignedDuration::from_secs(2);

/// A Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder; `None` once it was released.
    pub holder: Option<Arc<str>>,
    /// Differs after each write.
    pub version: Arc<str>,
    /// The holder's lease duration.
    pub duration: SignedDuration,
}

/// The next action of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Write our name into it, upon the version that was read.
    Acquire,
    /// Renew it, upon the version that was read.
    Renew,
    /// Another holds it: look again at this instant at the latest, for then it may be free.
    Wait(SignedDuration),
}

/// One that wants to hold the Lease.
#[derive(Debug, Clone)]
pub struct LeaderElector {
    identity: Arc<str>,
    /// The last Lease read, and when it was first observed.
    observed: Option<(LeaseRecord, SignedDuration)>,
    /// When the last write that succeeded was sent.
    renewed_at: Option<SignedDuration>,
}

impl LeaderElector {
    /// A candidate. No two processes may share an identity, nor may a process and the one before it.
    #[must_use]
    pub fn new(identity: Arc<str>) -> Self {
        Self { identity, observed: None, renewed_at: None }
    }

    /// The next action after reading the Lease; `None` where there is none.
    pub fn next_action(&mut self, lease: Option<&LeaseRecord>, now: SignedDuration) -> LeaseAction {
        let Some(lease) = lease else {
            self.step_down();
            return LeaseAction::Acquire;
        };
        if self.observed.as_ref().is_none_or(|(seen, _)| seen != lease) {
            self.observed = Some((lease.clone(), now));
        }
        let since = self.observed.as_ref().map_or(now, |(_, since)| *since);
        match &lease.holder {
            Some(holder) if *holder == self.identity => LeaseAction::Renew,
            Some(_) => {
                self.renewed_at = None;
                let free = since.saturating_add(lease.duration.max(LEASE_DURATION));
                if now >= free { LeaseAction::Acquire } else { LeaseAction::Wait(free) }
            }
            None => {
                self.renewed_at = None;
                LeaseAction::Acquire
            }
        }
    }

    /// A write of ours succeeded, which was sent at this instant.
    pub fn record_renewal(&mut self, sent: SignedDuration) {
        self.renewed_at = Some(sent);
    }

    /// Acts from now on as if the Lease were lost, for example because it is about to be released.
    pub fn step_down(&mut self) {
        self.renewed_at = None;
    }

    /// When the last renewal was sent that makes us the holder; `None` when we are not.
    #[must_use]
    pub fn renewed_at(&self) -> Option<SignedDuration> {
        self.renewed_at
    }
}

/// How long no other candidate can take the Lease, this long after the last renewal was sent; `None` once the holder
/// must act as if it were lost.
#[must_use]
pub fn remaining_lease(since_renewal: SignedDuration) -> Option<SignedDuration> {
    (since_renewal < RENEW_DEADLINE).then(|| LEASE_DURATION - since_renewal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A candidate with its own clock, and its pending requests.
    struct Actor {
        candidate: LeaderElector,
        offset: i64,
        permille: i64,
        steps: std::vec::IntoIter<[i64; 4]>,
    }

    impl Actor {
        /// Its own time at a real instant in ms.
        fn local(&self, real: i64) -> SignedDuration {
            SignedDuration::from_millis(self.offset + real * self.permille / 1000)
        }

        fn leads(&self, real: i64) -> bool {
            let since = self.candidate.renewed_at().map(|at| self.local(real) - at);
            since.is_some_and(|since| remaining_lease(since).is_some())
        }
    }

    /// An event of an actor.
    #[derive(Debug, Clone)]
    enum Event {
        /// It reads the Lease, decides, and sends a write.
        Look,
        /// Its write arrives.
        Arrive { upon: u64, sent: SignedDuration },
        /// The answer arrives.
        Answer { sent: SignedDuration, written: bool },
    }

    /// Plays two candidates against one Lease; each step of theirs is a wait, the latencies of write and answer in ms,
    /// and whether the answer is lost. Returns how often leadership changed.
    fn play(mut actors: [Actor; 2]) -> Result<u32, TestCaseError> {
        let mut queue: BTreeMap<(i64, usize), Event> = (0..2).map(|i| ((i as i64, i), Event::Look)).collect();
        let (mut holder, mut version) = (None::<Arc<str>>, 0_u64);
        let (mut latency, mut leader, mut changes) = ([[0_i64; 4]; 2], None, 0);
        while let Some(((now, who), event)) = queue.pop_first() {
            let mut next = |mut at: i64, event| {
                while queue.contains_key(&(at, who)) {
                    at += 1;
                }
                queue.insert((at, who), event);
            };
            let actor = &mut actors[who];
            let local = actor.local(now);
            match event {
                Event::Look => {
                    let Some(step) = actor.steps.next() else { continue };
                    latency[who] = step;
                    let lease = (version > 0).then(|| LeaseRecord {
                        holder: holder.clone(),
                        version: Arc::from(version.to_string()),
                        duration: LEASE_DURATION,
                    });
                    match actor.candidate.next_action(lease.as_ref(), local) {
                        LeaseAction::Wait(_) => next(now + step[0], Event::Look),
                        _ => next(now + step[1], Event::Arrive { upon: version, sent: local }),
                    }
                }
                Event::Arrive { upon, sent } => {
                    let written = upon == version;
                    if written {
                        (holder, version) = (Some(Arc::clone(&actor.candidate.identity)), version + 1);
                    }
                    next(now + latency[who][2], Event::Answer { sent, written });
                }
                Event::Answer { sent, written } => {
                    if written && latency[who][3] != 0 {
                        actor.candidate.record_renewal(sent);
                    }
                    next(now + latency[who][0], Event::Look);
                }
            }
            let leading: Vec<usize> = (0..2).filter(|i| actors[*i].leads(now)).collect();
            prop_assert!(leading.len() < 2, "both lead at {now} ms");
            if leading.first().is_some_and(|l| leader != Some(*l)) {
                leader = leading.first().copied();
                changes += 1;
            }
        }
        Ok(changes)
    }

    fn actor(name: &str, offset: i64, permille: i64, steps: Vec<[i64; 4]>) -> Actor {
        Actor { candidate: LeaderElector::new(Arc::from(name)), offset, permille, steps: steps.into_iter() }
    }

    fn steps() -> impl Strategy<Value = Vec<[i64; 4]>> {
        let latency = || prop_oneof![4 => 0..200_i64, 1 => 0..25_000_i64];
        let wait = prop_oneof![6 => 1500..2500_i64, 1 => 0..40_000_i64];
        proptest::collection::vec((wait, latency(), latency(), 0..4_i64), 1..120)
            .prop_map(|all| all.into_iter().map(|(a, b, c, d)| [a, b, c, d]).collect())
    }

    proptest! {
        #[test]
        fn two_candidates_never_both_believe_to_hold_the_lease(
            a in steps(), b in steps(), offset in -1_000_000..1_000_000_i64, fast in 1000..1200_i64,
        ) {
            play([actor("a", 0, 1000, a), actor("b", offset, fast, b)])?;
        }
    }

    #[test]
    fn a_silent_holder_is_replaced_after_its_lease_and_a_released_lease_at_once() {
        let calm = |n| vec![[2000, 10, 10, 1]; n];
        let changes = play([actor("a", 0, 1000, calm(5)), actor("b", 77, 1000, calm(40))]).unwrap();
        assert_eq!(changes, 2, "first a, and b once a is silent");
        let mut candidate = LeaderElector::new(Arc::from("a"));
        let of = |holder: Option<&str>| LeaseRecord {
            holder: holder.map(Arc::from),
            version: Arc::from("1"),
            duration: SignedDuration::from_secs(1),
        };
        let seconds = SignedDuration::from_secs;
        assert_eq!(candidate.next_action(Some(&of(Some("b"))), seconds(100)), LeaseAction::Wait(seconds(115)));
        assert_eq!(candidate.next_action(Some(&of(Some("b"))), seconds(114)), LeaseAction::Wait(seconds(115)));
        assert_eq!(candidate.next_action(Some(&of(Some("b"))), seconds(115)), LeaseAction::Acquire);
        assert_eq!(candidate.next_action(Some(&of(None)), seconds(116)), LeaseAction::Acquire);
        assert_eq!(candidate.next_action(Some(&of(Some("a"))), seconds(117)), LeaseAction::Renew);
    }

    #[test]
    fn time_left_counts_from_the_renewal_and_ends_at_its_deadline() {
        assert_eq!(remaining_lease(SignedDuration::ZERO), Some(LEASE_DURATION));
        assert_eq!(remaining_lease(SignedDuration::from_secs(9)), Some(SignedDuration::from_secs(6)));
        assert_eq!(remaining_lease(RENEW_DEADLINE), None);
    }
}
