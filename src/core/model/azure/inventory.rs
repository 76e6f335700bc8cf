//! A complete listing of Azure and then of Kubernetes.
//!
//! Sweeps decide by it alone. An incomplete listing is a failure, not a shorter list.

use super::cloud::CloudResource;
use super::related::RelatedResource;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::volume::{Attachment, DiskUse, Volume};
use crate::model::errors::{CloudError, FailureCause};
use crate::model::names::ArmId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A listing, or why it is incomplete.
pub type Listing<T> = Result<Vec<Arc<T>>, ListFailure>;

/// Why a listing is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("listing {listing}: {reason}")]
pub struct ListFailure {
    /// The listed kind, for example `networkInterfaces`.
    pub listing: Arc<str>,
    /// Why it is incomplete: a failed page, a refusal, a missing kind.
    pub reason: Arc<str>,
    /// The same, by what a person has to do about it.
    pub cause: FailureCause,
}

impl ListFailure {
    /// The failure of a listing, for a cause that may pass.
    #[must_use]
    pub fn new(listing: &str, reason: impl Into<Arc<str>>) -> Self {
        Self { listing: Arc::from(listing), reason: reason.into(), cause: FailureCause::Other }
    }

    /// The failure of a listing of Azure.
    #[must_use]
    pub fn of_azure(listing: &str, error: CloudError) -> Self {
        Self { cause: error.cause, ..Self::new(listing, error.message) }
    }
}

/// One whole pair of listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// When the first page of the cloud listing was requested.
    pub started_at: Timestamp,
    /// When the last Kubernetes listing was complete.
    pub finished_at: Timestamp,
    /// `managedBy` of the node resource group: the cluster it belongs to.
    pub group_managed_by: Result<Option<ArmId>, ListFailure>,
    /// VMs, NICs and disks of the node resource group.
    pub resources: Listing<CloudResource>,
    /// Other resources that may link to them: Machines, scale-set instances, snapshots; addresses and frontends.
    pub related: Listing<RelatedResource>,
    /// NodeClaims, deleting ones too.
    pub claims: Listing<Claim>,
    /// Nodes.
    pub nodes: Listing<Node>,
    /// PersistentVolumes.
    pub volumes: Listing<Volume>,
    /// VolumeAttachments.
    pub attachments: Listing<Attachment>,
    /// Disks that other objects name.
    pub disk_uses: Listing<DiskUse>,
}

/// A listing of an [`Inventory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InventoryListing {
    /// [`Inventory::group_managed_by`].
    Group,
    /// [`Inventory::resources`].
    #[serde(rename = "cloud")]
    Resources,
    /// [`Inventory::related`].
    #[serde(rename = "bystanders")]
    Related,
    /// [`Inventory::claims`].
    Claims,
    /// [`Inventory::nodes`].
    Nodes,
    /// [`Inventory::volumes`].
    Volumes,
    /// [`Inventory::attachments`].
    Attachments,
    /// [`Inventory::disk_uses`].
    DiskUses,
}

impl Inventory {
    /// The listings that are not whole.
    pub fn failures(&self) -> impl Iterator<Item = (InventoryListing, &ListFailure)> {
        fn failed<T>(listing: &Result<T, ListFailure>) -> Option<&ListFailure> {
            listing.as_ref().err()
        }
        let all = [
            (InventoryListing::Group, failed(&self.group_managed_by)),
            (InventoryListing::Resources, failed(&self.resources)),
            (InventoryListing::Related, failed(&self.related)),
            (InventoryListing::Claims, failed(&self.claims)),
            (InventoryListing::Nodes, failed(&self.nodes)),
            (InventoryListing::Volumes, failed(&self.volumes)),
            (InventoryListing::Attachments, failed(&self.attachments)),
            (InventoryListing::DiskUses, failed(&self.disk_uses)),
        ];
        all.into_iter().filter_map(|(listing, failure)| Some((listing, failure?)))
    }

    /// The first listing that is not whole.
    #[must_use]
    pub fn failure(&self) -> Option<&ListFailure> {
        self.failures().next().map(|(_, failure)| failure)
    }

    /// Replaces a listing by a failure.
    pub fn fail(&mut self, listing: InventoryListing, failure: ListFailure) {
        match listing {
            InventoryListing::Group => self.group_managed_by = Err(failure),
            InventoryListing::Resources => self.resources = Err(failure),
            InventoryListing::Related => self.related = Err(failure),
            InventoryListing::Claims => self.claims = Err(failure),
            InventoryListing::Nodes => self.nodes = Err(failure),
            InventoryListing::Volumes => self.volumes = Err(failure),
            InventoryListing::Attachments => self.attachments = Err(failure),
            InventoryListing::DiskUses => self.disk_uses = Err(failure),
        }
    }
}
