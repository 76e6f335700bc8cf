//! Recovery of a launch: what follows from an error, and what is worth another try?

use super::{LaunchScript, MOST_FAILED_POLLS, MOST_RETRIES, State};
use crate::model::errors::{CloudError, CloudErrorCode, ClusterError, LaunchRefusal, PortError};
use crate::model::names::ArmId;
use crate::plan::{Effect, Step};
use jiff::Timestamp;
use std::sync::Arc;

impl LaunchScript {
    /// What follows from an error.
    pub(super) fn recover(&mut self, error: PortError, now: Timestamp) -> Step {
        let PortError::Cloud(cloud) = &error else {
            return match (&self.state, &error) {
                // Only where the operation is found could not be written: it is known here all the same.
                (State::Saved(op), PortError::Cluster(ClusterError::Unavailable)) => {
                    let polling = State::Polling(op.clone());
                    self.wait_in(polling)
                }
                // A conflict: the claim is being deleted or is another's by now. Whoever deletes it cleans up.
                _ => self.fail(error),
            };
        };
        let cloud = cloud.clone();
        self.error = Some(cloud.clone());
        match &self.state {
            // Something of that name is there, or was a moment ago.
            State::Vm if cloud.code == CloudErrorCode::Conflict && self.patience.retries() < MOST_RETRIES => {
                self.met(&cloud, self.ids.vm.clone(), State::Looked)
            }
            State::Nic if cloud.code == CloudErrorCode::Conflict && self.patience.retries() < MOST_RETRIES => {
                self.met(&cloud, self.ids.nic.clone(), State::NicLooked)
            }
            State::Vm if cloud.code.is_capacity() => {
                self.note_refusal(cloud, now);
                self.try_next(self.wanted.place + 1, now)
            }
            // Azure has forgotten the operation, may not be asked, or it has failed: what the VM says counts. Only
            // what the operation itself came to says something of the offering.
            State::Polling(_) | State::Resumed(_) => {
                if cloud.is_outcome && !cloud.code.is_transient() {
                    self.note_refusal(cloud, now);
                }
                self.look()
            }
            State::Nic | State::Vm if !cloud.code.is_transient() => {
                self.note_refusal(cloud.clone(), now);
                self.give_up(&cloud, now)
            }
            _ => self.fail(error),
        }
    }

    /// What Azure refused is not asked for again at once, by this launch or by the next.
    fn note_refusal(&mut self, error: CloudError, now: Timestamp) {
        if let Some(offering) = self.wanted.offering() {
            let of_all = self.state == State::Nic;
            let (offering, reservation) = (offering.key.clone(), self.wanted.reservation().cloned());
            let refusal = LaunchRefusal { offering, reservation, error, of_all, at: now };
            let facts = self.wanted.size(&refusal.offering.size).map(|t| Arc::clone(&t.facts));
            self.ruled_out.note(&refusal, facts.as_deref());
            self.report.refused.push(refusal);
        }
    }

    /// True when the same effect is worth another try after this error.
    pub(super) fn may_repeat(&self, error: &PortError) -> bool {
        let error = match error {
            PortError::Cloud(error) => error,
            // The VM is there: what came of it is worth writing.
            PortError::Cluster(ClusterError::Unavailable) => {
                return matches!(self.state, State::Noted(_)) && self.patience.retries() < MOST_RETRIES;
            }
            _ => return false,
        };
        let met = matches!(self.state, State::Vm | State::Nic) && error.code == CloudErrorCode::Conflict;
        let polling = matches!(self.state, State::Polling(_) | State::Resumed(_));
        let failing = polling && self.failed_polls >= MOST_FAILED_POLLS;
        error.code.is_transient() && self.patience.retries() < MOST_RETRIES && !failing && !met
    }

    /// Waits for the next try of the last effect.
    pub(super) fn wait_and_repeat(&mut self, error: &PortError) -> Step {
        let wait = self.patience.sit_out(match error {
            PortError::Cloud(error) => Some(error),
            _ => None,
        });
        self.failed_polls += u32::from(matches!(self.state, State::Polling(_) | State::Resumed(_)));
        let again = self.repeat();
        self.state = again;
        Step::Wait(wait)
    }

    /// A PUT has met something of its name, or what is left of it: looks at it after a moment.
    fn met(&mut self, error: &CloudError, id: ArmId, then: State) -> Step {
        self.state = State::Again(Box::new(Effect::Get(id)), Box::new(then));
        Step::Wait(self.patience.look_soon(error))
    }

    /// The state that repeats the last effect.
    fn repeat(&mut self) -> State {
        let state = std::mem::replace(&mut self.state, State::Begin);
        let step = match &state {
            State::Nic => self.put_nic(),
            State::Vm => self.put_vm(),
            State::FailedVmDeleted => self.delete_failed_vm(),
            State::Looked => Step::perform(Effect::Get(self.ids.vm.clone())),
            State::NicLooked | State::NicKept => Step::perform(Effect::Get(self.ids.nic.clone())),
            State::Polling(op) | State::Resumed(op) | State::Deleting(op) => Step::perform(Effect::Poll(op.clone())),
            State::Noted(effect) => Step::Do(effect.clone()),
            _ => return state,
        };
        match step {
            Step::Do(effect) => State::Again(effect, Box::new(state)),
            Step::Wait(_) | Step::End(_) => state,
        }
    }
}
