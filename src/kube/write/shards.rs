//! Distributes the entries of records over OrphanRecord objects.
//!
//! The entries and bytes of an object are limited: a sighting has the tags of its resource, which may be long. An entry
//! stays in its object, so that a change writes few objects, and a crash between two writes loses no older entry. New
//! entries fill up objects: trips of the breaker first, so that no sighting is durable without the trip that it caused.
//! The time of the last inventory is written last: once it is durable, so is everything that the inventory showed.

use napkeeper_api::convert;
use napkeeper_api::types::orphan_record::{
    DeletionEntry, MAX_ENTRIES, OrphanRecordSpec, SightingEntry, TripEntry, VolumeEntry,
};
use napkeeper_core::model::orphans::record::OrphanRecords;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Name of an object, without its number.
const PREFIX: &str = "napkeeper-records-";

/// The objects to write, in this order, and then to remove.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ShardWrites {
    /// Objects that are new or have changed.
    pub(super) put: Vec<(String, OrphanRecordSpec)>,
    /// Objects without entries.
    pub(super) remove: Vec<String>,
}

/// The size of a full object: a third of etcd's limit, since the API server adds metadata.
const MAX_BYTES: usize = 500_000;

/// The desired state of an object.
struct Shard {
    name: String,
    spec: OrphanRecordSpec,
    /// How long it is as JSON.
    bytes: usize,
    /// The most urgent sort of entry that was added.
    added: EntryPriority,
}

/// Kinds of entries, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EntryPriority {
    Trip,
    Deletion,
    Other,
    Nothing,
}

/// Distributes records over existing objects, and new ones as needed.
pub(super) fn distribute(stored: &BTreeMap<String, OrphanRecordSpec>, records: &OrphanRecords) -> ShardWrites {
    let mut wanted = UnplacedEntries::of(records);
    let mut shards: Vec<Shard> = stored.iter().map(|(name, spec)| wanted.keep(name, spec)).collect();
    wanted.put_rest(&mut shards);
    if shards.is_empty() {
        shards.push(new_shard(&shards));
    }
    let observed = records.last_inventory_at.map(|t| t.to_string());
    let known = stored.values().any(|spec| spec.last_observed == observed);
    // One object is kept: the time of the last inventory needs an object.
    let spare = if shards.iter().all(|s| entries(&s.spec) == 0) { 1 } else { 0 };
    let empty: Vec<usize> = (0..shards.len()).filter(|i| entries(&shards[*i].spec) == 0).skip(spare).collect();
    let mut writes = ShardWrites::default();
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    for (at, shard) in shards.into_iter().enumerate() {
        if empty.contains(&at) {
            writes.remove.push(shard.name);
        } else if stored.get(&shard.name) == Some(&shard.spec) {
            same.push(shard);
        } else {
            changed.push(shard);
        }
    }
    changed.sort_by_key(|shard| shard.added);
    if changed.is_empty() && (!known || !writes.remove.is_empty()) {
        changed.extend(same.into_iter().next());
    }
    if let Some(last) = changed.last_mut().filter(|_| observed.is_some()) {
        last.spec.last_observed = observed;
    }
    writes.put = changed.into_iter().map(|shard| (shard.name, shard.spec)).collect();
    writes
}

/// Entries without an object.
struct UnplacedEntries {
    sightings: BTreeMap<String, SightingEntry>,
    volumes: BTreeMap<String, VolumeEntry>,
    deletions: VecDeque<DeletionEntry>,
    trips: VecDeque<TripEntry>,
}

impl UnplacedEntries {
    fn of(records: &OrphanRecords) -> Self {
        let all = convert::record_objects(records);
        Self {
            sightings: all
                .iter()
                .flat_map(|o| o.sightings.iter().flatten())
                .map(|s| (s.id.clone(), s.clone()))
                .collect(),
            volumes: all.iter().flat_map(|o| o.volumes.iter().flatten()).map(|v| (v.disk.clone(), v.clone())).collect(),
            deletions: all.iter().flat_map(|o| o.deletions.iter().flatten()).cloned().collect(),
            trips: all.iter().flat_map(|o| o.trips.iter().flatten()).cloned().collect(),
        }
    }

    /// The object with those of its entries that still exist, updated.
    fn keep(&mut self, name: &str, spec: &OrphanRecordSpec) -> Shard {
        let mut updated = spec.clone();
        let sightings = spec.sightings.iter().flatten().filter_map(|e| self.sightings.remove(&e.id));
        updated.sightings = some(sightings.collect());
        let volumes = spec.volumes.iter().flatten().filter_map(|e| self.volumes.remove(&e.disk));
        updated.volumes = some(volumes.collect());
        updated.deletions =
            some(spec.deletions.iter().flatten().filter_map(|e| take(&mut self.deletions, e)).collect());
        updated.trips = some(spec.trips.iter().flatten().filter_map(|e| take(&mut self.trips, e)).collect());
        Shard { name: name.to_owned(), bytes: length(&updated), spec: updated, added: EntryPriority::Nothing }
    }

    /// Adds the remaining entries to objects with space.
    fn put_rest(self, shards: &mut Vec<Shard>) {
        let mut at = 0;
        for trip in self.trips {
            shard_with_room(shards, &mut at, EntryPriority::Trip, length(&trip))
                .trips
                .get_or_insert_default()
                .push(trip);
        }
        for deletion in self.deletions {
            shard_with_room(shards, &mut at, EntryPriority::Deletion, length(&deletion))
                .deletions
                .get_or_insert_default()
                .push(deletion);
        }
        for sighting in self.sightings.into_values() {
            shard_with_room(shards, &mut at, EntryPriority::Other, length(&sighting))
                .sightings
                .get_or_insert_default()
                .push(sighting);
        }
        for volume in self.volumes.into_values() {
            shard_with_room(shards, &mut at, EntryPriority::Other, length(&volume))
                .volumes
                .get_or_insert_default()
                .push(volume);
        }
    }
}

/// The first object from `at` on with space for one more entry.
fn shard_with_room<'a>(
    shards: &'a mut Vec<Shard>,
    at: &mut usize,
    priority: EntryPriority,
    bytes: usize,
) -> &'a mut OrphanRecordSpec {
    let full = |shard: &Shard| {
        let entries = entries(&shard.spec);
        entries >= MAX_ENTRIES || entries > 0 && shard.bytes + bytes > MAX_BYTES
    };
    while shards.get(*at).is_some_and(full) {
        *at += 1;
    }
    if *at == shards.len() {
        let shard = new_shard(shards);
        shards.push(shard);
    }
    let shard = &mut shards[*at];
    shard.added = shard.added.min(priority);
    shard.bytes += bytes;
    &mut shard.spec
}

/// An empty object with the first number that is free.
fn new_shard(shards: &[Shard]) -> Shard {
    let names = (0..=shards.len()).map(|i| format!("{PREFIX}{i}"));
    let free = names.into_iter().find(|name| !shards.iter().any(|s| s.name == *name));
    Shard { name: free.unwrap_or_default(), spec: OrphanRecordSpec::default(), bytes: 0, added: EntryPriority::Nothing }
}

/// How long something is as JSON.
fn length(part: &impl Serialize) -> usize {
    serde_json::to_vec(part).map_or(0, |text| text.len())
}

fn entries(spec: &OrphanRecordSpec) -> usize {
    let lengths = [
        spec.sightings.as_ref().map(Vec::len),
        spec.volumes.as_ref().map(Vec::len),
        spec.deletions.as_ref().map(Vec::len),
        spec.trips.as_ref().map(Vec::len),
    ];
    lengths.into_iter().flatten().sum()
}

/// Takes one equal entry out of a list.
fn take<T: PartialEq>(from: &mut VecDeque<T>, entry: &T) -> Option<T> {
    let at = from.iter().position(|e| e == entry)?;
    from.remove(at)
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use napkeeper_core::model::azure::cloud::ResourceKind;
    use napkeeper_core::model::names::ArmId;
    use napkeeper_core::model::orphans::record::{BreakerTrip, DeletionRecord, Sighting};
    use napkeeper_core::orphans::apply;
    use napkeeper_core::plan::RecordChange;
    use std::sync::Arc;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + seconds).unwrap()
    }

    fn id(n: u32) -> ArmId {
        ArmId::new(format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d{n:05}")).unwrap()
    }

    fn sighting(seconds: i64) -> Sighting {
        Sighting {
            kind: ResourceKind::OsDisk,
            incarnation: Arc::from("i"),
            tags: Default::default(),
            first_seen: at(0),
            last_seen: at(seconds),
            times: 1,
        }
    }

    fn sighted(ids: impl IntoIterator<Item = u32>) -> RecordChange {
        RecordChange { sightings: ids.into_iter().map(|n| (id(n), sighting(0))).collect(), ..RecordChange::default() }
    }

    /// The stored objects after the first writes up to `crash`.
    fn written(
        stored: &BTreeMap<String, OrphanRecordSpec>,
        writes: &ShardWrites,
        crash: usize,
    ) -> BTreeMap<String, OrphanRecordSpec> {
        let mut after = stored.clone();
        let put = writes.put.iter().map(|(name, spec)| (name, Some(spec)));
        let remove = writes.remove.iter().map(|name| (name, None));
        for (name, spec) in put.chain(remove).take(crash) {
            match spec {
                Some(spec) => drop(after.insert(name.clone(), spec.clone())),
                None => drop(after.remove(name)),
            }
        }
        after
    }

    fn read(stored: &BTreeMap<String, OrphanRecordSpec>) -> OrphanRecords {
        convert::records(stored.values()).unwrap()
    }

    /// Applies a change and writes it, checking the state after a crash between any two writes.
    fn step(
        stored: &BTreeMap<String, OrphanRecordSpec>,
        change: RecordChange,
        check: impl Fn(&OrphanRecords, usize),
    ) -> (BTreeMap<String, OrphanRecordSpec>, ShardWrites) {
        let mut records = read(stored);
        apply(&mut records, change);
        let writes = distribute(stored, &records);
        let all = writes.put.len() + writes.remove.len();
        (0..=all).for_each(|crash| check(&read(&written(stored, &writes, crash)), crash));
        let after = written(stored, &writes, all);
        assert_eq!(read(&after), records, "what was meant is what is read");
        assert!(after.values().all(|spec| entries(spec) <= MAX_ENTRIES));
        assert_eq!(distribute(&after, &records), ShardWrites::default(), "nothing is written twice");
        (after, writes)
    }

    #[test]
    fn entries_are_not_moved_and_only_changes_are_written() {
        let (stored, writes) = step(&BTreeMap::new(), sighted((0..1200).map(|n| n * 2)), |_, _| ());
        let names: Vec<&str> = writes.put.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["napkeeper-records-0", "napkeeper-records-1", "napkeeper-records-2"]);
        let (stored, writes) = step(&stored, sighted([3]), |_, _| ());
        assert_eq!(writes.put.len(), 1, "an entry in the middle moves no other");
        let removed =
            RecordChange { removed_sightings: (0..500).map(|n| id(n * 2)).collect(), ..RecordChange::default() };
        let (stored, writes) = step(&stored, removed, |_, _| ());
        assert_eq!(writes.remove, ["napkeeper-records-0"]);
        let (_, writes) = step(&stored, sighted((0..400).map(|n| n * 2 + 1001)), |_, _| ());
        let names: Vec<&str> = writes.put.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["napkeeper-records-2", "napkeeper-records-0"], "a number that is free is used again");
    }

    #[test]
    fn a_crash_between_two_writes_loses_nothing_that_was_recorded_and_shows_trips_first() {
        let deletion = DeletionRecord {
            id: id(9999),
            incarnation: Arc::from("i"),
            kind: ResourceKind::Nic,
            at: at(1),
            evidence: vec![],
            failures: 0,
            refused: None,
        };
        let mut first = sighted(0..990);
        first.deletions = vec![deletion.clone()];
        let (stored, _) = step(&BTreeMap::new(), first, |_, _| ());
        let trip = BreakerTrip { at: at(2), kind: ResourceKind::OsDisk, suspects: 60, owned: 100, void: Vec::new() };
        let change = RecordChange {
            sightings: (980..1600).map(|n| (id(n), sighting(600))).collect(),
            removed_sightings: (0..500).map(id).collect(),
            trips: vec![trip],
            inventory_at: Some(at(600)),
            ..RecordChange::default()
        };
        let (_, writes) = step(&stored, change, |records, crash| {
            assert!(records.deletions.contains(&deletion), "crash {crash}");
            assert!((500..990).all(|n| records.sightings.contains_key(&id(n))), "crash {crash}");
            let news = records.sightings.keys().any(|known| *known >= id(990));
            assert!(!news || !records.trips.is_empty(), "crash {crash}: a sighting without the trip that it caused");
            let whole = records.sightings.contains_key(&id(1599));
            assert!(records.last_inventory_at.is_none() || whole, "crash {crash}: observed, and not all is durable");
        });
        assert!(writes.put.len() > 1);
    }

    #[test]
    fn long_tags_make_more_objects_and_none_too_long() {
        let mut change = sighted(0..600);
        for (_, sighting) in &mut change.sightings {
            sighting.tags =
                (0..50).map(|n| (Arc::from(format!("key-{n}-{}", "k".repeat(400))), Arc::from("v"))).collect();
        }
        let (stored, _) = step(&BTreeMap::new(), change, |_, _| ());
        assert!(stored.len() > 20 && stored.values().all(|spec| length(spec) <= MAX_BYTES + 100));
        assert_eq!(read(&stored).sightings.len(), 600);
        let (_, writes) = step(&stored, sighted([7]), |_, _| ());
        assert_eq!(writes.put.len(), 1, "the others stay where they are");
    }

    #[test]
    fn the_time_of_the_last_inventory_is_always_stored() {
        let observed = |s: i64| RecordChange { inventory_at: Some(at(s)), ..RecordChange::default() };
        let (stored, writes) = step(&BTreeMap::new(), observed(1), |_, _| ());
        assert_eq!(writes.put.len(), 1);
        let (stored, writes) = step(&stored, observed(2), |_, _| ());
        assert_eq!((writes.put.len(), stored.len()), (1, 1));
        let (stored, _) = step(&stored, sighted(0..501), |_, _| ());
        let mut all_removed = observed(3);
        all_removed.removed_sightings = (0..501).map(id).collect();
        let (stored, _) = step(&stored, all_removed, |_, _| ());
        assert_eq!((stored.len(), read(&stored).last_inventory_at), (1, Some(at(3))));
    }
}
