//! Writes NodeRecords, the history of removed nodes.
//!
//! The object is read, the entries are added, and it is written if its version is still the one that was read. Adding an
//! entry twice is the same as once, so that on a conflict everything is repeated.

use super::{MAX_ATTEMPTS, Writer, pause_before};
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use kube::Api;
use kube::api::PostParams;
use napkeeper_api::convert;
use napkeeper_api::types::node_record::NodeRecord;
use napkeeper_core::model::cluster::node_record::with_removals;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::NodeRecordChange;

const KIND: &str = "NodeRecord";

impl Writer {
    /// Adds entries to a NodeRecord.
    pub(super) async fn record_removals(&self, change: &NodeRecordChange) -> Result<(), ClusterError> {
        for attempt in 1..=MAX_ATTEMPTS {
            match self.try_record_removals(change).await {
                // It was created in between.
                Err(ClusterError::Conflict) if attempt < MAX_ATTEMPTS => {
                    pause_before(attempt).await;
                }
                other => return other,
            }
        }
        Err(ClusterError::Conflict)
    }

    async fn try_record_removals(&self, change: &NodeRecordChange) -> Result<(), ClusterError> {
        let api: Api<NodeRecord> = Api::all(self.client.clone());
        let name = change.shard.to_string();
        let request = |verb| ApiRequest { verb, kind: KIND, name: &name };
        let existing = call(request("get"), api.get_opt(&name)).await?;
        let read = existing.as_ref().map(|object| convert::node_removals(&object.spec)).transpose();
        let known = read.map_err(|violations| {
            tracing::error!(kind = KIND, name, %violations, "cannot read the record of removed nodes; fix or delete the object");
            ClusterError::Unavailable
        })?;
        let spec = convert::node_record(&with_removals(known.unwrap_or_default(), change.removals.iter().cloned()));
        let manager = Some(FieldManager::History.as_str().to_owned());
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        match existing {
            Some(object) if object.spec == spec => Ok(()),
            Some(mut object) => {
                object.spec = spec;
                self.send(request("update"), api.replace(&name, &params, &object)).await.map(drop)
            }
            None => self.send(request("create"), api.create(&params, &NodeRecord::new(&name, spec))).await.map(drop),
        }
    }
}
