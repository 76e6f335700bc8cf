//! Locks: what may not be deleted or changed in the node resource group?

use crate::azure::Azure;
use crate::error::unavailable;
use napkeeper_core::catalog::live::{Lock, LockLevel};
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use std::sync::Arc;

/// Of `Microsoft.Authorization/locks`.
const VERSION: &str = "2020-05-01";

#[derive(Debug, Deserialize)]
struct Entry {
    id: String,
    properties: Properties,
}

#[derive(Debug, Deserialize)]
struct Properties {
    level: String,
    notes: Option<String>,
}

impl Azure {
    /// Locks of the group and of what is in it. Those of the subscription are not among them; a delete that one of them
    /// forbids is refused with `ScopeLocked` all the same.
    ///
    /// # Errors
    /// [`CloudError`] where any page cannot be read.
    pub async fn group_locks(&self) -> Result<Vec<Lock>, CloudError> {
        let path = format!("{}/providers/Microsoft.Authorization/locks", self.settings.group);
        let entries: Vec<Entry> = self.whole_list(&path, VERSION, &[]).await?;
        entries.into_iter().map(lock).collect()
    }
}

fn lock(entry: Entry) -> Result<Lock, CloudError> {
    let id = ArmId::new(&entry.id).map_err(|e| unavailable(format!("the id of a lock cannot be read: {e}")))?;
    let notes = entry.properties.notes.filter(|n| !n.is_empty()).map(Arc::from);
    Ok(Lock { id, level: LockLevel::of(&entry.properties.level), notes })
}
