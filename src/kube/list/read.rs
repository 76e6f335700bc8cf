//! Reads single objects, right before what rests on them is written or deleted.

use super::{ListError, all_of, list};
use crate::error::{cluster_error, describe, is_not_found};
use crate::objects::{controller_time, raw_object};
use k8s_openapi::api::core::v1::{Node as WireNode, PersistentVolume, Pod};
use kube::api::ListParams;
use kube::{Client, Resource};
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::karpenter::NodeClaim;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{ClaimName, NodeName, ObjectName, ProviderId};
use napkeeper_core::plan::{ClusterRead, Reply};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a single read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Reads objects from the API server itself.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read or parsed.
pub async fn read(client: &Client, clock: &dyn Clock, read: &ClusterRead) -> Result<Reply, EffectError> {
    match read {
        ClusterRead::Claim(name) => read_claim(client, clock, name).await,
        ClusterRead::Node(provider) => read_node(client, clock, provider).await,
        ClusterRead::Pods(node) => read_pods(client, clock, node).await,
        ClusterRead::Volume(name) => read_volume(client, name).await,
    }
}

/// Reads a NodeClaim: [`Reply::Claim`], with none only if the server reports that it does not exist.
pub(super) async fn read_claim(client: &Client, clock: &dyn Clock, name: &ClaimName) -> Result<Reply, EffectError> {
    single(client, name.as_str(), |o: &NodeClaim| controller_time::claim(o, clock)).await.map(Reply::Claim)
}

/// Reads a PersistentVolume: [`Reply::Volume`], with none only if the server reports that it does not exist.
pub(super) async fn read_volume(client: &Client, name: &ObjectName) -> Result<Reply, EffectError> {
    single(client, name.as_str(), |o: &PersistentVolume| convert::volume(o).map(Arc::new)).await.map(Reply::Volume)
}

/// Reads the Node of a provider id, or else the one that has the VM's name, as before its provider id is set:
/// [`Reply::Node`]. The one of the VM's name is read first, since that is its Node as a rule. The API server finds no
/// Node by its provider id: where the name does not lead to it, all are listed. A Node of another VM need not be valid.
pub(super) async fn read_node(client: &Client, clock: &dyn Clock, provider: &ProviderId) -> Result<Reply, EffectError> {
    let vm = provider.vm().name().to_ascii_lowercase();
    let named = single(client, &vm, |object: &WireNode| {
        let is_it = provider_id_of(object).as_ref() == Some(provider);
        is_it.then(|| controller_time::node(object, clock)).transpose()
    });
    if let Some(Some(node)) = named.await? {
        return Ok(Reply::Node(Some(node)));
    }
    let may_be_it = |object: &WireNode| {
        let id = object.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        let is_of_vm = match ProviderId::parse(id) {
            Ok(id) => id == *provider,
            // Another cloud's is another machine's; one of Azure that cannot be read is not known.
            Err(_) => id.starts_with("azure:"),
        };
        is_of_vm || object.metadata.name.as_ref() == Some(&vm)
    };
    let convert = |object: &WireNode| may_be_it(object).then(|| controller_time::node(object, clock)).transpose();
    match all_of(client, convert).await {
        Ok(nodes) => {
            let exact = nodes.iter().find(|node| node.provider_id.as_ref() == Some(provider));
            Ok(Reply::Node(exact.or_else(|| nodes.first()).cloned()))
        }
        Err(error) => Err(failed("nodes", error)),
    }
}

fn provider_id_of(node: &WireNode) -> Option<ProviderId> {
    ProviderId::parse(node.spec.as_ref()?.provider_id.as_deref()?).ok()
}

/// Reads the pods of a Node: [`Reply::Pods`], those that cannot be parsed as opaque ones.
async fn read_pods(client: &Client, clock: &dyn Clock, node: &NodeName) -> Result<Reply, EffectError> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let convert = |object: &Pod| controller_time::pod(object, clock).map(|(pod, _)| Some(pod));
    let pods = list(&raw_object::all::<Pod>(client), of_node, convert).await;
    pods.map(Reply::Pods).map_err(|error| failed("pods", error))
}

async fn single<K, T>(
    client: &Client,
    name: &str,
    read: impl Fn(&K) -> Result<T, Violations>,
) -> Result<Option<T>, EffectError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let api = raw_object::all::<K>(client);
    match timeout(READ_TIMEOUT, api.get(name)).await {
        Ok(Ok(object)) => {
            let object = object.read().map_err(|reason| unreadable(name, &reason.to_string()))?;
            read(&object).map(Some).map_err(|reason| unreadable(name, &reason.to_string()))
        }
        Ok(Err(error)) if is_not_found(&error, name) => Ok(None),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(EffectError::Cluster(ClusterError::Unavailable)),
    }
}

fn failed(kind: &str, error: ListError) -> EffectError {
    match error {
        ListError::Refused(error) => refused(&error),
        ListError::Unreadable(reason) | ListError::Incomplete(reason) => unreadable(kind, &reason),
    }
}

/// A read that failed. If a kind is not served, the object is unknown, not absent.
fn refused(error: &kube::Error) -> EffectError {
    tracing::warn!(error = describe(error), "reading failed");
    EffectError::Cluster(match cluster_error(error) {
        ClusterError::Forbidden => ClusterError::Forbidden,
        _ => ClusterError::Unavailable,
    })
}

fn unreadable(name: &str, reason: &str) -> EffectError {
    tracing::warn!(name, why = reason, "cannot parse object");
    EffectError::Cluster(ClusterError::Unavailable)
}
