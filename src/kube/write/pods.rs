//! Evictions and deletions of pods.

use super::{Writer, delete_of};
use crate::error::{ApiRequest, call};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::Status;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::names::{ObjectKey, Uid};

impl Writer {
    /// Evicts this incarnation of a pod.
    ///
    /// The eviction is built here: kube-rs misspells `deleteOptions`, so the API server would ignore the precondition.
    /// The UID is checked before, since the API server retries an eviction whose precondition fails, for longer than we
    /// wait.
    pub(super) async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<(), ClusterError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.namespace.as_str());
        let (name, text) = (pod.name.as_str(), pod.to_string());
        let request = |verb| ApiRequest { verb, kind: "Pod", name: &text };
        let found = call(request("get"), api.get_metadata_opt(name)).await?.ok_or(ClusterError::NotFound)?;
        if found.metadata.uid.as_deref() != Some(uid.as_str()) {
            return Err(ClusterError::Conflict);
        }
        let eviction = eviction(pod, uid);
        let params = PostParams::default();
        let response = api.create_subresource::<_, Status>("eviction", name, &params, &eviction);
        self.send(request("evict"), response).await.map(drop)
    }

    /// Deletes this incarnation of a pod, past PodDisruptionBudgets, with so much time to end.
    pub(super) async fn delete_pod(
        &self,
        pod: &ObjectKey,
        uid: &Uid,
        grace: SignedDuration,
    ) -> Result<(), ClusterError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.namespace.as_str());
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams { grace_period_seconds: Some(seconds), ..delete_of(uid) };
        let request = ApiRequest { verb: "delete", kind: "Pod", name: &pod.to_string() };
        self.send(request, api.delete(pod.name.as_str(), &params)).await.map(drop)
    }
}

fn eviction(pod: &ObjectKey, uid: &Uid) -> Eviction {
    let preconditions = Preconditions { uid: Some(uid.as_str().to_owned()), resource_version: None };
    Eviction {
        delete_options: Some(DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() }),
        metadata: ObjectMeta {
            name: Some(pod.name.as_str().to_owned()),
            namespace: Some(pod.namespace.as_str().to_owned()),
            ..ObjectMeta::default()
        },
    }
}
