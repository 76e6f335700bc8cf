//! Draws kubelets that are silent while their pods run on, and VMs that users shut down.

use super::{FAULTS, HistoryBuilder};
use crate::world::{FaultyNodes, InjectedFault, NodeFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    pub(super) fn node_outages(&mut self) {
        self.many_nodes();
        for _ in 0..8 {
            let nth = self.index(0, 9);
            self.silence(FaultyNodes::Nth(nth), 60);
        }
        for _ in 0..5 {
            let every = self.index(1, 2);
            self.silence(FaultyNodes::Every(every), 150);
        }
        for _ in 0..4 {
            let at = self.random_time();
            let nth = self.index(0, 9);
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
            let every = self.index(1, 3);
            self.strike(deleted, NodeFault::DeleteUnready { every });
        }
    }

    fn strike(&mut self, at: SignedDuration, fault: NodeFault) {
        self.inject(at, InjectedFault::Nodes(fault));
    }
}
