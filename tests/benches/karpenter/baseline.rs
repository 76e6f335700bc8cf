//! Karpenter's policy in the simulator, on the same world with the durations of the kwok provider.

use crate::manifests;
use crate::series::{INTERVAL, Observation, Series};
use crate::sides::REGISTRATION_SECONDS;
use crate::sizes::{REGION, Sizes, offering_name};
use crate::world::{Change, World};
use anyhow::{Context, Result};
use jiff::SignedDuration;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName, Region};
use napkeeper_core::model::settings::DeletionRules;
use napkeeper_sim::cluster::Cluster;
use napkeeper_sim::karpenter::{Karpenter, Timings, Variant};
use napkeeper_sim::random::Delay;
use napkeeper_sim::workload::Rollout;
use napkeeper_sim::world::{Action, WorldSetup};

/// How long a batch of new pods takes.
const BATCH: SignedDuration = SignedDuration::from_millis(100);

/// Plays a world, and returns the commands of disruption too. Runs with other seeds differ in what upstream leaves to chance.
pub(crate) fn play(world: &World, sizes: &Sizes, seed: u64) -> Result<(Series, Vec<String>)> {
    let catalog = Catalog::embedded()?;
    let setup = setup(world, seed)?;
    let mut karpenter = Karpenter::with_timings(&catalog, &setup, &Variant::default(), timings())?;
    let mut series = Series::default();
    let interval = SignedDuration::try_from(INTERVAL).context("the interval of samples")?;
    let end = setup.at + SignedDuration::from_secs(world.seconds.into());
    let mut at = setup.at;
    while at <= end {
        karpenter.run_until(at)?;
        series.record(at.duration_since(setup.at).as_secs_f64(), observe(karpenter.cluster()), sizes);
        at += interval;
    }
    Ok((series, karpenter.commands().iter().map(ToString::to_string).collect()))
}

/// Nodes register as late as those of the kwok provider, and go at once. The kwok of the control plane makes nodes ready
/// in a second or two, and starts pods within one.
fn timings() -> Timings {
    let delay = i64::try_from(REGISTRATION_SECONDS).unwrap_or(0);
    let mut timings = Timings { deletion_poll: SignedDuration::ZERO, ..Timings::default() };
    timings.cloud.vm_create = Delay::secs(delay, delay);
    timings.cloud.vm_delete = Delay::secs(0, 0);
    timings.cluster.node_joins = Delay::secs(0, 0);
    timings.cluster.node_ready = Delay::secs(1, 2);
    timings.cluster.pod_starts = Delay::secs(0, 1);
    timings
}

fn setup(world: &World, seed: u64) -> Result<WorldSetup> {
    let mut actions = Vec::new();
    let mut replicas = vec![0; world.apps.len()];
    for step in &world.steps {
        let at = SignedDuration::from_secs(step.at.into());
        for change in &step.changes {
            match *change {
                Change::Scale { app, replicas: to } => {
                    let key = key(world, app)?;
                    let from = std::mem::replace(&mut replicas[app], to);
                    actions.extend(
                        growth(from, to)
                            .into_iter()
                            .map(|(after, replicas)| (at + after, Action::Scale { workload: key.clone(), replicas })),
                    );
                }
                Change::Rollout { app } => {
                    let rollout = Rollout { requests: None, max_surge: replicas[app].div_ceil(4), max_unavailable: 0 };
                    actions.push((at, Action::Rollout { workload: key(world, app)?, rollout }));
                }
            }
        }
    }
    actions.sort_by_key(|(at, _)| *at);
    Ok(WorldSetup {
        region: Region::new(REGION)?,
        seed,
        at: "2026-08-03T08:00:00Z".parse()?,
        manifests: manifests::simulated(world)?,
        system_nodes: 1,
        actions,
        deletion_rules: DeletionRules::default(),
    })
}

fn key(world: &World, app: usize) -> Result<ObjectKey> {
    let name = &world.apps.get(app).with_context(|| format!("the world {} has no app {app}", world.name))?.name;
    Ok(ObjectKey { namespace: Namespace::new("default")?, name: ObjectName::new(name.as_str())? })
}

/// How replicas grow: the controller of ReplicaSets creates 1, 2, 4, … pods at a time (`slowStartBatch`), so that the pods
/// of Deployments which grow together come mixed.
fn growth(from: u32, to: u32) -> Vec<(SignedDuration, u32)> {
    let (mut steps, mut replicas, mut batch) = (Vec::new(), from, 1);
    for n in 0..32 {
        replicas = if to > replicas { to.min(replicas + batch) } else { to };
        steps.push((BATCH * n, replicas));
        if replicas == to {
            break;
        }
        batch *= 2;
    }
    steps
}

fn observe(cluster: &Cluster) -> Observation {
    let state = cluster.state();
    let mut seen = Observation::default();
    for node in state.nodes().values() {
        if let Some((size, capacity_type)) = node.label(labels::INSTANCE_TYPE).zip(node.label(labels::CAPACITY_TYPE)) {
            seen.nodes.insert(node.uid.to_string(), offering_name(size, capacity_type));
        }
    }
    let pods = state.pods().values().filter(|pod| pod.deleting_at.is_none() && !pod.is_terminal());
    seen.pods = pods.map(|pod| (pod.uid.to_string(), pod.node.is_some())).collect();
    seen
}
