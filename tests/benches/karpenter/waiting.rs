//! Pods that wait when the controller starts: how soon their NodeClaims exist, and what the nodes cost.

use crate::figures::OS_DISK;
use crate::player::Player;
use crate::series::{Observation, Series};
use crate::sides::{Prepared, Running, Side};
use crate::sizes::Sizes;
use crate::world::{self, World};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, pin_mut};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the controller-manager may take to create all pods, and kube-scheduler to find no node for them; and then until
/// all are bound. For each pod that adds the second.
const DONE_WITHIN: (Duration, Duration) = (Duration::from_secs(600), Duration::from_millis(100));
/// It has ended when all pods were bound and no NodeClaim came for so long.
const QUIET: Duration = Duration::from_secs(15);
/// Between two looks at all pods, and for so many times the length of the last one: else listing thousands of pods takes a core.
const PAUSE: (Duration, u32) = (Duration::from_secs(1), 4);
const NANOS: f64 = 1e9;

/// What is measured of one side.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingFigures {
    /// From the start of the controller to the first NodeClaim, in seconds.
    first_claim: f64,
    /// From the first NodeClaim until all but 2 % of them exist, in seconds.
    most_claims: f64,
    /// From the first NodeClaim to the last, in seconds.
    last_claim: f64,
    /// How many there were.
    claims: usize,
    /// From the start of the controller until all pods are bound, in seconds.
    bound: f64,
    /// Nodes at the end.
    nodes: usize,
    /// What they cost, in USD per hour.
    price: f64,
    /// With an OS disk each.
    price_with_disks: f64,
    /// The most memory of the controller, in MiB.
    peak_memory_mib: f64,
}

/// Lets so many pods wait, starts one side, and measures until all are bound.
pub(crate) async fn measure(side: Side, pods: u32) -> Result<WaitingFigures> {
    let world = world::waiting(pods);
    let sizes = Sizes::of(&world)?;
    let prepared = Prepared::new(side, &world, &sizes).await?;
    let player = Player::new(prepared.plane().client().await?);
    create_pods(&player, &world).await?;
    let arrivals = Arrivals::watch(prepared.plane().client().await?);
    let start = Instant::now();
    let (running, _) = prepared.start()?;
    let (bound, seen) = until_bound(&player, &running, &arrivals, start).await?;
    figures(&running, &arrivals, Ended { start, bound, seen }, &sizes)
}

async fn create_pods(player: &Player, world: &World) -> Result<()> {
    for change in world.steps.iter().flat_map(|step| &step.changes) {
        player.apply(world, *change).await?;
    }
    let (begun, wanted) = (Instant::now(), world.pods_created());
    let within = done_within(wanted);
    loop {
        let looked = Instant::now();
        if player.unschedulable().await? >= wanted {
            return Ok(());
        }
        ensure!(begun.elapsed() < within, "not all pods were unschedulable within {within:?}");
        pause(looked).await;
    }
}

fn done_within(pods: usize) -> Duration {
    let (least, each) = DONE_WITHIN;
    least + each * u32::try_from(pods).unwrap_or(u32::MAX)
}

/// Waits after a look that began at this time.
async fn pause(looked: Instant) {
    let (least, times) = PAUSE;
    tokio::time::sleep(least.max(looked.elapsed() * times)).await;
}

/// When NodeClaims were first seen.
struct Arrivals {
    seen: Arc<Mutex<(BTreeSet<String>, Vec<Instant>)>>,
    watching: tokio::task::JoinHandle<()>,
}

impl Arrivals {
    fn watch(client: kube::Client) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim"));
        let claims: Api<DynamicObject> = Api::all_with(client, &resource);
        let seen = Arc::new(Mutex::new((BTreeSet::new(), Vec::new())));
        let noted = Arc::clone(&seen);
        let watching = tokio::spawn(async move {
            // Errors of a watch are retried by it.
            let events = watcher(claims, watcher::Config::default()).filter_map(async |event| event.ok());
            pin_mut!(events);
            while let Some(event) = events.next().await {
                if let watcher::Event::Apply(claim) | watcher::Event::InitApply(claim) = event {
                    let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    if seen.0.insert(claim.metadata.uid.unwrap_or_default()) {
                        seen.1.push(Instant::now());
                    }
                }
            }
        });
        Self { seen, watching }
    }

    fn times(&self) -> Vec<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Waits until all pods are bound and nothing comes any more. Returns when they were bound, and what is seen at the end.
async fn until_bound(
    player: &Player,
    running: &Running,
    arrivals: &Arrivals,
    start: Instant,
) -> Result<(Instant, Observation)> {
    let mut bound: Option<Instant> = None;
    loop {
        let looked = Instant::now();
        let seen = player.observe().await?;
        let within = done_within(seen.pods.len());
        if seen.pods.values().all(|bound| *bound) {
            let since = *bound.get_or_insert_with(Instant::now);
            let last = arrivals.times().last().copied().unwrap_or(since).max(since);
            if last.elapsed() > QUIET {
                return Ok((since, seen));
            }
        }
        if let Some(exit) = running.provisioner.exit_status() {
            anyhow::bail!("the controller ended ({exit}):\n{}", running.provisioner.tail(20));
        }
        ensure!(
            start.elapsed() < within,
            "{} pods are not bound within {within:?}; the controller's last lines:\n{}",
            seen.pods.values().filter(|bound| !**bound).count(),
            running.provisioner.tail(20)
        );
        pause(looked).await;
    }
}

/// The end of a measurement.
struct Ended {
    start: Instant,
    bound: Instant,
    seen: Observation,
}

fn figures(running: &Running, arrivals: &Arrivals, ended: Ended, sizes: &Sizes) -> Result<WaitingFigures> {
    let times = arrivals.times();
    let (first, last) = times.first().zip(times.last()).context("there is no NodeClaim although all pods are bound")?;
    // So many may come late.
    let late = times.len() * 2 / 100;
    let most = times.get(times.len() - 1 - late).unwrap_or(last);
    let mut series = Series::default();
    series.record(0.0, ended.seen, sizes);
    let sample = series.samples.first().context("no sample")?;
    let disks = OS_DISK * i64::try_from(sample.nodes)?;
    Ok(WaitingFigures {
        first_claim: first.duration_since(ended.start).as_secs_f64(),
        most_claims: most.duration_since(*first).as_secs_f64(),
        last_claim: last.duration_since(*first).as_secs_f64(),
        claims: times.len(),
        bound: ended.bound.duration_since(ended.start).as_secs_f64(),
        nodes: sample.nodes,
        price: sample.price as f64 / NANOS,
        price_with_disks: (sample.price + disks) as f64 / NANOS,
        peak_memory_mib: running.peak_memory_kib()? as f64 / 1_024.0,
    })
}

impl WaitingFigures {
    /// All figures on one line.
    pub(crate) fn line(&self, side: Side, pods: u32) -> String {
        format!(
            "{pods} pods {:<10} first NodeClaim after {:.1} s, all but 2 % {:.1} s later, the last of {} {:.1} s later; all \
             bound after {:.1} s; {} nodes, {:.3} USD/h, {:.3} with disks; {:.0} MiB",
            side.name(),
            self.first_claim,
            self.most_claims,
            self.claims,
            self.last_claim,
            self.bound,
            self.nodes,
            self.price,
            self.price_with_disks,
            self.peak_memory_mib
        )
    }
}
