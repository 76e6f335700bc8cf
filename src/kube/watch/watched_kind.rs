//! The kinds that are watched.

use std::fmt;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchedKind {
    /// Pods.
    Pods,
    /// Nodes.
    Nodes,
    /// NodeClaims.
    NodeClaims,
    /// NodePools.
    NodePools,
    /// AKSNodeClasses.
    NodeClasses,
    /// NodeOverlays.
    NodeOverlays,
    /// DaemonSets.
    DaemonSets,
    /// PodDisruptionBudgets.
    DisruptionBudgets,
    /// OrphanSweeps.
    OrphanSweeps,
    /// OrphanRecords.
    OrphanRecords,
    /// PersistentVolumes.
    Volumes,
    /// PersistentVolumeClaims.
    VolumeClaims,
    /// StorageClasses.
    StorageClasses,
    /// CSINodes.
    CsiNodes,
    /// VolumeAttachments.
    Attachments,
    /// Namespaces.
    Namespaces,
    /// Services.
    Services,
    /// SchedulerConfigurations.
    Schedulers,
    /// The pause switch: the ConfigMap `napkeeper-pause` in our namespace.
    Pause,
}

impl WatchedKind {
    /// All kinds.
    pub const ALL: [Self; 19] = [
        Self::Pods,
        Self::Nodes,
        Self::NodeClaims,
        Self::NodePools,
        Self::NodeClasses,
        Self::NodeOverlays,
        Self::DaemonSets,
        Self::DisruptionBudgets,
        Self::OrphanSweeps,
        Self::OrphanRecords,
        Self::Volumes,
        Self::VolumeClaims,
        Self::StorageClasses,
        Self::CsiNodes,
        Self::Attachments,
        Self::Namespaces,
        Self::Services,
        Self::Schedulers,
        Self::Pause,
    ];

    /// The resource as RBAC and CRDs name it.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::NodeClaims => "nodeclaims.karpenter.sh",
            Self::NodePools => "nodepools.karpenter.sh",
            Self::NodeClasses => "aksnodeclasses.karpenter.azure.com",
            Self::NodeOverlays => "nodeoverlays.karpenter.sh",
            Self::DaemonSets => "daemonsets.apps",
            Self::DisruptionBudgets => "poddisruptionbudgets.policy",
            Self::OrphanSweeps => "orphansweeps.napkeeper.io",
            Self::OrphanRecords => "orphanrecords.napkeeper.io",
            Self::Volumes => "persistentvolumes",
            Self::VolumeClaims => "persistentvolumeclaims",
            Self::StorageClasses => "storageclasses.storage.k8s.io",
            Self::CsiNodes => "csinodes.storage.k8s.io",
            Self::Attachments => "volumeattachments.storage.k8s.io",
            Self::Namespaces => "namespaces",
            Self::Services => "services",
            Self::Schedulers => "schedulerconfigurations.aks.azure.com",
            Self::Pause => "configmaps",
        }
    }

    /// True for optional kinds: if their CRD is not installed there are none.
    pub(super) fn is_optional(self) -> bool {
        matches!(self, Self::NodeOverlays | Self::Schedulers)
    }

    /// True for kinds whose last valid version is kept when an object becomes invalid: treating them as deleted would
    /// forget machines, their pods, deletions, trips of the breaker or exclusions. AKS does the same with kube-scheduler's
    /// configuration.
    pub(super) fn keeps_last_good(self) -> bool {
        matches!(
            self,
            Self::Pods | Self::NodeClaims | Self::Nodes | Self::OrphanSweeps | Self::OrphanRecords | Self::Schedulers
        )
    }
}

impl fmt::Display for WatchedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.resource())
    }
}
