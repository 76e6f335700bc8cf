//! `/mutate`: which pods get a placement hint, and how is it written on them?

use crate::hint::{PLACEMENT_HINT, PlacementHint};
use crate::review::Request;
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_api::convert;
use napkeeper_core::cluster::pod::{Pod, PodOwner};
use serde_json::{Map, Value, json};

/// Namespaces of Kubernetes and AKS itself, whose pods are left alone.
const SYSTEM: [&str; 6] =
    ["kube-system", "kube-public", "kube-node-lease", "gatekeeper-system", "calico-system", "tigera-operator"];
/// Namespaces of AKS's add-ons begin so.
const ADD_ON: &str = "aks-";

/// Longest `generateName` that the API server uses.
const LONGEST_GENERATE_NAME: usize = 58;

/// The pod to be hinted at; `None` when it is not one that may have a hint, or cannot be read.
pub(crate) fn subject(request: &Request, own_namespace: &str) -> Option<Pod> {
    let kind = &request.kind;
    let is_pod = (&*kind.group, &*kind.version, &*kind.kind) == ("", "v1", "Pod");
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let left_alone = SYSTEM.contains(&namespace) || namespace.starts_with(ADD_ON) || namespace == own_namespace;
    if !is_pod || !request.is_write() || request.operation != "CREATE" || namespace.is_empty() || left_alone {
        return None;
    }
    let pod = convert::pod(&named(&request.object, namespace)?).ok()?;
    let placed = pod.node.is_some() || matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static);
    (!placed).then_some(pod)
}

/// The pod with namespace and name: before it is created it may have neither.
fn named(object: &Value, namespace: &str) -> Option<WirePod> {
    let mut object = object.clone();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("namespace".to_owned(), json!(namespace));
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        let prefix = metadata.get("generateName")?.as_str().filter(|prefix| !prefix.is_empty())?;
        let prefix: String = prefix.chars().take(LONGEST_GENERATE_NAME).collect();
        metadata.insert("name".to_owned(), json!(format!("{prefix}0")));
    }
    // Of no use for its place, and most of the text.
    metadata.shift_remove("managedFields");
    serde_json::from_value(object).ok()
}

/// The patch that writes a hint on a pod; empty when it has it already, or could not take it.
pub(crate) fn patch(object: &Value, hint: &PlacementHint) -> Vec<Value> {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return Vec::new() };
    let Ok(text) = serde_json::to_string(hint) else { return Vec::new() };
    match metadata.get("annotations").and_then(Value::as_object) {
        Some(annotations) if annotations.get(PLACEMENT_HINT).and_then(Value::as_str) == Some(&text) => Vec::new(),
        Some(_) => {
            let key = PLACEMENT_HINT.replace('~', "~0").replace('/', "~1");
            vec![json!({ "op": "add", "path": format!("/metadata/annotations/{key}"), "value": text })]
        }
        None => {
            let annotations = Map::from_iter([(PLACEMENT_HINT.to_owned(), json!(text))]);
            vec![json!({ "op": "add", "path": "/metadata/annotations", "value": annotations })]
        }
    }
}
