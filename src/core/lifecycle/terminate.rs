//! Terminating: how does everything of a NodeClaim go, and nothing else?
//!
//! Lifecycle delete, the first of the two kinds of delete. *Guarantees*: only what the claim's intent names is
//! touched, and only if it carries the claim's UID in our tag; the finalizer goes last, when VM, NIC and OS disk are
//! gone by Azure's own word. *Caveats*: a NIC that Azure reserves for 180 s after a failed launch is waited for.

use super::patience::{POLL_EVERY, Patience};
use crate::model::azure::bystander::{Bystander, Role};
use crate::model::azure::cloud::{CloudResource, Detail, ResourceKind};
use crate::model::cluster::claim::{ClaimRef, LaunchIntent};
use crate::model::errors::{CloudErrorCode, ClusterError, OperationId, PortError};
use crate::model::labels;
use crate::model::names::{ArmId, NodeName, ProviderId};
use crate::model::settings::{Clause, Law};
use crate::plan::{Effect, MachineCall, Reply, Report, Script, Step, Terminate};
use jiff::{SignedDuration, Timestamp};

/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// Longest that one run may take; the next one goes on where it stopped.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);

/// The termination of one NodeClaim.
#[derive(Debug)]
pub struct TerminateScript {
    claim: ClaimRef,
    provider_id: ProviderId,
    law: Law,
    /// The Node whose pods must have left, until its VM is being deleted.
    drained: Option<NodeName>,
    /// Its Machine, until Azure says that it is gone, or it is another's.
    machine: Option<ArmId>,
    /// What is still to be looked at, last one first.
    left: Vec<(ArmId, ResourceKind)>,
    /// The VM of the intent's name is somebody else's by now, and with it what is attached to it.
    vm_stays: bool,
    /// Azure says that the resource being looked at has been deleted.
    deleted: bool,
    state: State,
    patience: Patience,
}

/// What the last effect was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Next,
    PodsRead,
    MachineLooked,
    Looked,
    Deleted,
    Polling(OperationId),
    NodeRead,
    NodeDeleted,
    Released,
}

impl TerminateScript {
    /// The script of a terminate command.
    #[must_use]
    pub fn new(command: Terminate, law: Law) -> Self {
        let LaunchIntent { vm, nic, os_disk, machine, .. } = command.intent;
        let provider_id = ProviderId::of_vm(&vm);
        let patience = Patience::new(LONGEST, RETRY_AFTER, command.claim.uid.clone());
        let left = vec![(os_disk, ResourceKind::OsDisk), (nic, ResourceKind::Nic), (vm, ResourceKind::Vm)];
        Self {
            claim: command.claim,
            provider_id,
            law,
            drained: command.drained,
            machine,
            left,
            vm_stays: false,
            deleted: false,
            state: State::Next,
            patience,
        }
    }

    /// Reads the pods of the Node first, as long as its VM may still be kept; then looks at the next resource.
    fn begin(&mut self) -> Step {
        match &self.drained {
            Some(node) => {
                let effect = Effect::ReadPods(node.clone());
                self.go(State::PodsRead, effect)
            }
            None => self.next(),
        }
    }

    /// Looks at the next resource; when none is left, the Node object goes, and then the finalizer. Where the VM is
    /// somebody else's, so is the Node that announces itself for it.
    fn next(&mut self) -> Step {
        if let Some(id) = self.machine.clone() {
            return self.go(State::MachineLooked, Effect::Machine(MachineCall::Get(id)));
        }
        match self.left.last() {
            Some((id, _)) => {
                let id = id.clone();
                self.go(State::Looked, Effect::Get(id))
            }
            None if self.vm_stays => self.go(State::Released, Effect::ReleaseClaim(self.claim.clone())),
            None => self.go(State::NodeRead, Effect::ReadNode(self.provider_id.clone())),
        }
    }

    fn go(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    /// A Machine goes with its VM, NIC and disk, if it carries this claim's UID; another claim's is not touched.
    fn machine_looked(&mut self, found: Option<&Bystander>) -> Step {
        let own =
            |one: &&Bystander| one.tags.get(labels::TAG_CLAIM_UID).is_some_and(|uid| **uid == *self.claim.uid.as_str());
        let Some(machine) = found.filter(own) else {
            self.machine = None;
            self.deleted = false;
            return self.next();
        };
        if let Role::Machine { vm: Some(vm), .. } = &machine.role {
            // Its Node announces itself for the VM that AKS has named.
            self.provider_id = ProviderId::of_vm(vm);
        }
        if std::mem::take(&mut self.deleted) {
            self.state = State::Next;
            return Step::Wait(POLL_EVERY);
        }
        let id = machine.id.clone();
        self.go(State::Deleted, Effect::Machine(MachineCall::Delete(id)))
    }

    fn done_with_one(&mut self) -> Step {
        self.left.pop();
        self.deleted = false;
        self.drained = None;
        self.next()
    }

    /// What is there goes if it is ours by its tag. What is not stays, and is not ours to wait for.
    fn looked(&mut self, found: &CloudResource) -> Step {
        let own = found.claim_uid() == Some(self.claim.uid.as_str()) || !self.law.holds(Clause::TerminateOwnOnly);
        let held = self.vm_stays && is_attached(found);
        match self.left.last().cloned() {
            // Deleted, and still shown: Azure needs a moment.
            Some(_) if own && !held && std::mem::take(&mut self.deleted) => {
                self.state = State::Next;
                Step::Wait(POLL_EVERY)
            }
            Some((id, kind)) if own && !held => self.go(State::Deleted, Effect::Delete(id, kind)),
            _ => {
                self.vm_stays |= found.kind() == ResourceKind::Vm;
                self.done_with_one()
            }
        }
    }

    fn follow(&mut self, reply: Option<Reply>) -> Step {
        match (self.state.clone(), reply) {
            (State::Next, _) => {
                if self.law.holds(Clause::FinalizerLast) {
                    self.begin()
                } else {
                    self.go(State::Released, Effect::ReleaseClaim(self.claim.clone()))
                }
            }
            (State::PodsRead, Some(Reply::Pods(pods))) if !pods.iter().any(|p| p.holds_drain()) => self.next(),
            // A pod came after the drain, or nothing is known: the lifecycle looks again.
            (State::PodsRead, _) => Step::finished(),
            (State::MachineLooked, Some(Reply::Machine(found))) => self.machine_looked(found.as_deref()),
            (State::MachineLooked, _) => Step::finished(),
            (State::Looked, Some(Reply::Resource(Some(found)))) => self.looked(&found),
            (State::Looked, _) => self.done_with_one(),
            (State::Deleted, Some(Reply::Accepted(op))) | (State::Polling(op), Some(Reply::Running)) => {
                self.state = State::Polling(op);
                self.drained = None;
                Step::Wait(POLL_EVERY)
            }
            (State::Polling(op), None) => self.go(State::Polling(op.clone()), Effect::Poll(op)),
            // Azure says that it is done: look again, and believe only a 404.
            (State::Deleted | State::Polling(_), _) => {
                self.deleted = true;
                self.next()
            }
            (State::NodeRead, Some(Reply::Node(Some(node)))) => {
                self.go(State::NodeDeleted, Effect::DeleteNode(node.name.clone(), node.uid.clone()))
            }
            (State::NodeRead | State::NodeDeleted, _) => {
                self.go(State::Released, Effect::ReleaseClaim(self.claim.clone()))
            }
            (State::Released, _) if !self.law.holds(Clause::FinalizerLast) && !self.left.is_empty() => self.next(),
            (State::Released, _) => Step::finished(),
        }
    }
}

impl Script for TerminateScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        let Some(left) = self.patience.left(now) else { return Step::finished() };
        let step = match reply {
            // Gone in the meantime.
            Some(Err(PortError::Cloud(error))) if error.code == CloudErrorCode::NotFound => self.next(),
            Some(Err(PortError::Cluster(ClusterError::NotFound | ClusterError::Conflict))) => self.follow(None),
            Some(Err(PortError::Cloud(error))) if error.code.is_transient() => {
                self.state = State::Next;
                Step::Wait(self.patience.sit_out(Some(&error)))
            }
            Some(Err(error)) => Step::failed(error),
            Some(Ok(reply)) => self.follow(Some(reply)),
            None => self.follow(None),
        };
        match step {
            Step::Wait(wait) if wait > left => Step::finished(),
            step => step,
        }
    }
}

fn is_attached(resource: &CloudResource) -> bool {
    match &resource.detail {
        Detail::Vm(_) => false,
        Detail::Nic(nic) => nic.vm.is_some(),
        Detail::Disk(disk) => !disk.managed_by.is_empty(),
    }
}

/// Looks whether a claim's VM is gone; if Azure says 404, asks for the claim's deletion.
#[derive(Debug)]
pub struct ConfirmGoneScript {
    claim: ClaimRef,
    vm: ArmId,
    asked: bool,
}

impl ConfirmGoneScript {
    /// The script of a confirm-gone command.
    #[must_use]
    pub fn new(claim: ClaimRef, vm: ArmId) -> Self {
        Self { claim, vm, asked: false }
    }
}

impl Script for ConfirmGoneScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, _now: Timestamp) -> Step {
        match reply {
            None if !self.asked => {
                self.asked = true;
                Step::perform(Effect::Get(self.vm.clone()))
            }
            Some(Ok(Reply::Resource(None))) => Step::perform(Effect::DeleteClaim(self.claim.clone())),
            Some(Err(error)) => Step::failed(error),
            _ => Step::End(Report::default()),
        }
    }
}
