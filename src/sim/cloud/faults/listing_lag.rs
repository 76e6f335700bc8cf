//! Delays of Azure's listings.
//!
//! Azure's listings come from caches that follow each provider separately: a new resource may be missing from one while
//! another shows it already, and a deleted one may be shown for minutes.

use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::azure::related::RelatedDetail;
use serde::Deserialize;

/// The kind of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListedKind {
    /// Virtual machines.
    Vms,
    /// Network interfaces.
    Nics,
    /// Managed disks.
    Disks,
    /// Machines of the cluster's agent pools.
    Machines,
    /// Scale sets and their instances.
    ScaleSets,
    /// Snapshots.
    Snapshots,
    /// Public IP addresses.
    PublicIps,
    /// Load balancers with their frontends.
    LoadBalancers,
}

impl ListedKind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Vms,
        Self::Nics,
        Self::Disks,
        Self::Machines,
        Self::ScaleSets,
        Self::Snapshots,
        Self::PublicIps,
        Self::LoadBalancers,
    ];

    /// Kinds that a sweep may delete.
    pub(crate) const RESOURCES: [Self; 3] = [Self::Vms, Self::Nics, Self::Disks];

    /// Kinds that are only read.
    pub(crate) const RELATED: [Self; 5] =
        [Self::Machines, Self::ScaleSets, Self::Snapshots, Self::PublicIps, Self::LoadBalancers];

    /// As control requests spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vms => "vms",
            Self::Nics => "nics",
            Self::Disks => "disks",
            Self::Machines => "machines",
            Self::ScaleSets => "scaleSets",
            Self::Snapshots => "snapshots",
            Self::PublicIps => "publicIps",
            Self::LoadBalancers => "loadBalancers",
        }
    }

    /// The listing that a resource is in.
    #[must_use]
    pub fn of(resource: &CloudResource) -> Self {
        match resource.detail {
            ResourceDetail::Vm(_) => Self::Vms,
            ResourceDetail::Nic(_) => Self::Nics,
            ResourceDetail::Disk(_) => Self::Disks,
        }
    }

    /// The listing that a related resource is in.
    #[must_use]
    pub fn of_detail(role: &RelatedDetail) -> Self {
        match role {
            RelatedDetail::AksMachine { .. } => Self::Machines,
            RelatedDetail::ScaleSetInstance { .. } => Self::ScaleSets,
            RelatedDetail::Snapshot { .. } => Self::Snapshots,
            RelatedDetail::PublicIp { .. } => Self::PublicIps,
            RelatedDetail::LoadBalancerFrontend { .. } => Self::LoadBalancers,
        }
    }
}

/// A listing that is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListingLag {
    /// Which listing; `None` is every one.
    pub of: Option<ListedKind>,
    /// Younger resources are missing.
    pub hides: SignedDuration,
    /// Resources deleted less than this ago are still shown.
    pub keeps: SignedDuration,
}

impl ListingLag {
    pub(crate) fn covers(&self, kind: ListedKind) -> bool {
        self.of.is_none_or(|of| of == kind)
    }
}
