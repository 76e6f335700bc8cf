//! Draws nodes that do not come up.

use super::{FAULTS, HistoryBuilder, key};
use crate::cluster::BrokenKubelets;
use crate::world::{Action, InjectedFault, NodeFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// For some hours nodes do not come up, while pods wait for them.
    pub(super) fn failed_joins(&mut self) {
        let broken = if self.random.one_in(2) { BrokenKubelets::NeverJoin } else { BrokenKubelets::NeverReady };
        let from = self.minutes(10, 300);
        let until = (from + self.minutes(180, 900)).min(FAULTS);
        self.inject(from, InjectedFault::Nodes(NodeFault::BreakKubelets(broken)));
        self.inject(until, InjectedFault::Nodes(NodeFault::RepairKubelets));
        for name in ["web", "api", "cache"] {
            self.add(from + SignedDuration::from_mins(1), Action::Scale { workload: key(name), replicas: 40 });
        }
    }
}
