//! Instance types: a VM size as a node of one AKSNodeClass would be.

use crate::catalog::{CapacityType, Offering};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::names::VmSize;
use crate::model::requirements::Requirements;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// CPU architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Arch {
    /// As the label `kubernetes.io/arch` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// GPUs of a VM size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gpu {
    /// `nvidia` or `amd`.
    pub manufacturer: Arc<str>,
    /// For example `A100`.
    pub model: Arc<str>,
    /// How many; a fraction counts as one, as Azure reports it.
    pub count: u32,
    /// AKS has the driver on Azure Linux; on Ubuntu it has the drivers of all GPUs named here.
    pub azure_linux: bool,
}

/// Local storage for an ephemeral OS disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EphemeralDisk {
    /// Greatest OS disk that fits, in GB.
    pub gb: u64,
    /// Its placement.
    pub placement: EphemeralDiskPlacement,
}

impl EphemeralDisk {
    /// True when an OS disk of so many GiB fits. Local disks have whole GiB, of which [`Self::gb`] is rounded down.
    #[must_use]
    pub fn fits(self, gib: u32) -> bool {
        u64::from(gib) << 30 < (self.gb + 1) * 1_000_000_000
    }
}

/// Kinds of local storage, as `diffDiskSettings.placement` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EphemeralDiskPlacement {
    /// NVMe disks.
    #[serde(rename = "NvmeDisk")]
    Nvme,
    /// The cache of the VM's host.
    #[serde(rename = "CacheDisk")]
    Cache,
    /// The temporary disk.
    #[serde(rename = "ResourceDisk")]
    Resource,
}

impl EphemeralDiskPlacement {
    /// As Azure spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvme => "NvmeDisk",
            Self::Cache => "CacheDisk",
            Self::Resource => "ResourceDisk",
        }
    }
}

/// Facts about a VM size, the same in all regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeFacts {
    /// Name, for example `Standard_D4s_v5`.
    pub name: VmSize,
    /// Quota family, for example `standardDSv5Family`.
    pub family: Arc<str>,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// CPU architecture.
    pub arch: Arch,
    /// Boots generation 1 images.
    pub hyperv_v1: bool,
    /// Boots generation 2 images.
    pub hyperv_v2: bool,
    /// How many data disks may be attached.
    pub max_data_disks: u32,
    /// How many NICs may be attached.
    pub max_nics: u32,
    /// Has accelerated networking.
    pub accelerated_networking: bool,
    /// Takes premium disks.
    pub premium_io: bool,
    /// Placement and largest size of an ephemeral OS disk; `None` where it cannot have one.
    pub ephemeral: Option<EphemeralDisk>,
    /// Can encrypt at the host.
    pub encryption_at_host: bool,
    /// Available as spot.
    pub spot_eligible: bool,
    /// GPUs, if AKS drives them.
    pub gpu: Option<Gpu>,
}

/// A VM size as a node of one AKSNodeClass in one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// Facts of the size.
    pub facts: Arc<SizeFacts>,
    /// The labels that such a node may have (zone and capacity type: those of all its offerings).
    pub requirements: Requirements,
    /// All that the VM has.
    pub capacity: Resources,
    /// Capacity that is allocatable to pods.
    pub allocatable: Resources,
    /// Its offerings, cheapest first. Their prices are those of the VM alone.
    pub offerings: Vec<Offering>,
    /// What a node costs beside its VM.
    pub costs: NodeCosts,
}

/// What a node costs beside its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCosts {
    /// The price of its OS disk.
    pub os_disk: HourlyPrice,
    /// What each node counts beside its bill where plans are compared (`provisioning.perNode`).
    pub per_node: HourlyPrice,
}

impl InstanceType {
    /// The price of a node of an offering: VM and OS disk. Reserved capacity is used before anything else, whatever its
    /// OS disk costs, so its price is that of the offering ([`reserved_price`](crate::catalog::reserved_price)).
    #[must_use]
    pub fn node_price(&self, offering: &Offering) -> HourlyPrice {
        match offering.capacity_type {
            CapacityType::Reserved => offering.price,
            CapacityType::Spot | CapacityType::OnDemand => offering.price + self.costs.os_disk,
        }
    }
}

/// The instance types of a class, by name; shared by all users.
pub type InstanceTypes = Arc<Vec<Arc<InstanceType>>>;
