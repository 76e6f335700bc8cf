//! The pause switch: what must not be done for now?
//!
//! One ConfigMap, in Git or by kubectl. Its keys are `launch`, `disrupt` and `delete`; `"true"` holds back. What cannot
//! be understood holds back too: whoever wrote it meant to stop something.

use crate::error::{What, call};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use napkeeper_core::plan::{Pause, Switch};
use napkeeper_core::ports::PortError;

/// Name of the ConfigMap.
pub const PAUSE_CONFIG_MAP: &str = "napkeeper-pause";
const SWITCHES: [(&str, Switch); 3] =
    [("launch", Switch::Launch), ("disrupt", Switch::Disrupt), ("delete", Switch::Delete)];

/// Reads the pause switch from the API server, past every cache. No ConfigMap is nothing paused.
///
/// # Errors
/// [`PortError::Cluster`] when it cannot be read: whoever asks must not go on as if nothing were paused.
pub async fn read_pause(client: &Client, namespace: &str) -> Result<Pause, PortError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let what = What { verb: "get", kind: "ConfigMap", name: PAUSE_CONFIG_MAP };
    let map = call(what, api.get_opt(PAUSE_CONFIG_MAP)).await.map_err(PortError::Cluster)?;
    Ok(map.as_ref().map(pause).unwrap_or_default())
}

/// What the ConfigMap holds back.
#[must_use]
pub fn pause(map: &ConfigMap) -> Pause {
    let value = |key: &str| {
        let text = map.data.as_ref().and_then(|data| data.get(key)).map(|text| text.trim());
        // Bytes are no text that says false.
        text.or_else(|| map.binary_data.as_ref()?.contains_key(key).then_some("?"))
    };
    let set = SWITCHES.into_iter().filter(|(key, _)| !matches!(value(key), None | Some("false")));
    Pause::of(set.map(|(_, switch)| switch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_understood_holds_back() {
        for (text, held) in [("true", true), ("false", false), (" false\n", false), ("no", true), ("", true)] {
            let map = serde_json::from_value(json!({ "metadata": {}, "data": { "delete": text } })).unwrap();
            assert_eq!(pause(&map), if held { Pause::of([Switch::Delete]) } else { Pause::default() }, "{text:?}");
        }
        let map = serde_json::from_value(json!({ "metadata": {}, "binaryData": { "launch": "AAAA" } })).unwrap();
        assert_eq!(pause(&map), Pause::of([Switch::Launch]));
        assert_eq!(pause(&ConfigMap::default()), Pause::default());
    }
}
