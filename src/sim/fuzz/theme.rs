//! Themes: which hazard does a seed stress?

/// A hazard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Theme {
    /// Scaling, evictions, shortages and quotas.
    Weather,
    /// The controller crashes, and people delete NodeClaims and Nodes.
    Crashes,
    /// NICs, disks and VMs are left over.
    Leaks,
    /// Data disks: claimed, retained, lost, somebody else's.
    Disks,
    /// Other people's resources in the group, and resources that change hands.
    Neighbours,
    /// The API server forgets everything.
    Restore,
    /// Listings fail, Azure and the API server are away.
    Outages,
    /// People pause, report only, exclude, approve wrongly.
    People,
    /// Things change between an inventory and the DELETE.
    Races,
    /// Many leaks and small caps, with crashes at the DELETE.
    Caps,
    /// The controller is pointed at a group of another cluster.
    Misdirected,
    /// Beside managed NAP.
    Companion,
    /// Azure's listings lag: what is new is missing, what is gone is shown.
    Lag,
    /// A second janitor, managed NAP's, deletes the same things by its own rules, in between.
    Janitor,
    /// AKS Machines, scale-set instances, snapshots and AKS itself hold what nobody else does, and are not always listed.
    Graph,
}

impl Theme {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Weather,
        Self::Crashes,
        Self::Leaks,
        Self::Disks,
        Self::Neighbours,
        Self::Restore,
        Self::Outages,
        Self::People,
        Self::Races,
        Self::Caps,
        Self::Misdirected,
        Self::Companion,
        Self::Lag,
        Self::Janitor,
        Self::Graph,
    ];

    /// The theme of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let place = usize::try_from(seed % Self::ALL.len() as u64).unwrap_or(0);
        Self::ALL[place]
    }
}
