//! The webhook's certificates: the Secret that its replicas share, and the `caBundle` of its hooks.
//!
//! The Secret is created empty by Git, so that napkeeper needs no permission to create Secrets, which would give it the
//! token of any service account. `caBundle` is the one field of each hook that is written, by server-side apply under a
//! field manager of its own.

use crate::FieldManager;
use crate::error::{ApiRequest, call};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, Request, Resource};
use kube::{Api, Client};
use napkeeper_core::model::errors::ClusterError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;

/// Name of the Secret.
pub const TLS_SECRET: &str = "napkeeper-webhook-tls";

/// The Secret as it was read.
#[derive(Clone)]
pub struct TlsSecret(Secret);

impl fmt::Debug for TlsSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSecret").field("version", &self.0.metadata.resource_version).finish_non_exhaustive()
    }
}

impl TlsSecret {
    /// The value of a key; empty if it is not set.
    #[must_use]
    pub fn get(&self, key: &str) -> &[u8] {
        self.0.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |bytes| bytes.0.as_slice())
    }
}

/// The authorities of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookBundle {
    /// The configuration, `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
    pub kind: &'static str,
    /// The hook's name.
    pub hook: String,
    /// The bundle, PEM; empty if there is none.
    pub pem: Vec<u8>,
    /// The configuration's version.
    pub version: String,
}

/// Reads the Secret; `None` if it does not exist.
///
/// # Errors
/// When it cannot be read.
pub async fn read_secret(client: &Client, namespace: &str) -> Result<Option<TlsSecret>, ClusterError> {
    let request = ApiRequest { verb: "get", kind: "Secret", name: TLS_SECRET };
    let http = secrets(namespace).get(TLS_SECRET, &GetParams::default());
    let http = http.map_err(|_| ClusterError::Unavailable)?;
    let found = call(request, async {
        match client.request_text(http).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    });
    found.await?.map(|text| parsed(&text)).transpose()
}

/// Writes all data of the Secret, if its version is still the one that was read.
///
/// # Errors
/// `Conflict` if it was changed; or if the API server rejects it or cannot be reached.
pub async fn write_secret(
    client: &Client,
    namespace: &str,
    read: &TlsSecret,
    data: BTreeMap<String, Vec<u8>>,
) -> Result<TlsSecret, ClusterError> {
    let mut secret = read.0.clone();
    secret.data = Some(data.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect());
    let request = ApiRequest { verb: "update", kind: "Secret", name: TLS_SECRET };
    let manager = FieldManager::WebhookCa.as_str().to_owned();
    let params = PostParams { field_manager: Some(manager), ..PostParams::default() };
    let body = serde_json::to_vec(&secret).map_err(|_| ClusterError::Unavailable)?;
    let http = secrets(namespace).replace(TLS_SECRET, &params, body).map_err(|_| ClusterError::Unavailable)?;
    parsed(&call(request, client.request_text(http)).await?)
}

/// kube-rs logs responses that it cannot parse, so these are not parsed by it.
fn secrets(namespace: &str) -> Request {
    Request::new(Secret::url_path(&(), Some(namespace)))
}

fn parsed(text: &str) -> Result<TlsSecret, ClusterError> {
    let secret = serde_json::from_str(text);
    secret.map(TlsSecret).map_err(|_| {
        tracing::warn!(secret = TLS_SECRET, "the API server's response is not a Secret");
        ClusterError::Unavailable
    })
}

/// Reads the bundles of all hooks in the configurations of this name. One that does not exist has no hooks.
///
/// # Errors
/// When a configuration cannot be read.
pub async fn read_bundles(client: &Client, name: &str) -> Result<Vec<HookBundle>, ClusterError> {
    let mut bundles = bundles_of::<ValidatingWebhookConfiguration>(client, name).await?;
    bundles.extend(bundles_of::<MutatingWebhookConfiguration>(client, name).await?);
    Ok(bundles)
}

/// A configuration of hooks.
trait Configuration:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + fmt::Debug + DeserializeOwned + Serialize
{
    const KIND: &str;

    /// Name and client configuration of each hook.
    fn hooks(self) -> Vec<(String, WebhookClientConfig)>;
}

impl Configuration for ValidatingWebhookConfiguration {
    const KIND: &str = "ValidatingWebhookConfiguration";

    fn hooks(self) -> Vec<(String, WebhookClientConfig)> {
        self.webhooks.into_iter().flatten().map(|hook| (hook.name, hook.client_config)).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    const KIND: &str = "MutatingWebhookConfiguration";

    fn hooks(self) -> Vec<(String, WebhookClientConfig)> {
        self.webhooks.into_iter().flatten().map(|hook| (hook.name, hook.client_config)).collect()
    }
}

async fn bundles_of<K: Configuration>(client: &Client, name: &str) -> Result<Vec<HookBundle>, ClusterError> {
    let request = ApiRequest { verb: "get", kind: K::KIND, name };
    let api: Api<K> = Api::all(client.clone());
    let Some(found) = call(request, api.get_opt(name)).await? else { return Ok(Vec::new()) };
    let version = found.meta().resource_version.clone().unwrap_or_default();
    let bundle = |(hook, config): (String, WebhookClientConfig)| HookBundle {
        kind: K::KIND,
        hook,
        pem: config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default(),
        version: version.clone(),
    };
    Ok(found.hooks().into_iter().map(bundle).collect())
}

/// Writes this bundle, and nothing else, to all hooks that were read, and takes over the ownership of the field. A
/// configuration that has changed since, or was deleted, is not written.
///
/// # Errors
/// `Conflict` when a configuration has changed; or when the API server refuses or cannot be reached. The other
/// configuration may have been written.
pub async fn publish_bundle(client: &Client, name: &str, hooks: &[HookBundle], pem: &[u8]) -> Result<(), ClusterError> {
    let one = apply::<ValidatingWebhookConfiguration>(client, name, hooks, pem).await;
    apply::<MutatingWebhookConfiguration>(client, name, hooks, pem).await.and(one)
}

async fn apply<K: Configuration>(
    client: &Client,
    name: &str,
    hooks: &[HookBundle],
    pem: &[u8],
) -> Result<(), ClusterError> {
    let kind = K::KIND;
    let of_kind: Vec<_> = hooks.iter().filter(|hook| hook.kind == kind).collect();
    let Some(first) = of_kind.first() else { return Ok(()) };
    if of_kind.iter().all(|hook| hook.pem == pem) {
        return Ok(());
    }
    let bundle = ByteString(pem.to_vec());
    let webhooks: Vec<_> =
        of_kind.iter().map(|hook| json!({ "name": hook.hook, "clientConfig": { "caBundle": bundle } })).collect();
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        // With a version, neither a deleted configuration nor a removed hook is created again.
        "metadata": { "name": name, "resourceVersion": first.version },
        "webhooks": webhooks,
    });
    let api: Api<K> = Api::all(client.clone());
    let params = PatchParams::apply(FieldManager::WebhookCa.as_str()).force();
    call(ApiRequest { verb: "apply", kind, name }, api.patch(name, &params, &Patch::Apply(&object))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_show_the_content_of_a_secret() {
        let secret = parsed(r#"{"metadata":{"resourceVersion":"7"},"data":{"ca.key":"c2VjcmV0"}}"#).unwrap();
        assert_eq!((secret.get("ca.key"), secret.get("tls.key")), (b"secret".as_slice(), [].as_slice()));
        assert_eq!(format!("{secret:?}"), r#"TlsSecret { version: Some("7"), .. }"#);
        let error = parsed(r#"{"data":{"ca.key":"no base64!"}}"#).unwrap_err();
        assert_eq!(error, ClusterError::Unavailable);
    }
}
