//! Backoff of terminations that Azure denies.
//!
//! A lock, a lost permission, a lockdown or a policy is not fixed by a retry, and mostly holds for all resources of a kind.
//! So one denial suspends the deletion of that kind for all NodeClaims, and the one that has waited longest checks whether
//! it has passed, after waits that double. What is denied for one NodeClaim alone delays only that one for long: the next
//! one's success ends the suspension.

use crate::model::azure::cloud::ResourceKind;
use crate::model::names::ClaimName;
use crate::plan::TerminationReport;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Wait after the first denial.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(15);
/// Longest wait: so long after a lock is removed the last VM is deleted.
const MAX_WAIT: SignedDuration = SignedDuration::from_mins(20);
/// So long after it is due, any NodeClaim may check: the one that has waited longest may be held by something else.
const TURN: SignedDuration = SignedDuration::from_mins(1);

/// Denials that are not known to have passed. Disposable: if lost, each NodeClaim is denied once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationDenials {
    kinds: BTreeMap<ResourceKind, Denial>,
    waiting: BTreeMap<ClaimName, Waiting>,
}

/// A kind that nothing is deleted of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    wait: SignedDuration,
    retry_at: Timestamp,
    /// The NodeClaim that checks whether it has passed.
    attempt: Option<ClaimName>,
}

/// A NodeClaim that waits for a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    kind: ResourceKind,
    /// Its own denials.
    denials: u32,
    /// The last of them.
    denied_at: Timestamp,
}

impl Waiting {
    /// When it may be tried again as far as its own denials go.
    fn retry_at(&self) -> Timestamp {
        match self.denials.checked_sub(1) {
            None => self.denied_at,
            Some(doublings) => self.denied_at + (FIRST_WAIT * 2_i32.pow(doublings.min(10))).min(MAX_WAIT),
        }
    }
}

impl TerminationDenials {
    /// Learns from a termination that has ended.
    pub(crate) fn record(&mut self, report: &TerminationReport) {
        let denied = report.stopped_at.filter(|_| report.is_denied);
        for kind in report.deleted.iter().filter(|kind| denied != Some(**kind)) {
            self.kinds.remove(kind);
        }
        let Some(kind) = report.stopped_at else {
            self.waiting.remove(&report.claim);
            return;
        };
        let fresh = Waiting { kind, denials: 0, denied_at: Timestamp::MIN };
        let waiting = self.waiting.entry(report.claim.clone()).or_insert(fresh);
        if waiting.kind != kind {
            *waiting = fresh;
        }
        if denied.is_none() {
            return;
        }
        *waiting = Waiting { kind, denials: waiting.denials.saturating_add(1), denied_at: report.at };
        let first = || Denial { wait: FIRST_WAIT, retry_at: report.at + FIRST_WAIT, attempt: None };
        let denial = self.kinds.entry(kind).or_insert_with(first);
        // Others were on their way when the first was denied: they prove nothing more.
        if denial.attempt.as_ref() == Some(&report.claim) {
            let wait = (denial.wait * 2).min(MAX_WAIT);
            *denial = Denial { wait, retry_at: report.at + wait, attempt: None };
        }
    }

    /// The kinds that a termination of this NodeClaim must not delete now.
    ///
    /// # Errors
    /// When to ask again, if nothing can be done for it before.
    pub(in crate::lifecycle) fn held_for(
        &mut self,
        claim: &ClaimName,
        now: Timestamp,
    ) -> Result<BTreeSet<ResourceKind>, Timestamp> {
        let mut held: BTreeSet<ResourceKind> = self.kinds.keys().copied().collect();
        let Some(waiting) = self.waiting.get(claim).copied() else { return Ok(held) };
        if waiting.retry_at() > now {
            return Err(waiting.retry_at());
        }
        let Some(denial) = self.kinds.get_mut(&waiting.kind) else { return Ok(held) };
        if denial.retry_at > now {
            return Err(denial.retry_at);
        }
        let of_kind = self.waiting.values().filter(|other| other.kind == waiting.kind);
        let has_waited_longest = of_kind.map(|other| other.denied_at).min() == Some(waiting.denied_at);
        let turn_ends = denial.retry_at + TURN;
        if !has_waited_longest && turn_ends > now {
            return Err(turn_ends);
        }
        denial.retry_at = now + denial.wait;
        denial.attempt = Some(claim.clone());
        held.remove(&waiting.kind);
        Ok(held)
    }

    /// Forgets NodeClaims that do not exist any more.
    pub(in crate::lifecycle) fn forget(&mut self, snapshot: &Snapshot) {
        self.waiting.retain(|claim, _| snapshot.claims().get(claim).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn name(index: usize) -> ClaimName {
        ClaimName::new(format!("general-{index}")).unwrap()
    }

    fn ended(index: usize, stopped_at: Option<ResourceKind>, is_denied: bool, seconds: i64) -> TerminationReport {
        // A DELETE may be accepted, and its operation be denied.
        let deleted = if stopped_at.is_none() || is_denied { vec![ResourceKind::Vm] } else { Vec::new() };
        TerminationReport { claim: name(index), deleted, stopped_at, is_denied, at: at(seconds) }
    }

    /// Every NodeClaim is decided on each 15 s of a day, and DELETEs of VMs are denied or not: at which seconds each was
    /// sent one.
    fn deletes(claims: usize, is_denied: impl Fn(usize, i64) -> bool) -> Vec<Vec<i64>> {
        let (mut denials, mut open) = (TerminationDenials::default(), (0..claims).collect::<Vec<_>>());
        let mut deletes = vec![Vec::new(); claims];
        for now in (0..86_400).step_by(15) {
            let begun: Vec<_> = open.iter().map(|index| (*index, denials.held_for(&name(*index), at(now)))).collect();
            for (index, held) in begun {
                let Ok(held) = held else { continue };
                let (is_held, is_denied) = (held.contains(&ResourceKind::Vm), is_denied(index, now));
                if !is_held {
                    deletes[index].push(now);
                }
                let stopped_at = (is_held || is_denied).then_some(ResourceKind::Vm);
                denials.record(&ended(index, stopped_at, !is_held && is_denied, now));
                open.retain(|one| *one != index || stopped_at.is_some());
            }
        }
        deletes
    }

    #[test]
    fn a_lock_is_checked_by_one_claim_at_a_time_with_doubling_waits() {
        assert_eq!(deletes(100, |_, _| false).concat(), [0; 100]);
        // 100 at once, 18 checks in four hours, after 15 s, 30 s … and then every 20 min, and 100 that succeed.
        let lock = 4 * 3_600;
        let deletes = deletes(100, |_, now| now < lock).concat();
        assert!((210..=220).contains(&deletes.len()), "{} DELETEs for 100 NodeClaims in four hours", deletes.len());
        let last = deletes.iter().max().unwrap();
        assert!(*last <= lock + 20 * 60 + 60, "the last is terminated {} s after the lock", last - lock);
    }

    #[test]
    fn one_claim_that_is_always_denied_delays_no_other_for_long() {
        let deletes = deletes(20, |index, _| index == 0);
        for (index, times) in deletes.iter().enumerate().skip(1) {
            assert!(*times.last().unwrap() <= 60, "{index}: {times:?}");
        }
        // Every 20 min of a day is 72.
        assert!(deletes[0].len() < 85, "{} DELETEs", deletes[0].len());
    }

    #[test]
    fn a_denial_of_one_kind_does_not_hold_another() {
        let mut denials = TerminationDenials::default();
        denials.record(&ended(1, Some(ResourceKind::Nic), true, 0));
        assert_eq!(denials.held_for(&name(1), at(1)), Err(at(15)));
        assert_eq!(denials.held_for(&name(2), at(1)), Ok([ResourceKind::Nic].into()), "its VM is deleted");
        assert_eq!(denials.held_for(&name(1), at(15)), Ok(BTreeSet::new()));
    }
}
