//! Recording: what of an inventory must outlive a restart?

use super::breaker;
use super::ownership::Group;
use super::verdict::{Assessed, Case};
use crate::cluster::cloud::CloudResource;
use crate::cluster::record::{Records, SeenVolume, Sighting};
use crate::cluster::sweep::Sweep;
use crate::cluster::volume::{ReclaimPolicy, Volume};
use crate::names::{ArmId, Uid};
use crate::plan::RecordChange;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time in a volume's record is for people: it is brought up to date no more often than this.
const VOLUME_REFRESH: SignedDuration = SignedDuration::from_hours(24);

/// What a new whole inventory adds to the records. Written in one step, so that no sighting is durable without the
/// trip of the breaker that it may have caused.
pub(super) fn of_inventory(
    case: &Case<'_>,
    assessed: &[Assessed<'_>],
    terminating: &BTreeMap<Uid, Timestamp>,
) -> RecordChange {
    let mut change = RecordChange {
        trips: breaker::trips(case, assessed, terminating),
        forget_before: Some(case.now - super::allowance::CAP_WINDOW),
        trips_cleared: case.cleared_at,
        observed: Some(case.inventory.finished_at),
        ..RecordChange::default()
    };
    // Without a cluster that is alive nothing is an orphan, and nothing is known to be none.
    if case.group() == Group::Ours {
        let suspects: BTreeMap<&ArmId, &Arc<CloudResource>> =
            assessed.iter().filter(|a| a.is_suspect()).map(|a| (&a.resource.id, a.resource)).collect();
        let seen = suspects.values().filter_map(|r| next_sighting(case, r));
        change.sighted = seen.collect();
        let known = case.records.sightings.keys();
        change.cleared = known.filter(|id| !suspects.contains_key(id)).cloned().collect();
    }
    change
}

/// The sighting of a suspect after this inventory; `None` when the one before is less than 10 min ago.
fn next_sighting(case: &Case<'_>, resource: &CloudResource) -> Option<(ArmId, Sighting)> {
    let at = case.inventory.finished_at;
    let sighting = match case.sighting(resource) {
        Some(before) if at.duration_since(before.last_seen) < Sweep::AGE_FLOOR => return None,
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

/// PersistentVolumes with a disk that the records do not have as they are now. When two name the same disk, the one
/// that retains it is recorded.
pub(super) fn volumes<'a>(
    seen: impl Iterator<Item = &'a Arc<Volume>>,
    records: &Records,
    now: Timestamp,
) -> Vec<(ArmId, SeenVolume)> {
    let mut by_disk: BTreeMap<&ArmId, &Volume> = BTreeMap::new();
    for volume in seen {
        let Some(disk) = &volume.handle else { continue };
        let kept = by_disk.entry(disk).or_insert(volume);
        if volume.reclaim == ReclaimPolicy::Retain {
            *kept = volume;
        }
    }
    by_disk
        .into_iter()
        .filter(|(disk, volume)| {
            records.volumes.get(*disk).is_none_or(|known| {
                known.name != volume.name
                    || known.reclaim != volume.reclaim
                    || now.duration_since(known.last_seen) >= VOLUME_REFRESH
            })
        })
        .map(|(disk, volume)| {
            let record = SeenVolume { name: volume.name.clone(), reclaim: volume.reclaim, last_seen: now };
            (disk.clone(), record)
        })
        .collect()
}

/// Applies a change to the records. Applying it twice is the same as once, so a write may be repeated.
pub fn apply(records: &mut Records, change: RecordChange) {
    records.sightings.extend(change.sighted);
    for id in &change.cleared {
        records.sightings.remove(id);
    }
    records.volumes.extend(change.volumes);
    for deletion in change.deletions {
        if !records.deletions.contains(&deletion) {
            records.deletions.push(deletion);
        }
    }
    for trip in change.trips {
        if !records.trips.contains(&trip) {
            records.trips.push(trip);
        }
    }
    if let Some(before) = change.forget_before {
        records.deletions.retain(|d| d.at >= before);
    }
    if let Some(cleared) = change.trips_cleared {
        records.trips.retain(|t| t.at >= cleared);
    }
    records.last_observed = records.last_observed.max(change.observed);
}
