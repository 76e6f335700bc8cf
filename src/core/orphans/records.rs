//! Changes to OrphanRecords that an inventory causes.

use crate::model::azure::cloud::{CloudResource, ResourceDetail};
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::volume::{ReclaimPolicy, Volume};
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::record::{DeletionRecord, OrphanRecords, Sighting, VolumeRecord};
use crate::model::orphans::sweep::Sweep;
use crate::orphans::assessment::ownership::GroupState;
use crate::orphans::assessment::{Assessment, SweepContext};
use crate::orphans::breaker::{self, DeletingClaims};
use crate::orphans::references::items;
use crate::orphans::references::string_index::Index;
use crate::plan::RecordChange;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time in a volume's record is for people: it is updated no more often than this.
const VOLUME_REFRESH: SignedDuration = SignedDuration::from_hours(24);
/// A record of a volume is dropped when its disk, and every object that names it, has been missing from every complete
/// listing for this long: far longer than any listing of Azure was ever seen to lag (30 hours).
const VOLUME_RECORD_RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The changes of a new complete inventory to the records. Written in one step, so that no sighting is durable without
/// the trip of the breaker that it may have caused.
pub(in crate::orphans) fn changes_from_inventory(
    case: &SweepContext<'_>,
    assessed: &[Assessment<'_>],
    leaving: &DeletingClaims,
    sweeps: &[Sweep],
) -> RecordChange {
    let mut trips = breaker::trips(case, assessed, leaving);
    trips.iter_mut().for_each(|trip| trip.void = breaker::future_clearances(sweeps, case.now));
    let longest = max_sighting_gap(sweeps);
    let mut change = RecordChange {
        trips,
        forget_deletions_before: Some(case.now - crate::orphans::deletion_cap::CAP_WINDOW),
        trips_cleared: case.cleared_at,
        inventory_at: Some(case.inventory.finished_at),
        ..RecordChange::default()
    };
    // Without a live cluster nothing is known about orphans.
    if case.group_state() == GroupState::Ours {
        // Resources that the breaker does not count yet get no sighting, so none is collected that it never counted.
        let exempt = |a: &Assessment<'_>| breaker::was_claim_deleting_recently(case, a, leaving);
        let suspects: BTreeMap<&ArmId, &Arc<CloudResource>> =
            assessed.iter().filter(|a| a.is_suspect() && !exempt(a)).map(|a| (&a.resource.id, a.resource)).collect();
        let seen = suspects.values().filter_map(|r| next_sighting(case, r, longest));
        change.sightings = seen.collect();
        let known = case.records.sightings.keys();
        change.removed_sightings = known.filter(|id| !suspects.contains_key(id)).cloned().collect();
        record_missing_disks(case, &mut change);
    }
    change
}

/// How long two sightings may lie apart and still be one observation: with one failed inventory between them, and never
/// by more than an hour longer than the interval.
fn max_sighting_gap(sweeps: &[Sweep]) -> SignedDuration {
    let every = sweeps.iter().map(|s| s.inventory_interval).min().unwrap_or_default().max(Sweep::MIN_AGE);
    (every / 2).saturating_mul(5).min(every.saturating_add(SignedDuration::from_hours(1)))
}

/// The sighting of a suspect after this inventory; `None` when the one before is less than 10 min ago.
///
/// Unobserved time is no evidence, whether the controller was away, a replica's clock was set ahead, or the records are
/// those of a restored backup: the first sighting moves forward by it, and the suspect must be seen twice again. A
/// clock that was set back waits until it reaches the time of the records.
fn next_sighting(
    case: &SweepContext<'_>,
    resource: &CloudResource,
    longest: SignedDuration,
) -> Option<(ArmId, Sighting)> {
    let at = case.inventory.finished_at;
    let sighting = match case.sighting(resource) {
        Some(before) if at.duration_since(before.last_seen) < Sweep::MIN_AGE => return None,
        Some(before) if at.duration_since(before.last_seen) > longest => {
            let watched = before.last_seen.duration_since(before.first_seen);
            Sighting { first_seen: at.saturating_sub(watched).unwrap_or(at), last_seen: at, times: 1, ..before.clone() }
        }
        Some(before) => Sighting { last_seen: at, times: before.times.saturating_add(1), ..before.clone() },
        None => Sighting {
            kind: resource.kind(),
            incarnation: Arc::clone(&resource.incarnation),
            tags: resource.tags.clone(),
            first_seen: at,
            last_seen: at,
            times: 1,
        },
    };
    Some((resource.id.clone(), sighting))
}

/// Updates records of disks whose volume is missing from a complete listing: since when the disk is missing too, which
/// are back, and which have been missing for so long that their record is dropped. A record is the only evidence that a
/// disk was this cluster's, so it is retained as long as anything refers to the disk.
fn record_missing_disks(case: &SweepContext<'_>, change: &mut RecordChange) {
    let at = case.inventory.finished_at;
    let listed = items(&case.inventory.resources).iter().filter(|r| matches!(r.detail, ResourceDetail::Disk(_)));
    let disks = Index::of(listed.map(|r| (r.id.folded(), ())));
    let volumes = items(&case.inventory.volumes);
    let handles = Index::of(volumes.iter().filter_map(|v| Some((v.handle.as_ref()?.folded(), ()))));
    let attached = items(&case.inventory.attachments).iter().filter_map(|a| a.volume.as_ref());
    let names = Index::of(volumes.iter().map(|v| &v.name).chain(attached).map(|name| (name.as_str(), ())));
    for (disk, known) in &case.records.volumes {
        let exists = disks.find(disk.folded()).or_else(|| handles.find(disk.folded())).is_some()
            || names.find(known.name.as_str()).is_some();
        let gone_since = match known.gone_since {
            _ if exists => None,
            Some(since) if at.duration_since(since) >= VOLUME_RECORD_RETENTION => {
                change.removed_volumes.push(disk.clone());
                continue;
            }
            known => known.or(Some(at)),
        };
        if gone_since != known.gone_since {
            change.volumes.push((disk.clone(), VolumeRecord { gone_since, ..known.clone() }));
        }
    }
}

/// The `uniqueId`s of the disks that an inventory shows together with a PersistentVolume of theirs, by folded id. The
/// volume was listed after the disk, so it was this disk's.
pub(in crate::orphans) fn unique_ids(inventory: &Inventory) -> Index<'_, &Arc<str>> {
    let volumes = items(&inventory.volumes);
    let handles = Index::of(volumes.iter().filter_map(|v| Some((v.handle.as_ref()?.folded(), ()))));
    let disks = items(&inventory.resources).iter().filter(|r| matches!(r.detail, ResourceDetail::Disk(_)));
    let of_volumes = disks.filter(|disk| handles.find(disk.id.folded()).is_some());
    Index::of(of_volumes.map(|disk| (disk.id.folded(), &disk.incarnation)))
}

/// PersistentVolumes with a disk that the records do not have as they are now; `unique_ids` are those of the disks that
/// a new inventory shows.
pub(in crate::orphans) fn volume_record_changes(
    seen: &[&Arc<Volume>],
    unique_ids: &Index<'_, &Arc<str>>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Vec<(ArmId, VolumeRecord)> {
    // A listing may be older than the watch, so it cannot revoke Retain by itself.
    let watched = |name: &ObjectName| snapshot.volumes().get(name).map(|v| v.reclaim);
    let freed = |name: &ObjectName| watched(name) == Some(ReclaimPolicy::Delete);
    let unique_id = |disk: &ArmId| unique_ids.find(disk.folded()).copied();
    let same = |known: &VolumeRecord, disk: &ArmId, name: &ObjectName, reclaim| {
        let fresh = known.gone_since.is_none() && now.duration_since(known.last_seen) < VOLUME_REFRESH;
        let same_disk = unique_id(disk).is_none_or(|listed| known.unique_id.as_ref() == Some(listed));
        fresh && same_disk && known.name == *name && known.reclaim == reclaim
    };
    let mut by_disk: BTreeMap<&ArmId, Vec<&Volume>> = BTreeMap::new();
    let records = Index::of(snapshot.records.volumes.iter().map(|(disk, known)| (disk.folded(), known)));
    let with_disk = || seen.iter().filter_map(|v| Some((v.handle.as_ref()?, &***v)));
    // In most passes nothing is new: only disks with changes are examined fully.
    for (disk, volume) in with_disk() {
        if !records.find(disk.folded()).is_some_and(|known| same(known, disk, &volume.name, volume.reclaim)) {
            by_disk.entry(disk).or_default();
        }
    }
    if by_disk.is_empty() {
        return Vec::new();
    }
    for (disk, volume) in with_disk() {
        if let Some(volumes) = by_disk.get_mut(disk) {
            volumes.push(volume);
        }
    }
    let recorded = |(disk, volumes): (&ArmId, Vec<&Volume>)| {
        // The record of a disk that had the same name before says nothing of this one.
        let of_this = |known: &&VolumeRecord| {
            let ids = unique_id(disk).zip(known.unique_id.as_ref());
            ids.is_none_or(|(listed, recorded)| listed == recorded)
        };
        let known = records.find(disk.folded()).copied().filter(of_this);
        let volume = authoritative_volume(&volumes, known)?;
        let retained = known.is_some_and(|k| k.reclaim == ReclaimPolicy::Retain) && !freed(&volume.name);
        let reclaim = if retained { ReclaimPolicy::Retain } else { volume.reclaim };
        let unique_id = unique_id(disk).or_else(|| known?.unique_id.as_ref()).cloned();
        let record = VolumeRecord { name: volume.name.clone(), reclaim, last_seen: now, gone_since: None, unique_id };
        (!known.is_some_and(|known| same(known, disk, &volume.name, reclaim))).then(|| (disk.clone(), record))
    };
    by_disk.into_iter().filter_map(recorded).collect()
}

/// The volume of a disk that its record is of. One that retains the disk takes precedence, even when it is deleted and
/// another names the disk now: only that volume itself can revoke its policy.
fn authoritative_volume<'a>(volumes: &[&'a Volume], known: Option<&VolumeRecord>) -> Option<&'a Volume> {
    let is_known = |v: &&&Volume| known.is_some_and(|k| k.name == v.name);
    let retaining = volumes.iter().filter(|v| v.reclaim == ReclaimPolicy::Retain).min_by_key(|v| &v.name);
    let same = volumes.iter().find(is_known);
    let any = || volumes.iter().min_by_key(|v| &v.name);
    let retained_by_another = known.is_some_and(|k| k.reclaim == ReclaimPolicy::Retain) && same.is_none();
    let chosen = retaining.or(same).or_else(|| (!retained_by_another).then(any).flatten());
    chosen.copied()
}

/// Applies a change to the records. Applying it twice is the same as once, so a write may be repeated.
pub fn apply(records: &mut OrphanRecords, change: RecordChange) {
    records.sightings.extend(change.sightings);
    for id in &change.removed_sightings {
        records.sightings.remove(id);
    }
    for disk in &change.removed_volumes {
        records.volumes.remove(disk);
    }
    records.volumes.extend(change.volumes);
    for deletion in change.deletions {
        upsert_deletion(&mut records.deletions, deletion);
    }
    for trip in change.trips {
        if !records.trips.contains(&trip) {
            records.trips.push(trip);
        }
    }
    if let Some(before) = change.forget_deletions_before {
        // Failed ones are retained for longer, so that their backoff continues.
        let failing = |d: &DeletionRecord| d.failures > 0 && d.at >= before - crate::orphans::deletion_cap::CAP_WINDOW;
        records.deletions.retain(|d| d.at >= before || failing(d));
    }
    if let Some(cleared) = change.trips_cleared {
        records.trips.retain(|t| t.at >= cleared);
    }
    records.last_inventory_at = records.last_inventory_at.max(change.inventory_at);
}

/// One incarnation has one record: of its last attempt, with its outcome.
fn upsert_deletion(deletions: &mut Vec<DeletionRecord>, deletion: DeletionRecord) {
    let age = |d: &DeletionRecord| (d.at, d.failures, d.refused.is_some());
    let same = |d: &&mut DeletionRecord| d.id == deletion.id && d.incarnation == deletion.incarnation;
    match deletions.iter_mut().find(same) {
        Some(known) if age(known) <= age(&deletion) => *known = deletion,
        Some(_) => {}
        None => deletions.push(deletion),
    }
    deletions.sort_by_key(|d| d.at);
}
