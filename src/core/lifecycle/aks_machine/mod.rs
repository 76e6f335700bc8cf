//! Launch of a NodeClaim as an AKS Machine (experimental).
//!
//! Experimental. *Guarantees*: the intent is on the NodeClaim before the first PUT; a Machine of that name that does
//! not carry this claim's UID is neither changed nor deleted, whatever failed; a failed Machine of ours is deleted
//! before its name is used again; every wait and retry is bounded. *Caveats*: no error is taken to mean that there is
//! no Machine, only Azure's 404.

use super::launch::ClassInstanceTypes;
use super::launch_progress::{LaunchProgress, is_refused};
use super::retry_budget::{POLL_INTERVAL, RetryBudget};
use crate::catalog::OsDiskStorage;
use crate::model::azure::cloud::ProvisioningState;
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::errors::{CloudError, CloudErrorCode, ClusterError, EffectError, LaunchRefusal, OperationId};
use crate::model::names::ArmId;
use crate::plan::{
    AksMachineRequest, AksMachineSpec, CloudRequest, CommandReport, Effect, Launch, LaunchReport, Reply, Script, Step,
};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Longest duration of a launch; the next one continues with existing resources.
const MAX_DURATION: SignedDuration = SignedDuration::from_mins(15);
/// Most offerings that one launch tries.
const MAX_ATTEMPTS: usize = 10;

/// The launch of one NodeClaim as a Machine.
#[derive(Debug)]
pub struct AksMachineLaunchScript {
    progress: LaunchProgress,
    id: ArmId,
    state: State,
    attempts: usize,
    /// Azure's error for the last offering.
    error: Option<CloudError>,
    retry_budget: RetryBudget,
    report: CommandReport,
}

/// The last effect.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Start,
    MachineRead,
    /// The Machine is there, and not ready yet.
    Creating,
    IntentWritten,
    Put,
    Polling(OperationId),
    Deleting(OperationId),
    Deleted,
    ClaimUpdated,
}

impl AksMachineLaunchScript {
    /// The script of a launch command, as the Machine of this id.
    #[must_use]
    pub fn new(mut launch: Launch, sizes: ClassInstanceTypes, id: ArmId) -> Self {
        // AKS chooses it, also where nodes are configured otherwise now.
        launch.image = None;
        let retry_budget = RetryBudget::new(MAX_DURATION, RETRY_AFTER, launch.claim.uid.clone());
        let (progress, state, report) = (LaunchProgress::new(launch, sizes), State::Start, CommandReport::default());
        Self { progress, id, state, attempts: 0, error: None, retry_budget, report }
    }

    fn perform(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    fn read_machine(&mut self) -> Step {
        let id = self.id.clone();
        self.perform(State::MachineRead, Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Get(id))))
    }

    fn back_off(&mut self, error: &CloudError) -> Step {
        let wait = self.retry_budget.backoff(Some(error));
        self.read_later(wait)
    }

    fn read_later(&mut self, wait: SignedDuration) -> Step {
        self.state = State::Start;
        Step::Wait(wait)
    }

    fn on_machine_read(&mut self, machine: Option<Arc<RelatedResource>>, now: Timestamp) -> Step {
        let Some(machine) = machine else { return self.try_next(now) };
        if !self.progress.owns(&machine.tags) {
            let message = format!("Machine {} exists and is not owned by this NodeClaim", machine.id.name());
            return self.give_up(CloudErrorCode::Conflict, message.into(), now);
        }
        match &machine.detail {
            RelatedDetail::AksMachine { vm: Some(vm), state: ProvisioningState::Succeeded } => self.mark_launched(vm),
            RelatedDetail::AksMachine { state: ProvisioningState::Failed, .. } => {
                let id = self.id.clone();
                self.perform(State::Deleted, Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Delete(id))))
            }
            _ => {
                self.state = State::Creating;
                Step::Wait(POLL_INTERVAL)
            }
        }
    }

    /// Writes the intent for the next offering that this launch has not been refused.
    fn try_next(&mut self, now: Timestamp) -> Step {
        let open = self
            .progress
            .next_offering(self.progress.offering_index, |o| !is_refused(&self.report.launch_refusals, &o.key));
        match (open, self.error.clone()) {
            (Some(index), _) if self.attempts < MAX_ATTEMPTS => {
                (self.progress.offering_index, self.attempts) = (index, self.attempts + 1);
                self.write_intent()
            }
            (_, Some(error)) => self.give_up(error.code, error.message, now),
            (_, None) => self.finish(),
        }
    }

    fn write_intent(&mut self) -> Step {
        match self.progress.write_intent(Some(self.id.clone()), None, self.retry_budget.started()) {
            Some(effect) => self.perform(State::IntentWritten, effect),
            None => self.finish(),
        }
    }

    fn put(&mut self) -> Step {
        let Some(offering) = self.progress.current_offering() else { return self.finish() };
        let Some(instance) = self.progress.instance_type(&offering.key.size) else { return self.finish() };
        let launch = &self.progress.launch;
        let storage = OsDiskStorage::of(&instance.facts, launch.os_disk_gb);
        let spec = AksMachineSpec {
            id: self.id.clone(),
            offering: offering.key.clone(),
            os_disk_gb: launch.os_disk_gb,
            ephemeral_os_disk: matches!(storage, OsDiskStorage::Ephemeral(_)),
            tags: launch.tags.clone(),
            claim: launch.claim.name.clone(),
            security: launch.security,
            subnet: launch.subnet.clone(),
            kubelet: self.progress.kubelet_spec(),
        };
        self.perform(State::Put, Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Put(Box::new(spec)))))
    }

    fn mark_launched(&mut self, vm: &ArmId) -> Step {
        match self.progress.mark_launched(vm) {
            Some(effect) => self.perform(State::ClaimUpdated, effect),
            None => self.finish(),
        }
    }

    fn give_up(&mut self, code: CloudErrorCode, message: Arc<str>, now: Timestamp) -> Step {
        self.perform(State::ClaimUpdated, self.progress.mark_failed(code, message, now))
    }

    fn finish(&mut self) -> Step {
        self.end(false)
    }

    /// Ends because its time is over. After a refused read or a deletion nothing is being created.
    fn time_out(&mut self) -> Step {
        self.end(matches!(self.state, State::Polling(_) | State::Creating))
    }

    fn end(&mut self, is_creating: bool) -> Step {
        let launch = LaunchReport { claim: self.progress.launch.claim.name.clone(), is_creating };
        self.report.launch = Some(Box::new(launch));
        Step::End(std::mem::take(&mut self.report))
    }

    fn on_reply(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (self.state.clone(), reply) {
            (State::MachineRead, Some(Reply::AksMachine(machine))) => self.on_machine_read(machine, now),
            (State::IntentWritten, _) => self.put(),
            (State::Put, Some(Reply::Accepted(op))) | (State::Polling(op), Some(Reply::Running)) => {
                self.state = State::Polling(op);
                Step::Wait(POLL_INTERVAL)
            }
            (State::Polling(op), None) => {
                self.perform(State::Polling(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            (State::Deleted, Some(Reply::Accepted(op))) | (State::Deleting(op), Some(Reply::Running)) => {
                self.state = State::Deleting(op);
                Step::Wait(POLL_INTERVAL)
            }
            (State::Deleting(op), None) => {
                self.perform(State::Deleting(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            (State::ClaimUpdated, _) => self.finish(),
            // Only a GET confirms that it is done.
            _ => self.read_machine(),
        }
    }

    /// Records a refusal, so that the offering is not requested again at once.
    fn record_refusal(&mut self, error: &CloudError, now: Timestamp) {
        if let Some(offering) = self.progress.current_offering() {
            let (offering, reservation) = (offering.key.clone(), self.progress.reservation().cloned());
            let refusal =
                LaunchRefusal { offering, reservation, error: error.clone(), applies_to_all_offerings: false, at: now };
            self.report.launch_refusals.push(refusal);
        }
    }

    /// The next step after a refusal. Nothing is deleted because of it: the next GET shows what exists, and whose it
    /// is.
    fn on_error(&mut self, error: CloudError, now: Timestamp) -> Step {
        match self.state {
            State::Put if error.code.is_capacity() => {
                self.record_refusal(&error, now);
                self.error = Some(error);
                self.read_later(POLL_INTERVAL)
            }
            _ if error.code.is_transient() || error.code == CloudErrorCode::NotFound => self.back_off(&error),
            State::Put => {
                self.record_refusal(&error, now);
                self.give_up(error.code, error.message, now)
            }
            // The operation has failed: the GET finds a failed Machine, or none.
            State::Polling(_) if error.is_operation_result => {
                self.record_refusal(&error, now);
                self.error = Some(error);
                self.read_later(POLL_INTERVAL)
            }
            // Only the question was refused.
            State::Polling(_) => self.back_off(&error),
            _ => {
                self.report.error = Some(EffectError::Cloud(error));
                self.finish()
            }
        }
    }

    fn next(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        match reply {
            Some(Ok(reply)) => self.on_reply(Some(reply), now),
            None => self.on_reply(None, now),
            Some(Err(EffectError::Cloud(error))) => self.on_error(error, now),
            // The claim is being deleted, or is deleted: its resources are deleted with it.
            Some(Err(EffectError::Cluster(ClusterError::Conflict | ClusterError::NotFound))) => self.finish(),
            Some(Err(error)) => {
                self.report.error = Some(error);
                self.finish()
            }
        }
    }
}

impl Script for AksMachineLaunchScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        let Some(left) = self.retry_budget.remaining(now) else { return self.time_out() };
        match self.next(reply, now) {
            Step::Wait(wait) if wait > left => self.time_out(),
            step => step,
        }
    }
}

#[cfg(test)]
mod tests;
