//! Edits of OrphanSweeps that the controller cannot read.

use super::{HistoryBuilder, object};
use crate::world::{Action, InjectedFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// One change excludes a leaked NIC before it is old enough, and makes its OrphanSweep unreadable; another one
    /// corrects that hours later.
    pub(super) fn unreadable_sweep(&mut self) {
        let (sweep, excluded) = (object("exclusions"), object("excluded-late"));
        self.add(SignedDuration::from_hours(1), Action::LeakNic { name: excluded.clone() });
        let at = self.minutes(65, 80);
        self.inject(at, InjectedFault::UnreadableSweep { sweep, excluded });
        let corrected = at + self.minutes(60, 300);
        self.inject(corrected, InjectedFault::RepairSweeps);
    }
}
