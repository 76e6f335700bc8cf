//! NodePools are deleted as kubectl and Flux, as Argo CD, and as `kubectl --cascade=orphan` do: beside the garbage collector of the
//! real kube-controller-manager their pods are handed over to the next NodePool, or stay.

use super::{Disruptions, FOUR_CORES, STEP, deployment, node_class, pods, pool, stream};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::DynamicObject;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, nodes, objects, running, scale};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

/// Pods, each on a node of its own.
const PODS: usize = 2;
/// NodePools in the order in which they are used.
const POOLS: [&str; 3] = ["first", "second", "third"];

/// One node of it may go at once.
fn ranked(name: &str, weight: usize) -> Value {
    let mut pool = pool(name, &[FOUR_CORES]);
    pool["spec"]["weight"] = json!(weight);
    pool["spec"]["disruption"] = json!({ "consolidateAfter": "Never", "budgets": [{ "nodes": "1" }] });
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/nightly runs it"]
async fn a_deleted_pool_hands_its_pods_over_before_it_goes() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    let mut web = deployment("web", "any", "3");
    web["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
    let mut all = vec![node_class(), web];
    all.extend(POOLS.iter().zip([30, 20, 10]).map(|(name, weight)| ranked(name, weight)));
    env.plane.apply(&stream(&all)).await?;
    let controller = env.controller()?;
    scale(&env, "web", PODS).await?;
    running(&env, "web", PODS).await?;
    let result = async {
        // What Flux prunes, and kubectl deletes.
        handed_over(&env, "first", "second", "background").await?;
        // What Argo CD prunes.
        handed_over(&env, "second", "third", "foreground").await?;
        orphaned(&env, "third").await
    };
    result.await.with_context(|| controller.tail(60))
}

/// The names of the NodeClaims of a NodePool.
async fn of_pool(env: &Environment, pool: &str) -> Result<BTreeSet<String>> {
    let is_of = |claim: &&DynamicObject| claim.labels().get("karpenter.sh/nodepool").is_some_and(|of| of == pool);
    Ok(claims(env).await?.iter().filter(is_of).map(ResourceExt::name_any).collect())
}

/// How many nodes of a NodePool are ready.
async fn ready_nodes(env: &Environment, pool: &str) -> Result<usize> {
    let is_ready = |node: &&Node| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_of = node.labels().get("karpenter.sh/nodepool").is_some_and(|of| of == pool);
        is_of && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    Ok(nodes(env).await?.iter().filter(is_ready).count())
}

async fn pool_is_there(env: &Environment, pool: &str) -> Result<bool> {
    Ok(objects(env, "karpenter.sh", "v1", "NodePool").await?.iter().any(|one| one.name_any() == pool))
}

async fn delete(env: &Environment, pool: &str, cascade: &str) -> Result<()> {
    env.plane.kubectl(&["delete", "nodepool", pool, "--wait=false", &format!("--cascade={cascade}")]).await.map(drop)
}

/// Deletes a NodePool, whose nodes go one by one, each once one of the next NodePool is ready, while all pods but one at most run.
async fn handed_over(env: &Environment, from: &str, to: &str, cascade: &str) -> Result<()> {
    let before = of_pool(env, from).await?;
    ensure!(before.len() == PODS, "{from} has {before:?}");
    let start = Instant::now();
    delete(env, from, cascade).await?;
    let (mut seen, mut fewest) = (Disruptions::default(), PODS);
    let condition = format!("end of NodePool {from}");
    let gone = eventually(&condition, STEP, async || {
        seen.look(env).await?;
        let gone =
            before.len() - of_pool(env, from).await?.iter().filter(|name| !seen.deleted.contains_key(*name)).count();
        let ready = ready_nodes(env, to).await?;
        ensure!(ready >= gone, "{cascade}: {gone} nodes were going while {ready} of {to} were ready");
        let running = pods(env, "app=web").await?;
        let running = running.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_running(pod)).count();
        fewest = fewest.min(running);
        Ok((!pool_is_there(env, from).await?).then_some(()))
    });
    gone.await.with_context(|| format!("{cascade}: {seen:?}"))?;
    eprintln!("a NodePool of {PODS} nodes was gone {:?} after its deletion in the {cascade}", start.elapsed());
    ensure!(seen.at_once.get(from) == Some(&1), "{cascade}: more than its budget: {seen:?}");
    ensure!(seen.deleted.len() >= before.len(), "{cascade}: {seen:?}");
    ensure!(fewest >= PODS - 1, "{cascade}: only {fewest} pods ran");
    ensure!(of_pool(env, from).await?.is_empty() && of_pool(env, to).await?.len() == PODS, "{cascade}");
    running(env, "web", PODS).await
}

fn is_running(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Deletes a NodePool and nothing else.
async fn orphaned(env: &Environment, pool: &str) -> Result<()> {
    let before = of_pool(env, pool).await?;
    delete(env, pool, "orphan").await?;
    let gone = async || Ok((!pool_is_there(env, pool).await?).then_some(()));
    eventually("end of the orphaned NodePool", STEP, gone).await?;
    let all = claims(env).await?;
    ensure!(all.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()), "{all:?}");
    ensure!(of_pool(env, pool).await? == before, "its NodeClaims were {before:?}");
    running(env, "web", PODS).await
}
