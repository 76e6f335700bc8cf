//! Core quotas of the region, and how much of each is used.

use crate::client::Azure;
use napkeeper_core::catalog::live::QuotaUsage;
use napkeeper_core::model::errors::CloudError;
use serde::Deserialize;
use std::sync::Arc;

/// Of `Microsoft.Compute/locations/usages`.
const VERSION: &str = "2024-07-01";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageRow {
    name: UsageName,
    current_value: i64,
    limit: i64,
}

#[derive(Debug, Deserialize)]
struct UsageName {
    value: Option<String>,
}

impl Azure {
    /// Usages and limits of the region. Those that count something other than cores are among them, and match no VM.
    ///
    /// # Errors
    /// [`CloudError`] where any page cannot be read.
    pub async fn usages(&self) -> Result<Vec<QuotaUsage>, CloudError> {
        let Self { subscription, settings, .. } = self;
        let path =
            format!("/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{}/usages", settings.region);
        let rows: Vec<UsageRow> = self.list_fact(&path, VERSION, &[]).await?;
        // A negative limit means unlimited.
        let limit = |n: i64| u64::try_from(n).unwrap_or(u64::MAX);
        let usage = |row: UsageRow| {
            let name = Arc::from(row.name.value?);
            Some(QuotaUsage { name, used: u64::try_from(row.current_value).unwrap_or(0), limit: limit(row.limit) })
        };
        Ok(rows.into_iter().filter_map(usage).collect())
    }
}
