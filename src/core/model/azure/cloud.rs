//! Resources of the node resource group.

use crate::model::cluster::offering::CapacityType;
use crate::model::labels;
use crate::model::names::{ArmId, VmSize, Zone};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Tags of a resource.
pub type Tags = BTreeMap<Arc<str>, Arc<str>>;

/// Kinds of cloud resource that napkeeper answers for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// Network interface.
    Nic,
    /// OS disk of a VM.
    OsDisk,
    /// Virtual machine.
    Vm,
    /// Any other managed disk.
    DataDisk,
}

impl ResourceKind {
    /// All kinds, in the order in which they are collected.
    pub const ALL: [Self; 4] = [Self::Nic, Self::OsDisk, Self::Vm, Self::DataDisk];

    /// As manifests and reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nic => "Nic",
            Self::OsDisk => "OsDisk",
            Self::Vm => "Vm",
            Self::DataDisk => "DataDisk",
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A VM, NIC or disk as Azure lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudResource {
    /// Resource id.
    pub id: ArmId,
    /// `vmId`, `resourceGuid` or `uniqueId`: another one means another resource under the same name.
    pub incarnation: Arc<str>,
    /// Tags.
    pub tags: Tags,
    /// When Azure created it, where known.
    pub created_at: Option<Timestamp>,
    /// Zone; `None` is regional.
    pub zone: Option<Zone>,
    /// Properties of its kind.
    pub detail: ResourceDetail,
}

/// Properties of one kind of resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceDetail {
    /// Virtual machine.
    Vm(Vm),
    /// Network interface.
    Nic(Nic),
    /// Managed disk.
    Disk(Disk),
}

/// Virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Size.
    pub size: VmSize,
    /// Its capacity type.
    pub capacity_type: CapacityType,
    /// `provisioningState`.
    pub state: ProvisioningState,
    /// Its NICs.
    pub nics: Vec<ArmId>,
    /// Its OS disk.
    pub os_disk: Option<ArmId>,
    /// Its data disks.
    pub data_disks: Vec<ArmId>,
    /// The image that it was created from: the id of a resource, or of a community gallery's image; `None` where that is not
    /// known.
    pub image: Option<Arc<str>>,
}

/// Network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The VM that it is attached to.
    pub vm: Option<ArmId>,
    /// The private endpoint, link service or hosted workload that it serves.
    pub serves: Option<Arc<str>>,
    /// Addresses of the subnet that it holds.
    pub addresses: u32,
    /// The subnet of its first address; `None` where the listing has none.
    pub subnet: Option<ArmId>,
}

/// Managed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// It has an operating system.
    pub is_os: bool,
    /// Size in GiB.
    pub size_gib: u32,
    /// Storage type, for example `Premium_LRS`.
    pub sku: Arc<str>,
    /// `diskState`.
    pub state: DiskState,
    /// `managedBy` and `managedByExtended`: the VMs that it is attached to.
    pub managed_by: Vec<ArmId>,
    /// `maxShares`: how many VMs may attach it at once; 1 by default.
    pub max_shares: u32,
    /// When it was last attached or detached.
    pub last_ownership_update: Option<Timestamp>,
}

/// `provisioningState` of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProvisioningState {
    /// Being created.
    Creating,
    /// There.
    Succeeded,
    /// Its last operation failed.
    Failed,
    /// Being deleted.
    Deleting,
}

/// Power state of a VM, as its instance view has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PowerState {
    /// Being started.
    Starting,
    /// Running.
    Running,
    /// Being stopped.
    Stopping,
    /// Stopped, and still allocated: it may be started at once.
    Stopped,
    /// Being deallocated.
    Deallocating,
    /// Deallocated: no host runs it.
    Deallocated,
    /// Azure does not know it, or has a new one.
    Unknown,
}

impl PowerState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Running,
        Self::Stopping,
        Self::Stopped,
        Self::Deallocating,
        Self::Deallocated,
        Self::Unknown,
    ];

    /// As Azure spells it after `PowerState/`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Deallocating => "deallocating",
            Self::Deallocated => "deallocated",
            Self::Unknown => "unknown",
        }
    }

    /// The state in the status codes of an instance view, for example `PowerState/running`; `Unknown` if none of them
    /// is a power state that is known here.
    pub fn of_status_codes<'c>(codes: impl IntoIterator<Item = &'c str>) -> Self {
        let of_code = |code: &str| {
            let (kind, state) = code.split_once('/')?;
            let known = || Self::ALL.into_iter().find(|s| s.as_str().eq_ignore_ascii_case(state));
            kind.eq_ignore_ascii_case("PowerState").then(known)?
        };
        codes.into_iter().find_map(of_code).unwrap_or(Self::Unknown)
    }
}

/// `diskState` of a managed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskState {
    /// Not attached.
    Unattached,
    /// Attached to a running VM.
    Attached,
    /// Attached to a VM that is deallocated.
    Reserved,
    /// Anything else (`ActiveSAS`, `ReadyToUpload`, …), as Azure spells it.
    Other(Arc<str>),
}

impl CloudResource {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ResourceKind {
        match &self.detail {
            ResourceDetail::Vm(_) => ResourceKind::Vm,
            ResourceDetail::Nic(_) => ResourceKind::Nic,
            ResourceDetail::Disk(disk) if disk.is_os => ResourceKind::OsDisk,
            ResourceDetail::Disk(_) => ResourceKind::DataDisk,
        }
    }

    /// Value of a tag, by the exact key.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(|v| &**v)
    }

    /// Values of a tag by its key in any case, as Azure compares keys; the exact key first. For tags that protect a
    /// resource, never as evidence of its owner.
    pub fn tags_any_case<'t>(&'t self, key: &'t str) -> impl Iterator<Item = &'t str> {
        let others = self.tags.iter().filter(move |(k, _)| ***k != *key && k.eq_ignore_ascii_case(key));
        self.tag(key).into_iter().chain(others.map(|(_, v)| &**v))
    }

    /// The cluster that the resource's tag names: ours first, else Karpenter's.
    #[must_use]
    pub fn owner_cluster(&self) -> Option<&str> {
        self.tag(labels::TAG_CLUSTER).or_else(|| self.tag(labels::TAG_KARPENTER_CLUSTER))
    }

    /// The UID of the NodeClaim that the resource was created for.
    #[must_use]
    pub fn claim_uid(&self) -> Option<&str> {
        self.tag(labels::TAG_CLAIM_UID)
    }
}
