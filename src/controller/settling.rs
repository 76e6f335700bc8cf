//! Settling: which commands have ended, but what they wrote has not come back through a watch?
//!
//! A decision made in between would see the old objects and ask for the same again: for a NodeClaim that is created
//! but not seen yet, that would be a second VM for the same pods. So a command counts as running until its object has
//! come back changed.

use napkeeper_core::model::names::ClaimName;
use napkeeper_core::snapshot::CommandKey;
use napkeeper_core::snapshot::delta::Delta;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A write that changed nothing brings no change back: after this time it has settled all the same.
const LONGEST: Duration = Duration::from_secs(2);
/// A NodeClaim that was created, or may have been, must be seen. After this time the API server is asked whether it is
/// there.
const UNSEEN: Duration = Duration::from_secs(5);

/// Commands that have ended and not settled, each with the time of its end.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Commands under way: has their object come back since their last effect began?
    begun: BTreeMap<CommandKey, bool>,
    /// Changes of objects.
    changed: BTreeMap<CommandKey, Instant>,
    /// Creations of NodeClaims.
    created: BTreeMap<ClaimName, Instant>,
}

impl Settling {
    /// An effect of a command begins.
    pub(super) fn began(&mut self, key: &CommandKey) {
        self.begun.insert(key.clone(), false);
    }

    /// A command has ended; a change that was faster than the reply has been seen already.
    pub(super) fn ended(&mut self, key: &CommandKey, now: Instant) {
        if self.begun.remove(key) == Some(true) {
            return;
        }
        let comes_back =
            matches!(key, CommandKey::Claim(_) | CommandKey::Node(_) | CommandKey::Pod(_) | CommandKey::Records);
        if comes_back {
            self.changed.insert(key.clone(), now);
        }
    }

    /// A NodeClaim has been created, or the answer to its creation was lost.
    pub(super) fn created(&mut self, claim: ClaimName, now: Instant) {
        self.created.insert(claim, now);
    }

    /// A change has come through a watch.
    pub(super) fn seen(&mut self, delta: &Delta) {
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
        self.changed.remove(&key);
        if let Some(seen) = self.begun.get_mut(&key) {
            *seen = true;
        }
        if let CommandKey::Claim(name) = key {
            self.created.remove(&name);
        }
    }

    /// The commands that still count as running.
    pub(super) fn keys(&mut self, now: Instant) -> BTreeSet<CommandKey> {
        self.changed.retain(|_, ended| now.duration_since(*ended) < LONGEST);
        let created = self.created.keys().map(|name| CommandKey::Claim(name.clone()));
        self.changed.keys().cloned().chain(created).collect()
    }

    /// When the next one settles by itself, or is to be looked for.
    pub(super) fn next(&self) -> Option<Instant> {
        let changed = self.changed.values().min().map(|ended| *ended + LONGEST);
        let created = self.created.values().min().map(|since| *since + UNSEEN);
        [changed, created].into_iter().flatten().min()
    }

    /// A NodeClaim that should have been seen long ago; it is named again only after the same time.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<ClaimName> {
        let (name, since) = self.created.iter_mut().find(|(_, since)| now.duration_since(**since) >= UNSEEN)?;
        *since = now;
        Some(name.clone())
    }

    /// A NodeClaim that was created is not there any more.
    pub(super) fn forget(&mut self, claim: &ClaimName) {
        self.created.remove(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_claim_is_unsettled_until_it_is_seen_and_a_change_for_a_while() {
        let start = Instant::now();
        let name = ClaimName::new("general-a").unwrap();
        let key = CommandKey::Claim(name.clone());
        let mut settling = Settling::default();
        settling.ended(&key, start);
        settling.ended(&CommandKey::Inventory, start);
        assert_eq!(settling.keys(start), [key.clone()].into());
        assert_eq!(settling.keys(start + LONGEST), BTreeSet::new());
        settling.created(name.clone(), start);
        assert_eq!(settling.keys(start + LONGEST * 10), [key.clone()].into());
        assert_eq!(settling.overdue(start + UNSEEN), Some(name.clone()));
        assert_eq!(settling.overdue(start + UNSEEN), None);
        settling.ended(&key, start);
        settling.seen(&Delta::ClaimGone(name.clone()));
        assert_eq!(settling.keys(start), BTreeSet::new());
        settling.began(&key);
        settling.seen(&Delta::ClaimGone(name));
        settling.ended(&key, start);
        assert_eq!(settling.keys(start), BTreeSet::new(), "the change was faster than the reply");
    }
}
