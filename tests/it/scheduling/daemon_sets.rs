//! DaemonSets of a workload, and their pods, which run on a node before any other does.
//!
//! The test creates those pods, as the DaemonSet controller would. They have a namespace of their own, and there are
//! none if pods have affinity or anti-affinity terms for unlabelled pods in every namespace: daemon pods of new nodes
//! are not simulated for those (decision 0043).

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use napkeeper_core::model::labels::{ARCH, SKU_FAMILY};
use napkeeper_sim::random::Random;
use serde_json::{Value, json};

/// DaemonSets; none at all in most workloads.
#[derive(Debug, Default)]
pub(super) struct DaemonSets {
    pub(super) sets: Vec<DaemonSet>,
}

impl DaemonSets {
    /// One or two of four in every third workload, where no other pod has something to do with them.
    pub(super) fn draw(seed: u64, namespace: &str, others: &[&Pod]) -> Result<Self> {
        let mut chance = Random::of(seed, "daemons");
        let mut daemon_sets = Self::default();
        if !chance.one_in(3) || others.iter().any(|pod| may_mean_daemons(pod)) {
            return Ok(daemon_sets);
        }
        let mut specs = vec![everywhere(), on_amd64(), on_family(), with_port()];
        for n in 0..chance.between(1, 2) {
            let spec = specs.swap_remove(usize::try_from(chance.between(0, specs.len() as u64 - 1))?);
            daemon_sets.sets.push(set(&format!("daemon-{n}"), namespace, &spec)?);
        }
        Ok(daemon_sets)
    }

    /// The pods that run on these nodes.
    pub(super) fn pods<'n>(&self, nodes: impl IntoIterator<Item = &'n Node>) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        for node in nodes {
            let on_it = self.sets.iter().filter(|set| runs_on(set, node));
            pods.extend(on_it.map(|set| pod(set, node)).collect::<Result<Vec<_>>>()?);
        }
        Ok(pods)
    }
}

/// A term of the pod may select pods of every namespace that do not have a label.
fn may_mean_daemons(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let near = affinity.and_then(|affinity| affinity.pod_affinity.clone()).unwrap_or_default();
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.clone()).unwrap_or_default();
    let required = [
        near.required_during_scheduling_ignored_during_execution,
        apart.required_during_scheduling_ignored_during_execution,
    ];
    let preferred = [
        near.preferred_during_scheduling_ignored_during_execution,
        apart.preferred_during_scheduling_ignored_during_execution,
    ];
    let preferred = preferred.into_iter().flatten().flatten().map(|weighted| weighted.pod_affinity_term);
    required.into_iter().flatten().flatten().chain(preferred).any(|term| {
        let without = term.label_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
        term.namespace_selector == Some(LabelSelector::default())
            && without.into_iter().any(|expression| expression.operator == "NotIn")
    })
}

fn everywhere() -> Value {
    json!({
        "containers": [container("150m", "200Mi")],
        "tolerations": [{ "operator": "Exists" }],
    })
}

fn on_amd64() -> Value {
    json!({ "containers": [container("300m", "64Mi")], "nodeSelector": { ARCH: "amd64" } })
}

fn on_family() -> Value {
    json!({
        "containers": [container("0.5", "1Gi")],
        "nodeSelector": { SKU_FAMILY: "D" },
        "tolerations": [{ "operator": "Exists", "effect": "NoSchedule" }],
    })
}

fn with_port() -> Value {
    let mut container = container("20m", "30M");
    container["ports"] = json!([{ "containerPort": 80, "hostPort": 8080 }]);
    json!({ "containers": [container], "tolerations": [{ "operator": "Exists" }] })
}

fn container(cpu: &str, memory: &str) -> Value {
    json!({ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu, "memory": memory } } })
}

fn set(name: &str, namespace: &str, spec: &Value) -> Result<DaemonSet> {
    let labels = json!({ "daemon": name });
    let template = json!({ "metadata": { "labels": labels }, "spec": spec });
    let metadata = json!({ "name": name, "namespace": namespace });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).with_context(|| format!("making {name}"))
}

/// The node has the labels that the set selects, and no taint that keeps its pods away.
fn runs_on(set: &DaemonSet, node: &Node) -> bool {
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let labels = node.metadata.labels.as_ref();
    let selected = spec.and_then(|spec| spec.node_selector.as_ref());
    let has_labels = selected.into_iter().flatten().all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value));
    let tolerates = |effect: &str| {
        let mut tolerations = spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.any(|toleration| toleration.effect.as_deref().is_none_or(|tolerated| tolerated == effect))
    };
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    has_labels && taints.into_iter().all(|taint| taint.effect == "PreferNoSchedule" || tolerates(&taint.effect))
}

fn pod(set: &DaemonSet, node: &Node) -> Result<Pod> {
    let (name, namespace) = (set.metadata.name.as_deref().unwrap_or_default(), &set.metadata.namespace);
    let node = node.metadata.name.as_deref().context("a node without a name")?;
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": name, "controller": true }]);
    let labels = template.and_then(|template| template.metadata.as_ref()?.labels.clone());
    let metadata =
        json!({ "name": format!("{name}-{node}"), "namespace": namespace, "labels": labels, "ownerReferences": owner });
    let mut spec = json!(template.and_then(|template| template.spec.as_ref()));
    spec["nodeName"] = json!(node);
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).with_context(|| format!("making {name}"))
}
