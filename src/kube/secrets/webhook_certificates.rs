//! The webhook's certificates: the Secret with the CA key, the Secret that the webhook serves, and the `caBundle` of its
//! hooks.
//!
//! Both Secrets are created empty by Git, so that napkeeper needs no permission to create Secrets, which would give it
//! the token of any service account. `caBundle` is the one field of each hook that is written, by server-side apply under a
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

/// Name of the Secret with authorities, the key of the newest, and the serving certificate. The webhook may not read it.
pub const CA_SECRET: &str = "napkeeper-webhook-ca";
/// Name of the Secret with the serving certificate and its key, which the webhook reads.
pub const TLS_SECRET: &str = "napkeeper-webhook-tls";

/// A Secret as it was read.
#[derive(Clone)]
pub struct TlsSecret {
    name: &'static str,
    secret: Secret,
}

impl fmt::Debug for TlsSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = &self.secret.metadata.resource_version;
        f.debug_struct("TlsSecret").field("name", &self.name).field("version", version).finish_non_exhaustive()
    }
}

impl TlsSecret {
    /// The value of a key; empty if it is not set.
    #[must_use]
    pub fn get(&self, key: &str) -> &[u8] {
        self.secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |bytes| bytes.0.as_slice())
    }

    /// True if it has these keys with these values, and no other key.
    #[must_use]
    pub fn has_exactly(&self, data: &BTreeMap<String, Vec<u8>>) -> bool {
        let keys = self.secret.data.as_ref().map_or(0, BTreeMap::len);
        keys == data.len() && data.iter().all(|(key, value)| self.get(key) == value.as_slice())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
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

/// Reads the Secret of this name; `None` if it does not exist.
///
/// # Errors
/// When it cannot be read.
pub async fn read_secret(
    client: &Client,
    namespace: &str,
    name: &'static str,
) -> Result<Option<TlsSecret>, ClusterError> {
    let request = ApiRequest { verb: "get", kind: "Secret", name };
    let http = secrets(namespace).get(name, &GetParams::default());
    let http = http.map_err(|_| ClusterError::Unavailable)?;
    let found = call(request, async {
        match client.request_text(http).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    });
    found.await?.map(|text| parsed(name, &text)).transpose()
}

/// Replaces all data of a Secret, if its version is still the one that was read.
///
/// # Errors
/// `Conflict` if it was changed; or if the API server rejects it or cannot be reached.
pub async fn write_secret(
    client: &Client,
    namespace: &str,
    read: &TlsSecret,
    data: BTreeMap<String, Vec<u8>>,
) -> Result<TlsSecret, ClusterError> {
    let TlsSecret { name, mut secret } = read.clone();
    secret.data = Some(data.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect());
    let request = ApiRequest { verb: "update", kind: "Secret", name };
    let manager = FieldManager::WebhookCa.as_str().to_owned();
    let params = PostParams { field_manager: Some(manager), ..PostParams::default() };
    let body = serde_json::to_vec(&secret).map_err(|_| ClusterError::Unavailable)?;
    let http = secrets(namespace).replace(name, &params, body).map_err(|_| ClusterError::Unavailable)?;
    parsed(name, &call(request, client.request_text(http)).await?)
}

/// kube-rs logs responses that it cannot parse, so these are not parsed by it.
fn secrets(namespace: &str) -> Request {
    Request::new(Secret::url_path(&(), Some(namespace)))
}

fn parsed(name: &'static str, text: &str) -> Result<TlsSecret, ClusterError> {
    let secret = serde_json::from_str(text);
    secret.map(|secret| TlsSecret { name, secret }).map_err(|_| {
        tracing::warn!(secret = name, "the API server's response is not a Secret");
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
        let secret = parsed(CA_SECRET, r#"{"metadata":{"resourceVersion":"7"},"data":{"ca.key":"c2VjcmV0"}}"#).unwrap();
        assert_eq!((secret.get("ca.key"), secret.get("tls.key")), (b"secret".as_slice(), [].as_slice()));
        assert_eq!(format!("{secret:?}"), r#"TlsSecret { name: "napkeeper-webhook-ca", version: Some("7"), .. }"#);
        let error = parsed(CA_SECRET, r#"{"data":{"ca.key":"no base64!"}}"#).unwrap_err();
        assert_eq!(error, ClusterError::Unavailable);
    }
    #[test]
    fn a_secret_with_another_key_is_not_the_same() {
        let secret = parsed(TLS_SECRET, r#"{"data":{"tls.crt":"YQ==","ca.key":"Yg=="}}"#).unwrap();
        let mut data = BTreeMap::from([("tls.crt".to_owned(), b"a".to_vec())]);
        assert!(!secret.has_exactly(&data));
        data.insert("ca.key".to_owned(), b"b".to_vec());
        assert!(secret.has_exactly(&data));
        data.insert("ca.key".to_owned(), b"c".to_vec());
        assert!(!secret.has_exactly(&data));
        assert!(parsed(TLS_SECRET, "{}").unwrap().has_exactly(&BTreeMap::new()));
    }
}
