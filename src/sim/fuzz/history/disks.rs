//! Data disks whose objects change faster than they are recorded, or that are replaced under their name.

use super::{HistoryBuilder, object};
use crate::world::{Action, InjectedFault};
use jiff::SignedDuration;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;

impl HistoryBuilder {
    /// A volume and its disk are deleted, and another owner restores a disk under the same name.
    pub(super) fn restored_disk(&mut self) {
        let name = object("pvc-restored");
        let volume =
            Action::AddVolume { name: name.clone(), claim: None, reclaim: ReclaimPolicy::Delete, size_gib: 64 };
        self.add(SignedDuration::from_mins(20), volume);
        self.add(SignedDuration::from_hours(3), Action::LoseVolume { name: name.clone() });
        self.inject(SignedDuration::from_hours(4), InjectedFault::RestoreDisk(name));
    }

    /// A volume is retained and removed in one step. Nobody could know of it after a crash, so the controller must not
    /// crash in this history.
    pub(super) fn retained_at_the_end(&mut self) {
        let name = object("pvc-retained-late");
        let volume =
            Action::AddVolume { name: name.clone(), claim: None, reclaim: ReclaimPolicy::Delete, size_gib: 64 };
        self.add(SignedDuration::from_mins(20), volume);
        self.inject(SignedDuration::from_hours(2), InjectedFault::RetainAndLose(name));
    }
}
