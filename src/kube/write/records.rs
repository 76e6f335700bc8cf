//! Writes OrphanRecords, the durable memory of sweeps.
//!
//! All OrphanRecords are read, the change is applied, and only the objects that differ are written, each if its version
//! is still the one that was read. On a conflict everything is repeated: applying a change twice is the same as once.

use super::shards::{ShardWrites, distribute};
use super::{MAX_ATTEMPTS, Writer, pause_before};
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use napkeeper_api::convert;
use napkeeper_api::types::orphan_record::{OrphanRecord, OrphanRecordSpec};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::orphans::apply;
use napkeeper_core::plan::RecordChange;
use std::collections::BTreeMap;

const KIND: &str = "OrphanRecord";

impl Writer {
    fn records(&self) -> Api<OrphanRecord> {
        Api::all(self.client.clone())
    }

    /// Makes a change to the records durable.
    pub(super) async fn write_records(&self, change: &RecordChange) -> Result<(), ClusterError> {
        let _one_at_a_time = self.records.lock().await;
        for attempt in 1..=MAX_ATTEMPTS {
            match self.try_write_records(change).await {
                Err(ClusterError::Conflict | ClusterError::NotFound) if attempt < MAX_ATTEMPTS => {
                    pause_before(attempt).await;
                }
                other => return other,
            }
        }
        Err(ClusterError::Conflict)
    }

    async fn try_write_records(&self, change: &RecordChange) -> Result<(), ClusterError> {
        let request = ApiRequest { verb: "list", kind: KIND, name: "" };
        let listed = call(request, self.records().list(&ListParams::default())).await?;
        let mut objects: BTreeMap<String, OrphanRecord> =
            listed.items.into_iter().filter_map(|o| Some((o.metadata.name.clone()?, o))).collect();
        let mut records = convert::records(objects.values().map(|o| &o.spec)).map_err(|violations| {
            // Unreadable records must not be overwritten: they may be the only proof of a deletion.
            tracing::error!(kind = KIND, %violations, "cannot read the records; fix or delete the object");
            ClusterError::Unavailable
        })?;
        apply(&mut records, change.clone());
        let specs = objects.iter().map(|(name, object)| (name.clone(), object.spec.clone())).collect();
        let ShardWrites { put, remove } = distribute(&specs, &records);
        for (name, spec) in put {
            self.put_record(&name, objects.remove(&name), spec).await?;
        }
        for name in remove {
            if let Some(object) = objects.get(&name) {
                self.remove_record(&name, object).await?;
            }
        }
        Ok(())
    }

    async fn put_record(
        &self,
        name: &str,
        existing: Option<OrphanRecord>,
        spec: OrphanRecordSpec,
    ) -> Result<(), ClusterError> {
        let manager = Some(FieldManager::Records.as_str().to_owned());
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        match existing {
            Some(mut object) => {
                object.spec = spec;
                let request = ApiRequest { verb: "update", kind: KIND, name };
                self.send(request, self.records().replace(name, &params, &object)).await.map(drop)
            }
            None => {
                let request = ApiRequest { verb: "create", kind: KIND, name };
                self.send(request, self.records().create(&params, &OrphanRecord::new(name, spec))).await.map(drop)
            }
        }
    }

    async fn remove_record(&self, name: &str, object: &OrphanRecord) -> Result<(), ClusterError> {
        let meta = &object.metadata;
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = ApiRequest { verb: "delete", kind: KIND, name };
        match self.send(request, self.records().delete(name, &params)).await {
            Err(ClusterError::NotFound) => Ok(()),
            other => other.map(drop),
        }
    }
}
