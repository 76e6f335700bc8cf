//! Launching: in which order are intent, NIC and VM written, and what follows when Azure refuses?
//!
//! *Guarantees*: the intent is on the NodeClaim before the first PUT, and where Azure tells how it ends right after; both
//! PUTs only create (`If-None-Match: *`), so that a late one changes nothing; a VM that an earlier run created is
//! adopted, not doubled; nothing is deleted before a GET has shown that it is this claim's, that Azure calls it failed
//! and that no Node runs on it; a failed VM is deleted before its name is used again, and its NIC is kept; every wait and every retry
//! is bounded. *Assumptions*: names of NIC, VM and disk follow from the claim's name, so a repeated PUT meets the same
//! resource. *Caveats*: what a launch that failed leaves behind is not cleaned up here, but when the claim is deleted.

mod asks;
mod recover;

use super::patience::{POLL_EVERY, Patience};
use super::wanted::{Wanted, is_refused};
use crate::catalog::InstanceTypes;
use crate::model::azure::cloud::{CloudResource, Detail, ProvisioningState, ResourceKind};
use crate::model::azure::naming::{ResourceIds, resource_ids};
use crate::model::cluster::claim::PlannedOffering;
use crate::model::errors::{CloudError, CloudErrorCode, OperationId, PortError};
use crate::model::names::ProviderId;
use crate::model::settings::{Clause, Law};
use crate::plan::{Effect, Launch, Reply, Report, Script, Step};
use crate::scheduling::Unavailable;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Longest that a launch may take; then it is left to the next one, which finds what is there.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// Most offerings that one launch tries.
const MOST_TRIES: usize = 10;
/// Most passing failures that one launch sits out.
const MOST_RETRIES: u32 = 12;
/// Most looks at an operation that may fail in a row; then the VM itself is looked at.
const MOST_FAILED_POLLS: u32 = 3;
/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The instance types of the claim's class, sorted by name: capacity for the claim's status, labels for the kubelet.
pub type Sizes = InstanceTypes;

/// The launch of one NodeClaim.
#[derive(Debug)]
pub struct LaunchScript {
    pub(super) wanted: Wanted,
    ids: ResourceIds,
    law: Law,
    state: State,
    has_nic: bool,
    tries: usize,
    patience: Patience,
    failed_polls: u32,
    /// What the refusals so far rule out.
    ruled_out: Unavailable,
    /// What Azure said to the last offering.
    error: Option<CloudError>,
    report: Report,
}

/// What the last effect was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Begin,
    Looked,
    Intended,
    /// Only where the mutation check writes the intent too late.
    LateIntent,
    Nic,
    /// A NIC of that name exists.
    NicLooked,
    Vm,
    /// Where the operation is found is being written on the claim.
    Saved(OperationId),
    Polling(OperationId),
    /// As `Polling`, by an operation that an earlier run began: what it says is checked against the VM.
    Resumed(OperationId),
    Deleting(OperationId),
    /// Whether a Node runs on the VM that Azure calls failed.
    NodeLooked,
    FailedVmDeleted,
    /// Whether the NIC has outlived the failed VM.
    NicKept,
    Adopting,
    /// What came of it is being written on the claim.
    Noted(Box<Effect>),
    /// Repeat this effect after the wait.
    Again(Box<Effect>, Box<State>),
}

impl LaunchScript {
    /// The script of a launch command.
    #[must_use]
    pub fn new(launch: Launch, sizes: Sizes, law: Law) -> Self {
        let ids = resource_ids(&launch.group, &launch.claim.name);
        let patience = Patience::new(LONGEST, RETRY_AFTER, launch.claim.uid.clone());
        Self {
            wanted: Wanted::new(launch, sizes),
            ids,
            law,
            state: State::Begin,
            has_nic: false,
            tries: 0,
            patience,
            failed_polls: 0,
            ruled_out: Unavailable::default(),
            error: None,
            report: Report::default(),
        }
    }

    fn begin(&mut self, now: Timestamp) -> Step {
        let Some(intent) = &self.wanted.launch.intent else { return self.try_next(0, now) };
        match intent.operation.clone() {
            Some(operation) => self.go(State::Resumed(operation.clone()), Effect::Poll(operation)),
            None => self.look(),
        }
    }

    /// Looks at the VM.
    fn look(&mut self) -> Step {
        self.go(State::Looked, Effect::Get(self.ids.vm.clone()))
    }

    /// True when this launch has heard a refusal of the offering being tried.
    fn is_refused(&self) -> bool {
        self.wanted.offering().is_some_and(|o| is_refused(&self.report.refused, &o.key))
    }

    /// True when the offering being tried is known. Of another nothing can be told to its kubelet.
    fn is_known(&self) -> bool {
        self.wanted.offering().is_some_and(|o| self.wanted.is_known(o))
    }

    /// The VM of an earlier run, if there is one.
    fn looked(&mut self, vm: Option<Arc<CloudResource>>, now: Timestamp) -> Step {
        let Some(vm) = vm else {
            let passed = self.is_refused() || !self.is_known();
            return if passed { self.try_next(self.wanted.place + 1, now) } else { self.put_nic() };
        };
        if !self.owns(&vm) {
            return self.give_up(&taken(&vm), now);
        }
        let Detail::Vm(detail) = &vm.detail else { return self.finish() };
        let alike = |o: &PlannedOffering| o.key.size == detail.size && o.key.capacity_type == detail.capacity_type;
        if !self.wanted.offering().is_some_and(alike) {
            let met = self.wanted.launch.offerings.iter().position(alike);
            self.wanted.place = met.unwrap_or(self.wanted.place);
        }
        match detail.state {
            ProvisioningState::Succeeded => self.launched(),
            ProvisioningState::Creating | ProvisioningState::Deleting => {
                self.state = State::Adopting;
                Step::Wait(POLL_EVERY)
            }
            // A VM that a Node runs on was whole once: it goes the way of all nodes, if it must.
            ProvisioningState::Failed => self.go(State::NodeLooked, Effect::ReadNode(ProviderId::of_vm(&self.ids.vm))),
        }
    }

    fn owns(&self, resource: &CloudResource) -> bool {
        self.wanted.owns(&resource.tags)
    }

    /// The NIC that a PUT has met.
    fn nic_looked(&mut self, nic: Option<Arc<CloudResource>>, now: Timestamp) -> Step {
        match nic {
            Some(nic) if self.owns(&nic) => {
                self.has_nic = true;
                self.put_vm()
            }
            Some(nic) => self.give_up(&taken(&nic), now),
            None => self.put_nic(),
        }
    }

    /// Writes the intent for the first offering from `from` on that no refusal of this launch rules out.
    fn try_next(&mut self, from: usize, now: Timestamp) -> Step {
        let open = |o: &PlannedOffering| !is_refused(&self.report.refused, &o.key) && !self.is_ruled_out(o, now);
        let next = self.wanted.next(from, open);
        match (next, self.error.clone()) {
            (Some(i), _) if self.tries < MOST_TRIES => {
                self.wanted.place = i;
                self.tries += 1;
                if !self.law.holds(Clause::IntentFirst) {
                    return if self.has_nic { self.put_vm() } else { self.put_nic() };
                }
                self.write_intent(State::Intended, None)
            }
            (_, Some(error)) => self.give_up(&error, now),
            (_, None) => self.finish(),
        }
    }

    /// True when a refusal of one offering says that this one would be refused too.
    fn is_ruled_out(&self, offering: &PlannedOffering, now: Timestamp) -> bool {
        let (key, group) = (&offering.key, self.wanted.reservation_of(offering));
        let size = self.wanted.size(&key.size);
        size.is_some_and(|t| self.ruled_out.blocks(&t.facts, (&key.zone, key.capacity_type), group, now))
    }

    fn delete_failed_vm(&mut self) -> Step {
        self.go(State::FailedVmDeleted, Effect::Delete(self.ids.vm.clone(), ResourceKind::Vm))
    }

    fn go(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    fn finish(&mut self) -> Step {
        Step::End(std::mem::take(&mut self.report))
    }

    fn fail(&mut self, error: PortError) -> Step {
        self.report.failed = Some(error);
        self.finish()
    }

    fn wait_in(&mut self, state: State) -> Step {
        self.state = state;
        Step::Wait(POLL_EVERY)
    }

    /// The VM is there.
    fn created(&mut self) -> Step {
        if self.law.holds(Clause::IntentFirst) { self.launched() } else { self.write_intent(State::LateIntent, None) }
    }

    /// What follows from a reply that is no error.
    fn follow(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (std::mem::replace(&mut self.state, State::Begin), reply) {
            (State::Begin, _) => self.begin(now),
            (State::Again(effect, state), _) => self.go(*state, *effect),
            (State::Adopting, _) => self.look(),
            (State::Looked, Some(Reply::Resource(vm))) => self.looked(vm, now),
            (State::Intended, _) if self.has_nic => self.put_vm(),
            (State::Intended, _) => self.put_nic(),
            (State::Nic, _) => {
                self.has_nic = true;
                self.put_vm()
            }
            (State::NicLooked, Some(Reply::Resource(nic))) => self.nic_looked(nic, now),
            (State::Vm, Some(Reply::Accepted(op))) if self.law.holds(Clause::IntentFirst) => {
                self.write_intent(State::Saved(op.clone()), Some(op))
            }
            (State::Vm, Some(Reply::Accepted(op))) | (State::Saved(op), _) => self.wait_in(State::Polling(op)),
            (state @ (State::Polling(_) | State::Resumed(_)), Some(Reply::Running)) => {
                self.failed_polls = 0;
                self.wait_in(state)
            }
            (State::Polling(op), None) => self.go(State::Polling(op.clone()), Effect::Poll(op)),
            (State::Resumed(op), None) => self.go(State::Resumed(op.clone()), Effect::Poll(op)),
            (State::Resumed(_), _) => self.look(),
            (State::Vm | State::Polling(_), _) => self.created(),
            (State::LateIntent, _) => self.launched(),
            (State::NodeLooked, Some(Reply::Node(Some(_)))) => self.launched(),
            (State::NodeLooked, Some(Reply::Node(None))) => self.delete_failed_vm(),
            (State::FailedVmDeleted, Some(Reply::Accepted(op))) | (State::Deleting(op), Some(Reply::Running)) => {
                self.wait_in(State::Deleting(op))
            }
            (State::Deleting(op), None) => self.go(State::Deleting(op.clone()), Effect::Poll(op)),
            // Azure keeps the NIC of a VM that failed, unless it had come further than that.
            (State::FailedVmDeleted | State::Deleting(_), _) => {
                self.go(State::NicKept, Effect::Get(self.ids.nic.clone()))
            }
            (State::NicKept, Some(Reply::Resource(nic))) => {
                self.has_nic = nic.is_some_and(|nic| self.owns(&nic));
                self.try_next(self.wanted.place + 1, now)
            }
            (State::Looked | State::NicLooked | State::NodeLooked | State::NicKept | State::Noted(_), _) => {
                self.finish()
            }
        }
    }
}

impl Script for LaunchScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        let Some(left) = self.patience.left(now) else { return self.finish() };
        let step = match reply {
            Some(Err(error)) if self.may_repeat(&error) => self.wait_and_repeat(&error),
            Some(Err(error)) => self.recover(error, now),
            Some(Ok(reply)) => self.follow(Some(reply), now),
            None => self.follow(None, now),
        };
        match step {
            Step::Wait(wait) if wait > left => self.finish(),
            step => step,
        }
    }
}

/// Something of that name exists and is not this claim's.
fn taken(found: &CloudResource) -> CloudError {
    let kind = if found.kind() == ResourceKind::Vm { "VM" } else { "NIC" };
    CloudError::new(
        CloudErrorCode::Conflict,
        format!("{kind} {} exists and belongs to something else", found.id.name()),
    )
}
