//! Volumes: which disks does Kubernetes know of?

use crate::names::{ArmId, NodeName, ObjectKey, ObjectName, Uid};
use crate::requirements::Requirements;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What happens to the disk when the claim on it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// Kubernetes deletes the disk.
    Delete,
    /// The disk stays.
    Retain,
}

/// A PersistentVolume backed by an Azure disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Name.
    pub name: ObjectName,
    /// UID.
    pub uid: Uid,
    /// `spec.csi.volumeHandle`, when it is a resource id.
    pub handle: Option<ArmId>,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub reclaim: ReclaimPolicy,
    /// The PersistentVolumeClaim that it is bound to.
    pub claim: Option<ObjectKey>,
    /// Where it can be used.
    pub affinity: Requirements,
}

/// A VolumeAttachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Name.
    pub name: ObjectName,
    /// The PersistentVolume, if it names one.
    pub volume: Option<ObjectName>,
    /// The node.
    pub node: NodeName,
}

/// A disk that an object other than a PersistentVolume names: an inline pod volume, a VolumeSnapshot in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUse {
    /// The disk.
    pub disk: ArmId,
    /// Who uses it, for people: `Pod default/x`, `VolumeSnapshot default/y`.
    pub user: Arc<str>,
}
