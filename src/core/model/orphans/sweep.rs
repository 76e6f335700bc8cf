//! OrphanSweep specs.

use crate::model::azure::cloud::ResourceKind;
use crate::model::names::{ArmId, ObjectName, Uid};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// An OrphanSweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Name.
    pub name: ObjectName,
    /// UID.
    pub uid: Uid,
    /// `metadata.generation`: which version of its specification this is; `None` where it is not from an API server.
    pub generation: Option<i64>,
    /// How often the node resource group is observed.
    pub inventory_interval: SignedDuration,
    /// When orphans may be collected (cron, UTC); `None` is after every observation.
    pub schedule: Option<Arc<str>>,
    /// What the sweep may do.
    pub mode: SweepMode,
    /// Kinds that this sweep includes.
    pub kinds: BTreeSet<ResourceKind>,
    /// How long a resource must have been an orphan.
    pub minimum_age: BTreeMap<ResourceKind, SignedDuration>,
    /// Kinds of which each deletion needs an approval.
    pub approval_required: BTreeSet<ResourceKind>,
    /// Most deletions over a rolling 24 h; the stricter of this and the cluster's default holds.
    pub cap: Option<u32>,
    /// Resources that are never touched.
    pub exclusions: Vec<Exclusion>,
    /// Approved deletions.
    pub approvals: Vec<Approval>,
    /// Trips of the breaker before this time are cleared.
    pub breaker_cleared_at: Option<Timestamp>,
}

/// OrphanSweeps whose current version cannot be read, with the reasons. One of them may exclude what the others would
/// collect, so nothing is swept while there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnreadableSweeps(Arc<BTreeMap<Arc<str>, Arc<str>>>);

impl UnreadableSweeps {
    /// These sweeps, each with its violations.
    #[must_use]
    pub fn of(sweeps: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        Self(Arc::new(sweeps.into_iter().collect()))
    }

    /// True when every sweep can be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when the current version of this sweep cannot be read.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The sweeps, by name, with the reasons.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter()
    }
}

/// What a sweep may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SweepMode {
    /// Report findings.
    Report,
    /// Tag suspects.
    Mark,
    /// Delete orphans.
    Collect,
}

impl fmt::Display for SweepMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Report => "Report",
            Self::Mark => "Mark",
            Self::Collect => "Collect",
        })
    }
}

/// A resource that is never touched: by tag, or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// Has this tag, with this value if one is given.
    Tag {
        /// Key.
        key: Arc<str>,
        /// Value; `None` is any.
        value: Option<Arc<str>>,
    },
    /// Has this name, compared without case.
    Name(Arc<str>),
}

/// Leave to delete one incarnation of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The resource.
    pub id: ArmId,
    /// Its incarnation.
    pub incarnation: Arc<str>,
    /// No longer valid from this time on; at most 14 days ahead.
    pub expires_at: Timestamp,
}

impl Sweep {
    /// The lowest minimum age of any setting.
    pub const MIN_AGE: SignedDuration = SignedDuration::from_mins(10);
    /// The lowest minimum age beside managed NAP. NAP looks for lost VMs every 2 min and takes them when they
    /// are 5 min old, and for lost NICs every 5 min (`karpenter-provider-azure`, its garbage collection controllers):
    /// it has had four looks and more before we act.
    pub const COMPANION_MIN_AGE: SignedDuration = SignedDuration::from_mins(30);
    /// Beside managed NAP nothing is observed more often than this, so that each of its collectors has looked twice
    /// between two sightings of ours.
    pub const COMPANION_MIN_INVENTORY_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
    /// How far ahead an approval may expire.
    pub const MAX_APPROVAL_VALIDITY: SignedDuration = SignedDuration::from_hours(14 * 24);

    /// How long a resource of a kind must have been an orphan: the setting, or 30 min (7 days for data disks),
    /// never below the floor.
    #[must_use]
    pub fn minimum_age(&self, kind: ResourceKind) -> SignedDuration {
        let default = match kind {
            ResourceKind::DataDisk => SignedDuration::from_hours(7 * 24),
            ResourceKind::Nic | ResourceKind::OsDisk | ResourceKind::Vm => SignedDuration::from_mins(30),
        };
        self.minimum_age.get(&kind).copied().unwrap_or(default).max(Self::MIN_AGE)
    }

    /// The sweep beside managed NAP: slower than NAP's own collectors, whatever is set.
    #[must_use]
    pub fn for_companion_mode(&self) -> Self {
        let ages = ResourceKind::ALL.map(|kind| (kind, self.minimum_age(kind).max(Self::COMPANION_MIN_AGE)));
        let observe_every = self.inventory_interval.max(Self::COMPANION_MIN_INVENTORY_INTERVAL);
        Self { inventory_interval: observe_every, minimum_age: ages.into(), ..self.clone() }
    }
}
