//! Events of the cluster that Azure and the timeline notice.

use napkeeper_core::model::names::{ArmId, NodeName, ObjectKey, ObjectName, ProviderId, Zone};

/// Something that has happened in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A PersistentVolumeClaim needs a disk; answer with [`super::Cluster::disk_created`].
    DiskWanted {
        /// Its PersistentVolume, whose name is on the disk.
        volume: ObjectName,
        /// The PersistentVolumeClaim.
        claim: ObjectKey,
        /// Where; `None` is in no zone.
        zone: Option<Zone>,
        /// Size in GiB.
        size_gib: u32,
    },
    /// A disk is to be deleted: its PersistentVolume was deleted and had the reclaim policy Delete.
    DiskReleased {
        /// The disk.
        disk: ArmId,
    },
    /// A disk is to be attached to the VM of a node.
    DiskAttached {
        /// The disk.
        disk: ArmId,
        /// The VM.
        vm: ProviderId,
    },
    /// A disk is to be detached from the VM of a node. The VM may be deleted already.
    DiskDetached {
        /// The disk.
        disk: ArmId,
        /// The VM.
        vm: ProviderId,
    },
    /// A pod of a Job has ended well.
    PodSucceeded {
        /// The pod.
        pod: ObjectKey,
    },
    /// A node is ready.
    NodeReady {
        /// The node.
        node: NodeName,
    },
    /// A Node was deleted from the API server.
    NodeGone {
        /// The node.
        node: NodeName,
    },
}
