//! Conversion of OrphanRecords.
//!
//! The records of a cluster are spread over objects of at most [`MAX_ENTRIES`] entries; order does not matter.

use crate::convert::common;
use crate::convert::orphans::orphan_sweep::kind;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::orphan_record::{
    DeletionEntry, MAX_ENTRIES, OrphanRecordSpec, SightingEntry, TripEntry, VolumeEntry,
};
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{ArmId, ObjectName};
use napkeeper_core::model::orphans::record::{BreakerTrip, DeletionRecord, OrphanRecords, Sighting, VolumeRecord};
use std::sync::Arc;

/// Reads the records out of all objects together.
///
/// # Errors
/// [`Violations`]: all that is wrong with them.
pub fn records<'a>(objects: impl IntoIterator<Item = &'a OrphanRecordSpec>) -> Result<OrphanRecords, Violations> {
    let mut found = Violations::default();
    let mut all = OrphanRecords::default();
    let at = Path::from_dotted("spec");
    for object in objects {
        for (i, entry) in object.sightings.iter().flatten().enumerate() {
            all.sightings.extend(sighting(entry, &at.key("sightings").index(i), &mut found));
        }
        for (i, entry) in object.volumes.iter().flatten().enumerate() {
            all.volumes.extend(volume(entry, &at.key("volumes").index(i), &mut found));
        }
        for (i, entry) in object.deletions.iter().flatten().enumerate() {
            all.deletions.extend(deletion(entry, &at.key("deletions").index(i), &mut found));
        }
        for (i, entry) in object.trips.iter().flatten().enumerate() {
            all.trips.extend(trip(entry, &at.key("trips").index(i), &mut found));
        }
        let observed = object.last_observed.as_deref();
        let observed = found.take_some(&at.key("lastObserved"), observed, common::time);
        all.last_inventory_at = all.last_inventory_at.max(observed);
    }
    all.deletions.sort_by_key(|d| d.at);
    all.trips.sort_by_key(|t| t.at);
    found.finish(Some(all))
}

fn sighting(entry: &SightingEntry, at: &Path, found: &mut Violations) -> Option<(ArmId, Sighting)> {
    let id = found.take(&at.key("id"), ArmId::new(&entry.id));
    let kind = found.take(&at.key("kind"), kind(&entry.kind));
    let first = found.take(&at.key("firstSeen"), common::time(&entry.first_seen));
    let last = found.take(&at.key("lastSeen"), common::time(&entry.last_seen));
    let times = u32::try_from(entry.times).map_err(|_| "must be at least 1");
    let sighting = Sighting {
        kind: kind?,
        incarnation: Arc::from(entry.incarnation.as_str()),
        tags: common::labels(entry.tags.as_ref()),
        first_seen: first?,
        last_seen: last?,
        times: found.take(&at.key("times"), times)?,
    };
    Some((id?, sighting))
}

fn volume(entry: &VolumeEntry, at: &Path, found: &mut Violations) -> Option<(ArmId, VolumeRecord)> {
    let disk = found.take(&at.key("disk"), ArmId::new(&entry.disk));
    let name = found.take(&at.key("name"), ObjectName::new(&entry.name));
    let last = found.take(&at.key("lastSeen"), common::time(&entry.last_seen));
    let reclaim = match entry.reclaim.as_str() {
        "Delete" => Ok(ReclaimPolicy::Delete),
        "Retain" => Ok(ReclaimPolicy::Retain),
        _ => Err("must be Delete or Retain"),
    };
    let gone_since = found.take_some(&at.key("goneSince"), entry.gone_since.as_deref(), common::time);
    let reclaim = found.take(&at.key("reclaim"), reclaim);
    let unique_id = entry.unique_id.as_deref().map(Arc::from);
    Some((disk?, VolumeRecord { name: name?, reclaim: reclaim?, last_seen: last?, gone_since, unique_id }))
}

fn deletion(entry: &DeletionEntry, at: &Path, found: &mut Violations) -> Option<DeletionRecord> {
    let id = found.take(&at.key("id"), ArmId::new(&entry.id));
    let kind = found.take(&at.key("kind"), kind(&entry.kind));
    let when = found.take(&at.key("at"), common::time(&entry.at));
    let evidence = entry.evidence.iter().flatten();
    let failures = u32::try_from(entry.failures.unwrap_or_default()).map_err(|_| "must not be negative");
    let failures = found.take(&at.key("failures"), failures);
    Some(DeletionRecord {
        id: id?,
        incarnation: Arc::from(entry.incarnation.as_str()),
        kind: kind?,
        at: when?,
        evidence: evidence.map(|e| Arc::from(e.as_str())).collect(),
        failures: failures?,
        refused: entry.refused.as_deref().map(Arc::from),
    })
}

fn trip(entry: &TripEntry, at: &Path, found: &mut Violations) -> Option<BreakerTrip> {
    let when = found.take(&at.key("at"), common::time(&entry.at));
    let kind = found.take(&at.key("kind"), kind(&entry.kind));
    let count = |n: i64| u32::try_from(n).map_err(|_| "must not be negative");
    let void = entry.void.iter().flatten().enumerate();
    let void = void.filter_map(|(i, text)| found.take(&at.key("void").index(i), common::time(text))).collect();
    Some(BreakerTrip {
        void,
        at: when?,
        kind: kind?,
        suspects: found.take(&at.key("suspects"), count(entry.suspects))?,
        owned: found.take(&at.key("owned"), count(entry.owned))?,
    })
}

/// Spreads records over as many objects as they need, one at least.
#[must_use]
pub fn record_objects(records: &OrphanRecords) -> Vec<OrphanRecordSpec> {
    let mut shards = Shards::default();
    for (id, sighting) in &records.sightings {
        let list = &mut shards.next_with_room().sightings;
        list.get_or_insert_default().push(sighting_entry(id, sighting));
    }
    for (disk, volume) in &records.volumes {
        let list = &mut shards.next_with_room().volumes;
        list.get_or_insert_default().push(VolumeEntry {
            disk: disk.as_str().to_owned(),
            name: volume.name.as_str().to_owned(),
            reclaim: format!("{:?}", volume.reclaim),
            last_seen: volume.last_seen.to_string(),
            gone_since: volume.gone_since.map(|t| t.to_string()),
            unique_id: volume.unique_id.as_ref().map(ToString::to_string),
            ..VolumeEntry::default()
        });
    }
    for deletion in &records.deletions {
        let list = &mut shards.next_with_room().deletions;
        list.get_or_insert_default().push(deletion_entry(deletion));
    }
    for trip in &records.trips {
        let list = &mut shards.next_with_room().trips;
        list.get_or_insert_default().push(TripEntry {
            at: trip.at.to_string(),
            void: Some(trip.void.iter().map(ToString::to_string).collect())
                .filter(|void: &Vec<String>| !void.is_empty()),
            kind: trip.kind.as_str().to_owned(),
            owned: trip.owned.into(),
            suspects: trip.suspects.into(),
            ..TripEntry::default()
        });
    }
    let mut objects = shards.full;
    objects.push(shards.current);
    let observed = records.last_inventory_at.map(|t| t.to_string());
    if let Some(first) = objects.first_mut() {
        first.last_observed = observed;
    }
    objects
}

/// Objects that are full, and the one being filled.
#[derive(Default)]
struct Shards {
    full: Vec<OrphanRecordSpec>,
    current: OrphanRecordSpec,
    entries: usize,
}

impl Shards {
    /// The object with space for one more entry.
    fn next_with_room(&mut self) -> &mut OrphanRecordSpec {
        if self.entries == MAX_ENTRIES {
            self.full.push(std::mem::take(&mut self.current));
            self.entries = 0;
        }
        self.entries += 1;
        &mut self.current
    }
}

fn sighting_entry(id: &ArmId, sighting: &Sighting) -> SightingEntry {
    SightingEntry {
        id: id.as_str().to_owned(),
        kind: sighting.kind.as_str().to_owned(),
        incarnation: sighting.incarnation.to_string(),
        tags: common::text_map(&sighting.tags),
        first_seen: sighting.first_seen.to_string(),
        last_seen: sighting.last_seen.to_string(),
        times: sighting.times.into(),
        ..SightingEntry::default()
    }
}

fn deletion_entry(deletion: &DeletionRecord) -> DeletionEntry {
    let evidence: Vec<String> = deletion.evidence.iter().map(ToString::to_string).collect();
    DeletionEntry {
        id: deletion.id.as_str().to_owned(),
        kind: deletion.kind.as_str().to_owned(),
        incarnation: deletion.incarnation.to_string(),
        at: deletion.at.to_string(),
        evidence: (!evidence.is_empty()).then_some(evidence),
        failures: (deletion.failures > 0).then(|| deletion.failures.into()),
        refused: deletion.refused.as_ref().map(ToString::to_string),
        ..DeletionEntry::default()
    }
}
