//! Conversion of documents into objects of the domain.

use super::Problem;
use crate::convert::{self, Deployment, Job, Violations};
use crate::field_path::Path;
use crate::types::decode::decode as decode_value;
use crate::yaml::Document;
use napkeeper_core::admission::placement_policy::PlacementPolicy;
use napkeeper_core::catalog::overlay::Overlay;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::cluster::volume::Volume;
use napkeeper_core::model::orphans::sweep::Sweep;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;

/// An object of a manifest, as the domain knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// NodePool.
    NodePool(Box<NodePool>),
    /// AKSNodeClass.
    NodeClass(Box<NodeClass>),
    /// NodeClaim.
    NodeClaim(Box<Claim>),
    /// OrphanSweep.
    OrphanSweep(Box<Sweep>),
    /// NodeOverlay.
    NodeOverlay(Box<Overlay>),
    /// PlacementPolicy.
    PlacementPolicy(Box<PlacementPolicy>),
    /// Deployment.
    Deployment(Deployment),
    /// StatefulSet.
    StatefulSet(convert::StatefulSet),
    /// Job.
    Job(Job),
    /// PodDisruptionBudget.
    PodDisruptionBudget(convert::PodDisruptionBudget),
    /// DaemonSet.
    DaemonSet(convert::DaemonSet),
    /// Pod.
    Pod(Box<Pod>),
    /// PersistentVolume.
    PersistentVolume(Box<Volume>),
    /// A kind that the domain has no use for.
    Other {
        /// `apiVersion`.
        api_version: Arc<str>,
        /// `kind`.
        kind: Arc<str>,
        /// `metadata.name`.
        name: Arc<str>,
    },
}

/// Turns documents into objects, with all that is wrong. The items of a `List` are objects of their own.
#[must_use]
pub fn objects(documents: &[Document]) -> (Vec<Object>, Vec<Problem>) {
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for document in documents {
        for (root, value) in items(document) {
            match object(value) {
                Ok(object) => objects.push(object),
                Err(violations) => problems.extend(violations.0.into_iter().map(|v| {
                    let path = root.join(v.path.segments());
                    Problem {
                        file: Arc::clone(&document.file),
                        position: Some(document.position(&path)),
                        message: format!("{path}: {}", v.message),
                    }
                })),
            }
        }
    }
    (objects, problems)
}

/// Lists within lists are followed so far.
const MAX_LIST_DEPTH: usize = 4;

/// The objects of a document with their paths: itself, or its items when it is a list (`v1 List`, `NodePoolList`).
#[must_use]
pub fn items(document: &Document) -> Vec<(Path, &Value)> {
    let mut all = Vec::new();
    collect_items(&document.value, Path::root(), MAX_LIST_DEPTH, &mut all);
    all
}

fn collect_items<'v>(value: &'v Value, path: Path, lists: usize, all: &mut Vec<(Path, &'v Value)>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value.get("spec").is_none();
    match value["items"].as_array().filter(|_| is_list && lists > 0) {
        Some(items) => {
            let path = path.key("items");
            items.iter().enumerate().for_each(|(i, item)| collect_items(item, path.index(i), lists - 1, all));
        }
        None => all.push((path, value)),
    }
}

/// Turns one manifest into an object.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn object(value: &Value) -> Result<Object, Violations> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    match (api_version, kind) {
        ("karpenter.sh/v1", "NodePool") => convert::node_pool(&decode(value)?).map(|o| Object::NodePool(Box::new(o))),
        ("karpenter.sh/v1", "NodeClaim") => convert::claim(&decode(value)?).map(|o| Object::NodeClaim(Box::new(o))),
        ("karpenter.sh/v1alpha1", "NodeOverlay") => {
            convert::node_overlay(&decode(value)?).map(|o| Object::NodeOverlay(Box::new(o)))
        }
        ("karpenter.azure.com/v1beta1" | "karpenter.azure.com/v1alpha2", "AKSNodeClass") => {
            convert::node_class(&decode(&with_spec(value))?).map(|o| Object::NodeClass(Box::new(o)))
        }
        ("napkeeper.io/v1alpha1", "OrphanSweep") => {
            convert::sweep(&decode(&with_spec(value))?).map(|o| Object::OrphanSweep(Box::new(o)))
        }
        ("napkeeper.io/v1alpha1", "PlacementPolicy") => {
            convert::placement_policy(&decode(value)?).map(|o| Object::PlacementPolicy(Box::new(o)))
        }
        ("apps/v1", "Deployment") => convert::deployment(&decode(value)?).map(Object::Deployment),
        ("apps/v1", "DaemonSet") => convert::daemon_set(&decode(value)?).map(Object::DaemonSet),
        ("apps/v1", "StatefulSet") => convert::stateful_set(&decode(value)?).map(Object::StatefulSet),
        ("policy/v1", "PodDisruptionBudget") => {
            convert::disruption_budget(&decode(value)?).map(Object::PodDisruptionBudget)
        }
        ("batch/v1", "Job") => convert::job(&decode(value)?).map(Object::Job),
        ("v1", "Pod") => convert::pod(&decode(value)?).map(|o| Object::Pod(Box::new(o))),
        ("v1", "PersistentVolume") => convert::volume(&decode(value)?).map(|o| Object::PersistentVolume(Box::new(o))),
        ("", _) | (_, "") => Err(violation(&Path::root(), "apiVersion and kind are required")),
        _ => Ok(Object::Other {
            api_version: Arc::from(api_version),
            kind: Arc::from(kind),
            name: Arc::from(value["metadata"]["name"].as_str().unwrap_or_default()),
        }),
    }
}

fn violation(path: &Path, message: impl ToString) -> Violations {
    Violations(vec![convert::Violation { path: path.clone(), message: message.to_string() }])
}

/// A kind whose spec may be absent, as the API server stores it.
fn with_spec(value: &Value) -> Value {
    let mut value = value.clone();
    if value["spec"].is_null() {
        value["spec"] = Value::Object(Map::new());
    }
    value
}

fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, Violations> {
    // Most objects need nothing done to them.
    if let Ok(object) = decode_value(value) {
        return Ok(object);
    }
    let mut value = value.clone();
    prepare(&mut value, None);
    decode_value(&value).map_err(|error| violation(&error.path, error.message))
}

/// Normalizes as the API server does before decoding: quantities may be numbers, and null is the same as absent.
fn prepare(value: &mut Value, under: Option<&str>) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            let quantities =
                under.is_some_and(|k| ["requests", "limits", "overhead", "capacity", "allocatable"].contains(&k));
            for (key, child) in map.iter_mut() {
                if quantities && child.is_number() {
                    *child = Value::String(child.to_string());
                } else {
                    prepare(child, Some(key));
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|v| prepare(v, None)),
        _ => {}
    }
}
