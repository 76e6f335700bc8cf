//! Writes, reads and follows the ConfigMap `napkeeper-facts`.

use super::Followed;
use crate::FieldManager;
use crate::error::{ApiRequest, call};
use crate::objects::raw_object;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use napkeeper_api::azure_facts::{FACTS_CONFIG_MAP, PublishedFacts};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use serde_json::json;
use tokio::sync::watch;

/// Writes the object by server-side apply. The caller holds the Lease.
///
/// # Errors
/// [`EffectError::Cluster`] when the API server refuses or cannot be reached.
pub async fn publish_facts(client: &Client, namespace: &str, published: &PublishedFacts) -> Result<(), EffectError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": FACTS_CONFIG_MAP, "labels": { "app.kubernetes.io/name": "napkeeper" } },
        "data": published.data(),
    });
    let request = ApiRequest { verb: "apply", kind: "ConfigMap", name: FACTS_CONFIG_MAP };
    let params = PatchParams::apply(FieldManager::Facts.as_str()).force();
    call(request, api.patch(FACTS_CONFIG_MAP, &params, &Patch::Apply(&object)))
        .await
        .map(drop)
        .map_err(EffectError::Cluster)
}

/// Reads the ConfigMap; `None` if it does not exist, or cannot be parsed, which is logged.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read.
pub async fn read_facts(client: &Client, namespace: &str) -> Result<Option<PublishedFacts>, EffectError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let request = ApiRequest { verb: "get", kind: "ConfigMap", name: FACTS_CONFIG_MAP };
    match call(request, api.get_opt(FACTS_CONFIG_MAP)).await {
        Ok(map) => Ok(map.as_ref().and_then(parsed)),
        Err(ClusterError::NotFound) => Ok(None),
        Err(error) => Err(EffectError::Cluster(error)),
    }
}

/// Follows the ConfigMap until the receivers are dropped. `None` while none can be parsed; the last state is kept while
/// the API server cannot be reached.
pub async fn follow_facts(client: Client, namespace: &str, sender: watch::Sender<Option<PublishedFacts>>) {
    let api = raw_object::namespaced::<ConfigMap>(&client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={FACTS_CONFIG_MAP}"));
    let mut followed = Followed::of(api, config, FACTS_CONFIG_MAP, parsed);
    while !sender.is_closed() {
        if followed.changed().await {
            sender.send_replace(followed.objects.values().next().map(|published| PublishedFacts::clone(published)));
        }
    }
}

fn parsed(map: &ConfigMap) -> Option<PublishedFacts> {
    match PublishedFacts::read(map.data.as_ref()?) {
        Ok(published) => {
            for broken in &published.unreadable {
                tracing::warn!(broken, "cannot parse a fact of napkeeper-facts");
            }
            Some(published)
        }
        Err(error) => {
            tracing::warn!(%error, "ignoring napkeeper-facts");
            None
        }
    }
}
