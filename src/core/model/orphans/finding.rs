//! Findings about a resource, with their evidence.

use crate::model::amounts::money::HourlyPrice;
use crate::model::azure::cloud::ResourceKind;
use crate::model::names::ArmId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The finding about one cloud resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The resource.
    pub id: ArmId,
    /// Its kind.
    pub kind: ResourceKind,
    /// Its incarnation.
    pub incarnation: Arc<str>,
    /// Its status.
    pub classification: Classification,
    /// Evidence, for people: links, tags, sightings.
    pub evidence: Vec<Arc<str>>,
    /// Why it is not deleted now, though an orphan or a suspect.
    pub refusals: Vec<DeletionRefusal>,
    /// Its price.
    pub price: HourlyPrice,
    /// Addresses of the subnet that it holds.
    pub addresses: u32,
    /// First seen without references.
    pub first_seen: Option<Timestamp>,
}

/// The status of a cloud resource. Of several links the evidence names the first found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Classification {
    /// A NodeClaim, Node, AKS Machine or VM has it.
    Owned,
    /// Being created: its NodeClaim or AKS Machine has no Node yet.
    InFlight,
    /// Not used by a node, but protected: by a volume, an attachment, a snapshot, something that it serves, reclaim
    /// policy Retain, AKS itself, or an exclusion.
    Protected,
    /// Not this cluster's by an exact tag or a durable record.
    Foreign,
    /// This cluster's, without references, not yet for long enough or not seen twice.
    Suspect,
    /// This cluster's, and nothing alive has referred to it for long enough.
    Orphan,
    /// A listing was incomplete, so nothing is known.
    Unknown,
}

impl Classification {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Owned, Self::InFlight, Self::Protected, Self::Foreign, Self::Suspect, Self::Orphan, Self::Unknown];

    /// As manifests and reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "Owned",
            Self::InFlight => "InFlight",
            Self::Protected => "Protected",
            Self::Foreign => "Foreign",
            Self::Suspect => "Suspect",
            Self::Orphan => "Orphan",
            Self::Unknown => "Unknown",
        }
    }
}

impl Finding {
    /// True when a report lists it individually; resources in use are only counted.
    #[must_use]
    pub fn is_reportable(&self) -> bool {
        self.classification == Classification::Unknown || !self.refusals.contains(&DeletionRefusal::SignOfLife)
    }
}

/// Why a resource is not deleted. Each names the deletion rule that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionRefusal {
    /// Clause 0: the group is not managed by the configured cluster, or has no live Node.
    OtherCluster,
    /// Clause 1: no exact tag names this cluster.
    NotOwned,
    /// Clause 1, data disks: no durable record that this cluster had its volume.
    NoVolumeRecord,
    /// Clause 1, data disks: the volume's reclaim policy was Retain.
    Retained,
    /// Clause 2: something alive refers to it, or it is attached.
    SignOfLife,
    /// Clause 2, VMs: a NIC or disk would go with it that may not be collected.
    TakesAlong,
    /// Clause 3: not an orphan for long enough.
    TooYoung,
    /// Clause 4: not seen twice, at least 10 min apart.
    SeenOnce,
    /// Clause 5: a listing was not whole, or the inventory is too old.
    PartialListing,
    /// Clause 5: the breaker has tripped and Git has not cleared it.
    Breaker,
    /// Clause 5: an OrphanSweep cannot be read, and may exclude it.
    UnreadableSweep,
    /// Clause 6: it, or what its tags name, changed since the inventory.
    Changed,
    /// Clause 6: the pause switch is set.
    Paused,
    /// Clause 6: the lease is lost or about to be.
    NoLease,
    /// Clause 7: the mode is not Collect, or it is outside the schedule.
    Mode,
    /// Clause 7: beside managed NAP, VMs are reported only.
    Companion,
    /// Clause 7: the cap over 24 h is reached.
    Cap,
    /// Clause 7: it is not approved, or the approval has expired.
    Approval,
    /// An exclusion names it.
    Excluded,
    /// Its last DELETE failed: it is tried again a little later.
    BackOff,
    /// Azure denies such deletes for now: permission, lock, lockdown, policy.
    Denied,
}

impl DeletionRefusal {
    /// Its name in metrics and reports.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::OtherCluster => "other_cluster",
            Self::NotOwned => "not_owned",
            Self::NoVolumeRecord => "no_volume_record",
            Self::Retained => "retained",
            Self::SignOfLife => "sign_of_life",
            Self::TakesAlong => "takes_along",
            Self::TooYoung => "too_young",
            Self::SeenOnce => "seen_once",
            Self::PartialListing => "partial_listing",
            Self::Breaker => "breaker",
            Self::UnreadableSweep => "unreadable_sweep",
            Self::Changed => "changed",
            Self::Paused => "paused",
            Self::NoLease => "no_lease",
            Self::Mode => "mode",
            Self::Companion => "companion",
            Self::Cap => "cap",
            Self::Approval => "approval",
            Self::Excluded => "excluded",
            Self::BackOff => "back_off",
            Self::Denied => "denied",
        }
    }
}
