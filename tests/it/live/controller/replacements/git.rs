//! The NodePools and the AKSNodeClass in Git, which Flux syncs and waits for.

use super::super::moves::{node_class, stream};
use super::{LEGACY, STEP, WEB_BUDGET, World, claims_of, names_of};
use anyhow::{Context, Result, ensure};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::running;
use napkeeper_tests::flux::{Flux, documented_checks};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};

/// What is committed.
pub(super) struct Git {
    pub(super) flux: Flux,
    /// Of the nodes of `web`.
    pub(super) tier: &'static str,
    /// A field of the AKSNodeClass that napkeeper refuses.
    kubelet: Value,
    /// The NodePool `old` is there, whose pods can run on nodes of `heir` too.
    has_old: bool,
}

impl Git {
    pub(super) async fn start(env: &Environment) -> Result<Self> {
        Ok(Self { flux: Flux::start(&env.plane).await?, tier: "one", kubelet: json!({}), has_old: true })
    }

    /// Commits, and waits for what Flux says of it.
    pub(super) async fn commit(&mut self, env: &Environment, timeout: &str) -> Result<Value> {
        let mut class = node_class();
        class["spec"] = json!({ "kubelet": self.kubelet });
        let legacy = json!({ "group": "legacy" });
        let old = weighted(pool("old", "on-demand", "1", &legacy), 10);
        let all = [
            class,
            pool("web", "on-demand", &WEB_BUDGET.to_string(), &json!({ "tier": self.tier })),
            pool("batch", "on-demand", "100%", &json!({})),
            pool("spot", "spot", "100%", &json!({})),
            pool("heir", "on-demand", "100%", &legacy),
        ];
        let all: Vec<Value> = all.into_iter().chain(self.has_old.then_some(old)).collect();
        let mut fields = documented_checks()?;
        fields["timeout"] = timeout.into();
        let revision = self.flux.commit(&env.plane, &stream(&all), &fields).await?;
        eventually("answer of Flux", STEP, async || self.flux.ready(&env.plane, &revision).await).await
    }
}

/// A NodePool whose nodes have four cores, live for eight days, and are not consolidated.
fn pool(name: &str, capacity_type: &str, budget: &str, labels: &Value) -> Value {
    let is_in = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    let requirements = [
        is_in("node.kubernetes.io/instance-type", "Standard_D4s_v5"),
        is_in("karpenter.sh/capacity-type", capacity_type),
        is_in("topology.kubernetes.io/zone", "westeurope-1"),
    ];
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": {
            "disruption": { "consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{ "nodes": budget }] },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "nodeClassRef": class, "requirements": requirements, "expireAfter": "192h" },
            },
        },
    })
}

/// A commit that napkeeper refuses fails in Flux, and the next one does not.
pub(super) async fn flux_waits_for_what_is_judged(world: &mut World) -> Result<()> {
    let World { env, git, .. } = world;
    git.kubelet = json!({ "cpuManagerPolicy": "static" });
    let refused = git.commit(env, "20s").await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(refused["status"] == "False" && message.contains("AKSNodeClass/default status: 'InProgress'"), "{refused}");
    git.kubelet = json!({});
    let taken = git.commit(env, "60s").await?;
    ensure!(taken["status"] == "True", "{taken}");
    env.plane
        .kubectl(&["wait", "--for=condition=Ready", "nodepools", "--all", "--timeout=1s"])
        .await
        .map(drop)
        .context("the NodePools")
}

/// A NodePool that comes before others.
fn weighted(mut pool: Value, weight: u32) -> Value {
    pool["spec"]["weight"] = weight.into();
    pool
}

/// Flux deletes it, and waits for the others alone. Its nodes go one by one, when their pods have others to go to.
pub(super) async fn a_pruned_pool_hands_its_pods_over(world: &mut World) -> Result<()> {
    let World { env, git, .. } = world;
    let before = names_of(env, "old").await?;
    ensure!(before.len() == LEGACY, "{before:?}");
    git.has_old = false;
    let synced = git.commit(env, "60s").await?;
    ensure!(synced["status"] == "True", "{synced}");
    let mut most = 0;
    eventually("end of the NodePool", STEP, async || {
        let now = claims_of(env, "old").await?;
        most = most.max(now.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count());
        let pools = env.plane.kubectl(&["get", "nodepools", "--output=name"]).await?;
        Ok((now.is_empty() && !pools.contains("/old")).then_some(()))
    })
    .await?;
    ensure!(most == 1, "{most} nodes went at once, 1 may");
    running(env, "legacy", LEGACY).await
}
