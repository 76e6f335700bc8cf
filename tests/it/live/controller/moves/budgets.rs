//! Many nodes are drained at once, and no PodDisruptionBudget is ever broken.

use super::{
    BALLAST, FOUR_CORES, POD, STEP, budget, consolidated, deployment, node_class, one_pod_on_each_node, pool, quiet,
    stream, take_time,
};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::running;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Replicas of each app, on a node of their own each.
const REPLICAS: usize = 4;
/// Each budget allows one eviction at a time.
const FLOOR: usize = REPLICAS - 1;
const APPS: [&str; 3] = ["max-unavailable", "min-available", "percent"];
/// How many nodes are left: three pods fit on each.
const LEFT: usize = 4;
const INTERVAL: Duration = Duration::from_millis(100);
/// A pod is missing for at least so long: until its replacement is ready.
const LONGEST_GAP: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_of_many_nodes_keep_to_tight_budgets() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let mut objects = vec![node_class(), pool("general", &[FOUR_CORES]), deployment("ballast", "general", BALLAST)];
    objects.extend(APPS.map(|app| take_time(deployment(app, "general", POD))));
    objects.extend([
        budget("max-unavailable", "maxUnavailable", json!(1)),
        budget("min-available", "minAvailable", json!(FLOOR)),
        budget("percent", "maxUnavailable", json!("25%")),
    ]);
    env.plane.apply(&stream(&objects)).await?;
    let controller = env.controller()?;
    one_pod_on_each_node(&env, &APPS.map(|app| (app, REPLICAS))).await?;

    let sampler = Sampler::start(&env).await?;
    quiet(&mut env).await?;
    let start = Instant::now();
    let seen = consolidated(&env, &[(FOUR_CORES, LEFT)]).await;
    let drained = start.elapsed();
    let samples = sampler.end().await?;
    eprintln!("drains took {drained:?}: {samples:?}");
    samples.check()?;
    let seen = seen.with_context(|| controller.tail(60))?;
    let at_once = seen.at_once.get("general").copied().unwrap_or_default();
    ensure!(at_once == APPS.len() * REPLICAS - LEFT, "not drained at once: {seen:?}");
    for app in APPS {
        running(&env, app, REPLICAS).await?;
    }
    Ok(())
}

/// What samples have shown.
#[derive(Debug, Default)]
struct Samples {
    taken: usize,
    /// The longest time between two.
    longest_gap: Duration,
    /// The fewest pods of each app that were ready and not about to end.
    fewest: BTreeMap<String, usize>,
}

impl Samples {
    fn add(&mut self, pods: &[Pod]) {
        self.taken += 1;
        for app in APPS {
            let is_of = |pod: &&Pod| pod.labels().get("app").is_some_and(|of| of == app);
            let ready = pods.iter().filter(is_of).filter(|pod| is_ready(pod)).count();
            let fewest = self.fewest.entry(app.to_owned()).or_insert(ready);
            *fewest = ready.min(*fewest);
        }
    }

    fn check(&self) -> Result<()> {
        ensure!(self.fewest.len() == APPS.len(), "some app was not sampled: {self:?}");
        ensure!(self.fewest.values().all(|fewest| *fewest >= FLOOR), "a budget was broken: {self:?}");
        // Eight pods had to leave, of two apps at least.
        ensure!(self.fewest.values().any(|fewest| *fewest == FLOOR), "no eviction was seen: {self:?}");
        ensure!(self.longest_gap < LONGEST_GAP, "for some time nothing was sampled: {self:?}");
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

/// Lists the pods of the API server every 100 ms.
struct Sampler {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<Samples>>,
}

impl Sampler {
    async fn start(env: &Environment) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(env.plane.client().await?, "default");
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (mut samples, mut last) = (Samples::default(), Instant::now());
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = &mut ended => return Ok(samples),
                    _ = ticks.tick() => {}
                }
                // One consistent listing of all.
                samples.add(&api.list(&ListParams::default()).await?.items);
                samples.longest_gap = samples.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
        });
        Ok(Self { end, task })
    }

    async fn end(self) -> Result<Samples> {
        // Where sampling has failed, the task has ended.
        self.end.send(()).ok();
        timeout(STEP, self.task).await.context("the last sample does not end")??.context("sampling pods")
    }
}
