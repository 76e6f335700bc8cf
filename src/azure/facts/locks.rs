//! Management locks of the node resource group.

use crate::arm::error::unavailable;
use crate::client::Azure;
use napkeeper_core::catalog::live::{Lock, LockLevel};
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use std::sync::Arc;

/// Of `Microsoft.Authorization/locks`.
const VERSION: &str = "2020-05-01";

#[derive(Debug, Deserialize)]
struct LockRow {
    id: String,
    properties: LockProperties,
}

#[derive(Debug, Deserialize)]
struct LockProperties {
    level: String,
    notes: Option<String>,
}

impl Azure {
    /// Locks of the group and its resources, without those of the subscription; a delete that the latter forbid is
    /// rejected with `ScopeLocked`.
    ///
    /// # Errors
    /// [`CloudError`] if any page cannot be read.
    pub async fn group_locks(&self) -> Result<Vec<Lock>, CloudError> {
        let path = format!("{}/providers/Microsoft.Authorization/locks", self.settings.group);
        let rows: Vec<LockRow> = self.list_fact(&path, VERSION, &[]).await?;
        rows.into_iter().map(lock).collect()
    }
}

fn lock(row: LockRow) -> Result<Lock, CloudError> {
    let id = ArmId::new(&row.id).map_err(|e| unavailable(format!("the id of a lock cannot be read: {e}")))?;
    let notes = row.properties.notes.filter(|n| !n.is_empty()).map(Arc::from);
    Ok(Lock { id, level: LockLevel::of(&row.properties.level), notes })
}
