//! The ledger of all changes in Azure, and the events that the cluster notices.

use jiff::Timestamp;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::names::{ArmId, ClaimName};
use napkeeper_core::plan::KubeletSpec;
use std::sync::Arc;

/// A change of what exists. Attaching and detaching disks is not written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub change: Change,
    /// Who did it.
    pub cause: ChangeCause,
    /// The resource: as created, as tagged, or as it last was.
    pub resource: Arc<CloudResource>,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It came into being.
    Created,
    /// Its tags were changed.
    Tagged,
    /// It ceased to be.
    Deleted,
}

/// Who changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeCause {
    /// A request of ours.
    Request,
    /// Azure, along with the VM that it belongs to.
    Cascade,
    /// Azure, by evicting a spot VM.
    Eviction,
    /// Somebody else.
    Outside,
}

/// What the rest of the world notices of Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudEvent {
    /// A VM runs, and is paid for from now on.
    VmRunning {
        /// When.
        at: Timestamp,
        /// The VM.
        vm: ArmId,
        /// Its incarnation.
        incarnation: Arc<str>,
        /// The NodeClaim that its kubelet announces itself for; none for a VM that is no node.
        claim: Option<ClaimName>,
        /// The kubelet's configuration.
        kubelet: KubeletSpec,
        /// Its size, zone and capacity type.
        offering: OfferingKey,
        /// Its price; free where the price sheet does not know it.
        price: HourlyPrice,
    },
    /// A VM is gone. It ran if, and only if, its incarnation was said to be running before.
    VmGone {
        /// When.
        at: Timestamp,
        /// The VM.
        vm: ArmId,
        /// Its incarnation.
        incarnation: Arc<str>,
        /// Why.
        cause: ChangeCause,
    },
}
