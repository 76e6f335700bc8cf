//! Draws watches and reads that lag, while nodes are launched, disrupted and deleted.

use super::{FAULTS, HistoryBuilder, key};
use crate::world::{Action, ControllerFault, CrashPoint, Freeze, InjectedFault, WatchedKind};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// Watches of one or two kinds lag at a time, by seconds or minutes.
    pub(super) fn watch_lag(&mut self) {
        self.leaks();
        self.manual_deletions();
        for _ in 0..30 {
            let (from, duration) = (self.random_time(), self.minutes(2, 60));
            for _ in 0..self.random.between(1, 2) {
                let kind = *self.random.pick(&WatchedKind::ALL).unwrap_or(&WatchedKind::Claims);
                let most = if self.random.one_in(4) { 600 } else { 45 };
                let lag = self.seconds(1, most);
                self.inject(from, InjectedFault::WatchLag(kind, lag));
                self.inject(from + duration, InjectedFault::WatchLag(kind, SignedDuration::ZERO));
            }
            let replicas = self.count(0, 14);
            self.add(from + duration / 2, Action::Scale { workload: key("web"), replicas });
        }
        for kind in WatchedKind::ALL {
            self.inject(FAULTS, InjectedFault::WatchLag(kind, SignedDuration::ZERO));
        }
    }

    /// A GET shows what existed seconds ago, and listings show deleted resources for hours.
    pub(super) fn stale_reads(&mut self) {
        self.leaks();
        self.manual_deletions();
        for _ in 0..12 {
            let (from, duration) = (self.random_time(), self.minutes(5, 90));
            let lag = self.seconds(1, 60);
            self.inject(from, InjectedFault::ReadLag(lag));
            self.inject(from + duration, InjectedFault::ReadLag(SignedDuration::ZERO));
        }
        for _ in 0..8 {
            let at = self.random_time();
            let freeze = Freeze { at: CrashPoint::NextWrite, lasts: self.seconds(20, 60), is_sent: true };
            self.inject(at, InjectedFault::Controller(ControllerFault::Freeze(freeze)));
        }
        for _ in 0..4 {
            let (from, shown) = (self.random_time(), self.minutes(30, 600));
            self.inject(from, InjectedFault::Ghosts(shown));
        }
        self.inject(FAULTS, InjectedFault::ReadLag(SignedDuration::ZERO));
        self.inject(FAULTS, InjectedFault::Ghosts(SignedDuration::ZERO));
    }
}
