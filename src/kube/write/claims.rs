//! Writes of NodeClaims: creation, launch intent, status, deletion, finalizer, owners.

use super::{Target, Writer, delete_of};
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::PostParams;
use napkeeper_api::convert;
use napkeeper_api::types::karpenter::{NodeClaim, NodePool};
use napkeeper_core::model::cluster::claim::{ClaimRef, LaunchIntent};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::labels::{FINALIZER, LAUNCH_INTENT, TERMINATION_TIMESTAMP};
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::plan::{ClaimDraft, ClaimUpdate};
use serde_json::json;
use std::collections::BTreeMap;

const KIND: &str = "NodeClaim";

impl Writer {
    fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.client.clone())
    }

    fn claim<'a>(&self, claim: &'a ClaimRef, manager: FieldManager, status: bool) -> Target<'a, NodeClaim> {
        Target { api: self.claims(), kind: KIND, name: claim.name.as_str(), uid: &claim.uid, manager, status }
    }

    /// Creates a NodeClaim. No owner deletes it: that is for us to do.
    pub(super) async fn create_claim(&self, draft: &ClaimDraft) -> Result<(), ClusterError> {
        let object = convert::claim_draft(draft).map_err(|error| unwritable(draft.name.as_str(), &error))?;
        if let Some(pool) = &draft.spec.pool {
            self.check_exists(pool).await?;
        }
        let manager = Some(FieldManager::Provisioner.as_str().to_owned());
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        let request = ApiRequest { verb: "create", kind: KIND, name: draft.name.as_str() };
        self.send(request, self.claims().create(&params, &object)).await.map(drop)
    }

    /// No NodeClaim is created for a NodePool that is deleted, or is being deleted.
    async fn check_exists(&self, pool: &NodePoolName) -> Result<(), ClusterError> {
        let pools: Api<NodePool> = Api::all(self.client.clone());
        let request = ApiRequest { verb: "get", kind: "NodePool", name: pool.as_str() };
        let found = call(request, pools.get_metadata_opt(pool.as_str())).await?.ok_or(ClusterError::NotFound)?;
        if found.metadata.deletion_timestamp.is_some() { Err(ClusterError::NotFound) } else { Ok(()) }
    }

    /// Removes NodePools from the owners of a NodeClaim.
    pub(super) async fn disown_claim(&self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let target = self.claim(claim, FieldManager::Provisioner, false);
        self.update(&target, |found| {
            let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
            let others: Vec<&OwnerReference> = owners.iter().filter(|owner| !convert::is_node_pool(owner)).collect();
            Ok((others.len() < owners.len()).then(|| json!({ "metadata": { "ownerReferences": others } })))
        })
        .await
    }

    pub(super) async fn write_intent(&self, claim: &ClaimRef, intent: &LaunchIntent) -> Result<(), ClusterError> {
        let text = serde_json::to_string(intent).map_err(|error| unwritable(claim.name.as_str(), &error))?;
        let target = self.claim(claim, FieldManager::Provisioner, false);
        self.update(&target, |found| {
            let meta = &found.metadata;
            // Without our finalizer the resources of the intent would leak.
            if meta.deletion_timestamp.is_some() || !has_finalizer(meta.finalizers.as_deref()) {
                return Err(ClusterError::Conflict);
            }
            let known = meta.annotations.as_ref().and_then(|all| all.get(LAUNCH_INTENT));
            let labels: BTreeMap<&str, &str> = intent.offering.key.labels().into();
            let patch = || json!({ "metadata": { "annotations": { LAUNCH_INTENT: text }, "labels": labels } });
            Ok((known != Some(&text)).then(patch))
        })
        .await
    }

    /// Records until when the drain must be over. An earlier time stays: a user may have ended it early.
    pub(super) async fn record_deadline(&self, claim: &ClaimRef, deadline: Timestamp) -> Result<(), ClusterError> {
        let target = self.claim(claim, FieldManager::Lifecycle, false);
        self.update(&target, |found| {
            let known = found.metadata.annotations.as_ref().and_then(|all| all.get(TERMINATION_TIMESTAMP));
            let known = known.and_then(|text| text.parse::<Timestamp>().ok());
            let patch = || json!({ "metadata": { "annotations": { TERMINATION_TIMESTAMP: whole_seconds(deadline) } } });
            Ok(known.is_none_or(|known| known > deadline).then(patch))
        })
        .await
    }

    pub(super) async fn update_claim(&self, claim: &ClaimRef, step: &ClaimUpdate) -> Result<(), ClusterError> {
        let target = self.claim(claim, FieldManager::Lifecycle, true);
        self.update(&target, |found| {
            let status = convert::apply_claim_update(found, step, self.clock.now());
            let known = found.status.as_ref() == Some(&status);
            Ok((!known).then(|| json!({ "status": status })))
        })
        .await
    }

    /// Deletes a NodeClaim; our finalizer keeps it until its resources are deleted.
    pub(super) async fn delete_claim(&self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let name = claim.name.as_str();
        let request = ApiRequest { verb: "delete", kind: KIND, name };
        self.send(request, self.claims().delete(name, &delete_of(&claim.uid))).await.map(drop)
    }

    /// Removes our finalizer. A deleted NodeClaim has none.
    pub(super) async fn remove_finalizer(&self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let target = self.claim(claim, FieldManager::Provisioner, false);
        let released = self.update(&target, |found| Ok(without_finalizer(found.metadata.finalizers.as_deref()))).await;
        match released {
            Err(ClusterError::NotFound) => Ok(()),
            other => other,
        }
    }
}

/// The patch that removes our finalizer; `None` if it is not set.
pub(super) fn without_finalizer(finalizers: Option<&[String]>) -> Option<serde_json::Value> {
    let others = || finalizers.into_iter().flatten().filter(|f| *f != FINALIZER).collect::<Vec<_>>();
    has_finalizer(finalizers).then(|| json!({ "metadata": { "finalizers": others() } }))
}

/// True if our finalizer is set.
pub(super) fn has_finalizer(finalizers: Option<&[String]>) -> bool {
    finalizers.into_iter().flatten().any(|f| f == FINALIZER)
}

/// The time as Karpenter reads it: RFC 3339 in whole seconds.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// No value of the domain's causes this; if one did, it must not look like a success.
fn unwritable(name: &str, error: &serde_json::Error) -> ClusterError {
    tracing::error!(kind = KIND, name, %error, "cannot serialize a NodeClaim to JSON");
    ClusterError::Unavailable
}
