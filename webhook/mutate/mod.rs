//! `/mutate`: writes placement defaults and a hint on new pods.

mod patch;
mod placement_defaults;

pub(crate) use patch::{InvalidPatch, check_annotation_patch, check_patch};
pub(crate) use placement_defaults::{DefaultsOutcome, apply_defaults, without_policies};

use crate::hints::{IncomingPod, PLACEMENT_HINT_ANNOTATION, PlacementHint};
use crate::review::Request;
use k8s_openapi::api::core::v1::{Pod as WirePod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use napkeeper_api::convert;
use napkeeper_api::field_path::pointer_token;
use napkeeper_core::model::cluster::pod::PodOwner;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespaces of Kubernetes and AKS itself, whose pods are left alone.
const SYSTEM_NAMESPACES: [&str; 6] =
    ["kube-system", "kube-public", "kube-node-lease", "gatekeeper-system", "calico-system", "tigera-operator"];
/// Namespaces of AKS's add-ons begin so.
const ADD_ON_NAMESPACE_PREFIX: &str = "aks-";

/// Where annotations are.
pub(crate) const ANNOTATIONS_POINTER: &str = "/metadata/annotations";

/// Longest `generateName` that the API server uses.
const MAX_GENERATE_NAME: usize = 58;

/// The namespace of a pod that is being created, if it is one where pods are looked at.
pub(crate) fn pod_namespace<'r, O>(request: &'r Request<O>, own_namespace: &str) -> Option<&'r str> {
    let kind = &request.kind;
    let is_pod = (&*kind.group, &*kind.version, &*kind.kind) == ("", "v1", "Pod");
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let is_excluded = SYSTEM_NAMESPACES.contains(&namespace)
        || namespace.starts_with(ADD_ON_NAMESPACE_PREFIX)
        || namespace == own_namespace;
    let is_included =
        is_pod && request.is_write() && request.operation == "CREATE" && !namespace.is_empty() && !is_excluded;
    is_included.then_some(namespace)
}

/// A pod as it is read: without who wrote which field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodManifest {
    #[serde(default = "version_of_pods")]
    api_version: String,
    #[serde(default = "kind_of_pods")]
    kind: String,
    metadata: Metadata,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "fields that nothing uses are decoded so that malformed metadata is an error")]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generation: Option<i64>,
    namespace: Option<String>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
}

fn version_of_pods() -> String {
    "v1".to_owned()
}

fn kind_of_pods() -> String {
    "Pod".to_owned()
}

/// Decodes the text of a pod. The one source of its decoder: for values it would be compiled once more, and it is large.
fn parse_pod(text: &str) -> Result<PodManifest, serde_json::Error> {
    let pod: PodManifest = serde_json::from_str(text)?;
    if (&*pod.api_version, &*pod.kind) != ("v1", "Pod") {
        return Err(serde_json::Error::custom(format_args!("expected v1 Pod, got {} {}", pod.api_version, pod.kind)));
    }
    Ok(pod)
}

/// The pod to be hinted at; `None` when it is not one that may have a hint, or cannot be read.
pub(crate) fn read_pod(text: &str, namespace: &str, dry_run: bool) -> Option<IncomingPod> {
    let PodManifest { metadata, spec, status, .. } = parse_pod(text).ok()?;
    let Metadata { name, generate_name, labels, annotations, owner_references, .. } = metadata;
    let (name, prefix) = name_or_generated(name, generate_name)?;
    let wire = WirePod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            labels,
            annotations,
            owner_references,
            ..ObjectMeta::default()
        },
        spec,
        status,
    };
    let pod = convert::pod(&wire).ok()?;
    let is_bound = pod.node.is_some() || matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static);
    let annotations = wire.metadata.annotations;
    let current_hint =
        annotations.as_ref().and_then(|all| PlacementHint::from_annotation(all.get(PLACEMENT_HINT_ANNOTATION)?));
    (!is_bound).then_some(IncomingPod { pod: Arc::new(pod), generate_name: prefix, annotations, current_hint, dry_run })
}

/// The name of a pod, or one that it could have and what the API server will make it from; `None` when there is nothing to
/// make one from.
fn name_or_generated(name: Option<String>, prefix: Option<String>) -> Option<(String, Option<Arc<str>>)> {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return Some((name, None));
    }
    let prefix: String = prefix.filter(|prefix| !prefix.is_empty())?.chars().take(MAX_GENERATE_NAME).collect();
    Some((format!("{prefix}0"), Some(Arc::from(prefix))))
}

/// The patch that writes a hint on a pod with these annotations; empty when it has it already.
pub(crate) fn hint_patch(annotations: Option<&BTreeMap<String, String>>, hint: &PlacementHint) -> Vec<Value> {
    let Some(text) = hint.to_annotation() else { return Vec::new() };
    match annotations {
        Some(annotations) if annotations.get(PLACEMENT_HINT_ANNOTATION) == Some(&text) => Vec::new(),
        Some(_) => vec![json!({ "op": "add", "path": annotation_pointer(PLACEMENT_HINT_ANNOTATION), "value": text })],
        None => {
            let annotations = Map::from_iter([(PLACEMENT_HINT_ANNOTATION.to_owned(), json!(text))]);
            vec![json!({ "op": "add", "path": ANNOTATIONS_POINTER, "value": annotations })]
        }
    }
}

/// The pointer to an annotation.
fn annotation_pointer(key: &str) -> String {
    format!("{ANNOTATIONS_POINTER}/{}", pointer_token(key))
}
