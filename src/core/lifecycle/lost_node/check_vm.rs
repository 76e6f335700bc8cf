//! Proves that a VM is lost: asks Azure twice, and deletes what is left for it in Kubernetes.
//!
//! *Guarantees*: nothing is deleted unless both answers are that the VM does not exist or is deallocated. Any other
//! state, a stopped VM included, and any error leave everything as it is; the lifecycle asks again later.

use crate::model::azure::cloud::PowerState;
use crate::model::errors::{ClusterError, EffectError};
use crate::plan::{CheckVm, CloudRequest, ClusterWrite, Effect, IfVmLost, Reply, Script, Step};
use jiff::{SignedDuration, Timestamp};

/// Time between the two answers: a VM that was just created may be missing for a moment where Azure replicates.
pub(in crate::lifecycle) const SECOND_LOOK_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// The check of one VM.
#[derive(Debug)]
pub struct CheckVmScript {
    command: CheckVm,
    state: State,
}

/// The last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    FirstLook,
    Waiting,
    SecondLook,
    Deleted,
}

impl CheckVmScript {
    /// The script of a check.
    #[must_use]
    pub fn new(command: CheckVm) -> Self {
        Self { command, state: State::Begin }
    }

    fn look(&mut self, state: State) -> Step {
        self.state = state;
        Step::perform(Effect::Cloud(CloudRequest::GetPowerState(self.command.vm.clone())))
    }

    fn delete(&mut self) -> Step {
        self.state = State::Deleted;
        Step::perform(Effect::Cluster(match &self.command.if_lost {
            IfVmLost::DeleteClaim => ClusterWrite::DeleteClaim(self.command.claim.clone()),
            IfVmLost::DeleteNode { name, uid } => ClusterWrite::DeleteNode(name.clone(), uid.clone()),
        }))
    }
}

impl Script for CheckVmScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, _now: Timestamp) -> Step {
        match (self.state, reply) {
            (State::Begin, _) => self.look(State::FirstLook),
            // Deleted meanwhile.
            (State::Deleted, Some(Err(EffectError::Cluster(ClusterError::NotFound | ClusterError::Conflict)))) => {
                Step::finished()
            }
            (_, Some(Err(error))) => Step::failed(error),
            (State::FirstLook, Some(Ok(Reply::PowerState(found)))) if is_lost(found) => {
                self.state = State::Waiting;
                Step::Wait(SECOND_LOOK_AFTER)
            }
            (State::Waiting, None) => self.look(State::SecondLook),
            (State::SecondLook, Some(Ok(Reply::PowerState(found)))) if is_lost(found) => self.delete(),
            _ => Step::finished(),
        }
    }
}

/// There is no VM of that name, or no host runs it.
pub(in crate::lifecycle) fn is_lost(found: Option<PowerState>) -> bool {
    matches!(found, None | Some(PowerState::Deallocated))
}
