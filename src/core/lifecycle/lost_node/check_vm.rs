//! Proves that a VM is lost: asks Azure twice, and deletes what is left for it in Kubernetes.
//!
//! *Guarantees*: nothing is deleted unless both answers are that the VM does not exist or is deallocated. Any other
//! state, a stopped VM included, and any error leave everything as it is; the lifecycle asks again later.

use crate::model::azure::cloud::PowerState;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::names::ArmId;
use crate::plan::{CheckVm, CloudRequest, ClusterWrite, Effect, IfVmLost, NodeUpdate, Reply, Script, Step};
use jiff::{SignedDuration, Timestamp};

/// Time between the two answers: a VM that was just created may be missing for a moment where Azure replicates.
const SECOND_LOOK_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// The check of one VM.
#[derive(Debug)]
pub struct CheckVmScript {
    command: CheckVm,
    look_ups: VmLookUps,
    state: State,
}

/// The last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Looking,
    Deleted,
}

impl CheckVmScript {
    /// The script of a check.
    #[must_use]
    pub fn new(command: CheckVm) -> Self {
        let look_ups = VmLookUps::new(command.vm.clone());
        Self { command, look_ups, state: State::Begin }
    }

    fn delete(&mut self) -> Step {
        self.state = State::Deleted;
        Step::perform(Effect::Cluster(match &self.command.if_lost {
            IfVmLost::DeleteClaim => ClusterWrite::DeleteClaim(self.command.claim.clone()),
            IfVmLost::DeleteNode { name, uid } => ClusterWrite::DeleteNode(name.clone(), uid.clone()),
            IfVmLost::TaintOutOfService { name, uid } => {
                ClusterWrite::UpdateNode(name.clone(), uid.clone(), NodeUpdate::TaintOutOfService)
            }
        }))
    }
}

impl Script for CheckVmScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, _now: Timestamp) -> Step {
        match (self.state, reply) {
            (State::Begin, _) => {
                self.state = State::Looking;
                self.look_ups.first()
            }
            // Deleted meanwhile.
            (State::Deleted, Some(Err(EffectError::Cluster(ClusterError::NotFound | ClusterError::Conflict)))) => {
                Step::finished()
            }
            (_, Some(Err(error))) => Step::failed(error),
            (State::Looking, reply) => match self.look_ups.next(reply.and_then(Result::ok)) {
                LookUp::Next(step) => step,
                LookUp::Lost => self.delete(),
                LookUp::NotProven => Step::finished(),
            },
            (State::Deleted, _) => Step::finished(),
        }
    }
}

/// Asks Azure twice for a VM.
#[derive(Debug)]
pub(in crate::lifecycle) struct VmLookUps {
    vm: ArmId,
    last: LastLook,
}

/// What was done last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLook {
    First,
    Waiting,
    Second,
}

/// What follows from an answer.
pub(in crate::lifecycle) enum LookUp {
    /// This step, whose reply is the next answer.
    Next(Step),
    /// The VM is lost.
    Lost,
    /// It may run.
    NotProven,
}

impl VmLookUps {
    pub(in crate::lifecycle) fn new(vm: ArmId) -> Self {
        Self { vm, last: LastLook::First }
    }

    /// The first step.
    pub(in crate::lifecycle) fn first(&mut self) -> Step {
        self.look(LastLook::First)
    }

    /// Takes the reply to the last step; none after a wait.
    pub(in crate::lifecycle) fn next(&mut self, reply: Option<Reply>) -> LookUp {
        match (self.last, reply) {
            (LastLook::First, Some(Reply::PowerState(found))) if is_lost(found) => {
                self.last = LastLook::Waiting;
                LookUp::Next(Step::Wait(SECOND_LOOK_AFTER))
            }
            (LastLook::Waiting, None) => LookUp::Next(self.look(LastLook::Second)),
            (LastLook::Second, Some(Reply::PowerState(found))) if is_lost(found) => LookUp::Lost,
            _ => LookUp::NotProven,
        }
    }

    fn look(&mut self, last: LastLook) -> Step {
        self.last = last;
        Step::perform(Effect::Cloud(CloudRequest::GetPowerState(self.vm.clone())))
    }
}

/// There is no VM of that name, or no host runs it.
fn is_lost(found: Option<PowerState>) -> bool {
    matches!(found, None | Some(PowerState::Deallocated))
}
