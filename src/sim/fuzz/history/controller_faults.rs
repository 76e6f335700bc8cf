//! Draws faults of the controller's process, of its clock and of its watches.

use super::{FAULTS, HistoryBuilder, key, object};
use crate::fuzz::Hazard;
use crate::world::{Action, ControllerFault, Crash, CrashPoint, Freeze, InjectedFault, WriteSide};
use jiff::SignedDuration;

impl HistoryBuilder {
    /// At which writes the controller crashes.
    pub(super) fn crashes(&mut self, hazard: Hazard) -> Vec<Crash> {
        let number = match hazard {
            Hazard::Crashes => 12,
            Hazard::Companion => 2,
            _ => self.random.between(0, 3),
        };
        let mut crashes: Vec<Crash> = (0..number)
            .map(|_| Crash {
                at: CrashPoint::Write(self.random.between(0, 260)),
                side: if self.random.one_in(2) { WriteSide::Before } else { WriteSide::After },
                down_for: self.seconds(1, 600),
            })
            .collect();
        if hazard == Hazard::Caps {
            let sides = [WriteSide::Before, WriteSide::After, WriteSide::After];
            crashes.extend(sides.map(|side| Crash {
                at: CrashPoint::SweepDelete,
                side,
                down_for: SignedDuration::from_secs(30),
            }));
        }
        crashes
    }

    /// The controller is frozen at writes, for seconds or beyond the end of its Lease; answers to writes are lost, and
    /// writes are refused.
    pub(super) fn interrupted_writes(&mut self) {
        if self.random.one_in(3) {
            return self.freeze_before_a_delete();
        }
        self.manual_deletions();
        self.leaks();
        for _ in 0..16 {
            let at = self.random_time();
            let longest = if self.random.one_in(2) { 9 } else { 60 };
            let freeze = Freeze {
                at: if self.random.one_in(4) { CrashPoint::SweepDelete } else { CrashPoint::NextWrite },
                lasts: self.seconds(1, longest),
                is_sent: self.random.one_in(2),
            };
            self.strike_controller(at, ControllerFault::Freeze(freeze));
        }
        for _ in 0..12 {
            let (at, count) = (self.random_time(), self.count(1, 12));
            let is_lost = self.random.one_in(2);
            let fault = if is_lost { ControllerFault::LoseAnswers(count) } else { ControllerFault::Conflicts(count) };
            self.strike_controller(at, fault);
        }
        self.strike_controller(FAULTS, ControllerFault::LoseAnswers(0));
        self.strike_controller(FAULTS, ControllerFault::Conflicts(0));
    }

    /// The controller is about to delete a disk, is frozen for many minutes, and the disk is used again by then. Nothing
    /// else holds the deletion back: the cap allows one a day.
    fn freeze_before_a_delete(&mut self) {
        let name = object("pvc-frozen");
        self.add_volume(&name);
        self.add(SignedDuration::from_hours(3), Action::LoseVolume { name: name.clone() });
        let approved = SignedDuration::from_hours(9);
        self.add(approved, Action::Approve {});
        let freeze = Freeze { at: CrashPoint::SweepDelete, lasts: SignedDuration::from_mins(25), is_sent: false };
        self.strike_controller(approved - SignedDuration::from_secs(1), ControllerFault::Freeze(freeze));
        // Before another replica leads, which would delete the disk by itself.
        self.inject(approved + SignedDuration::from_secs(5), InjectedFault::RestoreVolume(name));
    }

    /// The controller's clock jumps, by seconds that are tolerated or by hours and months.
    pub(super) fn clock_jumps(&mut self) {
        self.leaks();
        self.manual_deletions();
        for _ in 0..12 {
            let (at, duration) = (self.random_time(), self.minutes(1, 120));
            let ahead = match self.random.between(0, 3) {
                0 => self.seconds(1, 60),
                1 => self.minutes(2, 600),
                2 => SignedDuration::from_hours(24 * 40),
                _ => self.seconds(1, 7_200),
            };
            let ahead = if self.random.one_in(3) { -ahead } else { ahead };
            self.strike_controller(at, ControllerFault::Clock(ahead));
            self.strike_controller((at + duration).min(FAULTS), ControllerFault::Clock(SignedDuration::ZERO));
        }
        self.strike_controller(FAULTS, ControllerFault::Clock(SignedDuration::ZERO));
    }

    /// The watch loses what the controller writes to NodeClaims. etcd is restored from a backup, so that no watch delivers
    /// what has become of some NodeClaims, nor what users do meanwhile.
    pub(super) fn lost_events(&mut self) {
        self.many_nodes();
        self.manual_deletions();
        for _ in 0..8 {
            let (at, count) = (self.random_time(), self.count(1, 3));
            self.strike_controller(at, ControllerFault::LoseOwnWrites(count));
        }
        self.strike_controller(FAULTS, ControllerFault::LoseOwnWrites(0));
        for _ in 0..4 {
            let at = self.random_time();
            self.strike_controller(at, ControllerFault::EtcdRestored);
            self.restore_in_part(at);
            for name in ["web", "api", "cache"] {
                let replicas = self.count(0, 14);
                self.add(at + SignedDuration::from_secs(1), Action::Scale { workload: key(name), replicas });
            }
        }
        self.settled_by_a_person();
    }

    fn strike_controller(&mut self, at: SignedDuration, fault: ControllerFault) {
        self.inject(at, InjectedFault::Controller(fault));
    }
}
