//! `napkeeper-facts`: how is the object written, and how is it followed?

use crate::FieldManager;
use crate::error::{What, call};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use napkeeper_api::facts::{FACTS_CONFIG_MAP, Published};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use serde_json::json;
use tokio::sync::watch;

/// Writes the object by server-side apply. Whoever calls holds the Lease.
///
/// # Errors
/// [`EffectError::Cluster`] when the API server refuses or cannot be reached.
pub async fn publish_facts(client: &Client, namespace: &str, published: &Published) -> Result<(), EffectError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": FACTS_CONFIG_MAP, "labels": { "app.kubernetes.io/name": "napkeeper" } },
        "data": published.data(),
    });
    let what = What { verb: "apply", kind: "ConfigMap", name: FACTS_CONFIG_MAP };
    let params = PatchParams::apply(FieldManager::Facts.as_str()).force();
    call(what, api.patch(FACTS_CONFIG_MAP, &params, &Patch::Apply(&object)))
        .await
        .map(drop)
        .map_err(EffectError::Cluster)
}

/// Reads the object; `None` where there is none, or it cannot be understood, which is logged.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read.
pub async fn read_facts(client: &Client, namespace: &str) -> Result<Option<Published>, EffectError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let what = What { verb: "get", kind: "ConfigMap", name: FACTS_CONFIG_MAP };
    match call(what, api.get_opt(FACTS_CONFIG_MAP)).await {
        Ok(map) => Ok(map.as_ref().and_then(understood)),
        Err(ClusterError::NotFound) => Ok(None),
        Err(error) => Err(EffectError::Cluster(error)),
    }
}

/// Follows the object for as long as somebody listens. `None` while there is none that is understood; what was seen
/// last stays while the API server is away.
pub async fn follow_facts(client: Client, namespace: &str, sender: watch::Sender<Option<Published>>) {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={FACTS_CONFIG_MAP}"));
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut seen_in_listing = false;
    while let Some(event) = events.next().await {
        let now = match event {
            Ok(watcher::Event::Init) => {
                seen_in_listing = false;
                continue;
            }
            Ok(watcher::Event::InitApply(map) | watcher::Event::Apply(map)) => {
                seen_in_listing = true;
                understood(&map)
            }
            Ok(watcher::Event::InitDone) if seen_in_listing => continue,
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "watching napkeeper-facts failed: keeping the last known state");
                continue;
            }
        };
        sender.send_replace(now);
        if sender.is_closed() {
            return;
        }
    }
}

fn understood(map: &ConfigMap) -> Option<Published> {
    match Published::read(map.data.as_ref()?) {
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
