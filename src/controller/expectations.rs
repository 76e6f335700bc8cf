//! Tracks commands that have ended and whose writes the watches have not delivered yet, as the expectations of
//! kube-controller-manager do.
//!
//! A decision made in between would see the old objects and repeat the command: for a NodeClaim that is created but
//! not in the cache, that would be a second VM for the same pods. So a command counts as running until the watch has
//! delivered its changed object.

use napkeeper_core::model::names::ClaimName;
use napkeeper_core::snapshot::CommandKey;
use napkeeper_core::snapshot::delta::Delta;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A write that changed nothing produces no watch event: after this time it counts as observed.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// A NodeClaim that was created, or may have been, must be observed. After this time it is read directly.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that have ended and whose writes have not been observed, each with the time of its end.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    /// Running commands: true if their object has changed since their last effect began.
    running: BTreeMap<CommandKey, bool>,
    /// Changes of objects.
    changes: BTreeMap<CommandKey, Instant>,
    /// Creations of NodeClaims.
    created_claims: BTreeMap<ClaimName, CreatedClaim>,
}

/// A NodeClaim that the watch has not delivered.
#[derive(Debug)]
struct CreatedClaim {
    /// When it was created, or read directly.
    since: Instant,
    /// It exists, by a direct read.
    is_found: bool,
}

impl Expectations {
    /// An effect of a command begins.
    pub(super) fn effect_started(&mut self, key: &CommandKey) {
        self.running.insert(key.clone(), false);
    }

    /// A command has ended. A watch event may have arrived before the reply.
    pub(super) fn command_ended(&mut self, key: &CommandKey, now: Instant) {
        if self.running.remove(key) == Some(true) {
            return;
        }
        let is_watched =
            matches!(key, CommandKey::Claim(_) | CommandKey::Node(_) | CommandKey::Pod(_) | CommandKey::Records);
        if is_watched {
            self.changes.insert(key.clone(), now);
        }
    }

    /// A NodeClaim has been created, or the reply to its creation was lost.
    pub(super) fn expect_claim(&mut self, claim: ClaimName, now: Instant) {
        self.created_claims.insert(claim, CreatedClaim { since: now, is_found: false });
    }

    /// A watch has delivered a change.
    pub(super) fn observe(&mut self, delta: &Delta) {
        let key = match delta {
            Delta::Claim(claim) => CommandKey::Claim(claim.name.clone()),
            Delta::ClaimGone(name) => CommandKey::Claim(name.clone()),
            Delta::Node(node) => CommandKey::Node(node.name.clone()),
            Delta::NodeGone(name) => CommandKey::Node(name.clone()),
            Delta::Pod(pod) => CommandKey::Pod(pod.key.clone()),
            Delta::PodGone(key) => CommandKey::Pod(key.clone()),
            Delta::Records(_) => CommandKey::Records,
            _ => return,
        };
        self.changes.remove(&key);
        if let Some(observed) = self.running.get_mut(&key) {
            *observed = true;
        }
        if let CommandKey::Claim(name) = key {
            self.created_claims.remove(&name);
        }
    }

    /// The ended commands that still count as running.
    pub(super) fn unconfirmed(&mut self, now: Instant) -> BTreeSet<CommandKey> {
        self.changes.retain(|_, ended| now.duration_since(*ended) < CHANGE_TIMEOUT);
        let created = self.created_claims.keys().map(|name| CommandKey::Claim(name.clone()));
        self.changes.keys().cloned().chain(created).collect()
    }

    /// When the next change times out, or the next NodeClaim is overdue.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let changed = self.changes.values().min().map(|ended| *ended + CHANGE_TIMEOUT);
        let created = self.created_claims.values().map(|created| created.since + CLAIM_TIMEOUT).min();
        [changed, created].into_iter().flatten().min()
    }

    /// A NodeClaim that should have been observed by now; it is returned again only after another timeout.
    pub(super) fn overdue_claim(&mut self, now: Instant) -> Option<ClaimName> {
        let is_overdue = |created: &CreatedClaim| now.duration_since(created.since) >= CLAIM_TIMEOUT;
        let (name, created) = self.created_claims.iter_mut().find(|(_, created)| is_overdue(created))?;
        created.since = now;
        Some(name.clone())
    }

    /// A direct read has shown that the NodeClaim does not exist.
    pub(super) fn claim_not_found(&mut self, claim: &ClaimName) {
        self.created_claims.remove(claim);
    }

    /// A direct read has shown that the NodeClaim exists. True for the second time in a row: the watch has lost it, as
    /// after a restore of etcd, and will not deliver it any more.
    pub(super) fn claim_found(&mut self, claim: &ClaimName) -> bool {
        let created = self.created_claims.get_mut(claim);
        created.is_some_and(|created| std::mem::replace(&mut created.is_found, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_claim_is_expected_until_it_is_observed_and_a_change_for_a_while() {
        let start = Instant::now();
        let name = ClaimName::new("general-a").unwrap();
        let key = CommandKey::Claim(name.clone());
        let mut expectations = Expectations::default();
        expectations.command_ended(&key, start);
        expectations.command_ended(&CommandKey::Inventory, start);
        assert_eq!(expectations.unconfirmed(start), [key.clone()].into());
        assert_eq!(expectations.unconfirmed(start + CHANGE_TIMEOUT), BTreeSet::new());
        expectations.expect_claim(name.clone(), start);
        assert_eq!(expectations.unconfirmed(start + CHANGE_TIMEOUT * 10), [key.clone()].into());
        assert_eq!(expectations.overdue_claim(start + CLAIM_TIMEOUT), Some(name.clone()));
        assert_eq!(expectations.overdue_claim(start + CLAIM_TIMEOUT), None);
        expectations.command_ended(&key, start);
        expectations.observe(&Delta::ClaimGone(name.clone()));
        assert_eq!(expectations.unconfirmed(start), BTreeSet::new());
        expectations.effect_started(&key);
        expectations.observe(&Delta::ClaimGone(name.clone()));
        expectations.command_ended(&key, start);
        assert_eq!(expectations.unconfirmed(start), BTreeSet::new(), "the watch event arrived before the reply");
    }

    #[test]
    fn a_claim_that_exists_twice_without_an_event_is_lost_by_the_watch() {
        let name = ClaimName::new("general-a").unwrap();
        let mut expectations = Expectations::default();
        assert!(!expectations.claim_found(&name), "nothing is expected");
        expectations.expect_claim(name.clone(), Instant::now());
        assert!(!expectations.claim_found(&name), "the watch may be late");
        assert!(expectations.claim_found(&name));
        expectations.observe(&Delta::ClaimGone(name.clone()));
        expectations.expect_claim(name.clone(), Instant::now());
        assert!(!expectations.claim_found(&name));
    }
}
