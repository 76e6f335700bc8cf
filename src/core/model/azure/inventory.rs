//! A complete listing of Azure and then of Kubernetes.
//!
//! Sweeps reason on nothing else. A listing that is not whole is a failure, not a shorter list.

use super::cloud::CloudResource;
use super::related::RelatedResource;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::volume::{Attachment, DiskUse, Volume};
use crate::model::names::ArmId;
use jiff::Timestamp;
use std::sync::Arc;

/// A listing, or why it is not whole.
pub type Listing<T> = Result<Vec<Arc<T>>, ListFailure>;

/// Why a listing is not whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("listing {listing}: {reason}")]
pub struct ListFailure {
    /// What was listed, for example `networkInterfaces`.
    pub listing: Arc<str>,
    /// Why it is not whole: a failed page, a refusal, a missing kind.
    pub reason: Arc<str>,
}

/// One whole pair of listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// When the first page of the cloud listing was asked for.
    pub started_at: Timestamp,
    /// When the last Kubernetes listing was complete.
    pub finished_at: Timestamp,
    /// `managedBy` of the node resource group: the cluster it belongs to.
    pub group_managed_by: Result<Option<ArmId>, ListFailure>,
    /// VMs, NICs and disks of the node resource group.
    pub resources: Listing<CloudResource>,
    /// What else is there and may link to them: Machines, scale-set instances, snapshots; addresses and frontends.
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

impl Inventory {
    /// The first listing that is not whole.
    #[must_use]
    pub fn failure(&self) -> Option<&ListFailure> {
        fn failed<T>(listing: &Result<T, ListFailure>) -> Option<&ListFailure> {
            listing.as_ref().err()
        }
        failed(&self.group_managed_by)
            .or_else(|| failed(&self.resources))
            .or_else(|| failed(&self.related))
            .or_else(|| failed(&self.claims))
            .or_else(|| failed(&self.nodes))
            .or_else(|| failed(&self.volumes))
            .or_else(|| failed(&self.attachments))
            .or_else(|| failed(&self.disk_uses))
    }
}
