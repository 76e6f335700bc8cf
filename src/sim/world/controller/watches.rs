//! Watches of the controller, which may be late: changes of one kind arrive in order, and later than those of others.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::snapshot::delta::Delta;
use std::collections::BTreeMap;

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
    /// By the time at which they arrive, then in the order of the API server.
    late: BTreeMap<(Timestamp, u64), Delta>,
    /// When the last change of a kind arrives: none overtakes it.
    last: BTreeMap<WatchedKind, Timestamp>,
    sent: u64,
}

impl Watches {
    /// Changes of a kind arrive so much later from now on.
    pub(in crate::world) fn set_lag(&mut self, kind: WatchedKind, lag: SignedDuration) {
        self.lag.insert(kind, lag);
    }

    /// Sends changes; returns those that arrive now.
    pub(in crate::world) fn deliver(&mut self, deltas: Vec<Delta>, now: Timestamp) -> Vec<Delta> {
        for delta in deltas {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::names::{ClaimName, NodeName};

    fn node_gone(name: &str) -> Delta {
        Delta::NodeGone(NodeName::new(name).unwrap())
    }

    fn claim_gone(name: &str) -> Delta {
        Delta::ClaimGone(ClaimName::new(name).unwrap())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn changes_of_a_kind_arrive_late_and_in_order_and_others_at_once() {
        let mut watches = Watches::default();
        watches.set_lag(WatchedKind::Nodes, SignedDuration::from_secs(30));
        assert_eq!(watches.deliver(vec![node_gone("a"), claim_gone("b")], at(0)), [claim_gone("b")]);
        assert_eq!(watches.next_arrival(), Some(at(30)));
        // None overtakes an earlier one.
        watches.set_lag(WatchedKind::Nodes, SignedDuration::ZERO);
        assert_eq!(watches.deliver(vec![node_gone("c")], at(10)), []);
        assert_eq!(watches.deliver(Vec::new(), at(29)), []);
        assert_eq!(watches.deliver(Vec::new(), at(30)), [node_gone("a"), node_gone("c")]);
        assert_eq!(watches.deliver(vec![node_gone("d")], at(40)), [node_gone("d")]);
    }

    #[test]
    fn what_has_not_arrived_is_forgotten_when_everything_is_listed() {
        let mut watches = Watches::default();
        watches.set_lag(WatchedKind::Nodes, SignedDuration::from_secs(30));
        assert_eq!(watches.deliver(vec![node_gone("a")], at(0)), []);
        watches.relist();
        assert_eq!((watches.next_arrival(), watches.deliver(Vec::new(), at(60))), (None, Vec::new()));
    }
}
