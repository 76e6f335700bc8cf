//! Draws kubelets that are silent while their pods run on, VMs that users shut down, and maintenance of the cluster.

use super::{FAULTS, HistoryBuilder};
use crate::world::{Action, FaultyNodes, InjectedFault, NodeFault};
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

    /// The cluster is stopped and started, and upgraded.
    pub(super) fn cluster_maintenance(&mut self) {
        self.many_nodes();
        self.leaks();
        self.stop_and_start();
        for _ in 0..3 {
            let at = self.minutes(720, 1_140);
            let duration = self.minutes(1, 10);
            self.add(at, Action::ApiServerDown { duration });
            let replaced = at + self.minutes(1, 40);
            self.strike(replaced, NodeFault::ReplaceSystemNodes);
            // The controller's pod moves to a new node.
            let duration = self.seconds(1, 180);
            self.add(replaced, Action::Crash { duration, write: None });
        }
        self.strike(FAULTS + SignedDuration::from_hours(1), NodeFault::OutOfService);
    }

    /// While it is stopped, the control plane and the nodes of the system pool are away. The VMs of NodeClaims run on,
    /// unless somebody deallocates them too. Kubelets take a while to reconnect.
    fn stop_and_start(&mut self) {
        let (at, duration) = (self.minutes(60, 400), self.minutes(20, 300));
        self.add(at, Action::ApiServerDown { duration });
        self.add(at, Action::Crash { duration, write: None });
        let reconnected = self.minutes(0, 20);
        self.strike(at + duration, NodeFault::Silence(FaultyNodes::Every(1), reconnected));
        if self.random.one_in(2) {
            for nth in 0..9 {
                let deallocated = at + self.minutes(1, 15);
                self.strike(deallocated, NodeFault::ShutDown { nth, deallocate: true });
            }
        }
    }
}
