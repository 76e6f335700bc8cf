//! Azure resources that are read for their references and never deleted.
//!
//! An AKS Machine, a scale-set instance or a snapshot in progress may be the only thing that still wants a VM, NIC or
//! disk. Public IPs and load-balancer frontends are reported alone.

use super::cloud::{ProvisioningState, Tags};
use crate::model::names::ArmId;
use jiff::Timestamp;
use std::sync::Arc;

/// A resource that a sweep reads and never deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedResource {
    /// Resource id.
    pub id: ArmId,
    /// Tags.
    pub tags: Tags,
    /// When Azure created it, where known.
    pub created_at: Option<Timestamp>,
    /// Its kind.
    pub detail: RelatedDetail,
}

/// The kind of a related resource, with its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelatedDetail {
    /// Machine of an agent pool (`managedClusters/agentPools/machines`).
    AksMachine {
        /// Its VM, where AKS names it.
        vm: Option<ArmId>,
        /// `provisioningState`.
        state: ProvisioningState,
    },
    /// Instance of a virtual machine scale set.
    ScaleSetInstance {
        /// Its NICs.
        nics: Vec<ArmId>,
        /// Its OS and data disks.
        disks: Vec<ArmId>,
    },
    /// Snapshot of a disk.
    Snapshot {
        /// Its source disk.
        source: Option<ArmId>,
        /// Data is still being copied from the disk.
        in_progress: bool,
    },
    /// Public IP address.
    PublicIp {
        /// The address, once it has one.
        address: Option<Arc<str>>,
        /// The NIC configuration, frontend, NAT gateway or other thing that uses it.
        used_by: Option<ArmId>,
    },
    /// Frontend of a load balancer.
    LoadBalancerFrontend {
        /// Its public IP; an internal frontend has none.
        public_ip: Option<ArmId>,
        /// Load-balancing rules, inbound NAT rules and pools, and probes' rules that use it.
        rules: u32,
        /// Outbound rules that use it: nodes reach the internet by it.
        outbound_rules: u32,
        /// Members of the backend pools that its rules lead to.
        backends: u32,
    },
}

impl RelatedDetail {
    /// Its name in reports.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::AksMachine { .. } => "Machine",
            Self::ScaleSetInstance { .. } => "ScaleSetInstance",
            Self::Snapshot { .. } => "Snapshot",
            Self::PublicIp { .. } => "PublicIp",
            Self::LoadBalancerFrontend { .. } => "Frontend",
        }
    }
}
