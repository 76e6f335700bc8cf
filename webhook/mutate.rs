//! `/mutate`: which pods get a placement hint, and how is it written on them?

use crate::hint::{PLACEMENT_HINT, PlacementHint};
use crate::review::Request;
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_api::convert;
use napkeeper_api::path::pointer_token;
use napkeeper_core::cluster::pod::{Pod, PodOwner};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Namespaces of Kubernetes and AKS itself, whose pods are left alone.
const SYSTEM: [&str; 6] =
    ["kube-system", "kube-public", "kube-node-lease", "gatekeeper-system", "calico-system", "tigera-operator"];
/// Namespaces of AKS's add-ons begin so.
const ADD_ON: &str = "aks-";

/// Where annotations are.
pub(crate) const ANNOTATIONS: &str = "/metadata/annotations";

/// Longest `generateName` that the API server uses.
const LONGEST_GENERATE_NAME: usize = 58;

/// A pod that may have a hint.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The pod, with a name that it could have.
    pub(crate) pod: Pod,
    /// What the API server will make its name from, where it has none.
    pub(crate) prefix: Option<Arc<str>>,
    /// The hint that it carries already.
    pub(crate) noted: Option<PlacementHint>,
    /// Nothing will be written.
    pub(crate) dry_run: bool,
}

/// The namespace of a pod that is being created, if it is one where pods are looked at.
pub(crate) fn namespace<'r>(request: &'r Request, own_namespace: &str) -> Option<&'r str> {
    let kind = &request.kind;
    let is_pod = (&*kind.group, &*kind.version, &*kind.kind) == ("", "v1", "Pod");
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let left_alone = SYSTEM.contains(&namespace) || namespace.starts_with(ADD_ON) || namespace == own_namespace;
    let wanted = is_pod && request.is_write() && request.operation == "CREATE" && !namespace.is_empty() && !left_alone;
    wanted.then_some(namespace)
}

/// The pod to be hinted at; `None` when it is not one that may have a hint, or cannot be read.
pub(crate) fn subject(object: &Value, namespace: &str, dry_run: bool) -> Option<Subject> {
    let mut wire = WirePod::deserialize(object).ok()?;
    let prefix = name(&mut wire, namespace)?;
    let pod = convert::pod(&wire).ok()?;
    let placed = pod.node.is_some() || matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static);
    let noted = || PlacementHint::read(wire.metadata.annotations.as_ref()?.get(PLACEMENT_HINT)?);
    (!placed).then(|| Subject { noted: noted(), pod, prefix, dry_run })
}

/// Gives the pod its namespace and a name: before it is created it may have neither. Returns what its name will be made
/// from, where it has none; `None` outside when there is nothing to make one from.
fn name(pod: &mut WirePod, namespace: &str) -> Option<Option<Arc<str>>> {
    let metadata = &mut pod.metadata;
    metadata.namespace = Some(namespace.to_owned());
    if metadata.name.as_ref().is_some_and(|name| !name.is_empty()) {
        return Some(None);
    }
    let prefix = metadata.generate_name.as_deref().filter(|prefix| !prefix.is_empty())?;
    let prefix: String = prefix.chars().take(LONGEST_GENERATE_NAME).collect();
    metadata.name = Some(format!("{prefix}0"));
    Some(Some(Arc::from(prefix)))
}

/// The patch that writes a hint on a pod; empty when it has it already, or could not take it.
pub(crate) fn patch(object: &Value, hint: &PlacementHint) -> Vec<Value> {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return Vec::new() };
    let Some(text) = hint.text() else { return Vec::new() };
    match metadata.get("annotations").and_then(Value::as_object) {
        Some(annotations) if annotations.get(PLACEMENT_HINT).and_then(Value::as_str) == Some(&text) => Vec::new(),
        Some(_) => vec![json!({ "op": "add", "path": annotation(PLACEMENT_HINT), "value": text })],
        None => {
            let annotations = Map::from_iter([(PLACEMENT_HINT.to_owned(), json!(text))]);
            vec![json!({ "op": "add", "path": ANNOTATIONS, "value": annotations })]
        }
    }
}

/// The pointer to an annotation.
fn annotation(key: &str) -> String {
    format!("{ANNOTATIONS}/{}", pointer_token(key))
}
