//! Commands that deciders emit.
//!
//! Each is idempotent: repeated after a crash it does no harm. The executor runs one command per [`CommandKey`] at a
//! time and turns it into effects by its script.

use super::cloud_request::CloudRequest;
use super::effect::{ClaimDraft, ClaimUpdate, Effect, NodeUpdate, RecordChange, SecurityProfile};
use super::status_report::{ClassReport, NodeRecordChange, OverlayReport, PoolRelease, PoolReport, SweepReport};
use crate::model::azure::cloud::{CloudResource, ResourceKind, Tags};
use crate::model::azure::naming::ResourceIds;
use crate::model::cluster::claim::{ClaimRef, LaunchIntent, PlannedOffering, TerminationConditions};
use crate::model::names::{ArmId, ClaimName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId, Uid};
use crate::model::orphans::record::DeletionRecord;
use crate::model::settings::{NodeHealthRule, PauseSwitch};
use crate::snapshot::CommandKey;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A command of a decider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Create a NodeClaim.
    CreateClaim(Box<ClaimDraft>),
    /// Create the VM of a NodeClaim, or find the one that an earlier run created.
    Launch(Box<Launch>),
    /// Let AKS count the node of a NodeClaim.
    InstallBillingExtension {
        /// The claim.
        claim: ClaimRef,
        /// Its VM.
        vm: ArmId,
    },
    /// Note a step of a NodeClaim's life on it.
    UpdateClaim {
        /// The claim.
        claim: ClaimRef,
        /// The step.
        update: ClaimUpdate,
    },
    /// Change a Node: register it, mark it ready, or mark it as being disrupted.
    UpdateNode {
        /// The node.
        node: NodeName,
        /// Its UID.
        uid: Uid,
        /// The step.
        update: NodeUpdate,
    },
    /// Delete a NodeClaim; its finalizer holds it until all its resources are deleted.
    DeleteClaim {
        /// The claim.
        claim: ClaimRef,
        /// The category for metrics: `empty`, `expired`, `launch_failed`, …
        category: &'static str,
        /// Only if its Node still shows this, read right before.
        only_if: Option<Box<SignOnNode>>,
    },
    /// Check whether a NodeClaim's VM is lost: gone or deallocated; if Azure proves it, delete what is left for it.
    CheckVm(Box<CheckVm>),
    /// Evict a pod through the eviction API, which honours PodDisruptionBudgets.
    Evict {
        /// The pod.
        pod: ObjectKey,
        /// Its UID.
        uid: Uid,
    },
    /// Delete a pod, past PodDisruptionBudgets, because the termination grace period of its node ends.
    DeletePod {
        /// The pod.
        pod: ObjectKey,
        /// Its UID.
        uid: Uid,
        /// How long its containers may take to end.
        grace: SignedDuration,
    },
    /// Write on a NodeClaim until when its drain must be over, unless an earlier time is there.
    RecordDeadline {
        /// The claim.
        claim: ClaimRef,
        /// The time.
        deadline: Timestamp,
    },
    /// Delete the resources of a NodeClaim that is being deleted: lifecycle delete.
    Terminate(Box<Terminate>),
    /// Remove our finalizer from a Node that is being deleted and has no NodeClaim.
    ReleaseNode(Box<ReleaseNode>),
    /// Remove our finalizer from a NodeClaim without resources.
    RemoveFinalizer {
        /// The claim.
        claim: ClaimRef,
    },
    /// Read which cluster the node resource group belongs to.
    ReadGroupOwner,
    /// Take a whole inventory: the cloud first, Kubernetes after it.
    TakeInventory {
        /// The category for metrics: `scheduled` or `first`.
        category: &'static str,
    },
    /// Write observations to the durable records.
    WriteRecords(Box<RecordChange>),
    /// Delete a proven orphan: sweep delete.
    SweepDelete(Box<SweepDelete>),
    /// Tag a suspect resource with the time of its first sighting (mode `Mark`).
    Mark {
        /// The resource.
        resource: Arc<CloudResource>,
        /// When it was first seen as a suspect.
        first_seen: Timestamp,
    },
    /// Take our own mark off a resource that is no suspect any more, or that no sweep marks any more.
    Unmark {
        /// The resource as listed, with the mark.
        resource: Arc<CloudResource>,
    },
    /// Write an OrphanSweep's status.
    ReportSweep(Box<SweepReport>),
    /// Put our finalizer on a NodePool.
    HoldPool {
        /// The NodePool.
        pool: NodePoolName,
        /// Its UID.
        uid: Uid,
    },
    /// Take our finalizer off a NodePool that is being deleted.
    ReleasePool(Box<PoolRelease>),
    /// Remove NodePools from the owners of a NodeClaim.
    DisownClaim {
        /// The claim.
        claim: ClaimRef,
    },
    /// Write a NodePool's status.
    ReportPool(Box<PoolReport>),
    /// Write an AKSNodeClass's status.
    ReportClass(Box<ClassReport>),
    /// Write the status of a NodeOverlay.
    ReportOverlay(Box<OverlayReport>),
    /// Write which nodes were removed.
    RecordRemovals(Box<NodeRecordChange>),
}

/// Create the VM of a NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The claim.
    pub claim: ClaimRef,
    /// The pool, for the tags.
    pub pool: Option<NodePoolName>,
    /// Offerings to try, best first.
    pub offerings: Vec<PlannedOffering>,
    /// The intent that an earlier run wrote, if any: its resources may exist.
    pub intent: Option<LaunchIntent>,
    /// Node resource group as an id, `/subscriptions/…/resourceGroups/…`.
    pub group: ArmId,
    /// Tags for everything that is created.
    pub tags: Tags,
    /// OS disk in GB.
    pub os_disk_gb: u32,
    /// The image that it is made from; `None` where AKS chooses it.
    pub image: Option<Arc<str>>,
    /// How the VM is protected.
    pub security: SecurityProfile,
    /// Subnet of its class; `None` is that of all nodes.
    pub subnet: Option<ArmId>,
    /// Group of capacity reservations of its class.
    pub capacity_reservation_group: Option<ArmId>,
}

/// A sign of a Node by which it is unhealthy or about to be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignOnNode {
    /// The VM of the Node.
    pub vm: ProviderId,
    /// The Node's UID.
    pub uid: Uid,
    /// The sign.
    pub rule: NodeHealthRule,
}

/// Check whether a NodeClaim's VM is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckVm {
    /// The claim.
    pub claim: ClaimRef,
    /// Its VM.
    pub vm: ArmId,
    /// What is deleted if it is lost.
    pub if_lost: IfVmLost,
}

/// What is deleted if a VM is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfVmLost {
    /// Its NodeClaim.
    DeleteClaim,
    /// Its Node, since its NodeClaim is being deleted: the drain then has nothing to wait for.
    DeleteNode {
        /// The Node.
        name: NodeName,
        /// Its UID.
        uid: Uid,
    },
    /// Nothing yet: volumes are attached to its Node, which is tainted out of service, so that Kubernetes detaches them at
    /// once.
    TaintOutOfService {
        /// The Node.
        name: NodeName,
        /// Its UID.
        uid: Uid,
    },
}

/// A Node that has been drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainedNode {
    /// Its name.
    pub name: NodeName,
    /// Since when it has been ready; `None` if it is not.
    pub ready_since: Option<Timestamp>,
}

/// Remove our finalizer from a Node that is being deleted and has no NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseNode {
    /// The Node.
    pub node: NodeName,
    /// Its UID.
    pub uid: Uid,
    /// The NodeClaim that it was of: looked up right before.
    pub claim: ClaimName,
    /// Why nothing runs on it.
    pub proof: NothingRuns,
}

/// Why nothing runs on a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NothingRuns {
    /// No pod is left that holds a drain. They are read again right before.
    PodsLeft {
        /// Since when the Node has been ready; `None` if it is not.
        ready_since: Option<Timestamp>,
    },
    /// A person has declared it out of service.
    OutOfService,
    /// Its VM is lost, if Azure says so twice.
    VmLost(ArmId),
}

/// Delete the resources of a NodeClaim that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminate {
    /// The claim.
    pub claim: ClaimRef,
    /// What its launch may have created, by names that follow from its own. Nothing else is deleted.
    pub ids: ResourceIds,
    /// The AKS Machine that they may belong to.
    pub machine: Option<ArmId>,
    /// Its Node, if it must be drained: its pods are read again right before the VM is deleted.
    pub drained_node: Option<DrainedNode>,
    /// Kinds whose deletion is suspended, because Azure has denied it.
    pub held: BTreeSet<ResourceKind>,
    /// What its launch has created may appear later: so long after it has been read, everything is read again before the
    /// finalizer is removed.
    pub look_again: Option<SignedDuration>,
    /// Conditions that are written before the VM is deleted, if they are to change.
    pub conditions: Option<Box<TerminationConditions>>,
}

/// Delete a proven orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepDelete {
    /// The sweep that allows it.
    pub sweep: ObjectName,
    /// The resource as listed.
    pub resource: Arc<CloudResource>,
    /// Resources that are deleted with it, as listed: the NICs and disks of a VM.
    pub attached: Vec<Arc<CloudResource>>,
    /// The NodeClaim that its tags name, to be looked up right before the DELETE.
    pub claim: Option<ClaimName>,
    /// The PersistentVolume that the records have for it, to be looked up right before the DELETE.
    pub volume: Option<ObjectName>,
    /// The record that is written before the DELETE is sent.
    pub deletion: DeletionRecord,
    /// An earlier DELETE of this incarnation counts for the cap, and may have deleted it, or be about to.
    pub tried_before: bool,
}

impl Command {
    /// Deletes a NodeClaim, whatever its Node shows.
    #[must_use]
    pub fn delete_claim(claim: ClaimRef, category: &'static str) -> Self {
        Self::DeleteClaim { claim, category, only_if: None }
    }

    /// Its name in logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateClaim(_) => "create_claim",
            Self::Launch(_) => "launch",
            Self::InstallBillingExtension { .. } => "bill",
            Self::UpdateClaim { .. } => "advance_claim",
            Self::UpdateNode { .. } => "advance_node",
            Self::DeleteClaim { .. } => "delete_claim",
            Self::CheckVm(_) => "confirm_gone",
            Self::Evict { .. } => "evict",
            Self::DeletePod { .. } => "delete_pod",
            Self::RecordDeadline { .. } => "record_deadline",
            Self::Terminate(_) => "terminate",
            Self::ReleaseNode(_) => "release_node",
            Self::RemoveFinalizer { .. } => "release_claim",
            Self::ReadGroupOwner => "read_group_owner",
            Self::TakeInventory { .. } => "observe",
            Self::WriteRecords(_) => "record",
            Self::SweepDelete(_) => "sweep_delete",
            Self::Mark { .. } => "mark",
            Self::Unmark { .. } => "unmark",
            Self::ReportSweep(_) => "report_sweep",
            Self::HoldPool { .. } => "hold_pool",
            Self::ReleasePool(_) => "release_pool",
            Self::DisownClaim { .. } => "disown_claim",
            Self::ReportPool(_) => "report_pool",
            Self::ReportClass(_) => "report_class",
            Self::ReportOverlay(_) => "report_overlay",
            Self::RecordRemovals(_) => "record_removals",
        }
    }

    /// The object of the command.
    #[must_use]
    pub fn key(&self) -> CommandKey {
        match self {
            Self::CreateClaim(draft) => CommandKey::Claim(draft.name.clone()),
            Self::Launch(launch) => CommandKey::Claim(launch.claim.name.clone()),
            Self::UpdateClaim { claim, update: ClaimUpdate::Report(_) } => CommandKey::ClaimReport(claim.name.clone()),
            Self::UpdateClaim { claim, update: ClaimUpdate::Terminating(_) } | Self::RecordDeadline { claim, .. } => {
                CommandKey::Drain(claim.name.clone())
            }
            Self::UpdateClaim { claim, .. }
            | Self::InstallBillingExtension { claim, .. }
            | Self::DeleteClaim { claim, .. }
            | Self::DisownClaim { claim }
            | Self::RemoveFinalizer { claim } => CommandKey::Claim(claim.name.clone()),
            Self::CheckVm(check) => CommandKey::Claim(check.claim.name.clone()),
            Self::Terminate(terminate) => CommandKey::Claim(terminate.claim.name.clone()),
            Self::UpdateNode { node, .. } => CommandKey::Node(node.clone()),
            Self::ReleaseNode(release) => CommandKey::Node(release.node.clone()),
            Self::Evict { pod, .. } | Self::DeletePod { pod, .. } => CommandKey::Pod(pod.clone()),
            Self::ReadGroupOwner => CommandKey::GroupOwner,
            Self::TakeInventory { .. } => CommandKey::Inventory,
            Self::WriteRecords(_) => CommandKey::Records,
            Self::SweepDelete(delete) => CommandKey::Resource(delete.resource.id.clone()),
            Self::Mark { resource, .. } | Self::Unmark { resource } => CommandKey::Resource(resource.id.clone()),
            Self::ReportSweep(report) => CommandKey::Sweep(report.sweep.clone()),
            Self::HoldPool { pool, .. } => CommandKey::Pool(pool.clone()),
            Self::ReleasePool(release) => CommandKey::Pool(release.pool.clone()),
            Self::ReportPool(report) => CommandKey::Pool(report.pool.clone()),
            Self::ReportClass(report) => CommandKey::Class(report.class.clone()),
            Self::ReportOverlay(report) => CommandKey::Overlay(report.overlay.clone()),
            Self::RecordRemovals(change) => CommandKey::NodeRecord(change.shard),
        }
    }

    /// The switch that holds this command back, if it has one.
    #[must_use]
    pub fn pause_switch(&self) -> Option<PauseSwitch> {
        match self {
            Self::CreateClaim(_) | Self::Launch(_) | Self::InstallBillingExtension { .. } => Some(PauseSwitch::Launch),
            Self::DeleteClaim { .. } | Self::Evict { .. } | Self::DeletePod { .. } => Some(PauseSwitch::Disrupt),
            Self::Terminate(_) | Self::SweepDelete(_) => Some(PauseSwitch::Delete),
            _ => None,
        }
    }
}

/// True for what a sweep writes in Azure: a DELETE, a mark, or the removal of one. Commands on a resource are those of
/// sweeps.
#[must_use]
pub fn is_sweep_write(key: &CommandKey, effect: &Effect) -> bool {
    let written =
        matches!(effect, Effect::Cloud(CloudRequest::Delete(..) | CloudRequest::Tag(..) | CloudRequest::Untag(..)));
    written && matches!(key, CommandKey::Resource(_))
}

/// Kinds by name, for reports.
#[must_use]
pub fn kind_label(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Nic => "NIC",
        ResourceKind::OsDisk => "OS disk",
        ResourceKind::Vm => "VM",
        ResourceKind::DataDisk => "data disk",
    }
}

/// The same with its article: `an OS disk`.
#[must_use]
pub fn one_of_kind(kind: ResourceKind) -> String {
    format!("{} {}", if kind == ResourceKind::OsDisk { "an" } else { "a" }, kind_label(kind))
}
