//! CapacityBuffers: listed, resolved to pods, and their status written.

use crate::FieldManager;
use crate::error::{ApiRequest, call};
use crate::list::{all_of, none_if_not_served};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use napkeeper_api::convert::{Resolved, Violations, buffer_status, capacity_buffer};
use napkeeper_api::types::capacity_buffer::{ACTIVE_CAPACITY, CapacityBuffer, CapacityBufferStatus, ScalableRef};
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::cluster::buffer::Buffer;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::provisioning::capacity_buffers::BufferPlacement;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Reason of a condition where a PodTemplate is not there.
const NO_TEMPLATE: &str = "PodTemplateNotFound";
/// Where a workload is not there.
const NO_SCALABLE: &str = "ScalableRefNotFound";

/// All CapacityBuffers with the supported strategy; none if the kind is not installed.
///
/// # Errors
/// [`ListFailure`] if any page cannot be read.
pub async fn capacity_buffers(client: &Client) -> Result<Vec<CapacityBuffer>, ListFailure> {
    let followed = |buffer: &CapacityBuffer| {
        let strategy = buffer.spec.provisioning_strategy.as_deref();
        let is_followed = strategy.is_none_or(|strategy| strategy == ACTIVE_CAPACITY);
        Ok((is_followed && buffer.metadata.deletion_timestamp.is_none()).then(|| buffer.clone()))
    };
    none_if_not_served(all_of(client, followed).await, &CapacityBuffer::plural(&()))
}

/// Reads the references of a CapacityBuffer, and computes its chunks.
///
/// # Errors
/// [`ClusterError`] if they cannot be read.
pub async fn resolve_buffer(client: &Client, buffer: &CapacityBuffer) -> Result<Resolved, ClusterError> {
    let namespace = buffer.namespace().unwrap_or_default();
    let spec = &buffer.spec;
    match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(named), None) => {
            let at = format!("PodTemplate {namespace}/{}: template", named.name);
            let Some(found) = get::<PodTemplate>(client, &namespace, &named.name).await? else {
                return Ok(Resolved::NotReady(
                    NO_TEMPLATE,
                    format!("PodTemplate {namespace}/{} not found", named.name),
                ));
            };
            let template = found.template.unwrap_or_default();
            let named = Some((named.name.clone(), found.metadata.generation));
            Ok(read(capacity_buffer(buffer, (&template, &at), None), named))
        }
        (None, Some(named)) => scalable(client, buffer, &namespace, named).await,
        (None, None) => Ok(Resolved::failed("neither podTemplateRef nor scalableRef is set: set one")),
        (Some(_), Some(_)) => Ok(Resolved::failed("podTemplateRef and scalableRef are mutually exclusive: remove one")),
    }
}

fn read(buffer: Result<Buffer, Violations>, template: Option<(String, Option<i64>)>) -> Resolved {
    match buffer {
        Ok(buffer) => Resolved::Ready(buffer, template),
        Err(violations) => Resolved::failed(violations.to_string()),
    }
}

async fn scalable(
    client: &Client,
    buffer: &CapacityBuffer,
    namespace: &str,
    named: &ScalableRef,
) -> Result<Resolved, ClusterError> {
    let ScalableRef { api_group, kind, name } = named;
    type Scaled = (PodTemplateSpec, Option<i32>);
    let found: Option<Scaled> = match (&**api_group, &**kind) {
        ("apps" | "", "Deployment") => {
            let found = get::<Deployment>(client, namespace, name).await?;
            found.and_then(|found| found.spec).map(|spec| (spec.template, spec.replicas))
        }
        ("apps" | "", "StatefulSet") => {
            let found = get::<StatefulSet>(client, namespace, name).await?;
            found.and_then(|found| found.spec).map(|spec| (spec.template, spec.replicas))
        }
        ("apps" | "", "ReplicaSet") => {
            let found = get::<ReplicaSet>(client, namespace, name).await?;
            found.and_then(|found| found.spec).map(|spec| (spec.template.unwrap_or_default(), spec.replicas))
        }
        _ => {
            let message = format!(
                "{kind} of {api_group:?} is not supported: use a Deployment, StatefulSet or ReplicaSet of apps"
            );
            return Ok(Resolved::failed(message));
        }
    };
    let Some((template, replicas)) = found else {
        return Ok(Resolved::NotReady(NO_SCALABLE, format!("{kind} {namespace}/{name} not found")));
    };
    let at = format!("{kind} {namespace}/{name}: spec.template");
    // One is the API's own default.
    Ok(read(capacity_buffer(buffer, (&template, &at), Some(replicas.unwrap_or(1))), None))
}

async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, ClusterError>
where
    K: k8s_openapi::Resource
        + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    call(ApiRequest { verb: "get", kind: K::KIND, name }, api.get_opt(name)).await
}

/// Writes the result for a CapacityBuffer into its status, if it has changed. The caller holds the Lease.
///
/// # Errors
/// [`ClusterError`] where the API server refuses or cannot be reached.
pub async fn update_buffer_status(
    client: &Client,
    buffer: &CapacityBuffer,
    resolved: &Resolved,
    placement: Option<&BufferPlacement>,
    now: Timestamp,
) -> Result<(), ClusterError> {
    let status = buffer_status(buffer, resolved, placement, now);
    if buffer.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let (namespace, name) = (buffer.namespace().unwrap_or_default(), buffer.name_any());
    let api: Api<CapacityBuffer> = Api::namespaced(client.clone(), &namespace);
    // Not by server-side apply: that keeps fields which another autoscaler has written before us. With the UID, only
    // this very object.
    let merge = json!({ "metadata": { "uid": buffer.metadata.uid }, "status": with_nulls(&status) });
    let params =
        PatchParams { field_manager: Some(FieldManager::Buffers.as_str().to_owned()), ..PatchParams::default() };
    let request = ApiRequest { verb: "patch status", kind: "CapacityBuffer", name: &name };
    call(request, api.patch_status(&name, &params, &Patch::Merge(&merge))).await.map(drop)
}

/// A status with nulls for absent fields, so that the patch removes them.
fn with_nulls(status: &CapacityBufferStatus) -> Value {
    let mut all = json!({ "podTemplateRef": null, "podTemplateGeneration": null, "replicas": null });
    if let (Some(all), Ok(Value::Object(known))) = (all.as_object_mut(), serde_json::to_value(status)) {
        all.extend(known);
    }
    all
}
