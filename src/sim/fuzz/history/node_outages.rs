//! Draws kubelets that are silent while their pods run on, and VMs that users shut down.

use super::{FAULTS, HistoryBuilder, key};
use crate::world::{Action, FaultyNodes, InjectedFault, NodeFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    pub(super) fn node_outages(&mut self) {
        // So that there are enough nodes to lose.
        for name in ["web", "api", "cache"] {
            self.add(SignedDuration::from_mins(5), Action::Scale { workload: key(name), replicas: 14 });
        }
        for _ in 0..8 {
            let nth = usize::try_from(self.random.between(0, 9)).unwrap_or(0);
            self.silence(FaultyNodes::Nth(nth), 60);
        }
        for _ in 0..5 {
            let every = usize::try_from(self.random.between(1, 2)).unwrap_or(1);
            self.silence(FaultyNodes::Every(every), 150);
        }
        for _ in 0..4 {
            let at = self.random_time();
            let nth = usize::try_from(self.random.between(0, 9)).unwrap_or(0);
            let deallocate = self.random.one_in(2);
            self.strike(at, NodeFault::ShutDown { nth, deallocate });
            let declared = at + self.minutes(2, 60);
            self.strike(declared, NodeFault::OutOfService);
        }
        self.strike(FAULTS + SignedDuration::from_hours(1), NodeFault::OutOfService);
    }

    /// Kubelets are silent for a while, and often users delete NodeClaims of nodes that are not ready meanwhile.
    fn silence(&mut self, nodes: FaultyNodes, most_minutes: u64) {
        let (at, duration) = (self.random_time(), self.minutes(1, most_minutes));
        self.strike(at, NodeFault::Silence(nodes, duration.min(FAULTS - at)));
        if !self.random.one_in(3) {
            let deleted = at + self.minutes(1, 20);
            let every = usize::try_from(self.random.between(1, 3)).unwrap_or(1);
            self.strike(deleted, NodeFault::DeleteUnready { every });
        }
    }

    fn strike(&mut self, at: SignedDuration, fault: NodeFault) {
        self.inject(at, InjectedFault::Nodes(fault));
    }
}
