//! Launching: in which order are intent, NIC and VM written, and what follows when Azure refuses?
//!
//! *Guarantees*: the intent is on the NodeClaim before the first PUT; a VM that an earlier run created is adopted, not
//! doubled; a failed VM is deleted before its name is used again; every wait and every retry is bounded.
//! *Assumptions*: names of NIC, VM and disk follow from the claim's name, so a repeated PUT meets the same resource.
//! *Caveats*: what a launch that failed leaves behind is not cleaned up here, but when the claim is deleted.

use crate::catalog::{InstanceType, Offering, OfferingKey, node_labels};
use crate::cluster::claim::{ClaimRef, LaunchFailure, LaunchIntent, PlannedOffering};
use crate::cluster::cloud::{CloudResource, Detail, ProvisioningState, ResourceKind};
use crate::cluster::naming::{ResourceIds, resource_ids};
use crate::names::{ProviderId, VmSize};
use crate::orphans::{Clause, Law};
use crate::plan::{ClaimStep, Effect, KubeletSpec, Launch, NicSpec, Reply, Report, Script, Step, VmSpec};
use crate::ports::{CloudError, CloudErrorCode, ClusterError, LaunchRefusal, OperationId, PortError};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// How often a long-running operation is looked at.
const POLL_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Longest that a launch may take; then it is left to the next one, which finds what is there.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// Most offerings that one launch tries.
const MOST_TRIES: usize = 10;
/// Most passing failures that one launch sits out.
const MOST_RETRIES: u32 = 12;
/// Wait after a passing failure, unless Azure names one.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The instance types of the claim's class, sorted by name: capacity for the claim's status, labels for the kubelet.
pub type Sizes = Arc<Vec<InstanceType>>;

/// The launch of one NodeClaim.
#[derive(Debug)]
pub struct LaunchScript {
    launch: Launch,
    ids: ResourceIds,
    sizes: Sizes,
    law: Law,
    state: State,
    /// Place of the offering being tried.
    offering: usize,
    has_nic: bool,
    tries: usize,
    retries: u32,
    /// What Azure said to the last offering.
    error: Option<CloudError>,
    started: Option<Timestamp>,
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
    Vm,
    Polling(OperationId),
    Deleting(OperationId),
    FailedVmDeleted,
    Adopting,
    Noted,
    /// Repeat this effect after the wait.
    Again(Box<Effect>, Box<State>),
}

impl LaunchScript {
    /// The script of a launch command.
    #[must_use]
    pub fn new(launch: Launch, sizes: Sizes, law: Law) -> Self {
        let ids = resource_ids(&launch.group, &launch.claim.name);
        Self {
            launch,
            ids,
            sizes,
            law,
            state: State::Begin,
            offering: 0,
            has_nic: false,
            tries: 0,
            retries: 0,
            error: None,
            started: None,
            report: Report::default(),
        }
    }

    fn begin(&mut self, now: Timestamp) -> Step {
        let Some(intent) = &self.launch.intent else { return self.try_next(0, now) };
        let tried = |o: &PlannedOffering| o.key == intent.offering.key;
        self.offering = self.launch.offerings.iter().position(tried).unwrap_or(0);
        self.go(State::Looked, Effect::Get(self.ids.vm.clone()))
    }

    /// The VM of an earlier run, if there is one.
    fn looked(&mut self, vm: Option<Arc<CloudResource>>, now: Timestamp) -> Step {
        let Some(vm) = vm else { return self.put_nic() };
        if vm.claim_uid() != Some(self.launch.claim.uid.as_str()) {
            let error = CloudError {
                code: CloudErrorCode::Conflict,
                message: Arc::from(format!("VM {} exists and belongs to something else", vm.id.name()).as_str()),
                retry_after: None,
            };
            return self.give_up(&error, now);
        }
        let Detail::Vm(detail) = &vm.detail else { return self.finish() };
        let alike = |o: &PlannedOffering| o.key.size == detail.size && o.key.capacity_type == detail.capacity_type;
        if !self.launch.offerings.get(self.offering).is_some_and(alike) {
            self.offering = self.launch.offerings.iter().position(alike).unwrap_or(self.offering);
        }
        match detail.state {
            ProvisioningState::Succeeded => self.launched(),
            ProvisioningState::Creating | ProvisioningState::Deleting => {
                self.state = State::Adopting;
                Step::Wait(POLL_EVERY)
            }
            ProvisioningState::Failed => self.delete_failed_vm(),
        }
    }

    /// Writes the intent for the first offering from `from` on that no refusal of this launch rules out.
    fn try_next(&mut self, from: usize, now: Timestamp) -> Step {
        let open = |o: &&PlannedOffering| !self.report.refused.iter().any(|r| rules_out(r, o));
        let next = self.launch.offerings.iter().enumerate().skip(from).find(|(_, o)| open(o)).map(|(i, _)| i);
        match (next, self.error.clone()) {
            (Some(i), _) if self.tries < MOST_TRIES => {
                self.offering = i;
                self.tries += 1;
                if self.law.holds(Clause::IntentFirst) { self.write_intent(State::Intended) } else { self.put_nic() }
            }
            (_, Some(error)) => self.give_up(&error, now),
            (_, None) => self.finish(),
        }
    }

    fn write_intent(&mut self, then: State) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering).cloned() else { return self.finish() };
        let intent = LaunchIntent {
            offering,
            vm: self.ids.vm.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            machine: None,
            written_at: self.started.unwrap_or_default(),
            refused: u32::try_from(self.offering).unwrap_or(u32::MAX),
        };
        self.go(then, Effect::WriteIntent(self.launch.claim.clone(), Box::new(intent)))
    }

    fn put_nic(&mut self) -> Step {
        let nic = NicSpec { id: self.ids.nic.clone(), tags: self.launch.tags.clone() };
        self.go(State::Nic, Effect::PutNic(Box::new(nic)))
    }

    fn put_vm(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let vm = VmSpec {
            id: self.ids.vm.clone(),
            offering: offering.key.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            os_disk_gb: self.launch.os_disk_gb,
            tags: self.launch.tags.clone(),
            claim: self.launch.claim.name.clone(),
            kubelet: self.kubelet(offering),
        };
        self.go(State::Vm, Effect::PutVm(Box::new(vm)))
    }

    fn size(&self, name: &VmSize) -> Option<&InstanceType> {
        self.sizes.iter().find(|t| t.facts.name == *name)
    }

    fn kubelet(&self, offering: &PlannedOffering) -> KubeletSpec {
        let Some(size) = self.size(&offering.key.size) else { return KubeletSpec::default() };
        let OfferingKey { zone, capacity_type, .. } = offering.key.clone();
        let labels = node_labels(size, &Offering { zone, capacity_type, price: offering.price });
        KubeletSpec { labels, max_pods: u32::try_from(size.capacity.pods).unwrap_or(u32::MAX) }
    }

    fn delete_failed_vm(&mut self) -> Step {
        self.go(State::FailedVmDeleted, Effect::Delete(self.ids.vm.clone(), ResourceKind::Vm))
    }

    fn launched(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let size = self.size(&offering.key.size);
        let (capacity, allocatable) = size.map(|t| (t.capacity.clone(), t.allocatable.clone())).unwrap_or_default();
        let step = ClaimStep::Launched {
            provider_id: ProviderId::of_vm(&self.ids.vm),
            offering: offering.key.clone(),
            capacity,
            allocatable,
        };
        let claim = self.launch.claim.clone();
        self.go(State::Noted, Effect::AdvanceClaim(claim, step))
    }

    fn give_up(&mut self, error: &CloudError, now: Timestamp) -> Step {
        let failure =
            LaunchFailure { at: now, code: Arc::from(error.code.category()), message: Arc::clone(&error.message) };
        let claim: ClaimRef = self.launch.claim.clone();
        self.go(State::Noted, Effect::AdvanceClaim(claim, ClaimStep::LaunchFailed(failure)))
    }

    /// What Azure refused is not asked for again at once, by this launch or by the next.
    fn note_refusal(&mut self, error: CloudError, now: Timestamp) {
        if let Some(offering) = self.launch.offerings.get(self.offering) {
            self.report.refused.push(LaunchRefusal { offering: offering.key.clone(), error, at: now });
        }
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

    /// What follows from a reply that is no error.
    fn follow(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (std::mem::replace(&mut self.state, State::Noted), reply) {
            (State::Begin, _) => self.begin(now),
            (State::Again(effect, state), _) => self.go(*state, *effect),
            (State::Adopting, _) => self.go(State::Looked, Effect::Get(self.ids.vm.clone())),
            (State::Looked, Some(Reply::Resource(vm))) => self.looked(vm, now),
            (State::Intended, _) if self.has_nic => self.put_vm(),
            (State::Intended, _) => self.put_nic(),
            (State::Nic, _) => {
                self.has_nic = true;
                self.put_vm()
            }
            (State::Vm, Some(Reply::Accepted(operation))) => {
                self.state = State::Polling(operation);
                Step::Wait(POLL_EVERY)
            }
            (State::Polling(op), Some(Reply::Running)) => {
                self.state = State::Polling(op);
                Step::Wait(POLL_EVERY)
            }
            (State::Polling(op), None) => self.go(State::Polling(op.clone()), Effect::Poll(op)),
            (State::Vm | State::Polling(_), _) => {
                if self.law.holds(Clause::IntentFirst) {
                    self.launched()
                } else {
                    self.write_intent(State::LateIntent)
                }
            }
            (State::LateIntent, _) => self.launched(),
            (State::FailedVmDeleted, Some(Reply::Accepted(op))) | (State::Deleting(op), Some(Reply::Running)) => {
                self.state = State::Deleting(op);
                Step::Wait(POLL_EVERY)
            }
            (State::Deleting(op), None) => self.go(State::Deleting(op.clone()), Effect::Poll(op)),
            (State::FailedVmDeleted | State::Deleting(_), _) => {
                // The NIC may have gone with the VM.
                self.has_nic = false;
                self.try_next(self.offering + 1, now)
            }
            (State::Looked | State::Noted, _) => self.finish(),
        }
    }

    /// What follows from an error.
    fn recover(&mut self, error: PortError, now: Timestamp) -> Step {
        let PortError::Cloud(cloud) = &error else {
            // A conflict: the claim is being deleted or is another's by now. Whoever deletes it cleans up.
            debug_assert!(!matches!(error, PortError::Cluster(ClusterError::Budget)));
            return self.fail(error);
        };
        let cloud = cloud.clone();
        self.error = Some(cloud.clone());
        match &self.state {
            State::Vm | State::Polling(_) if cloud.code.is_capacity() => {
                let polled = matches!(self.state, State::Polling(_));
                self.note_refusal(cloud, now);
                if polled { self.delete_failed_vm() } else { self.try_next(self.offering + 1, now) }
            }
            State::Polling(_) if !cloud.code.is_transient() => self.delete_failed_vm(),
            State::Nic | State::Vm if !cloud.code.is_transient() => {
                self.note_refusal(cloud.clone(), now);
                self.give_up(&cloud, now)
            }
            _ => self.fail(error),
        }
    }
}

impl Script for LaunchScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        let started = *self.started.get_or_insert(now);
        if now.duration_since(started) > LONGEST {
            return self.finish();
        }
        match reply {
            Some(Err(PortError::Cloud(error))) if error.code.is_transient() && self.retries < MOST_RETRIES => {
                self.retries += 1;
                let wait = error.retry_after.unwrap_or(RETRY_AFTER);
                let again = self.repeat();
                self.state = again;
                Step::Wait(wait)
            }
            Some(Err(error)) => self.recover(error, now),
            Some(Ok(reply)) => self.follow(Some(reply), now),
            None => self.follow(None, now),
        }
    }
}

impl LaunchScript {
    /// The state that repeats the last effect.
    fn repeat(&mut self) -> State {
        let state = std::mem::replace(&mut self.state, State::Begin);
        let step = match &state {
            State::Nic => self.put_nic(),
            State::Vm => self.put_vm(),
            State::FailedVmDeleted => self.delete_failed_vm(),
            State::Looked => Step::perform(Effect::Get(self.ids.vm.clone())),
            State::Polling(op) | State::Deleting(op) => Step::perform(Effect::Poll(op.clone())),
            _ => return state,
        };
        match step {
            Step::Do(effect) => State::Again(effect, Box::new(state)),
            Step::Wait(_) | Step::End(_) => state,
        }
    }
}

/// True when a refusal of one offering says that another would be refused too.
fn rules_out(refusal: &LaunchRefusal, other: &PlannedOffering) -> bool {
    let (key, other) = (&refusal.offering, &other.key);
    let same_size = key.size == other.size;
    match refusal.error.code {
        CloudErrorCode::SpotQuota | CloudErrorCode::RegionalQuota => key.capacity_type == other.capacity_type,
        CloudErrorCode::SkuNotAvailable | CloudErrorCode::FamilyQuota => {
            same_size && key.capacity_type == other.capacity_type
        }
        CloudErrorCode::AllocationFailed | CloudErrorCode::Overconstrained => same_size,
        CloudErrorCode::ZonalAllocationFailed | CloudErrorCode::OverconstrainedZonal => {
            same_size && key.zone == other.zone
        }
        _ => key == other,
    }
}
