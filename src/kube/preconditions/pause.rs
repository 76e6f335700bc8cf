//! The pause switch.
//!
//! One ConfigMap, which Git makes without keys, so that no GitOps tool resets what an operator sets. [`Pause::read`] has its
//! keys and values.

use crate::error::{ApiRequest, call};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::settings::Pause;

/// Name of the ConfigMap.
pub const PAUSE_CONFIG_MAP: &str = "napkeeper-pause";

/// Reads the pause switch from the API server, past every cache. Without a ConfigMap nothing is paused here; that one
/// has disappeared is for the watch to say.
///
/// # Errors
/// [`EffectError::Cluster`] if it cannot be read: callers must not assume that nothing is paused.
pub async fn read_pause(client: &Client, namespace: &str) -> Result<Pause, EffectError> {
    let map = read_map(client, namespace).await.map_err(EffectError::Cluster)?;
    Ok(map.map(|map| pause(&map).0).unwrap_or_default())
}

/// Whether the pause switch exists now; false if it cannot be read.
pub async fn pause_switch_exists(client: &Client, namespace: &str) -> bool {
    matches!(read_map(client, namespace).await, Ok(Some(_)))
}

async fn read_map(client: &Client, namespace: &str) -> Result<Option<ConfigMap>, ClusterError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let request = ApiRequest { verb: "get", kind: "ConfigMap", name: PAUSE_CONFIG_MAP };
    call(request, api.get_opt(PAUSE_CONFIG_MAP)).await
}

/// What is paused, and what cannot be read of it. Binary data is not text.
pub(crate) fn pause(map: &ConfigMap) -> (Pause, Option<String>) {
    let texts = map.data.iter().flatten().map(|(key, text)| (key.as_str(), Some(text.as_str())));
    let bytes = map.binary_data.iter().flatten().map(|(key, _)| (key.as_str(), None));
    let (pause, wrong) = Pause::read(texts.chain(bytes));
    (pause, (!wrong.is_empty()).then(|| wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::settings::PauseSwitch;
    use serde_json::json;

    #[test]
    fn data_and_binary_data_pause() {
        let map = serde_json::from_value(json!({ "metadata": {}, "data": { "delete": "true", "launch": "false" } }));
        assert_eq!(pause(&map.unwrap()), (Pause::of([PauseSwitch::Delete]), None));
        let map = serde_json::from_value(json!({ "metadata": {}, "binaryData": { "launch": "AAAA" } })).unwrap();
        let (held, wrong) = pause(&map);
        assert_eq!(held, Pause::of([PauseSwitch::Launch]));
        assert!(wrong.is_some_and(|wrong| wrong.contains("data.launch")));
        assert_eq!(pause(&ConfigMap::default()), (Pause::default(), None));
    }
}
