//! The ledger of all changes in Azure, and the events that the cluster notices.

use jiff::Timestamp;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::names::{ArmId, ClaimName};
use napkeeper_core::plan::KubeletSpec;
use std::sync::Arc;

/// A created or deleted resource. Attaching and detaching disks is not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When.
    pub at: Timestamp,
    /// The change.
    pub change: Change,
    /// Who did it.
    pub cause: ChangeCause,
    /// The resource: as created, as tagged, or as it last was.
    pub resource: Arc<CloudResource>,
}

/// The change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was created.
    Created,
    /// Its tags were changed.
    Tagged,
    /// It ceased to be.
    Deleted,
}

/// Who changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeCause {
    /// A request of napkeeper.
    Request,
    /// Azure, along with the VM that it belongs to.
    Cascade,
    /// Azure, by evicting a spot VM.
    Eviction,
    /// Another client.
    Outside,
}

/// An event of Azure for the rest of the world.
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
        /// The price of its OS disk.
        os_disk: HourlyPrice,
    },
    /// A VM was shut down by another client.
    VmStopped {
        /// When.
        at: Timestamp,
        /// The VM.
        vm: ArmId,
        /// Its incarnation.
        incarnation: Arc<str>,
        /// It is no longer paid for.
        deallocated: bool,
    },
    /// A VM was deleted. It ran if, and only if, its incarnation was reported as running before.
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
