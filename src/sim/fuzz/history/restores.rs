//! Draws backups of the API server that are restored in part.

use super::{FAULTS, HistoryBuilder};
use crate::world::{Action, InjectedFault, RestoreFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// Some NodeClaims are lost, with or without their Nodes, or created again. Users delete others meanwhile.
    pub(super) fn partial_restores(&mut self) {
        self.many_nodes();
        self.manual_deletions();
        for _ in 0..4 {
            let at = self.random_time();
            self.restore_in_part(at);
        }
        self.settled_by_a_person();
    }

    /// A restore loses some NodeClaims, with or without their Nodes, or creates one again.
    pub(super) fn restore_in_part(&mut self, at: SignedDuration) {
        let (nth, count) = (self.index(0, 9), self.index(1, 3));
        let (is_whole, is_lost) = (self.random.one_in(2), self.random.between(0, 1) == 0);
        let fault = if is_lost {
            RestoreFault::LoseClaims { nth, count, with_nodes: is_whole }
        } else {
            RestoreFault::RecreateClaim { nth, with_status: is_whole }
        };
        self.inject(at, InjectedFault::Restore(fault));
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
