//! Requests to the AKS Machine API.
//!
//! Experimental. A Machine is a node that AKS creates and manages, with VM, NIC, disk and bootstrap.

use super::{KubeletSpec, SecurityProfile};
use crate::catalog::OfferingKey;
use crate::model::azure::cloud::Tags;
use crate::model::names::{ArmId, ClaimName};

/// A request about one Machine, `managedClusters/{cluster}/agentPools/{pool}/machines/{name}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AksMachineRequest {
    /// Read it. Replies `Machine`, `None` on a 404.
    Get(ArmId),
    /// Create it. Replies `Accepted`; one of that name is never changed.
    Put(Box<AksMachineSpec>),
    /// Delete it, with its VM, by its pool. Replies `Accepted`, `Done` where that has deleted it, or `Absent`.
    Delete(ArmId),
}

/// A Machine to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AksMachineSpec {
    /// Its id.
    pub id: ArmId,
    /// Size, zone and capacity type.
    pub offering: OfferingKey,
    /// OS disk in GB.
    pub os_disk_gb: u32,
    /// Its OS disk is on a local disk of the VM; else it is a managed disk.
    pub ephemeral_os_disk: bool,
    /// Tags, for everything that AKS creates for it.
    pub tags: Tags,
    /// The NodeClaim that its kubelet will register for.
    pub claim: ClaimName,
    /// How it is protected.
    pub security: SecurityProfile,
    /// Subnet of its class; `None` is that of its pool.
    pub subnet: Option<ArmId>,
    /// Its kubelet configuration.
    pub kubelet: KubeletSpec,
}

impl AksMachineRequest {
    /// The Machine.
    #[must_use]
    pub fn id(&self) -> &ArmId {
        match self {
            Self::Get(id) | Self::Delete(id) => id,
            Self::Put(spec) => &spec.id,
        }
    }
}
