//! Error handling and retries of a launch.

use super::{LaunchScript, MAX_FAILED_POLLS, MAX_RETRIES, State};
use crate::model::errors::{CloudError, CloudErrorCode, ClusterError, EffectError, LaunchRefusal};
use crate::model::names::ArmId;
use crate::plan::{CloudRequest, Effect, Step};
use jiff::Timestamp;
use std::sync::Arc;

impl LaunchScript {
    /// The next step after an error.
    pub(super) fn on_error(&mut self, error: EffectError, now: Timestamp) -> Step {
        let EffectError::Cloud(cloud) = &error else {
            return match (&self.state, &error) {
                // Only the URL of the operation could not be written; this run knows it anyway.
                (State::OperationSaved(op), EffectError::Cluster(ClusterError::Unavailable)) => {
                    let polling = State::Polling(op.clone());
                    self.wait_in(polling)
                }
                // A conflict: the claim is being deleted or recreated. Its deletion cleans up.
                _ => self.fail(error),
            };
        };
        let cloud = cloud.clone();
        self.error = Some(cloud.clone());
        match &self.state {
            // A resource of that name exists, or did until recently.
            State::VmPut if cloud.code == CloudErrorCode::Conflict && self.retry_budget.retries() < MAX_RETRIES => {
                self.on_name_conflict(&cloud, self.ids.vm.clone(), State::VmRead)
            }
            State::NicPut if cloud.code == CloudErrorCode::Conflict && self.retry_budget.retries() < MAX_RETRIES => {
                self.on_name_conflict(&cloud, self.ids.nic.clone(), State::NicRead)
            }
            State::VmPut if cloud.code.is_capacity() => {
                self.note_refusal(cloud, now);
                self.try_next(self.progress.offering_index + 1, now)
            }
            // The operation is unknown, cannot be read, or has failed: the VM's own state counts. Only the result of
            // the operation itself concerns the offering.
            State::Polling(_) | State::Resumed(_) => {
                if cloud.is_operation_result && !cloud.code.is_transient() {
                    self.note_refusal(cloud, now);
                }
                self.read_vm()
            }
            State::NicPut | State::VmPut if !cloud.code.is_transient() => {
                self.note_refusal(cloud.clone(), now);
                self.give_up(&cloud, now)
            }
            _ => self.fail(error),
        }
    }

    /// Records a refusal, so that neither this launch nor the next requests the offering again at once.
    fn note_refusal(&mut self, error: CloudError, now: Timestamp) {
        if let Some(offering) = self.progress.current_offering() {
            let of_all = self.state == State::NicPut;
            let (offering, reservation) = (offering.key.clone(), self.progress.reservation().cloned());
            let refusal = LaunchRefusal { offering, reservation, error, applies_to_all_offerings: of_all, at: now };
            let facts = self.progress.instance_type(&refusal.offering.size).map(|t| Arc::clone(&t.facts));
            self.unavailable.record(&refusal, facts.as_deref());
            self.report.launch_refusals.push(refusal);
        }
    }

    /// True when the same effect is worth another try after this error.
    pub(super) fn is_retryable(&self, error: &EffectError) -> bool {
        let error = match error {
            EffectError::Cloud(error) => error,
            // The VM exists: retry writing its result.
            EffectError::Cluster(ClusterError::Unavailable) => {
                return matches!(self.state, State::ClaimUpdated(_)) && self.retry_budget.retries() < MAX_RETRIES;
            }
            _ => return false,
        };
        let met = matches!(self.state, State::VmPut | State::NicPut) && error.code == CloudErrorCode::Conflict;
        let polling = matches!(self.state, State::Polling(_) | State::Resumed(_));
        let failing = polling && self.failed_polls >= MAX_FAILED_POLLS;
        error.code.is_transient() && self.retry_budget.retries() < MAX_RETRIES && !failing && !met
    }

    /// Waits for the next try of the last effect.
    pub(super) fn back_off(&mut self, error: &EffectError) -> Step {
        let wait = self.retry_budget.backoff(match error {
            EffectError::Cloud(error) => Some(error),
            _ => None,
        });
        self.failed_polls += u32::from(matches!(self.state, State::Polling(_) | State::Resumed(_)));
        let again = self.retry_state();
        self.state = again;
        Step::Wait(wait)
    }

    /// A PUT has found a resource of that name, or its remains: reads it after a delay.
    fn on_name_conflict(&mut self, error: &CloudError, id: ArmId, then: State) -> Step {
        self.state = State::Retry(Box::new(Effect::Cloud(CloudRequest::Get(id))), Box::new(then));
        Step::Wait(self.retry_budget.poll_backoff(error))
    }

    /// The state that repeats the last effect.
    fn retry_state(&mut self) -> State {
        let state = std::mem::replace(&mut self.state, State::Begin);
        let step = match &state {
            State::NicPut => self.put_nic(),
            State::VmPut => self.put_vm(),
            State::FailedVmDeleted => self.delete_failed_vm(),
            State::VmRead => Step::perform(Effect::Cloud(CloudRequest::Get(self.ids.vm.clone()))),
            State::NicRead | State::NicRecheck => Step::perform(Effect::Cloud(CloudRequest::Get(self.ids.nic.clone()))),
            State::Polling(op) | State::Resumed(op) | State::Deleting(op) => {
                Step::perform(Effect::Cloud(CloudRequest::Poll(op.clone())))
            }
            State::ClaimUpdated(effect) => Step::Perform(effect.clone()),
            _ => return state,
        };
        match step {
            Step::Perform(effect) => State::Retry(effect, Box::new(state)),
            Step::Wait(_) | Step::End(_) => state,
        }
    }
}
