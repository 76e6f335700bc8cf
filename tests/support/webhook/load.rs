//! Pods that are created at a steady rate, and what became of each.
//!
//! Each pod is due at its time, whether or not those before it have been answered, until as many are under way as the rate
//! was measured with. On a machine that others keep busy it would otherwise be more than the API server can create: what
//! waits would grow until the API server gives up on webhooks, however well they are.

use super::hooks::{hint, pod};
use crate::control_plane::ControlPlane;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};

const NAMESPACE: &str = "default";
/// How long, and with how many at once, the rate without hooks is measured.
const MEASURED: Duration = Duration::from_secs(3);
const AT_ONCE: usize = 8;
/// Pods are deleted by so many at once, some time after they were made.
const BATCH: u64 = 500;

/// What became of pods.
#[derive(Debug, Default)]
pub struct Tally {
    /// From its time until it was created, sorted.
    pub took: Vec<Duration>,
    /// Names of those that have no hint.
    pub without: Vec<String>,
    /// What the API server refused.
    pub refused: Vec<String>,
}

impl Tally {
    /// The time within which so many percent of the pods were created.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let at = (self.took.len() * percent / 100).min(self.took.len().saturating_sub(1));
        self.took.get(at).copied().unwrap_or_default()
    }

    /// Every pod was created, and has a hint.
    ///
    /// # Errors
    /// When one was refused or has none, or there was no pod.
    pub fn all_hinted(&self) -> Result<()> {
        ensure!(self.refused.is_empty(), "pods were refused: {:?}", self.refused.first());
        let (count, first) = (self.without.len(), self.without.first());
        ensure!(count == 0, "{count} of {} pods have no hint, {first:?} is the first", self.took.len());
        ensure!(!self.took.is_empty(), "there was no pod");
        Ok(())
    }
}

/// Pods that keep being created.
#[derive(Debug)]
pub struct Load {
    pods: Api<Pod>,
    stop: Arc<AtomicBool>,
    running: JoinHandle<Tally>,
}

/// How many pods a second the API server creates when no webhook is asked.
///
/// # Errors
/// When it refuses one.
pub async fn rate_without_hooks(plane: &ControlPlane) -> Result<f64> {
    let pods: Api<Pod> = Api::namespaced(plane.client().await?, NAMESPACE);
    let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (pods, next) = (pods.clone(), Arc::clone(&next));
        workers.spawn(async move {
            while start.elapsed() < MEASURED {
                create(&pods, "bare", &[], next.fetch_add(1, Ordering::SeqCst)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let took = start.elapsed().as_secs_f64();
    delete(&pods, "app=bare").await?;
    Ok(next.load(Ordering::SeqCst) as f64 / took)
}

async fn create(pods: &Api<Pod>, app: &str, ways: &[&str], number: u64) -> Result<Pod> {
    let mut object = pod(NAMESPACE, &format!("{app}-{number}"));
    let labels = &mut object["metadata"]["labels"];
    labels["app"] = json!(app);
    labels["batch"] = json!((number / BATCH).to_string());
    if let Some(way) = usize::try_from(number).ok().and_then(|n| ways.get(n % ways.len().max(1))) {
        labels["way"] = json!(way);
    }
    Ok(pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

async fn delete(pods: &Api<Pod>, labels: &str) -> Result<()> {
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &ListParams::default().labels(labels)).await.context("deleting pods")?;
    Ok(())
}

impl Load {
    /// So many pods a second, named after `app`, whose label `way` is one of `ways` in turn.
    ///
    /// # Errors
    /// When there is no way to the API server.
    pub async fn start(
        plane: &ControlPlane,
        per_second: f64,
        app: &'static str,
        ways: &'static [&'static str],
    ) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(plane.client().await?, NAMESPACE);
        let stop = Arc::new(AtomicBool::new(false));
        let running = tokio::spawn(run(pods.clone(), per_second, (app, ways), Arc::clone(&stop)));
        Ok(Self { pods, stop, running })
    }

    /// Waits for those that have begun, and deletes all.
    ///
    /// # Errors
    /// When they cannot be deleted.
    pub async fn end(self, app: &str) -> Result<Tally> {
        self.stop.store(true, Ordering::SeqCst);
        let tally = self.running.await?;
        delete(&self.pods, &format!("app={app}")).await?;
        Ok(tally)
    }
}

async fn run(
    pods: Api<Pod>,
    per_second: f64,
    (app, ways): (&'static str, &'static [&'static str]),
    stop: Arc<AtomicBool>,
) -> Tally {
    let (start, mut begun, mut tally) = (tokio::time::Instant::now(), JoinSet::new(), Tally::default());
    for number in 0.. {
        let due = start + Duration::from_secs_f64(number as f64 / per_second);
        tokio::time::sleep_until(due).await;
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // Those that wait for others count from when they were due.
        while begun.len() >= AT_ONCE
            && let Some(Ok((created, took))) = begun.join_next().await
        {
            note(&mut tally, created, took);
        }
        let one = pods.clone();
        begun.spawn(async move {
            let created = create(&one, app, ways, number).await;
            (created, due.elapsed())
        });
        if number % BATCH == 0 && number >= 3 * BATCH {
            let (all, batch) = (pods.clone(), number / BATCH - 3);
            // What is left over is removed at the end.
            tokio::spawn(async move { delete(&all, &format!("app={app},batch={batch}")).await.ok() });
        }
        while let Some(Ok((created, took))) = begun.try_join_next() {
            note(&mut tally, created, took);
        }
    }
    while let Some(Ok((created, took))) = begun.join_next().await {
        note(&mut tally, created, took);
    }
    tally.took.sort();
    tally
}

fn note(tally: &mut Tally, created: Result<Pod>, took: Duration) {
    tally.took.push(took);
    match created {
        Ok(pod) if hint(&pod).is_none() => tally.without.push(pod.metadata.name.unwrap_or_default()),
        Ok(_) => {}
        Err(error) => tally.refused.push(format!("{error:#}")),
    }
}
