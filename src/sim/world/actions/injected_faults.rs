//! Faults that only the fault search injects, so that every deletion rule is needed by some history.

use super::controller_faults::AnswerFaults;
use crate::cloud::{DiskDraft, FaultDuration, LateFailure, ListingLag};
use crate::cluster::ClusterListing;
use crate::world::timeline::EventKind;
use crate::world::{
    Action, ControllerFault, ExternalEdit, FinalizerFault, IdentityFault, NodeFault, OtherImage, RestoreFault,
    WatchedKind, World,
};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::{ProvisioningState, ResourceDetail, Tags};
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::cluster::volume::{DISK_DRIVER, ReclaimPolicy, Volume, driver};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ObjectName, Uid};
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::orphans::sweep::{Approval, Exclusion, Sweep};
use std::sync::Arc;

/// What only the search for faults does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectedFault {
    /// An OS disk is left over from a deleted NodeClaim.
    LeakDisk(ObjectName),
    /// A VM, with NIC and OS disk, is left over from a deleted NodeClaim.
    LeakVm(ObjectName),
    /// A NIC of another cluster.
    ForeignNic(ObjectName),
    /// A foreign data disk.
    ForeignDisk(ObjectName),
    /// A private endpoint takes a NIC.
    ServeNic(ObjectName),
    /// A disk is being copied (`ActiveSAS`).
    CopyDisk(ObjectName),
    /// One of the cluster's listings fails for a while.
    FailListing(ClusterListing, SignedDuration),
    /// This happens right after the next inventory, before anything follows from it.
    AfterNextInventory(Box<Action>),
    /// Another owner takes over the resource of this name.
    TakeOver(ObjectName),
    /// A PersistentVolume that was lost is restored.
    RestoreVolume(ObjectName),
    /// A PersistentVolume gets reclaim policy Retain: its disk is to be kept.
    RetainVolume(ObjectName),
    /// A PersistentVolume gets reclaim policy Retain, and is removed at once.
    RetainAndLose(ObjectName),
    /// A disk is deleted, and another owner restores one under its name.
    RestoreDisk(ObjectName),
    /// Listings lag by this much from now on.
    ListLag(SignedDuration),
    /// The controller hears of changes of a kind so much later from now on.
    WatchLag(WatchedKind, SignedDuration),
    /// Managed NAP's garbage collectors run: they delete VMs and NICs without a NodeClaim and a Node, and no disks.
    NapGarbageCollection {
        /// They delete only every second one.
        every_other: bool,
    },
    /// A resource of this name, left over from a deleted NodeClaim, which only this uses.
    UsedOnlyBy(ObjectName, SoleUser),
    /// Listings of related resources fail for a while.
    FailRelatedListing(SignedDuration),
    /// This many of the next accepted operations fail at their end.
    FailLate {
        /// Deletes; else what creates.
        deletes: bool,
        /// How many.
        times: u32,
    },
    /// Operations no longer fail at their end.
    FailNothing,
    /// A change adds an exclusion to an OrphanSweep, and a schedule that the controller cannot read.
    UnreadableSweep {
        /// The sweep.
        sweep: ObjectName,
        /// The name of the excluded resource.
        excluded: ObjectName,
    },
    /// A change corrects every schedule that the controller cannot read.
    RepairSweeps,
    /// Approvals that have expired, or name another incarnation, are merged for everything that waits for one.
    ApproveStale,
    /// Kubelets and VMs of nodes.
    Nodes(NodeFault),
    /// The controller is configured for the cluster and group of another one, and runs in a second cluster.
    Identity(IdentityFault),
    /// A backup is restored in part.
    Restore(RestoreFault),
    /// The controller's process, its clock, and what it hears.
    Controller(ControllerFault),
    /// Tags, states and records of what stays in use.
    External(ExternalEdit),
    /// Finalizers that are stripped, and those of others.
    Finalizers(FinalizerFault),
    /// A GET of one resource shows what existed so long ago, from now on.
    ReadLag(SignedDuration),
    /// Listings show deleted resources for so long, from now on.
    Ghosts(SignedDuration),
    /// Another cluster attaches the disk of a volume that was moved there, or detaches it.
    UseElsewhere {
        /// The volume.
        volume: ObjectName,
        /// Attached from now on, or no longer.
        on: bool,
    },
}

/// What alone still uses a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoleUser {
    /// An AKS Machine, by the NodeClaim that both name: of a NIC.
    Machine,
    /// A scale-set instance that names it: a disk.
    Instance,
    /// A snapshot that is being copied from it: a disk.
    Snapshot,
    /// AKS itself, by a tag: a NIC.
    Aks,
}

impl SoleUser {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Machine, Self::Instance, Self::Snapshot, Self::Aks];

    /// For names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Instance => "instance",
            Self::Snapshot => "snapshot",
            Self::Aks => "aks",
        }
    }
}

/// What injected faults have left for later, and when the faults end.
#[derive(Debug, Default)]
pub(in crate::world) struct InjectedState {
    /// When the faults are over: from then on, leaked resources must be deleted in time.
    pub(in crate::world) faults_end: Option<Timestamp>,
    /// Actions between the next inventory and what follows from it.
    pub(in crate::world) after_inventory: Vec<Action>,
    /// Machines, scale-set instances and snapshots beside those of the cloud.
    related: Vec<Arc<RelatedResource>>,
    /// Listings of related resources fail until this time.
    related_fail_until: Option<Timestamp>,
    /// Writes whose answers are lost, or that are refused.
    pub(in crate::world) answers: AnswerFaults,
    /// The NodePool whose nodes have another image than the rest.
    pub(in crate::world) other_image: Option<OtherImage>,
    /// A backup of the OrphanRecords, and when it was taken.
    pub(super) records: Option<(Timestamp, Arc<OrphanRecords>)>,
}

impl World {
    pub(in crate::world) fn inject_fault(&mut self, fault: InjectedFault) {
        self.log(EventKind::Scenario, "injected fault", format!("{fault:?}"));
        match fault {
            InjectedFault::LeakDisk(name) => drop(self.add_bare_disk(&name, self.tags_of_deleted_claim(), true)),
            InjectedFault::LeakVm(name) => self.leak_vm(&name),
            InjectedFault::ForeignNic(name) => {
                let tags = Tags::from([(Arc::from(labels::TAG_CLUSTER), Arc::from("another"))]);
                if let Ok(id) = self.cloud.leak_nic(name.as_str(), tags, self.now) {
                    self.mark_foreign(&id);
                }
            }
            InjectedFault::ForeignDisk(name) => {
                if let Some(id) = self.add_bare_disk(&name, Tags::new(), false) {
                    self.mark_foreign(&id);
                }
            }
            InjectedFault::ServeNic(name) => {
                let id = self.cloud.nic_id(name.as_str());
                drop(self.cloud.set_serves(&id, Some(Arc::from("a private endpoint")), self.now));
            }
            InjectedFault::CopyDisk(name) => {
                let id = self.cloud.disk_id(name.as_str());
                drop(self.cloud.set_copied(&id, self.now));
            }
            InjectedFault::FailListing(kind, duration) => self.cluster.fail_listing(kind, self.now + duration),
            InjectedFault::AfterNextInventory(action) => self.injected.after_inventory.push(*action),
            InjectedFault::TakeOver(name) => self.take_over_named(&name),
            InjectedFault::RestoreVolume(name) => self.restore_volume(name),
            InjectedFault::UnreadableSweep { sweep, excluded } => self.break_sweep(&sweep, &excluded),
            InjectedFault::RepairSweeps => self.cluster.repair_sweeps(),
            InjectedFault::RetainVolume(name) => self.retain_volume(&name),
            InjectedFault::RetainAndLose(name) => {
                self.retain_volume(&name);
                self.cluster.lose_volume(&name, self.now);
            }
            InjectedFault::RestoreDisk(name) => self.restore_disk(&name),
            InjectedFault::ApproveStale => self.approve_stale(),
            InjectedFault::Nodes(fault) => self.strike_nodes(fault),
            InjectedFault::Identity(fault) => self.strike_identity(fault),
            InjectedFault::Restore(fault) => self.strike_restore(fault),
            InjectedFault::Controller(fault) => self.strike_controller(fault),
            InjectedFault::External(edit) => self.strike_external(edit),
            InjectedFault::Finalizers(fault) => self.strike_finalizers(fault),
            InjectedFault::ReadLag(lag) => self.cloud.faults.read_lag = lag,
            InjectedFault::Ghosts(keeps) => {
                self.cloud.faults.lags = vec![ListingLag { of: None, hides: SignedDuration::ZERO, keeps }];
            }
            InjectedFault::UseElsewhere { volume, on } => {
                let disk = self.cloud.disk_id(volume.as_str());
                drop(self.cloud.use_elsewhere(&disk, on, self.now));
            }
            InjectedFault::FailLate { deletes, times } => {
                self.cloud.faults.failing.push(LateFailure { deletes, duration: FaultDuration::Times(times) });
            }
            InjectedFault::FailNothing => self.cloud.faults.failing.clear(),
            InjectedFault::ListLag(lag) => self.cloud.faults.list_lag = lag,
            InjectedFault::WatchLag(kind, lag) => self.controller.watches.set_lag(kind, lag),
            InjectedFault::NapGarbageCollection { every_other } => self.run_nap_garbage_collection(every_other),
            InjectedFault::UsedOnlyBy(name, holder) => self.add_used_only_by(&name, holder),
            InjectedFault::FailRelatedListing(duration) => self.injected.related_fail_until = Some(self.now + duration),
        }
    }

    /// The listing of related resources, with those that faults have added.
    pub(in crate::world) fn with_injected_related(&self, shown: Listing<RelatedResource>) -> Listing<RelatedResource> {
        if self.injected.related_fail_until.is_some_and(|until| self.now < until) {
            return Err(ListFailure::new("other resources", "a page failed"));
        }
        let mut shown = shown?;
        shown.extend(self.injected.related.iter().cloned());
        Ok(shown)
    }

    /// Managed NAP's garbage collectors. They delete only truly unused resources: their errors are out of scope.
    fn run_nap_garbage_collection(&mut self, every_other: bool) {
        let dead = self.unused_resources();
        let taken = dead.iter().filter(|r| !matches!(r.detail, ResourceDetail::Disk(_)));
        for resource in taken.step_by(if every_other { 2 } else { 1 }) {
            if !self.cloud.is_deleting(&resource.id) && self.cloud.delete_outside(&resource.id, self.now).is_ok() {
                self.log(EventKind::Scenario, resource.id.name(), "deleted by managed NAP");
            }
        }
    }

    fn add_used_only_by(&mut self, name: &ObjectName, holder: SoleUser) {
        let tag = |k: &str, v: &str| (Arc::<str>::from(k), Arc::<str>::from(v));
        let mut tags = self.tags_of_deleted_claim();
        tags.extend([tag(labels::TAG_CLAIM, name.as_str()), tag(labels::TAG_CLAIM_UID, name.as_str())]);
        let id = match holder {
            SoleUser::Aks => {
                tags.extend([tag("aks-managed-poolName", "user")]);
                self.cloud.leak_nic(name.as_str(), tags, self.now).ok()
            }
            SoleUser::Machine => self.cloud.leak_nic(name.as_str(), tags, self.now).ok(),
            SoleUser::Instance | SoleUser::Snapshot => self.add_bare_disk(name, tags, true),
        };
        let Some(id) = id else { return };
        let Some(resource) = self.cloud.resources().get(&id) else { return };
        self.truth.retain(&Arc::clone(&resource.incarnation));
        let (kind, path, role) = match holder {
            SoleUser::Aks => return,
            SoleUser::Machine => (
                "Microsoft.ContainerService/managedClusters",
                format!("demo/agentPools/nap/machines/{name}"),
                RelatedDetail::AksMachine { vm: None, state: ProvisioningState::Succeeded },
            ),
            SoleUser::Instance => (
                "Microsoft.Compute/virtualMachineScaleSets",
                "aks-system-00000000-vmss/virtualMachines/0".to_owned(),
                RelatedDetail::ScaleSetInstance { nics: Vec::new(), disks: vec![id] },
            ),
            SoleUser::Snapshot => (
                "Microsoft.Compute/snapshots",
                name.to_string(),
                RelatedDetail::Snapshot { source: Some(id), in_progress: true },
            ),
        };
        let id = self.settings.cluster.node_resource_group.resource(kind, &path);
        let tags = Tags::from([tag(labels::TAG_MACHINE_CLAIM, name.as_str())]);
        self.injected.related.push(Arc::new(RelatedResource { id, tags, created_at: Some(self.now), detail: role }));
    }

    /// Tags of resources of a deleted NodeClaim.
    pub(super) fn tags_of_deleted_claim(&self) -> Tags {
        let tag = |k: &str, v: &str| (Arc::from(k), Arc::from(v));
        Tags::from([
            tag(labels::TAG_CLUSTER, &self.settings.cluster.tag_value),
            tag(labels::TAG_CLAIM, "general-purpose-gone0"),
            tag(labels::TAG_CLAIM_UID, "0b5f8e0e-0000-4000-8000-00000000dead"),
        ])
    }

    pub(super) fn add_bare_disk(&mut self, name: &ObjectName, tags: Tags, is_os: bool) -> Option<ArmId> {
        let draft =
            DiskDraft { name: name.text(), tags, size_gib: 128, sku: Arc::from("Premium_LRS"), is_os, zone: None };
        self.cloud.add_disk(draft, self.now).ok()
    }

    fn leak_vm(&mut self, name: &ObjectName) {
        let Some(size) = self.catalog.sizes.iter().find(|s| s.facts.vcpus == 2 && !s.zones.is_empty()) else { return };
        let offering = OfferingKey {
            size: size.facts.name.clone(),
            zone: size.zones[0].clone(),
            capacity_type: CapacityType::OnDemand,
        };
        drop(self.cloud.add_vm(name.as_str(), self.tags_of_deleted_claim(), &offering, self.now));
    }

    /// Marks this as foreign, and with a VM all attached resources.
    pub(in crate::world) fn mark_foreign(&mut self, id: &ArmId) {
        let Some(resource) = self.cloud.resources().get(id).cloned() else { return };
        self.truth.set_foreign(&resource.incarnation);
        if let ResourceDetail::Vm(vm) = &resource.detail {
            for part in vm.nics.iter().chain(&vm.os_disk) {
                self.mark_foreign(part);
            }
        }
    }

    fn take_over_named(&mut self, name: &ObjectName) {
        let named = |id: &&ArmId| id.name() == name.as_str();
        let Some(id) = self.cloud.resources().keys().find(named).cloned() else { return };
        let tags = Tags::from([(Arc::from("owner"), Arc::from("another owner"))]);
        if self.cloud.retag(&id, tags, self.now).is_ok() {
            self.mark_foreign(&id);
        }
    }

    fn restore_volume(&mut self, name: ObjectName) {
        let disk = self.cloud.disk_id(name.as_str());
        let exists = self.cloud.resources().contains_key(&disk) && !self.cloud.is_deleting(&disk);
        let Ok(uid) = Uid::new(format!("restored-{name}")) else { return };
        if exists {
            let (handle, reclaim, driver) = (Some(disk), ReclaimPolicy::Delete, Some(driver(DISK_DRIVER)));
            let volume =
                Volume { name, uid, handle, reclaim, claim: None, affinity: Vec::new(), driver, deleting: false };
            self.cluster.apply_volume(volume, self.now);
        }
    }

    fn retain_volume(&mut self, name: &ObjectName) {
        let Some(volume) = self.cluster.state().volumes().get(name).map(|volume| Volume::clone(volume)) else { return };
        let disk = volume.handle.as_ref().and_then(|disk| self.cloud.resources().get(disk));
        if let Some(incarnation) = disk.map(|disk| Arc::clone(&disk.incarnation)) {
            self.truth.retain(&incarnation);
        }
        self.cluster.apply_volume(Volume { reclaim: ReclaimPolicy::Retain, ..volume }, self.now);
    }

    fn restore_disk(&mut self, name: &ObjectName) {
        let disk = self.cloud.disk_id(name.as_str());
        if self.cloud.delete_outside(&disk, self.now).is_ok()
            && let Some(restored) = self.add_bare_disk(name, Tags::new(), false)
        {
            self.mark_foreign(&restored);
        }
    }

    fn break_sweep(&mut self, name: &ObjectName, excluded: &ObjectName) {
        let Some(mut sweep) = self.cluster.state().sweeps().get(name).map(|sweep| Sweep::clone(sweep)) else { return };
        sweep.exclusions.push(Exclusion::Name(excluded.text()));
        self.cluster.break_sweep(name);
        self.cluster.apply_sweep(sweep);
    }

    fn approve_stale(&mut self) {
        let now = self.now;
        let waiting: Vec<(ArmId, Arc<str>)> = self.waiting_for_approval();
        self.edit_sweeps(|sweep| {
            for (id, incarnation) in &waiting {
                let expired = Approval {
                    id: id.clone(),
                    incarnation: Arc::clone(incarnation),
                    expires_at: now - SignedDuration::from_hours(1),
                };
                let other = Approval {
                    id: id.clone(),
                    incarnation: Arc::from("another-incarnation"),
                    expires_at: now + SignedDuration::from_hours(24),
                };
                sweep.approvals.extend([expired, other]);
            }
        });
    }
}
