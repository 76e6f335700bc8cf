//! Writes of conditions of NodePools.

use super::Writer;
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use napkeeper_api::convert;
use napkeeper_api::types::karpenter::NodePool;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::PoolReport;
use serde_json::json;

impl Writer {
    /// Writes our conditions of a NodePool by server-side apply: those of other controllers stay.
    pub(super) async fn report_pool(&self, report: &PoolReport) -> Result<(), ClusterError> {
        let api: Api<NodePool> = Api::all(self.client.clone());
        let name = report.pool.as_str();
        let request = |verb| ApiRequest { verb, kind: "NodePool", name };
        let pool = call(request("get"), api.get_opt(name)).await?.ok_or(ClusterError::NotFound)?;
        if pool.metadata.uid.as_deref() != Some(report.uid.as_str()) {
            return Err(ClusterError::Conflict);
        }
        let apply = json!({
            "apiVersion": NodePool::api_version(&()),
            "kind": NodePool::kind(&()),
            "metadata": { "name": name, "uid": report.uid.as_str() },
            "status": { "conditions": convert::pool_conditions(&pool, &report.conditions, self.clock.now()) },
        });
        let params = PatchParams::apply(FieldManager::Pools.as_str()).force();
        self.send(request("apply status"), api.patch_status(name, &params, &Patch::Apply(&apply))).await.map(drop)
    }
}
