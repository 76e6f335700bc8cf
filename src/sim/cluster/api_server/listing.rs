//! Reads past the cache, and their failures.

use crate::cluster::Cluster;
use jiff::Timestamp;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::volume::{Attachment, DiskUse, Volume};
use napkeeper_core::model::errors::ClusterError;
use std::collections::{BTreeMap, BTreeSet};

/// The listings of an inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterListing {
    /// NodeClaims.
    Claims,
    /// Nodes.
    Nodes,
    /// PersistentVolumes.
    Volumes,
    /// VolumeAttachments.
    Attachments,
    /// Disks that other objects name.
    DiskUses,
}

impl ClusterListing {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Claims, Self::Nodes, Self::Volumes, Self::Attachments, Self::DiskUses];

    fn as_str(self) -> &'static str {
        match self {
            Self::Claims => "nodeclaims",
            Self::Nodes => "nodes",
            Self::Volumes => "persistentvolumes",
            Self::Attachments => "volumeattachments",
            Self::DiskUses => "pods and volumesnapshots",
        }
    }
}

/// The current failures.
#[derive(Debug, Default)]
pub(in crate::cluster) struct ApiServerFaults {
    unavailable: Option<Timestamp>,
    failing: BTreeMap<ClusterListing, Timestamp>,
    forbidden: BTreeSet<ClusterListing>,
    records_locked: Option<Timestamp>,
}

impl ApiServerFaults {
    /// The API server answers nothing.
    pub(in crate::cluster) fn check_reachable(&self, now: Timestamp) -> Result<(), ClusterError> {
        if self.unavailable.is_some_and(|until| now < until) {
            return Err(ClusterError::Unavailable);
        }
        Ok(())
    }

    /// OrphanRecords cannot be written.
    pub(in crate::cluster) fn check_records(&self, now: Timestamp) -> Result<(), ClusterError> {
        if self.records_locked.is_some_and(|until| now < until) {
            return Err(ClusterError::Forbidden);
        }
        Ok(())
    }

    /// A kind may not be read.
    pub(in crate::cluster) fn check_allowed(&self, kind: ClusterListing) -> Result<(), ClusterError> {
        if self.forbidden.contains(&kind) {
            return Err(ClusterError::Forbidden);
        }
        Ok(())
    }

    fn check_listing(&self, kind: ClusterListing, now: Timestamp) -> Result<(), ListFailure> {
        let reason = if let Err(error) = self.check_reachable(now) {
            error.to_string()
        } else if let Err(error) = self.check_allowed(kind) {
            error.to_string()
        } else if self.failing.get(&kind).is_some_and(|until| now < *until) {
            "a page failed".to_owned()
        } else {
            return Ok(());
        };
        Err(ListFailure::new(kind.as_str(), reason))
    }
}

impl Cluster {
    /// The API server answers.
    #[must_use]
    pub(crate) fn is_reachable(&self, now: Timestamp) -> bool {
        self.faults.check_reachable(now).is_ok()
    }

    /// The API server cannot be reached before this time: effects and listings fail.
    pub fn unavailable(&mut self, until: Timestamp) {
        self.faults.unavailable = Some(until);
    }

    /// OrphanRecords cannot be written before this time.
    pub fn lock_records(&mut self, until: Timestamp) {
        self.faults.records_locked = Some(until);
    }

    /// Listings of a kind are incomplete until this time.
    pub fn fail_listing(&mut self, kind: ClusterListing, until: Timestamp) {
        self.faults.failing.insert(kind, until);
    }

    /// The permission to read a kind is revoked.
    pub fn forbid(&mut self, kind: ClusterListing) {
        self.faults.forbidden.insert(kind);
    }

    /// All NodeClaims.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_claims(&self, now: Timestamp) -> Listing<Claim> {
        self.faults.check_listing(ClusterListing::Claims, now)?;
        Ok(self.store.claims().values().cloned().collect())
    }

    /// All Nodes.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_nodes(&self, now: Timestamp) -> Listing<Node> {
        self.faults.check_listing(ClusterListing::Nodes, now)?;
        Ok(self.store.nodes().values().cloned().collect())
    }

    /// All PersistentVolumes.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_volumes(&self, now: Timestamp) -> Listing<Volume> {
        self.faults.check_listing(ClusterListing::Volumes, now)?;
        Ok(self.store.volumes().values().cloned().collect())
    }

    /// All VolumeAttachments.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_attachments(&self, now: Timestamp) -> Listing<Attachment> {
        self.faults.check_listing(ClusterListing::Attachments, now)?;
        Ok(self.volumes.attachments().cloned().collect())
    }

    /// All disks that objects other than PersistentVolumes name: none here.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_disk_uses(&self, now: Timestamp) -> Listing<DiskUse> {
        self.faults.check_listing(ClusterListing::DiskUses, now)?;
        Ok(Vec::new())
    }
}
