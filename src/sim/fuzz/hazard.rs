//! The hazard that a seed stresses.

/// A hazard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hazard {
    /// Scaling, evictions, shortages and quotas.
    Shortages,
    /// The controller crashes, and NodeClaims and Nodes are deleted manually.
    Crashes,
    /// NICs, disks and VMs are left over.
    Leaks,
    /// Data disks: claimed, retained, lost, foreign.
    DataDisks,
    /// Foreign resources in the group, and resources that change owners.
    ForeignResources,
    /// The API server loses its objects.
    ApiServerRestore,
    /// Listings fail, Azure and the API server are away.
    Outages,
    /// Users set the pause switch, the mode Report, exclusions and invalid approvals.
    ManualChanges,
    /// Things change between an inventory and the DELETE.
    Races,
    /// Many leaks and small caps, with crashes at the DELETE.
    Caps,
    /// The controller is pointed at a group of another cluster.
    WrongGroup,
    /// Beside managed NAP.
    Companion,
    /// Azure's listings lag: new resources are missing, deleted ones are shown.
    ListingLag,
    /// Managed NAP's garbage collectors delete the same resources by their own rules.
    NapGarbageCollection,
    /// AKS Machines, scale-set instances, snapshots and AKS itself are all that use some resources, and are not always
    /// listed.
    RelatedResources,
    /// Kubelets of one, many or all nodes cannot reach the API server while their pods run on, and VMs are shut down.
    NodeOutages,
    /// Nodes do not join, or do not become ready, for hours.
    FailedJoins,
    /// The controller runs in a second cluster with the configuration of the first, or beside another Karpenter.
    Identities,
    /// The API server is restored in part: NodeClaims are lost, with or without their Nodes, or created again with
    /// another UID.
    PartialRestores,
    /// The controller hears of changes late, of some kinds later than of others.
    WatchLag,
    /// The controller is frozen at writes while another replica leads, requests arrive late, and answers are lost.
    InterruptedWrites,
    /// The controller's clock jumps.
    ClockJumps,
    /// The watches lose changes.
    LostEvents,
    /// Tags and states of what stays in use change, and OrphanRecords are restored or cannot be written.
    ExternalEdits,
    /// Users strip our finalizers, and other controllers hold NodeClaims and Nodes with theirs.
    Finalizers,
    /// A GET shows what existed up to a minute ago, and listings show for hours what was deleted.
    StaleReads,
    /// The cluster is stopped and started, and upgraded.
    ClusterMaintenance,
    /// Somebody enables managed NAP beside the provisioner.
    NapEnabled,
}

impl Hazard {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::Shortages,
        Self::Crashes,
        Self::Leaks,
        Self::DataDisks,
        Self::ForeignResources,
        Self::ApiServerRestore,
        Self::Outages,
        Self::ManualChanges,
        Self::Races,
        Self::Caps,
        Self::WrongGroup,
        Self::Companion,
        Self::ListingLag,
        Self::NapGarbageCollection,
        Self::RelatedResources,
        Self::NodeOutages,
        Self::FailedJoins,
        Self::Identities,
        Self::PartialRestores,
        Self::WatchLag,
        Self::InterruptedWrites,
        Self::ClockJumps,
        Self::LostEvents,
        Self::ExternalEdits,
        Self::Finalizers,
        Self::StaleReads,
        Self::ClusterMaintenance,
        Self::NapEnabled,
    ];

    /// The hazard of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let index = usize::try_from(seed % Self::ALL.len() as u64).unwrap_or(0);
        Self::ALL[index]
    }
}
