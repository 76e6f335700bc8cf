//! Durable records: what does a write do to them?

use napkeeper_core::cluster::record::Records;
use napkeeper_core::plan::RecordChange;

/// The records after a change.
pub(super) fn changed(records: &Records, change: &RecordChange) -> Records {
    let mut records = records.clone();
    for id in &change.cleared {
        records.sightings.remove(id);
    }
    records.sightings.extend(change.sighted.iter().cloned());
    records.volumes.extend(change.volumes.iter().cloned());
    records.deletions.extend(change.deletions.iter().cloned());
    records.trips.extend(change.trips.iter().cloned());
    if let Some(before) = change.forget_before {
        records.deletions.retain(|d| d.at >= before);
        records.trips.retain(|t| t.at >= before);
    }
    records.last_observed = change.observed.or(records.last_observed);
    records
}
