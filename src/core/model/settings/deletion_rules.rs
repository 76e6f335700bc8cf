//! The rules that every deletion in Azure must satisfy.

/// A deletion rule, or a step that keeps a crash from doing harm, that the mutation check can switch off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DeletionRule {
    /// 0: the group's `managedBy` is the configured cluster.
    GroupManagedByUs,
    /// 0: at least one live Node's providerID is in the group.
    LiveNodeInGroup,
    /// 0, and before a launch: that Node belongs to no NodeClaim.
    NodeWithoutClaim,
    /// 1: the cluster tag names this cluster, by exact key and value.
    OwnedByTag,
    /// 1: a data disk has a durable record of its volume.
    VolumeRecord,
    /// 1: that record is of this very disk, and not of one that had its name before.
    VolumeIncarnation,
    /// 1: a volume with reclaim policy Retain keeps its disk.
    RetainKeeps,
    /// 2: no NodeClaim links to it, by UID, name or intent.
    NoClaim,
    /// 2: no Node links to it, by provider id or through its VM.
    NoNode,
    /// 2: no VM links to it: not attached, not named by one.
    NoVm,
    /// 2: no PersistentVolume, attachment, inline volume or VolumeSnapshot links to it.
    NoVolume,
    /// 2: no AKS Machine links to it: by its VM, by the NodeClaim that both name, by name.
    NoAksMachine,
    /// 2: it is no part of a scale-set instance.
    NoScaleSetInstance,
    /// 2: no snapshot is being copied from it.
    NoSnapshot,
    /// 2: a NIC serves no private endpoint, link service or hosted workload.
    NicServesNothing,
    /// 2: a disk's state is exactly Unattached; it is for one VM at a time, and no replica of Site Recovery.
    DiskUnattached,
    /// 2: it is not managed by AKS (`aks-managed-`).
    AksManaged,
    /// 2: no resource that is deleted with a VM is alive, foreign, a data disk, excluded or locked.
    TakesAlong,
    /// 3: an orphan for long enough, counted from the first durable sighting.
    OldEnough,
    /// 4: seen twice, at least 10 min apart.
    SeenTwice,
    /// 5: every listing is whole, and not too old.
    CompleteListings,
    /// 5: the breaker.
    Breaker,
    /// 5: every OrphanSweep can be read.
    ReadableSweeps,
    /// 6: GET of the resource right before the DELETE.
    RecheckResource,
    /// 6: GET of its claim, Node and volume right before the DELETE.
    RecheckOwners,
    /// 6: the pause switch, at the write.
    Pause,
    /// 7: mode `Collect`, inside the schedule.
    Mode,
    /// 7: beside managed NAP, VMs are reported and never deleted.
    CompanionVm,
    /// 7: caps over 24 h.
    Cap,
    /// 7: approvals.
    Approval,
    /// 7: approvals expire and name an incarnation.
    ApprovalExact,
    /// Exclusions.
    Exclusion,
    /// Launch: the group is managed by the configured cluster, and a live Node of this cluster is in it.
    LaunchIntoOwnGroup,
    /// Launch: no other Karpenter has a NodeClaim in the cluster.
    NoOtherKarpenter,
    /// Launch: a NodePool whose nodes do not come up is held.
    FailingPoolsHeld,
    /// Launch: the intent is written before the first PUT.
    IntentFirst,
    /// Terminate: delete only resources with the claim's UID.
    TerminateOwnOnly,
    /// Terminate: remove the finalizer only when VM, NIC and disk are deleted.
    FinalizerLast,
    /// Sweep: the deletion is recorded before the DELETE, so that the cap survives a crash.
    RecordFirst,
    /// Drain: a node that is not ready is drained like any other, unless it is proven that its VM does not run.
    LostNodeProven,
    /// Nothing is terminated, disrupted or expired while many nodes are not ready.
    NodeOutage,
    /// Every write: enough of the Lease is left.
    LeaseHeld,
    /// Everything is listed anew when the API server has been restored from a backup.
    RestoreNoticed,
    /// Nothing is decided, launched, disrupted or deleted while our clock and the API server's differ.
    ClocksAgree,
}

impl DeletionRule {
    /// All of them.
    pub const ALL: [Self; 44] = [
        Self::GroupManagedByUs,
        Self::LiveNodeInGroup,
        Self::NodeWithoutClaim,
        Self::OwnedByTag,
        Self::VolumeRecord,
        Self::VolumeIncarnation,
        Self::RetainKeeps,
        Self::NoClaim,
        Self::NoNode,
        Self::NoVm,
        Self::NoVolume,
        Self::NoAksMachine,
        Self::NoScaleSetInstance,
        Self::NoSnapshot,
        Self::NicServesNothing,
        Self::DiskUnattached,
        Self::AksManaged,
        Self::TakesAlong,
        Self::OldEnough,
        Self::SeenTwice,
        Self::CompleteListings,
        Self::Breaker,
        Self::ReadableSweeps,
        Self::RecheckResource,
        Self::RecheckOwners,
        Self::Pause,
        Self::Mode,
        Self::CompanionVm,
        Self::Cap,
        Self::Approval,
        Self::ApprovalExact,
        Self::Exclusion,
        Self::LaunchIntoOwnGroup,
        Self::NoOtherKarpenter,
        Self::FailingPoolsHeld,
        Self::IntentFirst,
        Self::TerminateOwnOnly,
        Self::FinalizerLast,
        Self::RecordFirst,
        Self::LostNodeProven,
        Self::NodeOutage,
        Self::LeaseHeld,
        Self::RestoreNoticed,
        Self::ClocksAgree,
    ];
}

/// The clauses that are enforced. Outside tests all of them are: only tests may call
/// [`DeletionRules::without_in_tests`], which a test of the structure checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletionRules {
    off: u64,
}

impl DeletionRules {
    /// All rules.
    #[must_use]
    pub const fn all() -> Self {
        Self { off: 0 }
    }

    /// The rules without some of them, for tests that show that each of them is needed.
    #[doc(hidden)]
    #[must_use]
    pub fn without_in_tests(clauses: &[DeletionRule]) -> Self {
        Self { off: clauses.iter().fold(0, |off, c| off | 1 << (*c as u8)) }
    }

    /// True when the clause holds.
    #[must_use]
    pub const fn enforces(self, clause: DeletionRule) -> bool {
        self.off & (1 << (clause as u8)) == 0
    }
}
