//! Writes of Nodes: registration, initialization, disruption taint, deletion.
//!
//! Taints are one list that kubelet, node controllers and others write too, so it is written only upon the version that
//! was read.

use super::claims::{has_finalizer, without_finalizer};
use super::{Target, Writer, delete_of};
use crate::FieldManager;
use crate::error::ApiRequest;
use k8s_openapi::api::core::v1::{Node, Taint as WireTaint};
use kube::Api;
use napkeeper_core::model::cluster::pod::{Labels, Taint};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::labels::{
    EXCLUDE_FROM_LOAD_BALANCERS, EXCLUDED_BY, FINALIZER, INITIALIZED, REGISTERED, TAINT_UNREGISTERED,
};
use napkeeper_core::model::names::{NodeName, Uid};
use napkeeper_core::plan::NodeUpdate;
use serde_json::{Value, json};
use std::sync::Arc;

impl Writer {
    fn node<'a>(&self, name: &'a NodeName, uid: &'a Uid) -> Target<'a, Node> {
        let api = Api::all(self.client.clone());
        Target { api, kind: "Node", name: name.as_str(), uid, manager: FieldManager::Registration, status: false }
    }

    pub(super) async fn update_node(&self, name: &NodeName, uid: &Uid, step: &NodeUpdate) -> Result<(), ClusterError> {
        self.update(&self.node(name, uid), |node| match step {
            // The API server takes no new finalizer on an object that is being deleted.
            NodeUpdate::Register { .. } if node.metadata.deletion_timestamp.is_some() => Err(ClusterError::Conflict),
            NodeUpdate::Register { labels, annotations, taints } => Ok(register(node, labels, annotations, taints)),
            NodeUpdate::Initialize => Ok(initialize(node)),
            NodeUpdate::AddTaint(taint) => Ok(add_taint(node, taint)),
            NodeUpdate::RemoveTaint(taint) => Ok(remove_taint(node, taint)),
            NodeUpdate::BeginDrain => Ok(begin_drain(node)),
            NodeUpdate::TaintOutOfService => Ok(add_taint(node, &Taint::out_of_service())),
        })
        .await
    }

    /// Deletes it, then removes our finalizer: a crash in between leaves a Node that is being deleted.
    pub(super) async fn delete_node(&self, name: &NodeName, uid: &Uid) -> Result<(), ClusterError> {
        let target = self.node(name, uid);
        let request = ApiRequest { verb: "delete", kind: "Node", name: name.as_str() };
        let deleted = self.send(request, target.api.delete(name.as_str(), &delete_of(uid))).await.map(drop);
        let freed = match deleted {
            Ok(()) => self.update(&target, |node| Ok(without_finalizer(node.metadata.finalizers.as_deref()))).await,
            failed => failed,
        };
        match freed {
            Err(ClusterError::NotFound) => Ok(()),
            other => other,
        }
    }
}

/// The patch that registers a Node. A registered one is unchanged: its startup taints may have been removed on purpose.
fn register(node: &Node, labels: &Labels, annotations: &Labels, taints: &[Taint]) -> Option<Value> {
    let finalizers = node.metadata.finalizers.as_deref();
    let taints_now = taints_of(node);
    let mut wanted: Vec<WireTaint> = taints_now.iter().filter(|t| t.key != TAINT_UNREGISTERED).cloned().collect();
    if has_finalizer(finalizers) && label(node, REGISTERED) == Some("true") && wanted.len() == taints_now.len() {
        return None;
    }
    taints.iter().for_each(|taint| put_taint(&mut wanted, taint));
    let mut labels = labels.clone();
    labels.insert(Arc::from(REGISTERED), Arc::from("true"));
    let mut finalizers = finalizers.unwrap_or_default().to_vec();
    if !has_finalizer(Some(&finalizers)) {
        finalizers.push(FINALIZER.to_owned());
    }
    let mut metadata = json!({ "labels": object(&labels), "finalizers": finalizers });
    if !annotations.is_empty() {
        metadata["annotations"] = object(annotations);
    }
    Some(json!({ "metadata": metadata, "spec": { "taints": wanted } }))
}

fn object(entries: &Labels) -> Value {
    entries.iter().map(|(key, value)| (key.to_string(), json!(&**value))).collect()
}

fn initialize(node: &Node) -> Option<Value> {
    let patch = || json!({ "metadata": { "labels": { INITIALIZED: "true" } } });
    (label(node, INITIALIZED) != Some("true")).then(patch)
}

fn add_taint(node: &Node, taint: &Taint) -> Option<Value> {
    let mut taints = taints_of(node).to_vec();
    put_taint(&mut taints, taint);
    (taints != taints_of(node)).then(|| json!({ "spec": { "taints": taints } }))
}

/// The patch of a node whose drain begins. A label of a user stays as it is.
fn begin_drain(node: &Node) -> Option<Value> {
    let labelled = label(node, EXCLUDE_FROM_LOAD_BALANCERS).is_some();
    let excluded = || json!({ "metadata": { "labels": { EXCLUDE_FROM_LOAD_BALANCERS: EXCLUDED_BY } } });
    match (add_taint(node, &Taint::disrupted()), labelled) {
        (tainted, true) => tainted,
        (None, false) => Some(excluded()),
        (Some(mut tainted), false) => {
            tainted["metadata"] = excluded()["metadata"].take();
            Some(tainted)
        }
    }
}

/// Removes a taint of ours, whatever its value and effect.
fn remove_taint(node: &Node, removed: &Taint) -> Option<Value> {
    let is_other = |taint: &&WireTaint| taint.key != *removed.key;
    let taints: Vec<&WireTaint> = taints_of(node).iter().filter(is_other).collect();
    (taints.len() < taints_of(node).len()).then(|| json!({ "spec": { "taints": taints } }))
}

fn taints_of(node: &Node) -> &[WireTaint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Adds a taint. A node has at most one of a key and effect: another value replaces it.
fn put_taint(taints: &mut Vec<WireTaint>, taint: &Taint) {
    let (key, effect) = (&*taint.key, format!("{:?}", taint.effect));
    let value = (!taint.value.is_empty()).then(|| taint.value.to_string());
    match taints.iter_mut().find(|t| t.key == key && t.effect == effect) {
        Some(existing) if existing.value.as_deref().unwrap_or_default() == &*taint.value => {}
        Some(existing) => existing.value = value,
        None => taints.push(WireTaint { key: key.to_owned(), value, effect, time_added: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::cluster::pod::TaintEffect;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn taint(key: &str, value: &str) -> Taint {
        Taint { key: Arc::from(key), value: Arc::from(value), effect: TaintEffect::NoSchedule }
    }

    #[test]
    fn registering_keeps_other_fields_and_removes_only_the_unregistered_taint() {
        let joined = node(json!({
            "metadata": { "finalizers": ["others.example/x"], "labels": { "a": "b" } },
            "spec": { "taints": [
                { "key": "karpenter.sh/unregistered", "effect": "NoExecute" },
                { "key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" },
                { "key": "team", "value": "old", "effect": "NoSchedule" },
            ] },
        }));
        let labels = Labels::from([(Arc::from("zone"), Arc::from("1"))]);
        let annotations = Labels::from([(Arc::from("owner"), Arc::from("x"))]);
        let patch = register(&joined, &labels, &annotations, &[taint("team", "new"), taint("setup", "")]).unwrap();
        assert_eq!(
            patch,
            json!({
                "metadata": {
                    "labels": { "karpenter.sh/registered": "true", "zone": "1" },
                    "annotations": { "owner": "x" },
                    "finalizers": ["others.example/x", "karpenter.sh/termination"],
                },
                "spec": { "taints": [
                    { "key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" },
                    { "key": "team", "value": "new", "effect": "NoSchedule" },
                    { "key": "setup", "effect": "NoSchedule" },
                ] },
            })
        );
    }

    #[test]
    fn a_registered_node_gets_no_startup_taint_again() {
        let registered = |taints: Value| {
            node(json!({
                "metadata": { "finalizers": [FINALIZER], "labels": { REGISTERED: "true" } },
                "spec": { "taints": taints },
            }))
        };
        let startup = [taint("setup", "")];
        assert_eq!(register(&registered(json!([])), &Labels::new(), &Labels::new(), &startup), None);
        let half = registered(json!([{ "key": TAINT_UNREGISTERED, "effect": "NoExecute" }]));
        assert!(register(&half, &Labels::new(), &Labels::new(), &startup).is_some());
    }

    #[test]
    fn an_unchanged_node_is_not_written() {
        let bare = node(json!({ "metadata": {}, "spec": {} }));
        let taint = json!({ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" });
        let disrupt = |node: &Node| add_taint(node, &Taint::disrupted());
        assert_eq!(disrupt(&bare).unwrap(), json!({ "spec": { "taints": [taint] } }));
        assert_eq!(disrupt(&node(json!({ "metadata": {}, "spec": { "taints": [taint] } }))), None);
        let lost =
            json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
        assert_eq!(add_taint(&bare, &Taint::out_of_service()).unwrap(), json!({ "spec": { "taints": [lost] } }));
        let excluded = || json!({ "labels": { EXCLUDE_FROM_LOAD_BALANCERS: "karpenter" } });
        assert_eq!(begin_drain(&bare).unwrap(), json!({ "metadata": excluded(), "spec": { "taints": [taint] } }));
        let tainted = |metadata: Value| node(json!({ "metadata": metadata, "spec": { "taints": [taint] } }));
        assert_eq!(begin_drain(&tainted(json!({}))).unwrap(), json!({ "metadata": excluded() }), "for a replacement");
        let own = json!({ "labels": { EXCLUDE_FROM_LOAD_BALANCERS: "true" } });
        assert_eq!(begin_drain(&tainted(own)), None, "a user has excluded it");
        assert_eq!(initialize(&bare).unwrap(), json!({ "metadata": { "labels": { INITIALIZED: "true" } } }));
        assert_eq!(initialize(&node(json!({ "metadata": { "labels": { INITIALIZED: "true" } } }))), None);
    }
}
