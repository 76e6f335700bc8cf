//! The objects of a world, for both sides alike.

use crate::world::{App, World};
use anyhow::{Result, anyhow};
use napkeeper_api::yaml;
use napkeeper_sim::world::Manifests;
use serde_json::{Value, json};

/// The name of the NodePool and of its node class.
pub(crate) const POOL: &str = "general";

/// Where a NodePool's nodes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeSource {
    /// An AKSNodeClass; the NodePool names the sizes by their labels.
    Azure,
    /// A KWOKNodeClass; the provider offers no other sizes than those of the NodePool.
    Kwok,
}

/// The NodePool: D sizes of version 5 and newer with at most 16 vCPU.
pub(crate) fn node_pool(world: &World, source: NodeSource) -> Value {
    let mut requirements = vec![
        json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }),
        json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": world.capacity_types }),
    ];
    let class = match source {
        NodeSource::Kwok => json!({ "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL }),
        NodeSource::Azure => {
            requirements.extend([
                json!({ "key": "karpenter.azure.com/sku-family", "operator": "In", "values": ["D"] }),
                json!({ "key": "karpenter.azure.com/sku-version", "operator": "Gte", "values": ["5"] }),
                json!({ "key": "karpenter.azure.com/sku-cpu", "operator": "Lte", "values": ["16"] }),
            ]);
            json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": POOL })
        }
    };
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": POOL },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": class,
                "requirements": requirements,
                "expireAfter": "720h",
                "terminationGracePeriod": "1h",
            } },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "15s",
                "budgets": [{ "nodes": "20%" }],
            },
        },
    })
}

/// The node class; nodes of the kwok provider appear so many seconds after their NodeClaims.
pub(crate) fn node_class(source: NodeSource, delay_seconds: u64) -> Value {
    match source {
        NodeSource::Azure => json!({
            "apiVersion": "karpenter.azure.com/v1beta1",
            "kind": "AKSNodeClass",
            "metadata": { "name": POOL },
            "spec": { "imageFamily": "Ubuntu", "osDiskSizeGB": 128 },
        }),
        NodeSource::Kwok => json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": { "name": POOL },
            "spec": { "nodeRegistrationDelay": format!("{delay_seconds}s") },
        }),
    }
}

/// A Deployment without pods, and its PodDisruptionBudget.
pub(crate) fn app(app: &App) -> [Value; 2] {
    let labels = json!({ "app": app.name });
    let mut pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main",
            "image": "registry.example/main:1",
            "resources": { "requests": {
                "cpu": format!("{}m", app.cpu_millis),
                "memory": format!("{}Mi", app.memory_mib),
            } },
        }],
    });
    if app.on_demand {
        pod["nodeSelector"] = json!({ "karpenter.sh/capacity-type": "on-demand" });
    }
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": app.name, "namespace": "default" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "strategy": { "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": app.name, "namespace": "default" },
        "spec": { "maxUnavailable": "25%", "selector": { "matchLabels": labels } },
    });
    [deployment, budget]
}

/// Objects as one stream of documents.
pub(crate) fn stream(objects: impl IntoIterator<Item = Value>) -> String {
    objects.into_iter().map(|object| format!("---\n{object}\n")).collect()
}

/// All objects of a world as the simulator takes them.
pub(crate) fn simulated(world: &World) -> Result<Manifests> {
    let own = [node_pool(world, NodeSource::Azure), node_class(NodeSource::Azure, 0)];
    let text = stream(own.into_iter().chain(world.apps.iter().flat_map(app)));
    let documents = yaml::read("world", &text).documents;
    Manifests::collect(&documents).map_err(|problems| anyhow!("reading the objects of a world: {problems:?}"))
}
