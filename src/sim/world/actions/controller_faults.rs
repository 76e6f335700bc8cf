//! Faults of the controller's process, of its clock, and of what it hears from the API server.

use crate::world::{Action, Freeze, InjectedFault, World};
use jiff::SignedDuration;
use napkeeper_core::engine::leader_election::RETRY_PERIOD;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, ClusterError, EffectError};
use napkeeper_core::model::settings::DeletionRule;
use napkeeper_core::plan::{Effect, Reply};

/// What happens to the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerFault {
    /// It is frozen at a write.
    Freeze(Freeze),
    /// Its clock is so far ahead of the API server's from now on; behind, if negative.
    Clock(SignedDuration),
    /// The watch loses this many of the next creations and deletions of NodeClaims by the controller.
    LoseOwnWrites(u32),
    /// etcd is restored from a backup: the watches deliver nothing until the controller renews its Lease, whose
    /// resourceVersion shows it, and lists everything anew.
    EtcdRestored,
    /// The controller lists everything anew.
    ListAnew,
    /// This many of the next writes are performed, and their answers are lost.
    LoseAnswers(u32),
    /// This many of the next writes are not performed, because of a conflict (409).
    Conflicts(u32),
}

/// Writes whose answers are lost, or that are refused.
#[derive(Debug, Default)]
pub(in crate::world) struct AnswerFaults {
    lost: u32,
    conflicts: u32,
}

impl AnswerFaults {
    /// Refuses this write, if that is due.
    pub(in crate::world) fn refusal(&mut self, effect: &Effect) -> Option<EffectError> {
        if self.conflicts == 0 || !effect.is_write() {
            return None;
        }
        self.conflicts -= 1;
        Some(match effect {
            Effect::Cloud(_) => EffectError::Cloud(CloudError::new(CloudErrorCode::Conflict, "in use by an operation")),
            _ => EffectError::Cluster(ClusterError::Conflict),
        })
    }

    /// What the controller hears of a write that was performed.
    pub(in crate::world) fn heard(
        &mut self,
        effect: &Effect,
        reply: Result<Reply, EffectError>,
    ) -> Result<Reply, EffectError> {
        if self.lost == 0 || !effect.is_write() || matches!(reply, Err(EffectError::Blocked(_))) {
            return reply;
        }
        self.lost -= 1;
        Err(match effect {
            Effect::Cloud(_) => EffectError::Cloud(CloudError::new(CloudErrorCode::Unavailable, "no answer in time")),
            _ => EffectError::Cluster(ClusterError::Unavailable),
        })
    }
}

impl World {
    fn restore_etcd(&mut self) {
        let noticed = self.now + RETRY_PERIOD;
        self.controller.watches.deliver_nothing_until(noticed);
        if self.settings.deletion_rules.enforces(DeletionRule::RestoreNoticed) {
            self.schedule_action(noticed, Action::InjectFault(InjectedFault::Controller(ControllerFault::ListAnew)));
        }
    }

    pub(super) fn strike_controller(&mut self, fault: ControllerFault) {
        match fault {
            ControllerFault::Freeze(freeze) => self.controller.freezes.planned.push(freeze),
            ControllerFault::Clock(ahead) => self.set_controller_clock(ahead),
            ControllerFault::LoseOwnWrites(count) => self.controller.watches.lose_own_writes(count),
            ControllerFault::EtcdRestored => self.restore_etcd(),
            ControllerFault::ListAnew => self.controller.crash(self.now),
            ControllerFault::LoseAnswers(count) => self.injected.answers.lost = count,
            ControllerFault::Conflicts(count) => self.injected.answers.conflicts = count,
        }
    }
}
