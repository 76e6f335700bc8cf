//! PersistentVolumes, PersistentVolumeClaims, storage classes and attachment limits.

use crate::model::names::{ArmId, NodeName, ObjectKey, ObjectName, Uid};
use crate::model::requirements::Requirements;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// The CSI driver of Azure disks. A node attaches as many as its VM size has data disks.
pub const DISK_DRIVER: &str = "disk.csi.azure.com";
/// The CSI driver of Azure's file shares, which are mounted and never attached.
pub const FILE_DRIVER: &str = "file.csi.azure.com";

/// The interned CSI driver name; in-tree plugins are mapped to the CSI driver that replaced them.
#[must_use]
pub fn driver(name: &str) -> Arc<str> {
    static KNOWN: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| [DISK_DRIVER, FILE_DRIVER].map(Arc::from));
    let name = match name {
        "kubernetes.io/azure-disk" => DISK_DRIVER,
        "kubernetes.io/azure-file" => FILE_DRIVER,
        name => name,
    };
    KNOWN.iter().find(|known| &***known == name).map_or_else(|| Arc::from(name), Arc::clone)
}

/// What happens to the disk when the claim on it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// Kubernetes deletes the disk.
    Delete,
    /// The disk is retained.
    Retain,
}

/// A PersistentVolume.
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
    /// Where it can be used: one of these must hold. Empty is everywhere.
    pub affinity: Vec<Requirements>,
    /// Its CSI driver; `None` where it has none (NFS, hostPath).
    pub driver: Option<Arc<str>>,
    /// Its deletion was requested.
    pub deleting: bool,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Uid,
    /// The PersistentVolume that it is, or will be, bound to.
    pub volume: Option<ObjectName>,
    /// Both sides of the binding are written (`pv.kubernetes.io/bind-completed`).
    pub bound: bool,
    /// The StorageClass; `None` where it waits for a manually created PersistentVolume, or for a default.
    pub class: Option<ObjectName>,
    /// It has lost its PersistentVolume (phase `Lost`).
    pub lost: bool,
    /// Its deletion was requested: no new pod can use it.
    pub deleting: bool,
    /// Only one pod at a time may have it (access mode `ReadWriteOncePod`).
    pub for_one_pod: bool,
    /// The node that kube-scheduler has chosen for its first pod, while the volume is being provisioned.
    pub selected_node: Option<NodeName>,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    /// Name.
    pub name: ObjectName,
    /// The CSI driver that provisions volumes.
    pub provisioner: Arc<str>,
    /// Volumes are provisioned where the first pod is scheduled (`WaitForFirstConsumer`).
    pub waits_for_pod: bool,
    /// Where volumes may be provisioned: one of these must hold. Empty is everywhere.
    pub topologies: Vec<Requirements>,
    /// Claims that name no class get this one.
    pub is_default: bool,
}

/// How many volumes of each CSI driver a node can attach (CSINode); unlimited where its driver sets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachLimits {
    /// The node.
    pub node: NodeName,
    /// Drivers with a limit, by name.
    pub limits: Box<[(Arc<str>, u32)]>,
}

impl AttachLimits {
    /// The limit of a driver, if it names one.
    #[must_use]
    pub fn of(&self, driver: &str) -> Option<u32> {
        self.limits.iter().find(|(name, _)| &**name == driver).map(|(_, limit)| *limit)
    }
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
