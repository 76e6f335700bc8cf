//! Sets of nodes that are disrupted together: what becomes of them, of their pods, and of their pods' volumes.
//!
//! Nodes are filled by one pod of ballast each, so that one more pod fits on each of them. Without the ballast the pods of
//! three nodes fit on one.

mod budgets;
mod disks;
mod pool_deletions;
mod sets;
mod volumes;

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use napkeeper_tests::control_plane::{ENDS_AFTER, READY_AFTER};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, nodes, running, scale};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(180);
/// For so long no pod comes or goes before nodes are disrupted: then moving pods pays for itself. Longer than the 6 hours after
/// which it is worth evicting pods to save a third of the price where half of a node is requested.
const QUIET: SignedDuration = SignedDuration::from_hours(7);
/// Four cores: room for three pods of [`POD`], or for one and the ballast.
const FOUR_CORES: &str = "Standard_D4s_v5";
const EIGHT_CORES: &str = "Standard_D8s_v5";
/// What a pod requests.
const POD: &str = "1200m";
/// What a pod of the ballast requests.
const BALLAST: &str = "2400m";

/// One stream of manifests.
pub(super) fn stream(objects: &[Value]) -> String {
    // JSON is YAML.
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

/// An AKSNodeClass with all defaults.
pub(super) fn node_class() -> Value {
    json!({ "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "default" } })
}

/// A NodePool of on-demand VMs of these sizes in one zone, of which all may be disrupted at once.
fn pool(name: &str, sizes: &[&str]) -> Value {
    let is_in = |key: &str, values: &[&str]| json!({ "key": key, "operator": "In", "values": values });
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    let requirements = [
        is_in("node.kubernetes.io/instance-type", sizes),
        is_in("karpenter.sh/capacity-type", &["on-demand"]),
        is_in("topology.kubernetes.io/zone", &["westeurope-1"]),
    ];
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": {
            "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] },
            "template": { "spec": { "nodeClassRef": class, "requirements": requirements } },
        },
    })
}

/// A Deployment without replicas, whose pods request so much CPU on nodes of a pool.
pub(super) fn deployment(app: &str, pool: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": app, "namespace": "default" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": app } }, "template": template(app, pool, cpu) },
    })
}

/// What the pods of an app are made from.
fn template(app: &str, pool: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app }, "annotations": {} },
        "spec": {
            "nodeSelector": { "karpenter.sh/nodepool": pool },
            "containers": [{ "name": app, "image": app, "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } } }],
        },
    })
}

/// Has the pods of a Deployment or StatefulSet take some seconds to become ready and to end.
fn take_time(mut workload: Value) -> Value {
    workload["spec"]["template"]["metadata"]["annotations"] = json!({ READY_AFTER: "5s", ENDS_AFTER: "2s" });
    workload
}

/// A PodDisruptionBudget of an app.
pub(super) fn budget(app: &str, field: &str, value: Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": app, "namespace": "default" },
        "spec": { field: value, "selector": { "matchLabels": { "app": app } } },
    })
}

/// Scales ballast up, so that there are nodes, then apps to a replica for each of the nodes, and the ballast down to
/// nothing.
async fn one_pod_on_each_node(env: &Environment, apps: &[(&str, usize)]) -> Result<()> {
    let all = apps.iter().map(|(_, replicas)| replicas).sum();
    scale(env, "ballast", all).await?;
    running(env, "ballast", all).await?;
    for (app, replicas) in apps {
        scale(env, app, *replicas).await?;
        running(env, app, *replicas).await?;
    }
    scale(env, "ballast", 0).await?;
    let gone = async || Ok(pods(env, "app=ballast").await?.is_empty().then_some(()));
    eventually("end of the ballast", STEP, gone).await?;
    let places: BTreeSet<_> =
        pods(env, "app!=ballast").await?.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    ensure!(places.len() >= all, "{all} pods share {} nodes", places.len());
    Ok(())
}

/// Lets time pass until moving pods pays for itself.
async fn quiet(env: &mut Environment) -> Result<()> {
    // Pods that have come or gone are noted at most every 10 s.
    env.jump(SignedDuration::from_secs(15))?;
    let (mut last, mut unchanged) = (Vec::new(), 0);
    eventually("end of the changes of pods", STEP, async || {
        let event = |claim: &DynamicObject| claim.data["status"]["lastPodEventTime"].clone();
        let now: Vec<Value> = claims(env).await?.iter().map(event).collect();
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        Ok((unchanged == 50).then_some(()))
    })
    .await?;
    env.jump(QUIET)
}

/// Pods of the namespace `default` that a selector matches.
async fn pods(env: &Environment, selector: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(env.plane.client().await?, "default");
    Ok(api.list(&ListParams::default().labels(selector)).await?.items)
}

/// How many Nodes there are of each size.
async fn sizes(env: &Environment) -> Result<BTreeMap<String, usize>> {
    let size = |node: Node| node.labels().get("node.kubernetes.io/instance-type").cloned().unwrap_or_default();
    let mut sizes = BTreeMap::new();
    nodes(env).await?.into_iter().map(size).for_each(|size| *sizes.entry(size).or_insert(0) += 1);
    Ok(sizes)
}

/// What has been seen of the disruption of NodeClaims.
#[derive(Debug, Default)]
struct Disruptions {
    /// When each was deleted.
    deleted: BTreeMap<String, Timestamp>,
    /// Most of a NodePool that were being deleted in one listing.
    at_once: BTreeMap<String, usize>,
    /// The NodeClaims that each replacement names.
    replaced: BTreeMap<String, BTreeSet<String>>,
}

impl Disruptions {
    /// Looks at all NodeClaims.
    async fn look(&mut self, env: &Environment) -> Result<()> {
        let mut leaving: BTreeMap<String, usize> = BTreeMap::new();
        for claim in claims(env).await? {
            let name = claim.name_any();
            if let Some(at) = &claim.metadata.deletion_timestamp {
                *leaving
                    .entry(claim.labels().get("karpenter.sh/nodepool").cloned().unwrap_or_default())
                    .or_insert(0) += 1;
                self.deleted.entry(name.clone()).or_insert(at.0);
            }
            if let Some(names) = claim.annotations().get("napkeeper.io/replaces") {
                self.replaced.insert(name, serde_json::from_str(names)?);
            }
        }
        for (pool, count) in leaving {
            let most = self.at_once.entry(pool).or_insert(0);
            *most = count.max(*most);
        }
        Ok(())
    }
}

/// Looks until there are so many Nodes of each size, and says what was disrupted.
async fn consolidated(env: &Environment, wanted: &[(&str, usize)]) -> Result<Disruptions> {
    let wanted = wanted.iter().map(|(size, count)| ((*size).to_owned(), *count)).collect();
    let mut seen = Disruptions::default();
    let condition = format!("Nodes {wanted:?}");
    let done = eventually(&condition, STEP, async || {
        seen.look(env).await?;
        Ok((sizes(env).await? == wanted).then_some(()))
    });
    match done.await {
        Ok(()) => Ok(seen),
        Err(error) => Err(error.context(format!("there are {:?}; {seen:?}", sizes(env).await))),
    }
}
