//! Listings: what do reads past the cache answer, and how do they fail?

use super::Cluster;
use jiff::Timestamp;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::volume::{Attachment, DiskUse, Volume};
use napkeeper_core::model::errors::ClusterError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is listed for an inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listed {
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

impl Listed {
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

/// What is broken for now.
#[derive(Debug, Default)]
pub(super) struct Faults {
    unavailable: Option<Timestamp>,
    failing: BTreeMap<Listed, Timestamp>,
    forbidden: BTreeSet<Listed>,
}

impl Faults {
    /// The API server answers nothing.
    pub(super) fn check_reachable(&self, now: Timestamp) -> Result<(), ClusterError> {
        if self.unavailable.is_some_and(|until| now < until) {
            return Err(ClusterError::Unavailable);
        }
        Ok(())
    }

    /// A kind may not be read.
    pub(super) fn check_allowed(&self, kind: Listed) -> Result<(), ClusterError> {
        if self.forbidden.contains(&kind) {
            return Err(ClusterError::Forbidden);
        }
        Ok(())
    }

    fn check_listing(&self, kind: Listed, now: Timestamp) -> Result<(), ListFailure> {
        let why = if let Err(error) = self.check_reachable(now) {
            error.to_string()
        } else if let Err(error) = self.check_allowed(kind) {
            error.to_string()
        } else if self.failing.get(&kind).is_some_and(|until| now < *until) {
            "a page failed".to_owned()
        } else {
            return Ok(());
        };
        Err(ListFailure { listing: Arc::from(kind.as_str()), reason: Arc::from(why) })
    }
}

impl Cluster {
    /// The API server cannot be reached before this time: effects and listings fail.
    pub fn unavailable(&mut self, until: Timestamp) {
        self.faults.unavailable = Some(until);
    }

    /// Listings of a kind break off in the middle before this time.
    pub fn fail_listing(&mut self, kind: Listed, until: Timestamp) {
        self.faults.failing.insert(kind, until);
    }

    /// We may not read a kind any more.
    pub fn forbid(&mut self, kind: Listed) {
        self.faults.forbidden.insert(kind);
    }

    /// We may read a kind again.
    pub fn allow(&mut self, kind: Listed) {
        self.faults.forbidden.remove(&kind);
    }

    /// All NodeClaims.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_claims(&self, now: Timestamp) -> Listing<Claim> {
        self.faults.check_listing(Listed::Claims, now)?;
        Ok(self.store.claims().values().cloned().collect())
    }

    /// All Nodes.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_nodes(&self, now: Timestamp) -> Listing<Node> {
        self.faults.check_listing(Listed::Nodes, now)?;
        Ok(self.store.nodes().values().cloned().collect())
    }

    /// All PersistentVolumes.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_volumes(&self, now: Timestamp) -> Listing<Volume> {
        self.faults.check_listing(Listed::Volumes, now)?;
        Ok(self.store.volumes().values().cloned().collect())
    }

    /// All VolumeAttachments.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_attachments(&self, now: Timestamp) -> Listing<Attachment> {
        self.faults.check_listing(Listed::Attachments, now)?;
        Ok(self.volumes.attachments().cloned().collect())
    }

    /// All disks that objects other than PersistentVolumes name.
    ///
    /// # Errors
    /// [`ListFailure`] while listings of this kind fail.
    pub fn list_disk_uses(&self, now: Timestamp) -> Listing<DiskUse> {
        self.faults.check_listing(Listed::DiskUses, now)?;
        Ok(self.volumes.uses().cloned().collect())
    }
}
