//! The simulated Azure: the resources of the node resource group and the results of requests.
//!
//! A state machine on virtual time. It changes only by a request, a staged event, or the end of an operation;
//! [`Cloud::advance`] plays such ends in order of time, so the outcome does not depend on how often it is called. Every
//! duration is derived from the seed and the operation. Simulated behaviour: `networkInterfaces`, `virtualMachines` and
//! `disks` as ARM serves them, `deleteOption: Delete` for NIC and OS disk, spot VMs with the eviction policy `Delete`.

mod external_changes;
mod faults;
#[cfg(test)]
pub(crate) mod fixtures;
mod ledger;
mod listing;
mod operations;
mod refusal;
mod resources;
mod settings;
#[cfg(test)]
mod tests;

pub use external_changes::DiskDraft;
pub(crate) use faults::{ComputeCall, MeteredRequest};
pub use faults::{
    FaultDuration, Faults, LateFailure, Limits, ListedKind, ListingFault, ListingLag, PolicyAssignment, Shortage,
    Throttling, Usage,
};
use jiff::Timestamp;
pub use ledger::{Change, ChangeCause, CloudEvent, LedgerEntry};
use napkeeper_core::catalog::EphemeralDiskPlacement;
use napkeeper_core::model::azure::cloud::{CloudResource, Nic, PowerState, ResourceDetail, Tags};
use napkeeper_core::model::errors::{CloudError, EffectError, OperationId};
use napkeeper_core::model::names::{ArmId, ClaimName};
use napkeeper_core::plan::{CloudRequest, KubeletSpec, NicSpec, Reply};
pub use operations::RunningOperation;
use operations::{Completion, Operations};
pub use refusal::{Quota, Refusal};
pub use resources::Extension;
pub(crate) use resources::pool_of;
use resources::{RelatedResources, Reserved};
pub use settings::{CloudSettings, Timings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Default page size: small, so that every listing has several pages.
const PAGE: usize = 50;

/// The simulated Azure.
#[derive(Debug, Clone)]
pub struct Cloud {
    settings: CloudSettings,
    /// Active faults, for scenarios to write. Call [`Cloud::advance`] before, so that earlier operations end under the
    /// faults of their own time.
    pub faults: Faults,
    /// Quotas and free addresses in the subnet, for scenarios to write.
    pub limits: Limits,
    /// Resources on a page of a listing over HTTP; ARM's providers have 50 to 1,000.
    pub page_size: usize,
    /// Azure's rate limits, over HTTP; `None` for no limits.
    pub throttling: Option<Throttling>,
    managed_by: Option<ArmId>,
    resources: BTreeMap<ArmId, Arc<CloudResource>>,
    vm_records: BTreeMap<ArmId, VmRecord>,
    /// VMs that were shut down.
    shut_down: BTreeMap<ArmId, PowerState>,
    reservations: BTreeMap<ArmId, NicReservation>,
    reserved: Reserved,
    operations: Operations,
    agenda: BTreeSet<(Timestamp, ScheduledEvent)>,
    deleted: Vec<(Timestamp, Arc<CloudResource>)>,
    related: RelatedResources,
    extensions: BTreeMap<ArmId, Extension>,
    /// The name of each NIC's first address, where a client has given it.
    address_names: BTreeMap<ArmId, Arc<str>>,
    /// How often each resource was changed: its etag.
    revisions: BTreeMap<ArmId, u64>,
    ledger: Vec<LedgerEntry>,
    events: Vec<CloudEvent>,
    minted: u64,
}

/// What Azure does not show of a VM.
#[derive(Debug, Clone, Default)]
struct VmRecord {
    claim: Option<ClaimName>,
    /// The kubelet's configuration.
    kubelet: KubeletSpec,
    /// Its creation failed: its NIC does not go with it.
    failed: bool,
    /// The group of capacity reservations that it names.
    reservation: Option<ArmId>,
    /// Its OS disk, where that is ephemeral.
    ephemeral_os_disk: Option<EphemeralOsDisk>,
}

/// An OS disk on a local disk of a VM: it has an id, but is no resource.
#[derive(Debug, Clone)]
pub(crate) struct EphemeralOsDisk {
    pub(crate) id: ArmId,
    gib: u32,
    pub(crate) placement: EphemeralDiskPlacement,
}

/// A NIC is reserved for a VM whose creation failed.
#[derive(Debug, Clone)]
struct NicReservation {
    vm: ArmId,
    until: Timestamp,
}

/// An event of Azure's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledEvent {
    /// An operation ends.
    Operation(OperationId),
    /// Azure takes a spot VM of this incarnation back.
    Eviction(ArmId, Arc<str>),
}

impl Cloud {
    /// An empty group without faults and limits.
    #[must_use]
    pub fn new(settings: CloudSettings) -> Self {
        Self {
            managed_by: settings.managed_by.clone(),
            settings,
            faults: Faults::default(),
            limits: Limits::default(),
            page_size: PAGE,
            throttling: None,
            extensions: BTreeMap::new(),
            address_names: BTreeMap::new(),
            revisions: BTreeMap::new(),
            resources: BTreeMap::new(),
            vm_records: BTreeMap::new(),
            shut_down: BTreeMap::new(),
            reservations: BTreeMap::new(),
            reserved: BTreeMap::new(),
            operations: Operations::default(),
            agenda: BTreeSet::new(),
            deleted: Vec::new(),
            related: RelatedResources::default(),
            ledger: Vec::new(),
            events: Vec::new(),
            minted: 0,
        }
    }

    /// Performs an effect on Azure.
    ///
    /// # Errors
    /// What Azure refuses, as the domain sees it; `Invalid` for an effect on Kubernetes.
    pub fn perform(&mut self, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError> {
        self.request(request, now).map_err(|refusal| {
            let is_outcome = matches!(request, CloudRequest::Poll(id) if self.operations.ended_in(id, &refusal));
            EffectError::Cloud(CloudError { is_operation_result: is_outcome, ..refusal.into() })
        })
    }

    /// Performs an effect on Azure, with Azure's own error messages.
    ///
    /// # Errors
    /// As [`Cloud::perform`].
    pub fn request(&mut self, request: &CloudRequest, now: Timestamp) -> Result<Reply, Refusal> {
        self.advance(now);
        self.faults.admit(now)?;
        self.check_write_allowed(request, now)?;
        match request {
            CloudRequest::Get(id) => Ok(Reply::Resource(self.read(id, now))),
            CloudRequest::GetGroupOwner => Ok(Reply::GroupOwner(self.managed_by.clone())),
            CloudRequest::GetPowerState(id) => Ok(Reply::PowerState(self.power_state(id))),
            CloudRequest::PutNic(spec) => self.put_nic(spec, now),
            CloudRequest::PutVm(spec) => self.put_vm(spec, now),
            CloudRequest::PutBillingExtension(vm) => self.put_billing_extension(vm, now),
            CloudRequest::Delete(id, _) => self.delete(id, now),
            CloudRequest::Tag(id, tags) => self.tag(id, tags, now),
            CloudRequest::Untag(id, tags) => self.untag(id, tags, now),
            CloudRequest::AksMachine(call) => self.machine_call(call, now),
            CloudRequest::Poll(operation) => self.operations.poll(operation),
        }
    }

    /// When the next event is due; `None` is never.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Advances to a time, with all events that are due.
    pub fn advance(&mut self, now: Timestamp) {
        while self.next_event().is_some_and(|at| at <= now) {
            let Some((at, due)) = self.agenda.pop_first() else {
                return;
            };
            match due {
                ScheduledEvent::Operation(id) => match self.operations.finish(&id) {
                    Some((vm, Completion::Create(outcome))) => self.end_creation(&vm, &outcome, at),
                    Some((id, Completion::Delete(Ok(())))) => self.remove(&id, ChangeCause::Request, at),
                    Some((id, Completion::Delete(Err(_)))) => self.fail_deletion(&id),
                    None => {}
                },
                ScheduledEvent::Eviction(vm, incarnation) => {
                    if self.resources.get(&vm).is_some_and(|r| r.incarnation == incarnation) {
                        self.remove(&vm, ChangeCause::Eviction, at);
                    }
                }
            }
        }
    }

    /// Events since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<CloudEvent> {
        std::mem::take(&mut self.events)
    }

    /// Every creation, tagging and deletion so far, oldest first.
    #[must_use]
    pub fn ledger(&self) -> &[LedgerEntry] {
        &self.ledger
    }

    /// Everything that truly exists, by id.
    #[must_use]
    pub fn resources(&self) -> &BTreeMap<ArmId, Arc<CloudResource>> {
        &self.resources
    }

    /// Cores and addresses that are truly taken.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(self.resources.values(), &self.settings.sizes)
    }

    /// The settings that this Azure was made with.
    #[must_use]
    pub fn settings(&self) -> &CloudSettings {
        &self.settings
    }

    /// Operations that have not ended, by when they will.
    #[must_use]
    pub fn running(&self) -> Vec<RunningOperation> {
        let ends = self.agenda.iter().filter_map(|(at, due)| match due {
            ScheduledEvent::Operation(id) => self.operations.running(id, *at),
            ScheduledEvent::Eviction(..) => None,
        });
        ends.collect()
    }

    /// The name that a client has given a NIC's first address.
    pub(crate) fn address_name(&self, nic: &ArmId) -> Option<&str> {
        self.address_names.get(nic).map(|name| &**name)
    }

    /// How often a resource was changed.
    pub(crate) fn revision(&self, id: &ArmId) -> u64 {
        self.revisions.get(id).copied().unwrap_or_default()
    }

    /// True while a resource is being deleted.
    #[must_use]
    pub fn is_deleting(&self, id: &ArmId) -> bool {
        self.operations.deletes(id)
    }

    fn put_nic(&mut self, spec: &NicSpec, now: Timestamp) -> Result<Reply, Refusal> {
        self.check_in_group(&spec.id)?;
        if let Some(nic) = self.resources.get(&spec.id) {
            if spec.create_only {
                return Err(Refusal::Precondition { condition: "If-None-Match", resource: spec.id.clone() });
            }
            self.check_idle(&spec.id)?;
            match &nic.detail {
                // A node's NIC has its VM's name; under any other name it serves something else.
                ResourceDetail::Nic(nic) if nic.vm.as_ref().is_none_or(|vm| same_name(vm, &spec.id)) => {}
                _ => return Err(Refusal::Taken(spec.id.clone())),
            }
            self.set_tags(&spec.id, spec.tags.clone(), ChangeCause::Request, now);
            self.set_subnet(&spec.id, spec.subnet.as_ref());
            return Ok(Reply::Done);
        }
        self.check_subnet()?;
        let subnet = spec.subnet.clone().unwrap_or_else(|| self.settings.subnet.clone());
        let nic = self.new_nic(spec.id.clone(), spec.tags.clone(), subnet, now);
        self.create(nic, ChangeCause::Request, now);
        Ok(Reply::Done)
    }

    fn check_subnet(&self) -> Result<(), Refusal> {
        let need = 1;
        match self.limits.subnet {
            Some(room) if self.usage().addresses + need > room => Err(Refusal::SubnetFull { need }),
            _ => Ok(()),
        }
    }

    fn delete(&mut self, id: &ArmId, now: Timestamp) -> Result<Reply, Refusal> {
        let Some(resource) = self.resources.get(id).cloned() else {
            return Ok(Reply::Absent);
        };
        if self.faults.deletes_locked_until.is_some_and(|end| now < end) {
            return Err(Refusal::Locked(self.settings.group.clone()));
        }
        if let Some(operation) = self.operations.on(id).filter(|_| self.operations.deletes(id)) {
            return Ok(Reply::Accepted(operation.clone()));
        }
        self.check_unused(&resource)?;
        if matches!(resource.detail, ResourceDetail::Nic(_)) {
            self.check_unreserved(id, None, now)?;
        }
        Ok(Reply::Accepted(self.begin_delete(&resource, now)))
    }

    /// Refuses what would delete an attached NIC or disk.
    fn check_unused(&self, resource: &CloudResource) -> Result<(), Refusal> {
        match &resource.detail {
            ResourceDetail::Nic(Nic { vm: Some(vm), .. }) => {
                Err(Refusal::NicInUse { nic: resource.id.clone(), vm: vm.clone() })
            }
            ResourceDetail::Disk(disk) if !disk.managed_by.is_empty() => {
                Err(Refusal::DiskInUse { disk: resource.id.clone(), vm: disk.managed_by[0].clone() })
            }
            _ => Ok(()),
        }
    }

    /// Rejects the use of a NIC that is reserved for another VM.
    fn check_unreserved(&self, nic: &ArmId, vm: Option<&ArmId>, now: Timestamp) -> Result<(), Refusal> {
        match self.reservations.get(nic) {
            Some(reservation) if now < reservation.until && vm != Some(&reservation.vm) => {
                Err(Refusal::NicReserved { vm: reservation.vm.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Rejects changes of a resource that is being deleted.
    fn check_idle(&self, id: &ArmId) -> Result<(), Refusal> {
        if self.operations.deletes(id) {
            return Err(Refusal::Busy(id.clone()));
        }
        Ok(())
    }

    fn check_in_group(&self, id: &ArmId) -> Result<(), Refusal> {
        let within = id.folded().strip_prefix(self.settings.group.folded());
        if within.is_some_and(|rest| rest.starts_with('/')) {
            return Ok(());
        }
        Err(Refusal::NotFound(id.clone()))
    }

    fn tag(&mut self, id: &ArmId, tags: &Tags, now: Timestamp) -> Result<Reply, Refusal> {
        let Some(resource) = self.resources.get(id) else {
            return Err(Refusal::NotFound(id.clone()));
        };
        self.check_idle(id)?;
        let mut merged = resource.tags.clone();
        merged.extend(tags.clone());
        self.set_tags(id, merged, ChangeCause::Request, now);
        Ok(Reply::Done)
    }

    fn untag(&mut self, id: &ArmId, tags: &Tags, now: Timestamp) -> Result<Reply, Refusal> {
        let Some(resource) = self.resources.get(id) else {
            return Err(Refusal::NotFound(id.clone()));
        };
        self.check_idle(id)?;
        let mut left = resource.tags.clone();
        left.retain(|key, value| tags.get(key) != Some(value));
        self.set_tags(id, left, ChangeCause::Request, now);
        Ok(Reply::Done)
    }
}

fn same_name(a: &ArmId, b: &ArmId) -> bool {
    a.name().eq_ignore_ascii_case(b.name())
}
