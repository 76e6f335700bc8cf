//! Hazards of delays: operations that fail late, and listings that lag.

use super::{FAULTS, HistoryBuilder, key};
use crate::world::{Action, InjectedFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// Accepted operations fail minutes later: VMs that never run, whose NICs are then reserved for them for a while,
    /// and deletions that delete nothing.
    pub(super) fn late_failures(&mut self) {
        for deletes in [false, false, true] {
            let at = self.random_time();
            let times = self.count(1, 4);
            self.inject(at, InjectedFault::FailLate { deletes, times });
            self.add(at + SignedDuration::from_secs(1), Action::Scale { workload: key("web"), replicas: 14 });
            let nth = self.index(0, 9);
            let deleted_at = at + self.minutes(1, 5);
            self.add(deleted_at, Action::DeleteClaim { nth });
        }
        self.inject(FAULTS, InjectedFault::FailNothing);
    }

    /// Listings lag most of the time, while nodes are launched, deleted and leaked.
    pub(super) fn listing_lag(&mut self) {
        self.leaks();
        self.manual_deletions();
        for hour in 0..20 {
            let from = SignedDuration::from_mins(hour * 60) + self.minutes(1, 20);
            let (lag, duration) = (self.minutes(2, 20), self.minutes(10, 40));
            self.inject(from, InjectedFault::ListLag(lag));
            self.inject(from + duration, InjectedFault::ListLag(SignedDuration::ZERO));
        }
    }
}
