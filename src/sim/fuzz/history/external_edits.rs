//! Draws edits of what stays in use: tags, states of VMs, and OrphanRecords.

use super::{FAULTS, HistoryBuilder};
use crate::world::{ExternalEdit, InjectedFault, TagEdit};
use jiff::SignedDuration;

impl HistoryBuilder {
    pub(super) fn external_edits(&mut self) {
        self.leaks();
        self.many_nodes();
        self.manual_deletions();
        for _ in 0..4 {
            let (at, nth) = (self.random_time(), self.index(0, 30));
            let edit = if self.random.one_in(2) { TagEdit::Remove } else { TagEdit::Capitals };
            self.edit(at, ExternalEdit::Tags { nth, edit });
            let (at, nth) = (self.random_time(), self.index(0, 9));
            self.edit(at, ExternalEdit::FailVm { nth });
            let (at, duration) = (self.random_time(), self.minutes(5, 90));
            self.edit(at, ExternalEdit::LockRecords(duration.min(FAULTS - at)));
        }
        for _ in 0..2 {
            let (at, nth) = (self.random_time(), self.index(0, 9));
            self.edit(at, ExternalEdit::SwapOsDisk { nth });
        }
        let (at, restored) = (self.random_time(), self.random_time());
        self.edit(at.min(restored), ExternalEdit::BackUpRecords);
        self.edit(at.max(restored), ExternalEdit::RestoreRecords);
        self.settled_by_a_person();
    }

    fn edit(&mut self, at: SignedDuration, edit: ExternalEdit) {
        self.inject(at, InjectedFault::External(edit));
    }
}
