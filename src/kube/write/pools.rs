//! Writes of the status of NodePools.

use super::Writer;
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use crate::objects::raw_object;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use napkeeper_api::convert::{self, WithoutSpec};
use napkeeper_api::types::karpenter::{NodePool, NodePoolStatus};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::PoolReport;
use serde_json::json;

impl Writer {
    /// Writes our part of the status of a NodePool by server-side apply: that of other controllers stays. Its spec is not
    /// read: it may be the one that cannot be.
    pub(super) async fn report_pool(&self, report: &PoolReport) -> Result<(), ClusterError> {
        let api = raw_object::all::<NodePool>(&self.client);
        let name = report.pool.as_str();
        let request = |verb| ApiRequest { verb, kind: "NodePool", name };
        let found = call(request("get"), api.get_opt(name)).await?.ok_or(ClusterError::NotFound)?;
        let pool: WithoutSpec<NodePoolStatus> = found.read().map_err(|_| ClusterError::Conflict)?;
        let is_same = pool.metadata.uid.as_deref() == Some(report.uid.as_str());
        if !is_same || !report.status.conditions.may_be_about(pool.metadata.generation) {
            return Err(ClusterError::Conflict);
        }
        let apply = json!({
            "apiVersion": NodePool::api_version(&()),
            "kind": NodePool::kind(&()),
            "metadata": { "name": name, "uid": report.uid.as_str() },
            "status": convert::pool_status(pool.status.as_ref(), &report.status, self.clock.now()),
        });
        let params = PatchParams::apply(FieldManager::Pools.as_str()).force();
        self.send(request("apply status"), api.patch_status(name, &params, &Patch::Apply(&apply))).await.map(drop)
    }
}
