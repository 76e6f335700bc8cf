//! Effects: the single calls that commands are made of.
//!
//! An effect is one request to Kubernetes or to Azure. A crash can happen before or after each of them, never within.

use super::machine::MachineCall;
use crate::catalog::OfferingKey;
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::azure::bystander::Bystander;
use crate::model::azure::cloud::{CloudResource, ResourceKind, Tags};
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::claim::{Claim, ClaimRef, ClaimSpec, LaunchFailure, LaunchIntent};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Labels, Pod, Taint};
use crate::model::cluster::volume::Volume;
use crate::model::errors::OperationId;
use crate::model::names::{ArmId, ClaimName, NodeName, ObjectKey, ObjectName, ProviderId, Uid};
use crate::model::orphans::finding::{Finding, Standing};
use crate::model::orphans::record::{Deletion, SeenVolume, Sighting, Trip};
use crate::model::orphans::report::{Discrepancy, Outlook, ReportOnly};
use crate::model::settings::Switch;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One request to Kubernetes or to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Create a NodeClaim with our finalizer. Replies `Done`; a claim of that name is a `Conflict`.
    CreateClaim(Box<ClaimDraft>),
    /// Write a launch intent on a NodeClaim. Fails with `Conflict` if the UID differs or the claim is being deleted.
    WriteIntent(ClaimRef, Box<LaunchIntent>),
    /// Note a step on a NodeClaim.
    AdvanceClaim(ClaimRef, ClaimStep),
    /// Change a Node.
    AdvanceNode(NodeName, Uid, NodeStep),
    /// Set a NodeClaim's deletionTimestamp.
    DeleteClaim(ClaimRef),
    /// Take our finalizer off a NodeClaim.
    ReleaseClaim(ClaimRef),
    /// Delete a Node object, with our finalizer.
    DeleteNode(NodeName, Uid),
    /// Evict a pod.
    Evict(ObjectKey, Uid),
    /// Read a NodeClaim, past the cache. Replies `Claim`.
    ReadClaim(ClaimName),
    /// Read the Node of a provider id, past the cache. Replies `Node`.
    ReadNode(ProviderId),
    /// Read the pods of a Node, past the cache. Replies `Pods`.
    ReadPods(NodeName),
    /// Read a PersistentVolume, past the cache. Replies `Volume`.
    ReadVolume(ObjectName),
    /// Write to the durable records.
    Record(Box<RecordChange>),
    /// Write an OrphanSweep's status.
    ReportSweep(Box<SweepReport>),
    /// GET a cloud resource. Replies `Resource`, `None` where Azure says 404.
    Get(ArmId),
    /// PUT a NIC. Replies `Done` (NIC writes complete at once) or `Accepted`.
    PutNic(Box<NicSpec>),
    /// PUT a VM. Replies `Accepted`.
    PutVm(Box<VmSpec>),
    /// PUT the extension by which AKS counts a node on its VM; it may be repeated. Replies `Accepted` or `Done`.
    PutBilling(ArmId),
    /// DELETE a cloud resource. Replies `Accepted`, `Done` where it is gone with that, or `Absent`.
    Delete(ArmId, ResourceKind),
    /// Tag a cloud resource, other tags kept.
    Tag(ArmId, Tags),
    /// Take these very tags, key and value, off a cloud resource; one that is not there is no error.
    Untag(ArmId, Tags),
    /// Ask something of a Machine of an agent pool.
    Machine(MachineCall),
    /// Look at a long-running operation. Replies `Running` or `Done`, or fails with the operation's error.
    Poll(OperationId),
    /// Take a whole inventory. Replies `Inventory`.
    TakeInventory,
}

/// Reply to an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// There was nothing of that name to delete: somebody else was faster.
    Absent,
    /// A long-running operation has begun.
    Accepted(OperationId),
    /// A long-running operation has not ended.
    Running,
    /// A cloud resource, or none.
    Resource(Option<Arc<CloudResource>>),
    /// A Machine of an agent pool, or none.
    Machine(Option<Arc<Bystander>>),
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
    /// What it asks for.
    pub spec: ClaimSpec,
    /// Pods that it is made for, for people.
    pub pods: Vec<ObjectKey>,
}

/// A step of a NodeClaim's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimStep {
    /// Its VM exists.
    Launched {
        /// The VM.
        provider_id: ProviderId,
        /// The offering that it was bought by.
        offering: OfferingKey,
        /// What it has.
        capacity: Resources,
        /// What pods may use.
        allocatable: Resources,
    },
    /// AKS counts its node.
    Billed,
    /// Every way to launch it failed.
    LaunchFailed(LaunchFailure),
    /// Its Node has joined.
    Registered {
        /// The Node.
        node: NodeName,
    },
    /// Its Node is ready for pods.
    Initialized,
    /// A pod came to or left its node.
    PodEvent {
        /// When.
        at: Timestamp,
    },
}

/// A change to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeStep {
    /// It belongs to a NodeClaim: finalizer, labels and taints; the taint `unregistered` goes.
    Register {
        /// Labels to set.
        labels: Labels,
        /// Taints to set.
        taints: Vec<Taint>,
    },
    /// It is ready for pods.
    Initialize,
    /// It is being disrupted: no new pods.
    Disrupt,
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
    pub fresh: bool,
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
    /// The NodeClaim that its kubelet will announce itself for.
    pub claim: ClaimName,
    /// What its kubelet is told.
    pub kubelet: KubeletSpec,
    /// Its OS disk is a premium one, which not every size takes; else it is a standard SSD.
    pub premium_disk: bool,
    /// How it is protected.
    pub security: Security,
    /// Group of capacity reservations whose capacity it takes, where its offering is reserved.
    pub reservation: Option<ArmId>,
    /// Only where none of that name exists (`If-None-Match: *`); else `Conflict`.
    pub fresh: bool,
}

/// How a new VM is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Security {
    /// Disks and caches are encrypted at the host.
    pub encryption_at_host: bool,
    /// Only signed boot loaders and kernels start. It, or the TPM, makes the VM one of trusted launch.
    pub secure_boot: bool,
    /// It has a virtual TPM.
    pub vtpm: bool,
}

impl Security {
    /// True when it asks for trusted launch.
    #[must_use]
    pub fn is_trusted_launch(self) -> bool {
        self.secure_boot || self.vtpm
    }
}

/// What the kubelet of a new VM is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeletSpec {
    /// Labels that its Node announces itself with.
    pub labels: Labels,
    /// Most pods.
    pub max_pods: u32,
}

/// A change to the durable records. All fields are applied in one write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordChange {
    /// Sightings to add or replace.
    pub sighted: Vec<(ArmId, Sighting)>,
    /// Sightings to drop: a sign of life, or gone.
    pub cleared: Vec<ArmId>,
    /// PersistentVolumes to add or replace.
    pub volumes: Vec<(ArmId, SeenVolume)>,
    /// PersistentVolumes to drop: their disks have been gone for long enough.
    pub forgotten: Vec<ArmId>,
    /// Deletions about to be sent, or what came of them.
    pub deletions: Vec<Deletion>,
    /// Trips of the breaker.
    pub trips: Vec<Trip>,
    /// Deletions before this time are forgotten: they count for no cap any more.
    pub forget_before: Option<Timestamp>,
    /// Trips before this time are forgotten: a person cleared them in Git.
    pub trips_cleared: Option<Timestamp>,
    /// A whole inventory was judged.
    pub observed: Option<Timestamp>,
}

/// How much there is of one kind and standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    /// How many resources.
    pub resources: u32,
    /// What they cost together.
    pub price: HourlyPrice,
    /// Addresses of the subnet that they hold together.
    pub addresses: u32,
}

/// What an OrphanSweep's status says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepReport {
    /// The sweep.
    pub sweep: ObjectName,
    /// When the inventory was complete.
    pub observed_at: Timestamp,
    /// Findings, dearest first, at most [`crate::orphans::REPORTED`]. What something alive links to is only counted.
    pub findings: Vec<Finding>,
    /// How much there is of each kind and standing.
    pub totals: BTreeMap<(ResourceKind, Standing), Total>,
    /// Public IPs and frontends that nothing uses, at most [`crate::orphans::REPORTED`]. Nothing deletes them.
    pub report_only: Vec<ReportOnly>,
    /// NodeClaims, Nodes and AKS Machines that stand for nothing, or cannot go; as many at most.
    pub discrepancies: Vec<Discrepancy>,
    /// Why nothing is swept at all, if so.
    pub halted: Option<Arc<str>>,
    /// What comes next, and what people have to know besides.
    pub outlook: Outlook,
}

impl Effect {
    /// A word for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateClaim(_) => "create_claim",
            Self::WriteIntent(..) => "write_intent",
            Self::AdvanceClaim(..) => "advance_claim",
            Self::AdvanceNode(..) => "advance_node",
            Self::DeleteClaim(_) => "delete_claim",
            Self::ReleaseClaim(_) => "release_claim",
            Self::DeleteNode(..) => "delete_node",
            Self::Evict(..) => "evict",
            Self::ReadClaim(_) => "read_claim",
            Self::ReadNode(_) => "read_node",
            Self::ReadPods(_) => "read_pods",
            Self::ReadVolume(_) => "read_volume",
            Self::Record(_) => "record",
            Self::ReportSweep(_) => "report_sweep",
            Self::Get(_) => "get",
            Self::PutNic(_) => "put_nic",
            Self::PutVm(_) => "put_vm",
            Self::PutBilling(_) => "put_billing",
            Self::Delete(..) => "delete",
            Self::Tag(..) => "tag",
            Self::Untag(..) => "untag",
            Self::Machine(MachineCall::Get(_)) => "get_machine",
            Self::Machine(MachineCall::Put(_)) => "put_machine",
            Self::Machine(MachineCall::Delete(_)) => "delete_machine",
            Self::Poll(_) => "poll",
            Self::TakeInventory => "take_inventory",
        }
    }

    /// True when the effect changes something; reads and polls do not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::ReadClaim(_)
                | Self::ReadNode(_)
                | Self::ReadPods(_)
                | Self::ReadVolume(_)
                | Self::Get(_)
                | Self::Machine(MachineCall::Get(_))
                | Self::Poll(_)
                | Self::TakeInventory
        )
    }

    /// True when it is a request to Azure; all others go to Kubernetes. An inventory is taken of both.
    #[must_use]
    pub fn is_to_azure(&self) -> bool {
        matches!(
            self,
            Self::Get(_)
                | Self::PutNic(_)
                | Self::PutVm(_)
                | Self::PutBilling(_)
                | Self::Delete(..)
                | Self::Tag(..)
                | Self::Untag(..)
                | Self::Machine(_)
                | Self::Poll(_)
                | Self::TakeInventory
        )
    }

    /// The pause switch that holds this effect back, if it has one.
    #[must_use]
    pub fn held_by(&self) -> Option<Switch> {
        match self {
            Self::CreateClaim(_) | Self::WriteIntent(..) | Self::PutNic(_) | Self::PutVm(_) => Some(Switch::Launch),
            Self::PutBilling(_) | Self::Machine(MachineCall::Put(_)) => Some(Switch::Launch),
            Self::Machine(MachineCall::Delete(_)) => Some(Switch::Delete),
            Self::DeleteClaim(_) | Self::Evict(..) => Some(Switch::Disrupt),
            Self::Delete(..) | Self::Tag(..) | Self::Untag(..) => Some(Switch::Delete),
            _ => None,
        }
    }
}
