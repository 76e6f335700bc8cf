//! Termination: deletes the VM, NIC and OS disk of a NodeClaim, then its finalizer.
//!
//! Lifecycle delete, the first of the two kinds of delete. *Guarantees*: only resources whose names follow from the
//! claim's are deleted, and only if they have the claim's UID in our tag; the finalizer is removed last, when Azure
//! confirms that VM, NIC and OS disk are deleted; after a launch that was interrupted or has just ended, twice.
//! *Caveats*: a NIC that Azure reserves for 180 s after a failed launch delays it.

mod denials;

use super::retry_budget::{POLL_INTERVAL, RetryBudget};
use crate::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind};
use crate::model::azure::naming::ResourceIds;
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::cluster::claim::{ClaimRef, TerminationConditions};
use crate::model::cluster::pod::Pod;
use crate::model::errors::{CloudErrorCode, ClusterError, EffectError, OperationId};
use crate::model::labels;
use crate::model::names::{ArmId, ProviderId};
use crate::model::settings::{DeletionRule, DeletionRules};
use crate::plan::{
    AksMachineRequest, ClaimUpdate, CloudRequest, ClusterRead, ClusterWrite, CommandReport, DrainedNode, Effect, Reply,
    Script, Step, Terminate, TerminationReport,
};
pub use denials::TerminationDenials;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// Longest duration of one run; the next one continues where it stopped.
const MAX_DURATION: SignedDuration = SignedDuration::from_mins(15);

/// How long a request that was sent before a launch was interrupted may be under way: as long as the sender would have
/// waited for its answer.
pub(super) const LATE_REQUEST: SignedDuration = SignedDuration::from_secs(60);
/// How long a GET may not show what has been created.
pub(super) const READ_LAG: SignedDuration = SignedDuration::from_secs(60);

/// The termination of one NodeClaim.
#[derive(Debug)]
pub struct TerminateScript {
    claim: ClaimRef,
    provider_id: ProviderId,
    deletion_rules: DeletionRules,
    /// The Node that must be drained, until its VM is being deleted.
    drained_node: Option<DrainedNode>,
    /// Its Machine, until Azure reports it deleted, or it belongs to another claim.
    machine: Option<ArmId>,
    /// Remaining resources, last one first.
    remaining: Vec<(ArmId, ResourceKind)>,
    /// What is to be read again before the finalizer is removed.
    again: Option<SecondLook>,
    /// Conditions of the NodeClaim that have not been written.
    conditions: Option<Box<TerminationConditions>>,
    /// The VM of the intent's name belongs to another claim now, and so do the resources attached to it.
    vm_is_foreign: bool,
    /// Azure reports that the current resource has been deleted.
    deleted: bool,
    /// The VM, or its Machine, is being deleted, or is none of ours: whether to delete it needs no second thought.
    vm_is_settled: bool,
    state: State,
    retry_budget: RetryBudget,
    /// Kinds whose deletion is suspended.
    held: BTreeSet<ResourceKind>,
    report: TerminationReport,
}

/// All that a launch may have created.
#[derive(Debug, Default)]
struct SecondLook {
    /// So long after the first look.
    after: SignedDuration,
    machine: Option<ArmId>,
    resources: Vec<(ArmId, ResourceKind)>,
}

/// The last effect.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Next,
    PodsRead,
    ConditionsWritten,
    MachineRead,
    ResourceRead,
    Deleted,
    Polling(OperationId),
    NodeRead,
    NodeDeleted,
    FinalizerRemoved,
    /// Azure failed before the VM's DELETE: the lifecycle decides again.
    Retreat,
}

impl TerminateScript {
    /// The script of a terminate command.
    #[must_use]
    pub fn new(command: Terminate, deletion_rules: DeletionRules) -> Self {
        let report = TerminationReport::of(command.claim.name.clone());
        let ResourceIds { vm, nic, os_disk } = command.ids;
        let provider_id = ProviderId::of_vm(&vm);
        let retry_budget = RetryBudget::new(MAX_DURATION, RETRY_AFTER, command.claim.uid.clone());
        let remaining = vec![(os_disk, ResourceKind::OsDisk), (nic, ResourceKind::Nic), (vm, ResourceKind::Vm)];
        Self {
            claim: command.claim,
            provider_id,
            deletion_rules,
            drained_node: command.drained_node,
            again: command.look_again.map(|after| SecondLook {
                after,
                machine: command.machine.clone(),
                resources: remaining.clone(),
            }),
            machine: command.machine,
            conditions: command.conditions,
            remaining,
            vm_is_foreign: false,
            deleted: false,
            vm_is_settled: false,
            state: State::Next,
            retry_budget,
            held: command.held,
            report,
        }
    }

    /// Reads the pods of the Node first, until its VM is being deleted; then reads the next resource.
    fn begin(&mut self) -> Step {
        match &self.drained_node {
            Some(node) => {
                let effect = Effect::Read(ClusterRead::Pods(node.name.clone()));
                self.perform(State::PodsRead, effect)
            }
            None => self.write_conditions(),
        }
    }

    /// Writes the conditions of the NodeClaim, which no drain waits for; then reads the next resource.
    fn write_conditions(&mut self) -> Step {
        match self.conditions.take() {
            Some(conditions) => {
                let update = ClaimUpdate::Terminating(conditions);
                let effect = Effect::Cluster(ClusterWrite::UpdateClaim(self.claim.clone(), update));
                self.perform(State::ConditionsWritten, effect)
            }
            None => self.next(),
        }
    }

    /// Reads the next resource; when none is left, deletes the Node, and then removes the finalizer. If the VM belongs
    /// to another claim, so does the Node that registered for it.
    fn next(&mut self) -> Step {
        if let Some(id) = self.machine.clone() {
            return self
                .perform(State::MachineRead, Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Get(id))));
        }
        match self.remaining.last() {
            Some((id, _)) => {
                let id = id.clone();
                self.perform(State::ResourceRead, Effect::Cloud(CloudRequest::Get(id)))
            }
            None if self.again.is_some() && self.deletion_rules.enforces(DeletionRule::FinalizerLast) => {
                let SecondLook { after, machine, resources } = self.again.take().unwrap_or_default();
                (self.machine, self.remaining) = (machine, resources);
                self.state = State::Next;
                Step::Wait(after)
            }
            None if self.vm_is_foreign => self
                .perform(State::FinalizerRemoved, Effect::Cluster(ClusterWrite::RemoveFinalizer(self.claim.clone()))),
            None => self.perform(State::NodeRead, Effect::Read(ClusterRead::Node(self.provider_id.clone()))),
        }
    }

    fn perform(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    /// A Machine is deleted with its VM, NIC and disk, if it has this claim's UID; another claim's is not touched.
    fn on_machine_read(&mut self, found: Option<&RelatedResource>) -> Step {
        let own = |one: &&RelatedResource| {
            one.tags.get(labels::TAG_CLAIM_UID).is_some_and(|uid| **uid == *self.claim.uid.as_str())
        };
        let Some(machine) = found.filter(own) else {
            self.machine = None;
            self.deleted = false;
            return self.next();
        };
        if let RelatedDetail::AksMachine { vm: Some(vm), .. } = &machine.detail {
            // Its Node registers for the VM that AKS has named.
            self.provider_id = ProviderId::of_vm(vm);
        }
        if std::mem::take(&mut self.deleted) {
            self.state = State::Next;
            return Step::Wait(POLL_INTERVAL);
        }
        let request = CloudRequest::AksMachine(AksMachineRequest::Delete(machine.id.clone()));
        self.delete(ResourceKind::Vm, request)
    }

    /// Sends a DELETE, unless those of its kind are suspended.
    fn delete(&mut self, kind: ResourceKind, request: CloudRequest) -> Step {
        if self.held.contains(&kind) {
            self.report.stopped_at = Some(kind);
            return Step::finished();
        }
        self.perform(State::Deleted, Effect::Cloud(request))
    }

    /// The kind that is being read or deleted: with a Machine, its VM.
    fn current_kind(&self) -> Option<ResourceKind> {
        let of_resource = self.remaining.last().map(|(_, kind)| *kind);
        self.machine.as_ref().map(|_| ResourceKind::Vm).or(of_resource)
    }

    /// Ends with an error that no retry fixes.
    fn fail(&mut self, error: EffectError) -> Step {
        if matches!(&error, EffectError::Cloud(cloud) if cloud.code.is_denial()) {
            self.report.stopped_at = self.current_kind();
            self.report.is_denied = self.report.stopped_at.is_some();
        }
        Step::failed(error)
    }

    fn next_resource(&mut self) -> Step {
        self.remaining.pop();
        self.deleted = false;
        self.settle_vm();
        self.next()
    }

    /// The VM is being deleted, or does not exist.
    fn settle_vm(&mut self) {
        self.drained_node = None;
        self.vm_is_settled = true;
    }

    /// True when this pod, on the drained Node, must be gone before the VM is deleted.
    fn holds_drain(&self, pod: &Pod, now: Timestamp) -> bool {
        pod.holds_drain(self.drained_node.as_ref().and_then(|node| node.ready_since), now)
    }

    /// Deletes a resource that is ours by its tag. Others are kept, and not waited for.
    fn on_resource_read(&mut self, found: &CloudResource) -> Step {
        let own = found.claim_uid() == Some(self.claim.uid.as_str())
            || !self.deletion_rules.enforces(DeletionRule::TerminateOwnOnly);
        let is_foreign = self.vm_is_foreign && is_attached(found);
        match self.remaining.last().cloned() {
            // Deleted, and still shown: Azure needs a moment.
            Some(_) if own && !is_foreign && std::mem::take(&mut self.deleted) => {
                self.state = State::Next;
                Step::Wait(POLL_INTERVAL)
            }
            Some((id, kind)) if own && !is_foreign => self.delete(kind, CloudRequest::Delete(id, kind)),
            _ => {
                self.vm_is_foreign |= found.kind() == ResourceKind::Vm;
                self.next_resource()
            }
        }
    }

    fn on_reply(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (self.state.clone(), reply) {
            (State::Next, _) => {
                if self.deletion_rules.enforces(DeletionRule::FinalizerLast) {
                    self.begin()
                } else {
                    self.perform(
                        State::FinalizerRemoved,
                        Effect::Cluster(ClusterWrite::RemoveFinalizer(self.claim.clone())),
                    )
                }
            }
            (State::PodsRead, Some(Reply::Pods(pods))) if !pods.iter().any(|p| self.holds_drain(p, now)) => {
                self.write_conditions()
            }
            (State::ConditionsWritten, _) => self.next(),
            // A pod arrived after the drain, or the read failed: the lifecycle decides again.
            (State::PodsRead, _) => Step::finished(),
            (State::MachineRead, Some(Reply::AksMachine(found))) => self.on_machine_read(found.as_deref()),
            (State::MachineRead, _) => Step::finished(),
            (State::ResourceRead, Some(Reply::Resource(Some(found)))) => self.on_resource_read(&found),
            (State::ResourceRead, _) => self.next_resource(),
            (State::Deleted, Some(Reply::Accepted(op))) | (State::Polling(op), Some(Reply::Running)) => {
                self.state = State::Polling(op);
                self.settle_vm();
                Step::Wait(POLL_INTERVAL)
            }
            (State::Polling(op), None) => {
                self.perform(State::Polling(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            // Azure reports that it is done: read it again, since only a 404 counts.
            (State::Deleted | State::Polling(_), _) => {
                self.deleted = true;
                self.settle_vm();
                self.next()
            }
            (State::NodeRead, Some(Reply::Node(Some(node)))) => self.perform(
                State::NodeDeleted,
                Effect::Cluster(ClusterWrite::DeleteNode(node.name.clone(), node.uid.clone())),
            ),
            (State::NodeRead | State::NodeDeleted, _) => self
                .perform(State::FinalizerRemoved, Effect::Cluster(ClusterWrite::RemoveFinalizer(self.claim.clone()))),
            (State::FinalizerRemoved, _)
                if !self.deletion_rules.enforces(DeletionRule::FinalizerLast) && !self.remaining.is_empty() =>
            {
                self.next()
            }
            (State::FinalizerRemoved | State::Retreat, _) => Step::finished(),
        }
    }
}

impl Script for TerminateScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        let Some(left) = self.retry_budget.remaining(now) else { return Step::finished() };
        let step = match reply {
            // Deleted meanwhile.
            Some(Err(EffectError::Cloud(error))) if error.code == CloudErrorCode::NotFound => self.next(),
            Some(Err(EffectError::Cluster(ClusterError::NotFound | ClusterError::Conflict))) => {
                self.on_reply(None, now)
            }
            Some(Err(EffectError::Cluster(_))) if self.state == State::ConditionsWritten => self.next(),
            Some(Err(EffectError::Cloud(error))) if error.code.is_transient() => {
                // Until the VM is being deleted, its node may come to be in an outage, or get pods.
                self.state = if self.vm_is_settled { State::Next } else { State::Retreat };
                Step::Wait(self.retry_budget.backoff(Some(&error)))
            }
            Some(Err(error)) => self.fail(error),
            Some(Ok(reply)) => {
                self.report.deleted.extend(self.current_kind().filter(|_| self.state == State::Deleted));
                self.on_reply(Some(reply), now)
            }
            None => self.on_reply(None, now),
        };
        let step = if matches!(&step, Step::Wait(wait) if *wait > left) { Step::finished() } else { step };
        match step {
            Step::End(report) => {
                let termination = Some(Box::new(TerminationReport { at: now, ..self.report.clone() }));
                Step::End(CommandReport { termination, ..report })
            }
            step => step,
        }
    }
}

fn is_attached(resource: &CloudResource) -> bool {
    match &resource.detail {
        ResourceDetail::Vm(_) => false,
        ResourceDetail::Nic(nic) => nic.vm.is_some(),
        ResourceDetail::Disk(disk) => !disk.managed_by.is_empty(),
    }
}
