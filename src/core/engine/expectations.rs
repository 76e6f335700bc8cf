//! Tracks commands that have ended and whose writes the watches have not delivered yet, as the expectations of
//! kube-controller-manager do.
//!
//! A decision made in between would see the old objects and repeat the command: for a NodeClaim that is created but
//! not in the cache, that would be a second VM for the same pods. So a command counts as running until the watch has
//! delivered its changed object.

use crate::model::cluster::claim::Claim;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::names::ClaimName;
use crate::plan::{Command, CommandReport, Reply};
use crate::snapshot::delta::Delta;
use crate::snapshot::{CommandKey, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A write that changed nothing produces no watch event: after this time it counts as observed.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// A NodeClaim that was created or deleted, or may have been, must be observed. After this time it is read directly.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that have ended and whose writes have not been observed, each with the time of its end. Times are counted from
/// any start, by a clock that nobody sets.
#[derive(Debug, Default)]
pub struct Expectations {
    /// Running commands: true if their object has changed since their last effect began.
    running: BTreeMap<CommandKey, bool>,
    /// Changes of objects.
    changes: BTreeMap<CommandKey, Duration>,
    /// Creations and deletions of NodeClaims. One that is forgotten too early is paid for twice, or lets another node be
    /// disrupted beyond the budget.
    claims: BTreeMap<ClaimName, ExpectedClaim>,
}

/// A NodeClaim whose creation or deletion the watch has not delivered.
#[derive(Debug)]
struct ExpectedClaim {
    change: ClaimChange,
    /// When it was changed, or read directly.
    since: Duration,
    /// A direct read has shown the change.
    is_found: bool,
}

/// What must be observed of a NodeClaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimChange {
    /// That it exists.
    Created,
    /// That it is being deleted, or gone.
    Deleted,
}

/// What follows from a direct read of a NodeClaim that should have been observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimReading {
    /// The change was never made: nothing is to be observed.
    Unchanged,
    /// It was made, and the watch is late.
    Late,
    /// So a second read in a row has shown: the watch has lost it, as after a restore of etcd, and will not deliver it.
    Lost,
}

impl Expectations {
    /// An effect of a command begins.
    pub fn effect_started(&mut self, key: &CommandKey) {
        self.running.insert(key.clone(), false);
    }

    /// A command has ended. A watch event may have arrived before the reply. None follows a refused eviction.
    pub fn command_ended(&mut self, key: &CommandKey, report: &CommandReport, now: Duration) {
        let is_refused = report.eviction.as_ref().is_some_and(|eviction| eviction.refusal.is_some());
        if self.running.remove(key) == Some(true) || is_refused {
            return;
        }
        let is_watched = matches!(
            key,
            CommandKey::Claim(_)
                | CommandKey::Node(_)
                | CommandKey::Pod(_)
                | CommandKey::Records
                | CommandKey::Pool(_)
                | CommandKey::Class(_)
                | CommandKey::Overlay(_)
        );
        if is_watched {
            self.changes.insert(key.clone(), now);
        }
    }

    /// An effect of a running command has a reply: a NodeClaim that it created, or may have, must be observed, unless the
    /// Snapshot has it already.
    pub fn effect_replied(
        &mut self,
        command: Option<&Command>,
        reply: &Result<Reply, EffectError>,
        snapshot: &Snapshot,
        now: Duration,
    ) {
        let Some(Command::CreateClaim(draft)) = command else { return };
        let may_exist = matches!(reply, Ok(_) | Err(EffectError::Cluster(ClusterError::Unavailable)));
        if may_exist && snapshot.claims().get(&draft.name).is_none() {
            self.expect_claim(draft.name.clone(), ClaimChange::Created, now);
        }
    }

    /// A command has deleted a NodeClaim: that must be observed, unless the Snapshot shows it already.
    pub fn expect_deletion(
        &mut self,
        command: Option<&Command>,
        report: &CommandReport,
        snapshot: &Snapshot,
        now: Duration,
    ) {
        let Some(Command::DeleteClaim { claim, .. }) = command.filter(|_| report.error.is_none()) else { return };
        if snapshot.claims().get(&claim.name).is_some_and(|known| known.deleting_at.is_none()) {
            self.expect_claim(claim.name.clone(), ClaimChange::Deleted, now);
        }
    }

    fn expect_claim(&mut self, claim: ClaimName, change: ClaimChange, now: Duration) {
        self.claims.insert(claim, ExpectedClaim { change, since: now, is_found: false });
    }

    /// A watch has delivered a change.
    pub fn observe(&mut self, delta: &Delta) {
        let key = match delta {
            Delta::Claim(claim) => CommandKey::Claim(claim.name.clone()),
            Delta::ClaimGone(name) => CommandKey::Claim(name.clone()),
            Delta::Node(node) => CommandKey::Node(node.name.clone()),
            Delta::NodeGone(name) => CommandKey::Node(name.clone()),
            Delta::Pod(pod) => CommandKey::Pod(pod.key.clone()),
            Delta::PodGone(key) => CommandKey::Pod(key.clone()),
            Delta::Pool(pool) => CommandKey::Pool(pool.name.clone()),
            Delta::InvalidPool(pool) => CommandKey::Pool(pool.name.clone()),
            Delta::PoolGone(name) => CommandKey::Pool(name.clone()),
            Delta::Class(class) => CommandKey::Class(class.name.clone()),
            Delta::InvalidClass(class) => CommandKey::Class(class.name.clone()),
            Delta::ClassGone(name) => CommandKey::Class(name.clone()),
            Delta::Overlay(overlay) => CommandKey::Overlay(overlay.name.clone()),
            Delta::InvalidOverlay(overlay) => CommandKey::Overlay(overlay.name.clone()),
            Delta::OverlayGone(name) => CommandKey::Overlay(name.clone()),
            Delta::Records(_) => CommandKey::Records,
            _ => return,
        };
        self.changes.remove(&key);
        if let Some(observed) = self.running.get_mut(&key) {
            *observed = true;
        }
        let CommandKey::Claim(name) = key else { return };
        // An older event of a NodeClaim does not show its deletion.
        let shows = |expected: &ExpectedClaim| match delta {
            Delta::Claim(claim) => expected.change == ClaimChange::Created || claim.deleting_at.is_some(),
            _ => true,
        };
        if self.claims.get(&name).is_some_and(shows) {
            self.claims.remove(&name);
        }
    }

    /// Forgets changes that have timed out; true if there was one. Then a decision is due: the command may have to be
    /// repeated.
    pub fn expire(&mut self, now: Duration) -> bool {
        let known = self.changes.len();
        self.changes.retain(|_, ended| now.saturating_sub(*ended) < CHANGE_TIMEOUT);
        self.changes.len() < known
    }

    /// The ended commands that still count as running.
    #[must_use]
    pub fn unconfirmed(&self) -> BTreeSet<CommandKey> {
        let claims = self.claims.keys().map(|name| CommandKey::Claim(name.clone()));
        self.changes.keys().cloned().chain(claims).collect()
    }

    /// When the next change times out, or the next NodeClaim is overdue.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let changed = self.changes.values().min().map(|ended| *ended + CHANGE_TIMEOUT);
        let claims = self.claims.values().map(|expected| expected.since + CLAIM_TIMEOUT).min();
        [changed, claims].into_iter().flatten().min()
    }

    /// A NodeClaim that should have been observed by now; it is returned again only after another timeout.
    pub fn overdue_claim(&mut self, now: Duration) -> Option<ClaimName> {
        let is_overdue = |expected: &ExpectedClaim| now.saturating_sub(expected.since) >= CLAIM_TIMEOUT;
        let (name, expected) = self.claims.iter_mut().find(|(_, expected)| is_overdue(expected))?;
        expected.since = now;
        Some(name.clone())
    }

    /// What a direct read of an overdue NodeClaim has shown; none where it does not exist.
    pub fn claim_read(&mut self, name: &ClaimName, claim: Option<&Claim>) -> ClaimReading {
        let Some(expected) = self.claims.get_mut(name) else { return ClaimReading::Unchanged };
        let is_made = match expected.change {
            ClaimChange::Created => claim.is_some(),
            ClaimChange::Deleted => claim.is_none_or(|claim| claim.deleting_at.is_some()),
        };
        if !is_made {
            self.claims.remove(name);
            return ClaimReading::Unchanged;
        }
        if std::mem::replace(&mut expected.is_found, true) { ClaimReading::Lost } else { ClaimReading::Late }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::fixtures::{claim, offering, pool, start as now};
    use std::sync::Arc;

    const START: Duration = Duration::from_secs(100);

    #[test]
    fn a_created_claim_is_expected_until_it_is_observed_and_a_change_for_a_while() {
        let name = ClaimName::new("general-a").unwrap();
        let key = CommandKey::Claim(name.clone());
        let mut expectations = Expectations::default();
        expectations.command_ended(&key, &CommandReport::default(), START);
        expectations.command_ended(&CommandKey::Inventory, &CommandReport::default(), START);
        assert_eq!(expectations.unconfirmed(), [key.clone()].into());
        assert_eq!(expectations.next_deadline(), Some(START + CHANGE_TIMEOUT));
        assert!(expectations.expire(START + CHANGE_TIMEOUT), "a decision is due");
        assert!(!expectations.expire(START + CHANGE_TIMEOUT), "only once");
        assert_eq!((expectations.unconfirmed(), expectations.next_deadline()), (BTreeSet::new(), None));
        expectations.expect_claim(name.clone(), ClaimChange::Created, START);
        assert!(!expectations.expire(START + CHANGE_TIMEOUT * 10));
        assert_eq!(expectations.unconfirmed(), [key.clone()].into());
        assert_eq!(expectations.overdue_claim(START + CLAIM_TIMEOUT), Some(name.clone()));
        assert_eq!(expectations.overdue_claim(START + CLAIM_TIMEOUT), None);
        expectations.command_ended(&key, &CommandReport::default(), START);
        expectations.observe(&Delta::ClaimGone(name.clone()));
        assert_eq!(expectations.unconfirmed(), BTreeSet::new());
        expectations.effect_started(&key);
        expectations.observe(&Delta::ClaimGone(name.clone()));
        expectations.command_ended(&key, &CommandReport::default(), START);
        assert_eq!(expectations.unconfirmed(), BTreeSet::new(), "the watch event arrived before the reply");
    }

    #[test]
    fn a_claim_that_exists_twice_without_an_event_is_lost_by_the_watch() {
        let claim = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
        let name = claim.name.clone();
        let mut expectations = Expectations::default();
        assert_eq!(expectations.claim_read(&name, Some(&claim)), ClaimReading::Unchanged, "nothing is expected");
        expectations.expect_claim(name.clone(), ClaimChange::Created, START);
        assert_eq!(expectations.claim_read(&name, Some(&claim)), ClaimReading::Late);
        assert_eq!(expectations.claim_read(&name, Some(&claim)), ClaimReading::Lost);
        expectations.observe(&Delta::ClaimGone(name.clone()));
        expectations.expect_claim(name.clone(), ClaimChange::Created, START);
        assert_eq!(expectations.claim_read(&name, Some(&claim)), ClaimReading::Late);
        assert_eq!(expectations.claim_read(&name, None), ClaimReading::Unchanged);
        assert_eq!(expectations.unconfirmed(), BTreeSet::new());
    }

    #[test]
    fn a_deleted_claim_is_expected_until_its_deletion_is_observed() {
        let mut claim = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
        let name = claim.name.clone();
        let key = CommandKey::Claim(name.clone());
        let mut expectations = Expectations::default();
        expectations.expect_claim(name.clone(), ClaimChange::Deleted, START);
        expectations.observe(&Delta::Claim(Arc::new(claim.clone())));
        assert_eq!(expectations.unconfirmed(), [key].into(), "the event is older than the deletion");
        assert_eq!(expectations.claim_read(&name, None), ClaimReading::Late, "it is gone");
        let before = claim.clone();
        claim.deleting_at = Some(now());
        assert_eq!(expectations.claim_read(&name, Some(&claim)), ClaimReading::Lost);
        expectations.observe(&Delta::Claim(Arc::new(claim)));
        assert_eq!(expectations.unconfirmed(), BTreeSet::new());
        expectations.expect_claim(name.clone(), ClaimChange::Deleted, START);
        assert_eq!(expectations.claim_read(&name, Some(&before)), ClaimReading::Unchanged, "it was not deleted");
        assert_eq!(expectations.unconfirmed(), BTreeSet::new());
    }
}
