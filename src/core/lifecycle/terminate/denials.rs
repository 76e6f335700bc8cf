//! Backoff of terminations that Azure denies.
//!
//! A lock, a lost permission, a lockdown or a policy is not fixed by a retry, and holds for all resources of a kind. So one
//! denial suspends the deletion of that kind for all NodeClaims, and one NodeClaim at a time checks whether it has passed,
//! after waits that double.

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

/// Denials that are not known to have passed. Disposable: if lost, each NodeClaim is denied once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationDenials {
    kinds: BTreeMap<ResourceKind, Denial>,
    /// The kind that each NodeClaim waits for.
    waiting: BTreeMap<ClaimName, ResourceKind>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    wait: SignedDuration,
    retry_at: Timestamp,
    /// The NodeClaim that checks whether it has passed.
    attempt: Option<ClaimName>,
}

impl TerminationDenials {
    /// Learns from a termination that has ended.
    pub(crate) fn record(&mut self, report: &TerminationReport) {
        for kind in &report.deleted {
            self.kinds.remove(kind);
        }
        let Some(kind) = report.stopped_at else {
            self.waiting.remove(&report.claim);
            return;
        };
        self.waiting.insert(report.claim.clone(), kind);
        if !report.is_denied {
            return;
        }
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
        let waits_for = self.waiting.get(claim);
        let Some((kind, denial)) = waits_for.and_then(|kind| Some((kind, self.kinds.get_mut(kind)?))) else {
            return Ok(held);
        };
        if denial.retry_at > now {
            return Err(denial.retry_at);
        }
        denial.retry_at = now + denial.wait;
        denial.attempt = Some(claim.clone());
        held.remove(kind);
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
        let deleted = if stopped_at.is_none() { vec![ResourceKind::Vm] } else { Vec::new() };
        TerminationReport { claim: name(index), deleted, stopped_at, is_denied, at: at(seconds) }
    }

    /// Every NodeClaim is decided on each 15 s of a day, and DELETEs of VMs are denied until this second: how many there
    /// are, and when the last NodeClaim is terminated.
    fn denied_for(seconds: i64, claims: usize) -> (usize, i64) {
        let (mut denials, mut deletes, mut open) = (TerminationDenials::default(), 0, (0..claims).collect::<Vec<_>>());
        for now in (0..86_400).step_by(15) {
            let begun: Vec<_> = open.iter().map(|index| (*index, denials.held_for(&name(*index), at(now)))).collect();
            for (index, held) in begun {
                let Ok(held) = held else { continue };
                let (is_held, is_denied) = (held.contains(&ResourceKind::Vm), now < seconds);
                deletes += usize::from(!is_held);
                let stopped_at = (is_held || is_denied).then_some(ResourceKind::Vm);
                denials.record(&ended(index, stopped_at, !is_held && is_denied, now));
                open.retain(|one| *one != index || stopped_at.is_some());
            }
            if open.is_empty() {
                return (deletes, now);
            }
        }
        panic!("{open:?} are still there")
    }

    #[test]
    fn a_lock_is_checked_by_one_claim_at_a_time_with_doubling_waits() {
        assert_eq!(denied_for(0, 100), (100, 0));
        // 15 s, 30 s … 16 min, and then every 20 min: 7 attempts in the first 32 min, and 9 in the rest of 4 h.
        let (deletes, last) = denied_for(4 * 3_600, 100);
        assert!(
            (100 + 100 + 10..=100 + 100 + 20).contains(&deletes),
            "{deletes} DELETEs for 100 NodeClaims in 4 hours"
        );
        assert!(last <= 4 * 3_600 + 20 * 60 + 15, "the last is terminated {} s after the lock", last - 4 * 3_600);
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
