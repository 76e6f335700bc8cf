//! How many pods of an app were ready at each moment of a test.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use napkeeper_tests::environment::Environment;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

const INTERVAL: Duration = Duration::from_millis(100);
/// A pod is missing for at least so long: until its replacement is ready.
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// The last sample is taken within this time.
const LAST: Duration = Duration::from_secs(60);

/// What samples have shown.
#[derive(Debug, Default)]
pub(super) struct Samples {
    taken: usize,
    /// The longest time between two.
    longest_gap: Duration,
    /// The fewest pods of each app that were ready and not about to end.
    fewest: BTreeMap<String, usize>,
}

impl Samples {
    fn add(&mut self, pods: &[Pod], apps: &[&str]) {
        self.taken += 1;
        for app in apps {
            let is_of = |pod: &&Pod| pod.labels().get("app").is_some_and(|of| of == app);
            let ready = pods.iter().filter(is_of).filter(|pod| is_ready(pod)).count();
            let fewest = self.fewest.entry((*app).to_owned()).or_insert(ready);
            *fewest = ready.min(*fewest);
        }
    }

    /// Checks that of each app never fewer pods were ready than its PodDisruptionBudget keeps, and that some eviction was seen.
    ///
    /// # Errors
    /// When there were fewer, no eviction was seen, or there were too few samples to tell.
    pub(super) fn check(&self, floors: &[(&str, usize)]) -> Result<()> {
        let fewest = |app: &str| self.fewest.get(app).copied().unwrap_or_default();
        ensure!(floors.iter().all(|(app, floor)| fewest(app) >= *floor), "a budget was broken: {self:?}");
        ensure!(floors.iter().any(|(app, floor)| fewest(app) == *floor), "no eviction was seen: {self:?}");
        ensure!(self.longest_gap < LONGEST_GAP, "for some time nothing was sampled: {self:?}");
        Ok(())
    }
}

/// A pod that serves: ready, and not about to end.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

/// Lists the pods of the API server every 100 ms.
pub(super) struct Sampler {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<Samples>>,
}

impl Sampler {
    pub(super) async fn start(env: &Environment, apps: &'static [&'static str]) -> Result<Self> {
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
                samples.add(&api.list(&ListParams::default()).await?.items, apps);
                samples.longest_gap = samples.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
        });
        Ok(Self { end, task })
    }

    pub(super) async fn end(self) -> Result<Samples> {
        // Where sampling has failed, the task has ended.
        self.end.send(()).ok();
        timeout(LAST, self.task).await.context("the last sample does not end")??.context("sampling pods")
    }
}
