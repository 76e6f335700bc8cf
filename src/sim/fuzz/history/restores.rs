//! Draws backups of the API server that are restored in part.

use super::{FAULTS, HistoryBuilder, key};
use crate::world::{Action, InjectedFault, RestoreFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// Some NodeClaims are lost, with or without their Nodes, or created again. Users delete others meanwhile.
    pub(super) fn partial_restores(&mut self) {
        for name in ["web", "api", "cache"] {
            self.add(SignedDuration::from_mins(5), Action::Scale { workload: key(name), replicas: 14 });
        }
        self.manual_deletions();
        for _ in 0..4 {
            let (at, nth) = (self.random_time(), usize::try_from(self.random.between(0, 9)).unwrap_or(0));
            let count = usize::try_from(self.random.between(1, 3)).unwrap_or(1);
            let with_nodes = self.random.one_in(2);
            let fault = match self.random.between(0, 1) {
                0 => RestoreFault::LoseClaims { nth, count, with_nodes },
                _ => RestoreFault::RecreateClaim { nth, with_status: with_nodes },
            };
            self.inject(at, InjectedFault::Restore(fault));
        }
        self.settled_by_a_person();
    }

    /// After the faults a person looks at what waits for one.
    pub(super) fn settled_by_a_person(&mut self) {
        let cleared = FAULTS + SignedDuration::from_hours(4);
        self.add(cleared, Action::ClearBreaker {});
        for hours in 1..5 {
            self.add(cleared + SignedDuration::from_hours(hours * 12), Action::Approve {});
        }
    }
}
