//! Effects: the single calls of commands.
//!
//! An effect is one request to Kubernetes or to Azure. A crash can happen before or after each of them, never within.

use super::cloud_request::CloudRequest;
use super::status_report::{
    ClaimReport, ClassReport, NodeRecordChange, OverlayReport, PoolRelease, PoolReport, SweepReport,
};
use crate::catalog::{OfferingKey, OsDiskStorage};
use crate::model::amounts::resources::Resources;
use crate::model::azure::cloud::{CloudResource, PowerState, Tags};
use crate::model::azure::inventory::Inventory;
use crate::model::azure::related::RelatedResource;
use crate::model::cluster::claim::{
    Claim, ClaimRef, ClaimSpec, ForcefulReason, LaunchFailure, LaunchIntent, TerminationConditions,
};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Labels, Pod, Taint};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::volume::Volume;
use crate::model::errors::OperationId;
use crate::model::names::{ArmId, ClaimName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId, Uid};
use crate::model::orphans::record::{BreakerTrip, DeletionRecord, Sighting, VolumeRecord};
use crate::model::settings::PauseSwitch;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// One request to Kubernetes or to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write to the cluster.
    Cluster(ClusterWrite),
    /// Read from the cluster, past the cache.
    Read(ClusterRead),
    /// Request to Azure.
    Cloud(CloudRequest),
    /// List Azure and then Kubernetes, completely. Replies `Inventory`.
    TakeInventory,
}

/// A write to Kubernetes. Replies `Done`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterWrite {
    /// Create a NodeClaim with our finalizer; a claim of that name is a `Conflict`.
    CreateClaim(Box<ClaimDraft>),
    /// Write a launch intent on a NodeClaim. Fails with `Conflict` if the UID differs or the claim is being deleted.
    WriteIntent(ClaimRef, Box<LaunchIntent>),
    /// Note a step on a NodeClaim.
    UpdateClaim(ClaimRef, ClaimUpdate),
    /// Change a Node.
    UpdateNode(NodeName, Uid, NodeUpdate),
    /// Set a NodeClaim's deletionTimestamp.
    DeleteClaim(ClaimRef),
    /// Take our finalizer off a NodeClaim.
    RemoveFinalizer(ClaimRef),
    /// Delete a Node object, with our finalizer.
    DeleteNode(NodeName, Uid),
    /// Evict a pod.
    Evict(ObjectKey, Uid),
    /// Delete a pod, with so much time to end.
    DeletePod(ObjectKey, Uid, SignedDuration),
    /// Write on a NodeClaim until when its drain must be over; an earlier time that is there stays.
    RecordDeadline(ClaimRef, Timestamp),
    /// Write to the durable records.
    WriteRecords(Box<RecordChange>),
    /// Write an OrphanSweep's status.
    ReportSweep(Box<SweepReport>),
    /// Put our finalizer on a NodePool. Fails with `Conflict` if it has been created anew, with `NotFound` if it is being
    /// deleted.
    HoldPool(NodePoolName, Uid),
    /// Take our finalizer off a NodePool that is being deleted. Fails with `Conflict` while a NodeClaim of it exists, unless
    /// its nodes are to be kept.
    ReleasePool(Box<PoolRelease>),
    /// Remove NodePools from the owners of a NodeClaim.
    DisownClaim(ClaimRef),
    /// Write a NodePool's status. Fails with `Conflict` if it has been created anew or its spec has changed.
    ReportPool(Box<PoolReport>),
    /// Write an AKSNodeClass's status; likewise.
    ReportClass(Box<ClassReport>),
    /// Write a NodeOverlay's status; likewise.
    ReportOverlay(Box<OverlayReport>),
    /// Add entries to a NodeRecord.
    RecordRemovals(Box<NodeRecordChange>),
}

/// A read from Kubernetes, past the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterRead {
    /// A NodeClaim. Replies `Claim`.
    Claim(ClaimName),
    /// The Node of a provider id. Replies `Node`.
    Node(ProviderId),
    /// The pods of a Node. Replies `Pods`.
    Pods(NodeName),
    /// A PersistentVolume. Replies `Volume`.
    Volume(ObjectName),
}

/// Reply to an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// No such resource: it was deleted already.
    Absent,
    /// A long-running operation has begun.
    Accepted(OperationId),
    /// A long-running operation has not ended.
    Running,
    /// A cloud resource, or none.
    Resource(Option<Arc<CloudResource>>),
    /// The power state of a VM, or none where there is no VM.
    PowerState(Option<PowerState>),
    /// `managedBy` of the node resource group: the cluster that it belongs to.
    GroupOwner(Option<ArmId>),
    /// A Machine of an agent pool, or none.
    AksMachine(Option<Arc<RelatedResource>>),
    /// A NodeClaim, or none.
    Claim(Option<Arc<Claim>>),
    /// A Node, or none.
    Node(Option<Arc<Node>>),
    /// Pods, opaque ones too.
    Pods(Vec<Arc<Pod>>),
    /// A PersistentVolume, or none.
    Volume(Option<Arc<Volume>>),
    /// A whole inventory.
    Inventory(Arc<Inventory>),
}

/// A NodeClaim to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDraft {
    /// Name.
    pub name: ClaimName,
    /// Its spec.
    pub spec: ClaimSpec,
    /// Why it replaces others; `None` of one that replaces none.
    pub reason: Option<DisruptionReason>,
    /// Pods that it is created for, for people.
    pub pods: Vec<ObjectKey>,
}

/// A step of a NodeClaim's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimUpdate {
    /// Its VM exists.
    Launched {
        /// The VM.
        provider_id: ProviderId,
        /// The offering that it was launched as.
        offering: OfferingKey,
        /// Its image; `None` where that is not known.
        image: Option<Arc<str>>,
        /// Its capacity.
        capacity: Resources,
        /// Capacity that pods may use.
        allocatable: Resources,
    },
    /// AKS counts its node.
    BillingExtensionInstalled,
    /// Every way to launch it failed.
    LaunchFailed(LaunchFailure),
    /// Its Node has joined.
    Registered {
        /// The Node.
        node: NodeName,
    },
    /// Its Node is ready for pods.
    Initialized,
    /// It differs from what its NodePool and AKSNodeClass would make now.
    Drifted {
        /// Why, as a word in CamelCase.
        reason: Arc<str>,
        /// The fields that have changed, for people.
        message: Arc<str>,
    },
    /// It does not differ, or not any more.
    NotDrifted,
    /// It is going to be replaced.
    Disrupted(DisruptionReason),
    /// It is going to be deleted whatever budgets say.
    Forced(ForcefulReason),
    /// It is not disrupted after all. Its command removes the taint from the Node first, which a late watch may hide.
    NotDisrupted,
    /// How far its end is. Conditions that are `None` stay as they are.
    Terminating(Box<TerminationConditions>),
    /// What is seen of its initialized node.
    Report(Box<ClaimReport>),
}

/// A change to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeUpdate {
    /// It belongs to a NodeClaim: finalizer, labels, annotations and taints; the taint `unregistered` is removed.
    Register {
        /// Labels to set.
        labels: Labels,
        /// Annotations to set.
        annotations: Labels,
        /// Taints to set.
        taints: Vec<Taint>,
    },
    /// It is ready for pods.
    Initialize,
    /// A taint of ours.
    AddTaint(Taint),
    /// No taint of the key of this one, which is ours, whatever its value and effect.
    RemoveTaint(Taint),
    /// Its VM is proven to be lost: Kubernetes deletes its pods, and detaches its volumes.
    TaintOutOfService,
    /// It is being drained: no new pods, and no load balancer sends it traffic.
    BeginDrain,
}

/// A NIC to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicSpec {
    /// Its id.
    pub id: ArmId,
    /// Tags.
    pub tags: Tags,
    /// Accelerated networking.
    pub accelerated: bool,
    /// Subnet of its class; `None` is that of all nodes.
    pub subnet: Option<ArmId>,
    /// Only where none of that name exists (`If-None-Match: *`); else `Conflict`.
    pub create_only: bool,
}

/// A VM to be created. Its NIC and OS disk go with it when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSpec {
    /// Its id.
    pub id: ArmId,
    /// Size, zone and capacity type.
    pub offering: OfferingKey,
    /// Its NIC.
    pub nic: ArmId,
    /// Its OS disk.
    pub os_disk: ArmId,
    /// OS disk in GB.
    pub os_disk_gb: u32,
    /// Tags.
    pub tags: Tags,
    /// The NodeClaim that its kubelet will register for.
    pub claim: ClaimName,
    /// Its kubelet configuration.
    pub kubelet: KubeletSpec,
    /// Where its OS disk is stored.
    pub os_disk_storage: OsDiskStorage,
    /// How it is protected.
    pub security: SecurityProfile,
    /// Capacity reservation group, where its offering is reserved.
    pub capacity_reservation_group: Option<ArmId>,
    /// Only where none of that name exists (`If-None-Match: *`); else `Conflict`.
    pub create_only: bool,
}

/// How a new VM is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SecurityProfile {
    /// Disks and caches are encrypted at the host.
    pub encryption_at_host: bool,
    /// Only signed boot loaders and kernels start. It, or the TPM, makes the VM one of trusted launch.
    pub secure_boot: bool,
    /// It has a virtual TPM.
    pub vtpm: bool,
}

impl SecurityProfile {
    /// True when it enables trusted launch.
    #[must_use]
    pub fn is_trusted_launch(self) -> bool {
        self.secure_boot || self.vtpm
    }
}

/// The kubelet configuration of a new VM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeletSpec {
    /// Labels that its Node registers with.
    pub labels: Labels,
    /// Most pods.
    pub max_pods: u32,
}

/// A change to the durable records. All fields are applied in one write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordChange {
    /// Sightings to add or replace.
    pub sightings: Vec<(ArmId, Sighting)>,
    /// Sightings to remove: a reference was found, or the resource is deleted.
    pub removed_sightings: Vec<ArmId>,
    /// PersistentVolumes to add or replace.
    pub volumes: Vec<(ArmId, VolumeRecord)>,
    /// PersistentVolumes to remove: their disks have been missing for long enough.
    pub removed_volumes: Vec<ArmId>,
    /// Deletions about to be sent, or their outcomes.
    pub deletions: Vec<DeletionRecord>,
    /// Trips of the breaker.
    pub trips: Vec<BreakerTrip>,
    /// Deletions before this time are forgotten: they count for no cap any more.
    pub forget_deletions_before: Option<Timestamp>,
    /// Trips before this time are forgotten: a person cleared them in Git.
    pub trips_cleared: Option<Timestamp>,
    /// A whole inventory was judged.
    pub inventory_at: Option<Timestamp>,
}

impl Effect {
    /// Its name in logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cluster(write) => write.name(),
            Self::Read(ClusterRead::Claim(_)) => "read_claim",
            Self::Read(ClusterRead::Node(_)) => "read_node",
            Self::Read(ClusterRead::Pods(_)) => "read_pods",
            Self::Read(ClusterRead::Volume(_)) => "read_volume",
            Self::Cloud(request) => request.name(),
            Self::TakeInventory => "take_inventory",
        }
    }

    /// True when the effect changes something; reads and polls do not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Cluster(_) => true,
            Self::Read(_) | Self::TakeInventory => false,
            Self::Cloud(request) => request.is_write(),
        }
    }

    /// True when it creates something for a new node: a NodeClaim, or a resource in Azure.
    #[must_use]
    pub fn is_launch(&self) -> bool {
        self.is_write() && self.pause_switch() == Some(PauseSwitch::Launch)
    }

    /// The pause switch that holds this effect back, if it has one.
    #[must_use]
    pub fn pause_switch(&self) -> Option<PauseSwitch> {
        match self {
            Self::Cluster(ClusterWrite::CreateClaim(_) | ClusterWrite::WriteIntent(..)) => Some(PauseSwitch::Launch),
            Self::Cluster(ClusterWrite::DeleteClaim(_) | ClusterWrite::Evict(..) | ClusterWrite::DeletePod(..)) => {
                Some(PauseSwitch::Disrupt)
            }
            Self::Cloud(request) => request.pause_switch(),
            Self::Cluster(_) | Self::Read(_) | Self::TakeInventory => None,
        }
    }
}

impl ClusterWrite {
    fn name(&self) -> &'static str {
        match self {
            Self::CreateClaim(_) => "create_claim",
            Self::WriteIntent(..) => "write_intent",
            Self::UpdateClaim(..) => "advance_claim",
            Self::UpdateNode(..) => "advance_node",
            Self::DeleteClaim(_) => "delete_claim",
            Self::RemoveFinalizer(_) => "release_claim",
            Self::DeleteNode(..) => "delete_node",
            Self::Evict(..) => "evict",
            Self::DeletePod(..) => "delete_pod",
            Self::RecordDeadline(..) => "record_deadline",
            Self::WriteRecords(_) => "record",
            Self::ReportSweep(_) => "report_sweep",
            Self::HoldPool(..) => "hold_pool",
            Self::ReleasePool(_) => "release_pool",
            Self::DisownClaim(_) => "disown_claim",
            Self::ReportPool(_) => "report_pool",
            Self::ReportClass(_) => "report_class",
            Self::ReportOverlay(_) => "report_overlay",
            Self::RecordRemovals(_) => "record_removals",
        }
    }
}
