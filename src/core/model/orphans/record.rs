//! OrphanRecords: sightings, deletions and volumes. They survive restarts.

use crate::model::azure::cloud::{CloudResource, ResourceKind, Tags};
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::names::{ArmId, ObjectName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All records of a cluster together. In Kubernetes they are spread over OrphanRecord objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrphanRecords {
    /// Resources that were seen without references, by id.
    pub sightings: BTreeMap<ArmId, Sighting>,
    /// PersistentVolumes that this cluster has had, by disk.
    pub volumes: BTreeMap<ArmId, VolumeRecord>,
    /// Deletions of the last 24 h, oldest first, each written before its DELETE is sent.
    pub deletions: Vec<DeletionRecord>,
    /// When the breaker tripped, per trip, until Git clears it.
    pub trips: Vec<BreakerTrip>,
    /// When a complete inventory was last assessed.
    pub last_inventory_at: Option<Timestamp>,
}

/// A resource that was seen without references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sighting {
    /// Kind.
    pub kind: ResourceKind,
    /// Incarnation.
    pub incarnation: Arc<str>,
    /// Tags as first seen. A change means that someone is working on it: the sighting restarts.
    pub tags: Tags,
    /// First time, moved forward by gaps without observation and by clock changes: the time until the last sighting is
    /// what was observed.
    pub first_seen: Timestamp,
    /// The last time that was counted in `times`.
    pub last_seen: Timestamp,
    /// How many times, each at least 10 min after the one before.
    pub times: u32,
}

/// A PersistentVolume that this cluster has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    /// Name of the PersistentVolume.
    pub name: ObjectName,
    /// Reclaim policy when last seen.
    pub reclaim: ReclaimPolicy,
    /// When last seen.
    pub last_seen: Timestamp,
    /// Since when whole listings show neither the disk nor anything that names it; `None` while one does.
    #[serde(default)]
    pub gone_since: Option<Timestamp>,
    /// `uniqueId` of the disk, when a listing last showed it together with its volume; `None` before that, and in records
    /// of older versions.
    #[serde(default)]
    pub unique_id: Option<Arc<str>>,
}

impl VolumeRecord {
    /// True for a record of this very disk. Azure gives a disk that is restored under the same name another `uniqueId`;
    /// where that is not recorded, the disk must have existed when its volume was last seen.
    #[must_use]
    pub fn is_of(&self, disk: &CloudResource) -> bool {
        match &self.unique_id {
            Some(recorded) => *recorded == disk.incarnation,
            None => disk.created_at.is_some_and(|created| created <= self.last_seen),
        }
    }
}

/// A deletion that was, or is about to be, sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionRecord {
    /// The resource.
    pub id: ArmId,
    /// Its incarnation.
    pub incarnation: Arc<str>,
    /// Its kind.
    pub kind: ResourceKind,
    /// When.
    pub at: Timestamp,
    /// The evidence, for people.
    pub evidence: Vec<Arc<str>>,
    /// Failed attempts on this incarnation, including the last one.
    #[serde(default)]
    pub failures: u32,
    /// Why Azure certainly deleted nothing (a category such as `in_use`); `None` where it did, or may have.
    #[serde(default)]
    pub refused: Option<Arc<str>>,
}

impl DeletionRecord {
    /// True for a deletion of this very resource.
    #[must_use]
    pub fn is_of(&self, resource: &CloudResource) -> bool {
        self.id == resource.id && self.incarnation == resource.incarnation
    }
}

/// The breaker tripped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerTrip {
    /// When.
    pub at: Timestamp,
    /// The kind whose resources turned suspect.
    pub kind: ResourceKind,
    /// How many turned suspect within the hour.
    pub suspects: u32,
    /// Of how many that are owned.
    pub owned: u32,
    /// `breaker.clearedAt` of sweeps that lay in the future then: they were written before this trip, so they never
    /// clear it, not even later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<Timestamp>,
}
