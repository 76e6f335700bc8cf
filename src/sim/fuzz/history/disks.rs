//! Data disks whose objects change faster than they are recorded or assessed, or that are replaced under their name.

use super::{HistoryBuilder, object};
use crate::world::{Action, InjectedFault};
use jiff::SignedDuration;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::ObjectName;

impl HistoryBuilder {
    /// A volume that no claim uses, and whose disk is deleted with it.
    pub(super) fn add_volume(&mut self, name: &ObjectName) {
        let volume =
            Action::AddVolume { name: name.clone(), claim: None, reclaim: ReclaimPolicy::Delete, size_gib: 64 };
        self.add(SignedDuration::from_mins(20), volume);
    }

    /// A volume and its disk are deleted, and another owner restores a disk under the same name.
    pub(super) fn restored_disk(&mut self) {
        let name = object("pvc-restored");
        self.add_volume(&name);
        self.add(SignedDuration::from_hours(3), Action::LoseVolume { name: name.clone() });
        self.inject(SignedDuration::from_hours(4), InjectedFault::RestoreDisk(name));
    }

    /// A volume is retained and removed in one step. Nobody could know of it after a crash, so the controller must not
    /// crash in this history.
    pub(super) fn retained_at_the_end(&mut self) {
        let name = object("pvc-retained-late");
        self.add_volume(&name);
        self.inject(SignedDuration::from_hours(2), InjectedFault::RetainAndLose(name));
    }

    /// A volume is moved to another cluster, as documented by Azure: it is retained here and removed, and its disk is
    /// attached there, but not always.
    pub(super) fn moved_volume(&mut self) {
        let name = object("pvc-moved");
        self.add_volume(&name);
        let retained = SignedDuration::from_hours(1) + self.minutes(1, 120);
        self.inject(retained, InjectedFault::RetainVolume(name.clone()));
        self.add(retained + SignedDuration::from_hours(1), Action::LoseVolume { name: name.clone() });
        for hours in [3, 9, 15] {
            let at = retained + SignedDuration::from_hours(hours);
            self.inject(at, InjectedFault::UseElsewhere { volume: name.clone(), on: true });
            let detached = at + self.minutes(10, 300);
            self.inject(detached, InjectedFault::UseElsewhere { volume: name.clone(), on: false });
        }
    }

    /// A PersistentVolume is restored right before its disk's deletion is approved: the inventory is older than that.
    pub(super) fn race_for_a_volume(&mut self) {
        let name = object("pvc-raced");
        self.add_volume(&name);
        self.add(SignedDuration::from_hours(3), Action::LoseVolume { name: name.clone() });
        let approved = SignedDuration::from_hours(9);
        self.add(approved, Action::Approve {});
        if self.random.one_in(2) {
            self.inject(approved - SignedDuration::from_secs(1), InjectedFault::RestoreVolume(name));
        }
    }
}
