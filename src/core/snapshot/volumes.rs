//! PersistentVolumes, and the reclaim policy Retain of deleted ones.
//!
//! A policy that is changed to Retain right before its volume is deleted is in no later state: it is remembered until the
//! durable records have it.

use super::{Snapshot, Table};
use crate::model::cluster::volume::{ReclaimPolicy, Volume};
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::record::OrphanRecords;
use std::sync::Arc;

impl Snapshot {
    /// All PersistentVolumes.
    #[must_use]
    pub fn volumes(&self) -> &Table<ObjectName, Volume> {
        &self.volumes
    }

    /// Deleted PersistentVolumes with reclaim policy Retain that the durable records do not have with it.
    pub fn unrecorded_retained_volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.unrecorded_retained_volumes.values()
    }

    /// Adds or replaces one of the PersistentVolumes.
    pub fn put_volume(&mut self, key: ObjectName, row: impl Into<Arc<Volume>>) {
        let row = row.into();
        // Only the volume itself can revoke its policy.
        self.unrecorded_retained_volumes.retain(|_, gone| gone.name != key || gone.handle != row.handle);
        let old = self.volumes.put(key, Arc::clone(&row));
        if let Some(old) = old.filter(|old| old.handle != row.handle) {
            self.remember_retained(old);
        }
    }

    /// Removes one of the PersistentVolumes.
    pub fn remove_volume(&mut self, key: &ObjectName) {
        if let Some(old) = self.volumes.remove(key) {
            self.remember_retained(old);
        }
    }

    /// Replaces the durable records.
    pub fn set_records(&mut self, records: Arc<OrphanRecords>) {
        self.records = records;
        let records = Arc::clone(&self.records);
        self.unrecorded_retained_volumes.retain(|disk, _| !is_retained(&records, disk));
    }

    /// Forgets deleted PersistentVolumes, as a restart does.
    pub fn forget_deleted_volumes(&mut self) {
        self.unrecorded_retained_volumes.clear();
    }

    fn remember_retained(&mut self, gone: Arc<Volume>) {
        let Some(disk) = gone.handle.clone().filter(|_| gone.reclaim == ReclaimPolicy::Retain) else { return };
        if !is_retained(&self.records, &disk) {
            self.unrecorded_retained_volumes.insert(disk, gone);
        }
    }
}

/// True when the records have this disk as retained.
fn is_retained(records: &OrphanRecords, disk: &ArmId) -> bool {
    records.volumes.get(disk).is_some_and(|known| known.reclaim == ReclaimPolicy::Retain)
}
