//! Launch: writes the intent, creates NIC and VM, falls back to the next offering.
//!
//! *Guarantees*: the intent is on the NodeClaim before the first PUT, and the URL of the create operation right after
//! it; both PUTs only create (`If-None-Match: *`), so that a late one changes nothing; a VM that an earlier run created
//! is adopted, not duplicated; nothing is deleted before a GET has shown that it is this claim's, that Azure reports it
//! as failed and that no Node runs on it; a failed VM is deleted before its name is reused, and its NIC is retained;
//! every wait and every retry is bounded. *Assumptions*: names of NIC, VM and disk follow from the claim's name, so a
//! repeated PUT finds the same resource. *Caveats*: resources of a failed launch are not deleted here, but when the
//! claim is deleted.

mod check;
mod errors;
pub(super) mod pool_failures;
mod requests;

use super::launch_progress::{LaunchProgress, is_refused};
use super::retry_budget::{POLL_INTERVAL, RetryBudget};
use crate::catalog::InstanceTypes;
use crate::model::azure::cloud::{CloudResource, ProvisioningState, ResourceDetail, ResourceKind};
use crate::model::azure::naming::{ResourceIds, resource_ids};
use crate::model::cluster::claim::PlannedOffering;
use crate::model::errors::{CloudError, CloudErrorCode, EffectError, OperationId};
use crate::model::names::ProviderId;
use crate::model::settings::{DeletionRule, DeletionRules};
use crate::plan::{CloudRequest, ClusterRead, CommandReport, Effect, Launch, LaunchReport, Reply, Script, Step};
use crate::scheduling::SizeOffering;
use crate::scheduling::UnavailableOfferings;
pub use check::LaunchCheck;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Longest duration of a launch; the next one continues with existing resources.
const MAX_DURATION: SignedDuration = SignedDuration::from_mins(10);
/// Most offerings that one launch tries.
const MAX_ATTEMPTS: usize = 10;
/// Most transient failures that one launch retries.
const MAX_RETRIES: u32 = 12;
/// Most failed polls of an operation in a row; then the VM itself is read.
const MAX_FAILED_POLLS: u32 = 3;
/// Wait after a transient failure, unless Azure sends Retry-After.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The instance types of the claim's class, sorted by name: capacity for the claim's status, labels for the kubelet.
pub type ClassInstanceTypes = InstanceTypes;

/// The launch of one NodeClaim.
#[derive(Debug)]
pub struct LaunchScript {
    pub(super) progress: LaunchProgress,
    ids: ResourceIds,
    deletion_rules: DeletionRules,
    state: State,
    has_nic: bool,
    attempts: usize,
    retry_budget: RetryBudget,
    failed_polls: u32,
    /// Offerings that refusals have made unavailable.
    unavailable: UnavailableOfferings,
    /// Azure's error for the last offering.
    error: Option<CloudError>,
    report: CommandReport,
}

/// The last effect.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Begin,
    VmRead,
    IntentWritten,
    /// Only where the mutation check writes the intent too late.
    LateIntent,
    NicPut,
    /// A NIC of that name exists.
    NicRead,
    VmPut,
    /// Where the operation is found is being written on the claim.
    OperationSaved(OperationId),
    Polling(OperationId),
    /// As `Polling`, of an operation that an earlier run started: its result is verified by reading the VM.
    Resumed(OperationId),
    Deleting(OperationId),
    /// Whether a Node runs on the VM that Azure calls failed.
    NodeRead,
    FailedVmDeleted,
    /// Whether the NIC has outlived the failed VM.
    NicRecheck,
    Adopting,
    /// The result is being written to the claim.
    ClaimUpdated(Box<Effect>),
    /// Repeat this effect after the wait.
    Retry(Box<Effect>, Box<State>),
}

impl State {
    /// True while the VM may be being created.
    fn may_be_creating(&self) -> bool {
        match self {
            Self::Retry(_, state) => state.may_be_creating(),
            Self::VmRead | Self::VmPut | Self::OperationSaved(_) | Self::Polling(_) | Self::Resumed(_) => true,
            state => *state == Self::Adopting,
        }
    }
}

impl LaunchScript {
    /// The script of a launch command.
    #[must_use]
    pub fn new(launch: Launch, sizes: ClassInstanceTypes, deletion_rules: DeletionRules) -> Self {
        let ids = resource_ids(&launch.group, &launch.claim.name);
        let retry_budget = RetryBudget::new(MAX_DURATION, RETRY_AFTER, launch.claim.uid.clone());
        Self {
            progress: LaunchProgress::new(launch, sizes),
            ids,
            deletion_rules,
            state: State::Begin,
            has_nic: false,
            attempts: 0,
            retry_budget,
            failed_polls: 0,
            unavailable: UnavailableOfferings::default(),
            error: None,
            report: CommandReport::default(),
        }
    }

    fn begin(&mut self, now: Timestamp) -> Step {
        let Some(intent) = &self.progress.launch.intent else { return self.try_next(0, now) };
        match intent.operation.clone() {
            Some(operation) => {
                self.perform(State::Resumed(operation.clone()), Effect::Cloud(CloudRequest::Poll(operation)))
            }
            None => self.read_vm(),
        }
    }

    /// Looks at the VM.
    fn read_vm(&mut self) -> Step {
        self.perform(State::VmRead, Effect::Cloud(CloudRequest::Get(self.ids.vm.clone())))
    }

    /// True when this launch has heard a refusal of the offering being tried.
    fn is_refused(&self) -> bool {
        self.progress.current_offering().is_some_and(|o| is_refused(&self.report.launch_refusals, &o.key))
    }

    /// True when the current offering is known; otherwise its kubelet cannot be configured.
    fn is_launchable(&self) -> bool {
        self.progress.current_offering().is_some_and(|o| self.progress.is_launchable(o))
    }

    /// The VM of an earlier run, if there is one.
    fn on_vm_read(&mut self, vm: Option<Arc<CloudResource>>, now: Timestamp) -> Step {
        let Some(vm) = vm else {
            let passed = self.is_refused() || !self.is_launchable();
            return if passed { self.try_next(self.progress.offering_index + 1, now) } else { self.put_nic() };
        };
        if !self.owns(&vm) {
            return self.give_up(&name_conflict(&vm), now);
        }
        let ResourceDetail::Vm(detail) = &vm.detail else { return self.finish() };
        if detail.image.is_some() {
            // An earlier run may have been configured with another.
            self.progress.launch.image.clone_from(&detail.image);
        }
        let matches_vm = |o: &PlannedOffering| o.key.size == detail.size && o.key.capacity_type == detail.capacity_type;
        if !self.progress.current_offering().is_some_and(matches_vm) {
            let found = self.progress.launch.offerings.iter().position(matches_vm);
            self.progress.offering_index = found.unwrap_or(self.progress.offering_index);
        }
        match detail.state {
            ProvisioningState::Succeeded => self.mark_launched(),
            ProvisioningState::Creating | ProvisioningState::Deleting => {
                self.state = State::Adopting;
                Step::Wait(POLL_INTERVAL)
            }
            // A VM with a Node has worked before: it is disrupted like any node, if necessary.
            ProvisioningState::Failed => {
                self.perform(State::NodeRead, Effect::Read(ClusterRead::Node(ProviderId::of_vm(&self.ids.vm))))
            }
        }
    }

    fn owns(&self, resource: &CloudResource) -> bool {
        self.progress.owns(&resource.tags)
    }

    /// The NIC that a PUT has met.
    fn on_nic_read(&mut self, nic: Option<Arc<CloudResource>>, now: Timestamp) -> Step {
        match nic {
            Some(nic) if self.owns(&nic) => {
                self.has_nic = true;
                self.put_vm()
            }
            Some(nic) => self.give_up(&name_conflict(&nic), now),
            None => self.put_nic(),
        }
    }

    /// Writes the intent for the first offering from `from` on that no refusal of this launch rules out.
    fn try_next(&mut self, from: usize, now: Timestamp) -> Step {
        let open =
            |o: &PlannedOffering| !is_refused(&self.report.launch_refusals, &o.key) && !self.is_unavailable(o, now);
        let next = self.progress.next_offering(from, open);
        match (next, self.error.clone()) {
            (Some(i), _) if self.attempts < MAX_ATTEMPTS => {
                self.progress.offering_index = i;
                self.attempts += 1;
                if !self.deletion_rules.enforces(DeletionRule::IntentFirst) {
                    return if self.has_nic { self.put_vm() } else { self.put_nic() };
                }
                self.write_intent(State::IntentWritten, None)
            }
            (_, Some(error)) => self.give_up(&error, now),
            (_, None) => self.finish(),
        }
    }

    /// True when an earlier refusal excludes this offering too.
    fn is_unavailable(&self, offering: &PlannedOffering, now: Timestamp) -> bool {
        let (key, group) = (&offering.key, self.progress.reservation_of(offering));
        let size = self.progress.instance_type(&key.size);
        size.is_some_and(|size| {
            let offering = SizeOffering { facts: &size.facts, zone: &key.zone, capacity_type: key.capacity_type };
            self.unavailable.is_unavailable(offering, group, now)
        })
    }

    fn delete_failed_vm(&mut self) -> Step {
        self.perform(State::FailedVmDeleted, Effect::Cloud(CloudRequest::Delete(self.ids.vm.clone(), ResourceKind::Vm)))
    }

    fn perform(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    fn finish(&mut self) -> Step {
        self.end(false)
    }

    /// Ends because its time is over. What Azure could not be asked any more counts as being created.
    fn time_out(&mut self) -> Step {
        self.end(self.state.may_be_creating())
    }

    fn end(&mut self, is_creating: bool) -> Step {
        let launch = LaunchReport { claim: self.progress.launch.claim.name.clone(), is_creating };
        self.report.launch = Some(Box::new(launch));
        Step::End(std::mem::take(&mut self.report))
    }

    fn fail(&mut self, error: EffectError) -> Step {
        self.report.error = Some(error);
        self.finish()
    }

    fn wait_in(&mut self, state: State) -> Step {
        self.state = state;
        Step::Wait(POLL_INTERVAL)
    }

    /// The VM is there.
    fn on_vm_created(&mut self) -> Step {
        if self.deletion_rules.enforces(DeletionRule::IntentFirst) {
            self.mark_launched()
        } else {
            self.write_intent(State::LateIntent, None)
        }
    }

    /// The next step after a successful reply.
    fn on_reply(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (std::mem::replace(&mut self.state, State::Begin), reply) {
            (State::Begin, _) => self.begin(now),
            (State::Retry(effect, state), _) => self.perform(*state, *effect),
            (State::Adopting, _) => self.read_vm(),
            (State::VmRead, Some(Reply::Resource(vm))) => self.on_vm_read(vm, now),
            (State::IntentWritten, _) if self.has_nic => self.put_vm(),
            (State::IntentWritten, _) => self.put_nic(),
            (State::NicPut, _) => {
                self.has_nic = true;
                self.put_vm()
            }
            (State::NicRead, Some(Reply::Resource(nic))) => self.on_nic_read(nic, now),
            (State::VmPut, Some(Reply::Accepted(op))) if self.deletion_rules.enforces(DeletionRule::IntentFirst) => {
                self.write_intent(State::OperationSaved(op.clone()), Some(op))
            }
            (State::VmPut, Some(Reply::Accepted(op))) | (State::OperationSaved(op), _) => {
                self.wait_in(State::Polling(op))
            }
            (state @ (State::Polling(_) | State::Resumed(_)), Some(Reply::Running)) => {
                self.failed_polls = 0;
                self.wait_in(state)
            }
            (State::Polling(op), None) => {
                self.perform(State::Polling(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            (State::Resumed(op), None) => {
                self.perform(State::Resumed(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            (State::Resumed(_), _) => self.read_vm(),
            (State::VmPut | State::Polling(_), _) => self.on_vm_created(),
            (State::LateIntent, _) => self.mark_launched(),
            (State::NodeRead, Some(Reply::Node(Some(_)))) => self.mark_launched(),
            (State::NodeRead, Some(Reply::Node(None))) => self.delete_failed_vm(),
            (State::FailedVmDeleted, Some(Reply::Accepted(op))) | (State::Deleting(op), Some(Reply::Running)) => {
                self.wait_in(State::Deleting(op))
            }
            (State::Deleting(op), None) => {
                self.perform(State::Deleting(op.clone()), Effect::Cloud(CloudRequest::Poll(op)))
            }
            // Azure does not delete the NIC with a failed VM, unless its creation had progressed further.
            (State::FailedVmDeleted | State::Deleting(_), _) => {
                self.perform(State::NicRecheck, Effect::Cloud(CloudRequest::Get(self.ids.nic.clone())))
            }
            (State::NicRecheck, Some(Reply::Resource(nic))) => {
                self.has_nic = nic.is_some_and(|nic| self.owns(&nic));
                self.try_next(self.progress.offering_index + 1, now)
            }
            (State::VmRead | State::NicRead | State::NodeRead | State::NicRecheck | State::ClaimUpdated(_), _) => {
                self.finish()
            }
        }
    }
}

impl Script for LaunchScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        let Some(left) = self.retry_budget.remaining(now) else { return self.time_out() };
        let step = match reply {
            Some(Err(error)) if self.is_retryable(&error) => self.back_off(&error),
            Some(Err(error)) => self.on_error(error, now),
            Some(Ok(reply)) => self.on_reply(Some(reply), now),
            None => self.on_reply(None, now),
        };
        match step {
            Step::Wait(wait) if wait > left => self.time_out(),
            step => step,
        }
    }
}

/// Something of that name exists and is not this claim's.
fn name_conflict(found: &CloudResource) -> CloudError {
    let kind = if found.kind() == ResourceKind::Vm { "VM" } else { "NIC" };
    CloudError::new(
        CloudErrorCode::Conflict,
        format!("{kind} {} exists and is not owned by this NodeClaim", found.id.name()),
    )
}
