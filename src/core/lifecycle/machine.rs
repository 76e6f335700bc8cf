//! Machines: how is a NodeClaim launched as a Machine of an agent pool?
//!
//! Experimental. *Guarantees*: the intent is on the NodeClaim before the first PUT; a Machine of that name that does not
//! carry this claim's UID is neither changed nor deleted, whatever failed; a failed Machine of ours is deleted before
//! its name is used again; every wait and retry is bounded. *Caveats*: no error is taken to mean that there is no
//! Machine, only Azure's 404.

use super::launch::Sizes;
use crate::catalog::{InstanceType, Offering, OfferingKey, node_labels};
use crate::cluster::bystander::{Bystander, Role};
use crate::cluster::claim::{LaunchFailure, LaunchIntent, PlannedOffering};
use crate::cluster::cloud::ProvisioningState;
use crate::cluster::naming::resource_ids;
use crate::labels;
use crate::names::{ArmId, ProviderId};
use crate::plan::{ClaimStep, Effect, KubeletSpec, Launch, MachineCall, MachineSpec, Reply, Report, Script, Step};
use crate::ports::{CloudError, CloudErrorCode, ClusterError, LaunchRefusal, OperationId, PortError};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// How often an operation and a Machine that is being made are looked at.
const POLL_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Longest that a launch may take; then it is left to the next one, which finds what is there.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);
/// Most offerings that one launch tries.
const MOST_TRIES: usize = 10;

/// The launch of one NodeClaim as a Machine.
#[derive(Debug)]
pub struct MachineScript {
    launch: Launch,
    id: ArmId,
    sizes: Sizes,
    state: State,
    offering: usize,
    tries: usize,
    /// What Azure said to the last offering.
    error: Option<CloudError>,
    started: Option<Timestamp>,
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
        let intended = launch.intent.as_ref().map(|intent| &intent.offering.key);
        let offering = launch.offerings.iter().position(|o| Some(&o.key) == intended).unwrap_or(0);
        let (state, report) = (State::Look, Report::default());
        Self { launch, id, sizes, state, offering, tries: 0, error: None, started: None, report }
    }

    fn go(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    fn look(&mut self) -> Step {
        let id = self.id.clone();
        self.go(State::Looked, Effect::Machine(MachineCall::Get(id)))
    }

    fn look_later(&mut self, wait: SignedDuration) -> Step {
        self.state = State::Look;
        Step::Wait(wait)
    }

    fn is_own(&self, machine: &Bystander) -> bool {
        machine.tags.get(labels::TAG_CLAIM_UID).is_some_and(|uid| **uid == *self.launch.claim.uid.as_str())
    }

    fn looked(&mut self, machine: Option<Arc<Bystander>>, now: Timestamp) -> Step {
        let Some(machine) = machine else { return self.try_next(now) };
        if !self.is_own(&machine) {
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
        let refused = |o: &PlannedOffering| self.report.refused.iter().any(|refusal| refusal.offering == o.key);
        // Nothing can be told to the kubelet of a size that is not known.
        let known = |o: &PlannedOffering| self.sizes.iter().any(|size| size.facts.name == o.key.size);
        let open = |o: &PlannedOffering| known(o) && !refused(o);
        let next = self.launch.offerings.iter().enumerate().skip(self.offering).find(|(_, o)| open(o));
        match (next.map(|(place, _)| place), self.error.clone()) {
            (Some(place), _) if self.tries < MOST_TRIES => {
                (self.offering, self.tries) = (place, self.tries + 1);
                self.write_intent()
            }
            (_, Some(error)) => self.give_up(error.code, error.message, now),
            (_, None) => self.finish(),
        }
    }

    fn write_intent(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering).cloned() else { return self.finish() };
        let ids = resource_ids(&self.launch.group, &self.launch.claim.name);
        let intent = LaunchIntent {
            offering,
            vm: ids.vm,
            nic: ids.nic,
            os_disk: ids.os_disk,
            machine: Some(self.id.clone()),
            written_at: self.started.unwrap_or_default(),
            refused: u32::try_from(self.offering).unwrap_or(u32::MAX),
            operation: None,
        };
        let claim = self.launch.claim.clone();
        self.go(State::Intended, Effect::WriteIntent(claim, Box::new(intent)))
    }

    fn put(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let spec = MachineSpec {
            id: self.id.clone(),
            offering: offering.key.clone(),
            os_disk_gb: self.launch.os_disk_gb,
            tags: self.launch.tags.clone(),
            claim: self.launch.claim.name.clone(),
            encryption_at_host: self.launch.encryption_at_host,
            kubelet: self.kubelet(offering),
        };
        self.go(State::Put, Effect::Machine(MachineCall::Put(Box::new(spec))))
    }

    fn size(&self) -> Option<&InstanceType> {
        let offering = self.launch.offerings.get(self.offering)?;
        self.sizes.iter().find(|size| size.facts.name == offering.key.size)
    }

    fn kubelet(&self, offering: &PlannedOffering) -> KubeletSpec {
        let Some(size) = self.size() else { return KubeletSpec::default() };
        let OfferingKey { zone, capacity_type, .. } = offering.key.clone();
        let labels = node_labels(size, &Offering { zone, capacity_type, price: offering.price });
        KubeletSpec { labels, max_pods: u32::try_from(size.capacity.pods).unwrap_or(u32::MAX) }
    }

    fn launched(&mut self, vm: &ArmId) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let size = self.size();
        let (capacity, allocatable) = size.map(|t| (t.capacity.clone(), t.allocatable.clone())).unwrap_or_default();
        let step = ClaimStep::Launched {
            provider_id: ProviderId::of_vm(vm),
            offering: offering.key.clone(),
            capacity,
            allocatable,
        };
        let claim = self.launch.claim.clone();
        self.go(State::Noted, Effect::AdvanceClaim(claim, step))
    }

    fn give_up(&mut self, code: CloudErrorCode, message: Arc<str>, now: Timestamp) -> Step {
        let failure = LaunchFailure { at: now, code: Arc::from(code.category()), message };
        let claim = self.launch.claim.clone();
        self.go(State::Noted, Effect::AdvanceClaim(claim, ClaimStep::LaunchFailed(failure)))
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
        if let Some(offering) = self.launch.offerings.get(self.offering) {
            let (offering, error) = (offering.key.clone(), error.clone());
            self.report.refused.push(LaunchRefusal { offering, error, of_all: false, at: now });
        }
    }

    /// What follows from a refusal. Nothing is deleted for it: the next look says what there is, and whose.
    fn refused(&mut self, error: CloudError, now: Timestamp) -> Step {
        let wait = error.wait(RETRY_AFTER);
        match self.state {
            State::Put if error.code.is_capacity() => {
                self.note(&error, now);
                self.error = Some(error);
                self.look_later(POLL_EVERY)
            }
            _ if error.code.is_transient() || error.code == CloudErrorCode::NotFound => self.look_later(wait),
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
            State::Polling(_) => self.look_later(wait),
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
        let started = *self.started.get_or_insert(now);
        let left = LONGEST - now.duration_since(started);
        if left.is_negative() {
            return self.finish();
        }
        match self.next(reply, now) {
            // The claim may not be held up for as long as Azure asks: the lifecycle decides anew.
            Step::Wait(wait) if wait > left => self.finish(),
            step => step,
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
