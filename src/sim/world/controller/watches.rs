//! Watches of the controller, which may be late: changes of one kind arrive in order, and later than those of others.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::plan::{ClusterWrite, Effect};
use napkeeper_core::snapshot::delta::Delta;
use std::collections::{BTreeMap, BTreeSet};

/// What one watch delivers. Watches of other kinds are never late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// Pods.
    Pods,
    /// Nodes.
    Nodes,
    /// NodeClaims.
    Claims,
    /// PersistentVolumes.
    Volumes,
    /// PersistentVolumeClaims.
    VolumeClaims,
}

impl WatchedKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pods, Self::Nodes, Self::Claims, Self::Volumes, Self::VolumeClaims];

    const fn of(delta: &Delta) -> Option<Self> {
        match delta {
            Delta::Pod(_) | Delta::PodGone(_) => Some(Self::Pods),
            Delta::Node(_) | Delta::NodeGone(_) => Some(Self::Nodes),
            Delta::Claim(_) | Delta::ClaimGone(_) => Some(Self::Claims),
            Delta::Volume(_) | Delta::VolumeGone(_) => Some(Self::Volumes),
            Delta::VolumeClaim(_) | Delta::VolumeClaimGone(_) => Some(Self::VolumeClaims),
            _ => None,
        }
    }
}

/// Changes that have not arrived.
#[derive(Debug, Default)]
pub(in crate::world) struct Watches {
    lag: BTreeMap<WatchedKind, SignedDuration>,
    /// The longest that there has been.
    longest_lag: SignedDuration,
    /// By the time at which they arrive, then in the order of the API server.
    late: BTreeMap<(Timestamp, u64), Delta>,
    /// When the last change of a kind arrives: none overtakes it.
    last: BTreeMap<WatchedKind, Timestamp>,
    sent: u64,
    /// How many of the next creations and deletions of NodeClaims by the controller are lost.
    own_writes_to_lose: u32,
    /// NodeClaims whose next change is lost.
    lost_claims: BTreeSet<ClaimName>,
    /// Nothing is delivered of what happens before this time.
    nothing_until: Option<Timestamp>,
}

impl Watches {
    /// Changes of a kind arrive so much later from now on.
    pub(in crate::world) fn set_lag(&mut self, kind: WatchedKind, lag: SignedDuration) {
        self.lag.insert(kind, lag);
        self.longest_lag = self.longest_lag.max(lag);
    }

    /// The longest time by which changes have ever been late.
    pub(in crate::world) fn longest_lag(&self) -> SignedDuration {
        self.longest_lag
    }

    /// The watch loses this many of the next creations and deletions of NodeClaims by the controller.
    pub(in crate::world) fn lose_own_writes(&mut self, count: u32) {
        self.own_writes_to_lose = count;
    }

    /// The controller performs a write.
    pub(in crate::world) fn write_performed(&mut self, effect: &Effect) {
        let claim = match effect {
            Effect::Cluster(ClusterWrite::CreateClaim(draft)) => &draft.name,
            Effect::Cluster(ClusterWrite::DeleteClaim(claim)) => &claim.name,
            _ => return,
        };
        if self.own_writes_to_lose > 0 {
            self.own_writes_to_lose -= 1;
            self.lost_claims.insert(claim.clone());
        }
    }

    /// Nothing that happens before this time is ever delivered.
    pub(in crate::world) fn deliver_nothing_until(&mut self, until: Timestamp) {
        self.nothing_until = Some(until);
    }

    /// True while nothing that happens is delivered.
    pub(in crate::world) fn is_silent(&self, now: Timestamp) -> bool {
        self.nothing_until.is_some_and(|until| now < until)
    }

    /// Sends changes.
    pub(in crate::world) fn send(&mut self, deltas: Vec<Delta>, now: Timestamp) {
        if self.is_silent(now) {
            return;
        }
        for delta in deltas {
            if claim_of(&delta).is_some_and(|claim| self.lost_claims.remove(claim)) {
                continue;
            }
            let mut at = now;
            if let Some(kind) = WatchedKind::of(&delta) {
                let lag = self.lag.get(&kind).copied().unwrap_or_default();
                let last = self.last.entry(kind).or_insert(now);
                at = now.saturating_add(lag).unwrap_or(now).max(*last);
                *last = at;
            }
            self.sent += 1;
            self.late.insert((at, self.sent), delta);
        }
    }

    /// The changes that arrive now.
    pub(in crate::world) fn receive(&mut self, now: Timestamp) -> Vec<Delta> {
        let later = self.late.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.late, later).into_values().collect()
    }

    /// When the next change arrives.
    pub(in crate::world) fn next_arrival(&self) -> Option<Timestamp> {
        self.late.keys().next().map(|(at, _)| *at)
    }

    /// Forgets what has not arrived: everything is listed anew.
    pub(in crate::world) fn relist(&mut self) {
        self.late.clear();
        self.last.clear();
        self.lost_claims.clear();
    }
}

fn claim_of(delta: &Delta) -> Option<&ClaimName> {
    match delta {
        Delta::Claim(claim) => Some(&claim.name),
        Delta::ClaimGone(name) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::names::NodeName;

    fn node_gone(name: &str) -> Delta {
        Delta::NodeGone(NodeName::new(name).unwrap())
    }

    fn claim_gone(name: &str) -> Delta {
        Delta::ClaimGone(ClaimName::new(name).unwrap())
    }

    fn deliver(watches: &mut Watches, deltas: Vec<Delta>, now: Timestamp) -> Vec<Delta> {
        watches.send(deltas, now);
        watches.receive(now)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn changes_of_a_kind_arrive_late_and_in_order_and_others_at_once() {
        let mut watches = Watches::default();
        watches.set_lag(WatchedKind::Nodes, SignedDuration::from_secs(30));
        assert_eq!(deliver(&mut watches, vec![node_gone("a"), claim_gone("b")], at(0)), [claim_gone("b")]);
        assert_eq!(watches.next_arrival(), Some(at(30)));
        // None overtakes an earlier one.
        watches.set_lag(WatchedKind::Nodes, SignedDuration::ZERO);
        assert_eq!(deliver(&mut watches, vec![node_gone("c")], at(10)), []);
        assert_eq!(deliver(&mut watches, Vec::new(), at(29)), []);
        assert_eq!(deliver(&mut watches, Vec::new(), at(30)), [node_gone("a"), node_gone("c")]);
        assert_eq!(deliver(&mut watches, vec![node_gone("d")], at(40)), [node_gone("d")]);
    }

    #[test]
    fn what_has_not_arrived_is_forgotten_when_everything_is_listed() {
        let mut watches = Watches::default();
        watches.set_lag(WatchedKind::Nodes, SignedDuration::from_secs(30));
        assert_eq!(deliver(&mut watches, vec![node_gone("a")], at(0)), []);
        watches.relist();
        assert_eq!((watches.next_arrival(), deliver(&mut watches, Vec::new(), at(60))), (None, Vec::new()));
    }
}
