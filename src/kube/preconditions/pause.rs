//! The pause switch.
//!
//! One ConfigMap, which Git makes without keys, so that no GitOps tool resets what an operator sets. Its keys are `launch`,
//! `disrupt` and `delete`; `"true"` pauses. A value that is neither true nor false pauses too: this is the safe reading.

use crate::error::{ApiRequest, call};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::settings::{Pause, PauseSwitch};

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

/// The paused operations, and keys whose value is neither true nor false.
pub(crate) fn pause(map: &ConfigMap) -> (Pause, Option<String>) {
    let mut held = Vec::new();
    let mut wrong = Vec::new();
    for switch in PauseSwitch::ALL {
        let key = switch.name();
        let text = map.data.as_ref().and_then(|data| data.get(key)).map(|text| text.trim());
        // Binary data is not "false".
        let bytes = || map.binary_data.as_ref()?.contains_key(key).then_some("(bytes)");
        match text.or_else(bytes) {
            None | Some("false") => continue,
            Some("true") => {}
            Some(text) => {
                wrong.push(format!(
                    "data.{key}: must be \"true\" or \"false\", got {text:?}; {key} is paused until this is fixed"
                ));
            }
        }
        held.push(switch);
    }
    (Pause::of(held), (!wrong.is_empty()).then(|| wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_is_neither_true_nor_false_pauses() {
        let delete = || Pause::of([PauseSwitch::Delete]);
        for (text, held) in [("true", delete()), ("false", Pause::default()), (" false\n", Pause::default())] {
            let map = serde_json::from_value(json!({ "metadata": {}, "data": { "delete": text } })).unwrap();
            assert_eq!(pause(&map), (held, None), "{text:?}");
        }
        for text in ["no", "", "TRUE"] {
            let map = serde_json::from_value(json!({ "metadata": {}, "data": { "delete": text } })).unwrap();
            let (held, wrong) = pause(&map);
            assert_eq!(held, delete(), "{text:?}");
            assert!(wrong.unwrap().contains("data.delete"), "{text:?}");
        }
        let map = serde_json::from_value(json!({ "metadata": {}, "binaryData": { "launch": "AAAA" } })).unwrap();
        assert_eq!(pause(&map).0, Pause::of([PauseSwitch::Launch]));
        assert_eq!(pause(&ConfigMap::default()), (Pause::default(), None));
    }
}
