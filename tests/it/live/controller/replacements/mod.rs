//! One cluster in which nodes are replaced for every cause, one cause after the other, while pods keep serving.

mod git;
mod health;
mod rolls;

use super::availability::Sampler;
use super::moves::{budget, deployment, stream};
use anyhow::{Context, Result, ensure};
use git::Git;
use kube::ResourceExt;
use kube::api::DynamicObject;
use napkeeper_tests::control_plane::{Process, kustomize_controller};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, objects, running};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(180);
/// For so long nothing happens that would happen in a few seconds if it were allowed.
const QUIET: Duration = Duration::from_secs(15);
/// The nodes that are rolled, with one pod each.
const WEB: usize = 6;
/// How many of them may be disrupted at once.
const WEB_BUDGET: usize = 2;
/// The nodes of which some get sick, with one pod each.
const BATCH: usize = 10;
/// The nodes of a NodePool that is pruned, with one pod each.
const LEGACY: usize = 4;
/// The apps of which PodDisruptionBudgets let one pod at a time be missing.
const APPS: [&str; 2] = ["web", "legacy"];
/// As long as the whole test takes, with the start of the programs, but without their build.
const LONGEST: Duration = Duration::from_secs(480);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some minutes: it runs with those of the night"]
async fn nodes_are_replaced_for_each_cause() -> Result<()> {
    kustomize_controller().await?;
    let start = Instant::now();
    let env = Environment::start("provisioner").await?;
    let git = Git::start(&env).await?;
    env.plane.apply(&workloads()).await?;
    let controller = env.controller()?;
    let mut world = World { env, controller, git };
    let result = world.run().await;
    let passed =
        result.with_context(|| format!("{}\n{}", world.git.flux.controller.tail(20), world.controller.tail(80)));
    eprintln!("took {:?}", start.elapsed());
    passed?;
    ensure!(start.elapsed() < LONGEST, "took {:?}", start.elapsed());
    Ok(())
}

/// A cluster whose NodePools are synced from Git by Flux.
struct World {
    env: Environment,
    controller: Process,
    git: Git,
}

impl World {
    async fn run(&mut self) -> Result<()> {
        step("a commit that is wrong", git::flux_waits_for_what_is_judged(self)).await?;
        for (app, replicas) in [("web", WEB), ("batch", BATCH), ("spot", 2), ("legacy", LEGACY)] {
            running(&self.env, app, replicas).await?;
        }
        let sampler = Sampler::start(&self.env, &APPS).await?;
        step("a notice of Azure", health::pods_leave_before_azure_takes_the_node(&self.env)).await?;
        step("a sick node", health::a_sick_node_is_replaced(&mut self.env)).await?;
        step("many sick nodes", health::too_many_sick_nodes_are_kept(&mut self.env)).await?;
        step("a pruned NodePool", git::a_pruned_pool_hands_its_pods_over(self)).await?;
        step("a label", rolls::a_label_rolls_within_the_budget(self)).await?;
        step("an image", rolls::an_image_waits_for_its_window(self)).await?;
        step("expiry", rolls::nodes_of_one_age_expire_within_the_budget(&mut self.env)).await?;
        let samples = sampler.end().await?;
        eprintln!("{samples:?}");
        samples.check(&[("web", WEB - 1), ("legacy", LEGACY - 1)])
    }
}

async fn step(name: &'static str, run: impl Future<Output = Result<()>>) -> Result<()> {
    let start = Instant::now();
    run.await.context(name)?;
    eprintln!("{name}: {:?}", start.elapsed());
    Ok(())
}

/// What the users of the cluster run.
fn workloads() -> String {
    let pool = |name: &str| json!({ "karpenter.sh/nodepool": name });
    let mut all: Vec<Value> = APPS.map(|app| budget(app, "maxUnavailable", json!(1))).into();
    all.extend([
        running_on("web", WEB, "2400m", pool("web")),
        running_on("batch", BATCH, "2400m", pool("batch")),
        running_on("spot", 2, "1200m", pool("spot")),
        running_on("legacy", LEGACY, "2400m", json!({ "group": "legacy" })),
    ]);
    stream(&all)
}

/// A Deployment with so many replicas on nodes with these labels.
fn running_on(app: &str, replicas: usize, cpu: &str, selector: Value) -> Value {
    let mut deployment = deployment(app, app, cpu);
    deployment["spec"]["replicas"] = replicas.into();
    deployment["spec"]["template"]["spec"]["nodeSelector"] = selector;
    deployment
}

/// The NodeClaims of a NodePool.
async fn claims_of(env: &Environment, pool: &str) -> Result<Vec<DynamicObject>> {
    let is_of = |claim: &DynamicObject| claim.labels().get("karpenter.sh/nodepool").is_some_and(|of| of == pool);
    Ok(claims(env).await?.into_iter().filter(is_of).collect())
}

async fn names_of(env: &Environment, pool: &str) -> Result<BTreeSet<String>> {
    Ok(claims_of(env, pool).await?.iter().map(ResourceExt::name_any).collect())
}

/// Waits until none of these NodeClaims of a NodePool is left and it has as many others; the most that were being deleted at once.
async fn all_replaced(env: &Environment, pool: &str, before: &BTreeSet<String>) -> Result<usize> {
    let mut most = 0;
    let replaced = eventually("end of the roll", STEP, async || {
        let now = claims_of(env, pool).await?;
        most = most.max(now.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count());
        let is_done = now.len() == before.len() && now.iter().all(|claim| !before.contains(&claim.name_any()));
        Ok(is_done.then_some(()))
    });
    replaced.await.with_context(|| format!("at most {most} went at once"))?;
    running(env, pool, before.len()).await?;
    Ok(most)
}

/// Checks that for a while none of these NodeClaims begins to be deleted or replaced.
async fn all_stay(env: &Environment, pool: &str, before: &BTreeSet<String>) -> Result<()> {
    let end = Instant::now() + QUIET;
    while Instant::now() < end {
        let now = claims_of(env, pool).await?;
        let going = now.iter().find(|claim| claim.metadata.deletion_timestamp.is_some());
        ensure!(going.is_none(), "{:?} is being deleted", going.map(ResourceExt::name_any));
        let names: BTreeSet<String> = now.iter().map(ResourceExt::name_any).collect();
        ensure!(names == *before, "{before:?} became {names:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The messages of the events with this reason about objects of a kind.
async fn events(env: &Environment, kind: &str, reason: &str) -> Result<Vec<String>> {
    let events = objects(env, "events.k8s.io", "v1", "Event").await?;
    let of = events.iter().filter(|event| event.data["reason"] == reason && event.data["regarding"]["kind"] == kind);
    Ok(of.filter_map(|event| event.data["note"].as_str().map(ToOwned::to_owned)).collect())
}

/// The message of the condition `NodesUpToDate` of a NodePool, while it is False.
async fn rollout(env: &Environment, pool: &str) -> Result<Option<String>> {
    let path = "jsonpath={.status.conditions[?(@.type=='NodesUpToDate')]}";
    let text = env.plane.kubectl(&["get", "nodepool", pool, &format!("--output={path}")]).await?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let condition: Value = serde_json::from_str(&text)?;
    Ok((condition["status"] == "False").then(|| condition["message"].as_str().unwrap_or_default().to_owned()))
}
