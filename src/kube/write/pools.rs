//! Writes to NodePools: their status, and our finalizer. Their spec, which is Git's, is never written.

use super::{Target, Writer};
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use crate::objects::raw_object::{self, RawObject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource};
use napkeeper_api::convert::{self, WithoutSpec};
use napkeeper_api::types::karpenter::{NodeClaim, NodePool, NodePoolStatus};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::labels::{LAUNCH_INTENT, NODEPOOL, PLANNED_OFFERINGS, POOL_FINALIZER};
use napkeeper_core::model::names::{NodePoolName, Uid};
use napkeeper_core::plan::{PoolRelease, PoolReport};
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

    fn pool<'a>(&self, name: &'a NodePoolName, uid: &'a Uid) -> Target<'a, RawObject> {
        let api = raw_object::all::<NodePool>(&self.client);
        Target { api, kind: "NodePool", name: name.as_str(), uid, manager: FieldManager::Pools, status: false }
    }

    /// Puts our finalizer on a NodePool. One that is being deleted takes none, and no NodeClaim is created for it.
    pub(super) async fn hold_pool(&self, pool: &NodePoolName, uid: &Uid) -> Result<(), ClusterError> {
        self.update(&self.pool(pool, uid), |found| {
            let metadata = metadata_of(found)?;
            if metadata.deletion_timestamp.is_some() {
                return Err(ClusterError::NotFound);
            }
            let mut finalizers = metadata.finalizers.unwrap_or_default();
            let is_held = finalizers.iter().any(|finalizer| finalizer == POOL_FINALIZER);
            finalizers.push(POOL_FINALIZER.to_owned());
            Ok((!is_held).then(|| json!({ "metadata": { "finalizers": finalizers } })))
        })
        .await
    }

    /// Takes our finalizer off a NodePool that is being deleted. One without it, or that is gone, is as it should be.
    pub(super) async fn release_pool(&self, release: &PoolRelease) -> Result<(), ClusterError> {
        if !release.keeps_nodes && self.has_claims(&release.pool).await? {
            return Err(ClusterError::Conflict);
        }
        let target = self.pool(&release.pool, &release.uid);
        let released = self.update(&target, |found| {
            let metadata = metadata_of(found)?;
            if metadata.deletion_timestamp.is_none() {
                return Err(ClusterError::Conflict);
            }
            let finalizers = metadata.finalizers.unwrap_or_default();
            let others: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != POOL_FINALIZER).collect();
            Ok((others.len() < finalizers.len()).then(|| json!({ "metadata": { "finalizers": others } })))
        });
        match released.await {
            Err(ClusterError::NotFound) => Ok(()),
            other => other,
        }
    }

    /// True if a NodeClaim of ours of this NodePool exists, past the cache. None is created while the NodePool is being deleted.
    async fn has_claims(&self, pool: &NodePoolName) -> Result<bool, ClusterError> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        let of_pool = ListParams::default().labels(&format!("{NODEPOOL}={pool}"));
        let request = ApiRequest { verb: "list", kind: "NodeClaim", name: pool.as_str() };
        let found = call(request, api.list_metadata(&of_pool)).await?;
        let is_ours = |annotation: &String| annotation == LAUNCH_INTENT || annotation == PLANNED_OFFERINGS;
        Ok(found.items.iter().any(|claim| claim.metadata.annotations.iter().flatten().any(|(key, _)| is_ours(key))))
    }
}

/// The metadata of a NodePool, whose spec may be the one that cannot be read.
fn metadata_of(object: &RawObject) -> Result<ObjectMeta, ClusterError> {
    let pool: WithoutSpec<NodePoolStatus> = object.read().map_err(|_| ClusterError::Conflict)?;
    Ok(pool.metadata)
}
