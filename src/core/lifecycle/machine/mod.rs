//! Machines: how is a NodeClaim launched as a Machine of an agent pool?
//!
//! Experimental. *Guarantees*: the intent is on the NodeClaim before the first PUT; a Machine of that name that does not
//! carry this claim's UID is neither changed nor deleted, whatever failed; a failed Machine of ours is deleted before
//! its name is used again; every wait and retry is bounded. *Caveats*: no error is taken to mean that there is no
//! Machine, only Azure's 404.

use super::launch::Sizes;
use super::patience::{POLL_EVERY, Patience};
use super::wanted::{Wanted, is_refused};
use crate::model::azure::bystander::{Bystander, Role};
use crate::model::azure::cloud::ProvisioningState;
use crate::model::errors::{CloudError, CloudErrorCode, ClusterError, LaunchRefusal, OperationId, PortError};
use crate::model::names::ArmId;
use crate::plan::{Effect, Launch, MachineCall, MachineSpec, Reply, Report, Script, Step};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Longest that a launch may take; then it is left to the next one, which finds what is there.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);
/// Most offerings that one launch tries.
const MOST_TRIES: usize = 10;

/// The launch of one NodeClaim as a Machine.
#[derive(Debug)]
pub struct MachineScript {
    wanted: Wanted,
    id: ArmId,
    state: State,
    tries: usize,
    /// What Azure said to the last offering.
    error: Option<CloudError>,
    patience: Patience,
    report: Report,
}

/// What the last effect was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Look,
    Looked,
    Intended,
    Put,
    Polling(OperationId),
    Deleting(OperationId),
    Deleted,
    Noted,
}

impl MachineScript {
    /// The script of a launch command, as the Machine of this id.
    #[must_use]
    pub fn new(launch: Launch, sizes: Sizes, id: ArmId) -> Self {
        let patience = Patience::new(LONGEST, RETRY_AFTER, launch.claim.uid.clone());
        let (wanted, state, report) = (Wanted::new(launch, sizes), State::Look, Report::default());
        Self { wanted, id, state, tries: 0, error: None, patience, report }
    }

    fn go(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    fn look(&mut self) -> Step {
        let id = self.id.clone();
        self.go(State::Looked, Effect::Machine(MachineCall::Get(id)))
    }

    fn sit_out(&mut self, error: &CloudError) -> Step {
        let wait = self.patience.sit_out(Some(error));
        self.look_later(wait)
    }

    fn look_later(&mut self, wait: SignedDuration) -> Step {
        self.state = State::Look;
        Step::Wait(wait)
    }

    fn looked(&mut self, machine: Option<Arc<Bystander>>, now: Timestamp) -> Step {
        let Some(machine) = machine else { return self.try_next(now) };
        if !self.wanted.owns(&machine.tags) {
            let message = format!("Machine {} exists and belongs to something else", machine.id.name());
            return self.give_up(CloudErrorCode::Conflict, message.into(), now);
        }
        match &machine.role {
            Role::Machine { vm: Some(vm), state: ProvisioningState::Succeeded } => self.launched(vm),
            Role::Machine { state: ProvisioningState::Failed, .. } => {
                let id = self.id.clone();
                self.go(State::Deleted, Effect::Machine(MachineCall::Delete(id)))
            }
            _ => self.look_later(POLL_EVERY),
        }
    }

    /// Writes the intent for the next offering that this launch has not been refused.
    fn try_next(&mut self, now: Timestamp) -> Step {
        let open = self.wanted.next(self.wanted.place, |o| !is_refused(&self.report.refused, &o.key));
        match (open, self.error.clone()) {
            (Some(place), _) if self.tries < MOST_TRIES => {
                (self.wanted.place, self.tries) = (place, self.tries + 1);
                self.write_intent()
            }
            (_, Some(error)) => self.give_up(error.code, error.message, now),
            (_, None) => self.finish(),
        }
    }

    fn write_intent(&mut self) -> Step {
        match self.wanted.intend(Some(self.id.clone()), None, self.patience.started()) {
            Some(effect) => self.go(State::Intended, effect),
            None => self.finish(),
        }
    }

    fn put(&mut self) -> Step {
        let Some(offering) = self.wanted.offering() else { return self.finish() };
        let launch = &self.wanted.launch;
        let spec = MachineSpec {
            id: self.id.clone(),
            offering: offering.key.clone(),
            os_disk_gb: launch.os_disk_gb,
            tags: launch.tags.clone(),
            claim: launch.claim.name.clone(),
            security: launch.security,
            subnet: launch.subnet.clone(),
            kubelet: self.wanted.kubelet(),
        };
        self.go(State::Put, Effect::Machine(MachineCall::Put(Box::new(spec))))
    }

    fn launched(&mut self, vm: &ArmId) -> Step {
        match self.wanted.launched(vm) {
            Some(effect) => self.go(State::Noted, effect),
            None => self.finish(),
        }
    }

    fn give_up(&mut self, code: CloudErrorCode, message: Arc<str>, now: Timestamp) -> Step {
        self.go(State::Noted, self.wanted.failed(code, message, now))
    }

    fn finish(&mut self) -> Step {
        Step::End(std::mem::take(&mut self.report))
    }

    fn follow(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (self.state.clone(), reply) {
            (State::Looked, Some(Reply::Machine(machine))) => self.looked(machine, now),
            (State::Intended, _) => self.put(),
            (State::Put, Some(Reply::Accepted(op))) | (State::Polling(op), Some(Reply::Running)) => {
                self.state = State::Polling(op);
                Step::Wait(POLL_EVERY)
            }
            (State::Polling(op), None) => self.go(State::Polling(op.clone()), Effect::Poll(op)),
            (State::Deleted, Some(Reply::Accepted(op))) | (State::Deleting(op), Some(Reply::Running)) => {
                self.state = State::Deleting(op);
                Step::Wait(POLL_EVERY)
            }
            (State::Deleting(op), None) => self.go(State::Deleting(op.clone()), Effect::Poll(op)),
            (State::Noted, _) => self.finish(),
            // Whatever Azure says is done, only a look shows it.
            _ => self.look(),
        }
    }

    /// What Azure refused is not asked for again at once.
    fn note(&mut self, error: &CloudError, now: Timestamp) {
        if let Some(offering) = self.wanted.offering() {
            let (offering, reservation) = (offering.key.clone(), self.wanted.reservation().cloned());
            let refusal = LaunchRefusal { offering, reservation, error: error.clone(), of_all: false, at: now };
            self.report.refused.push(refusal);
        }
    }

    /// What follows from a refusal. Nothing is deleted for it: the next look says what there is, and whose.
    fn refused(&mut self, error: CloudError, now: Timestamp) -> Step {
        match self.state {
            State::Put if error.code.is_capacity() => {
                self.note(&error, now);
                self.error = Some(error);
                self.look_later(POLL_EVERY)
            }
            _ if error.code.is_transient() || error.code == CloudErrorCode::NotFound => self.sit_out(&error),
            State::Put => {
                self.note(&error, now);
                self.give_up(error.code, error.message, now)
            }
            // The operation has failed: the look finds a failed Machine, or none.
            State::Polling(_) if error.is_outcome => {
                self.note(&error, now);
                self.error = Some(error);
                self.look_later(POLL_EVERY)
            }
            // Only the question was refused.
            State::Polling(_) => self.sit_out(&error),
            _ => {
                self.report.failed = Some(PortError::Cloud(error));
                self.finish()
            }
        }
    }

    fn next(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        match reply {
            Some(Ok(reply)) => self.follow(Some(reply), now),
            None => self.follow(None, now),
            Some(Err(PortError::Cloud(error))) => self.refused(error, now),
            // The claim is being deleted, or is gone: what was made goes with it.
            Some(Err(PortError::Cluster(ClusterError::Conflict | ClusterError::NotFound))) => self.finish(),
            Some(Err(error)) => {
                self.report.failed = Some(error);
                self.finish()
            }
        }
    }
}

impl Script for MachineScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        let Some(left) = self.patience.left(now) else { return self.finish() };
        match self.next(reply, now) {
            Step::Wait(wait) if wait > left => self.finish(),
            step => step,
        }
    }
}

#[cfg(test)]
mod tests;
