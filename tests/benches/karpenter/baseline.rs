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

/// Plays a world; runs with other seeds differ in what upstream leaves to chance.
pub(crate) fn play(world: &World, sizes: &Sizes, seed: u64) -> Result<Series> {
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
    Ok(series)
}

/// Nodes register as late as those of the kwok provider, and go at once. The kwok of the control plane makes nodes ready
/// and starts pods within a second.
fn timings() -> Timings {
    let delay = i64::try_from(REGISTRATION_SECONDS).unwrap_or(0);
    let mut timings = Timings { deletion_poll: SignedDuration::ZERO, ..Timings::default() };
    timings.cloud.vm_create = Delay::secs(delay, delay);
    timings.cloud.vm_delete = Delay::secs(0, 0);
    timings.cluster.node_joins = Delay::secs(0, 0);
    timings.cluster.node_ready = Delay::secs(0, 1);
    timings.cluster.pod_starts = Delay::secs(0, 1);
    timings
}

fn setup(world: &World, seed: u64) -> Result<WorldSetup> {
    let mut actions = Vec::new();
    let mut replicas = vec![0; world.apps.len()];
    for step in &world.steps {
        for change in &step.changes {
            let (app, rollout) = match *change {
                Change::Scale { app, replicas: to } => {
                    replicas[app] = to;
                    (app, None)
                }
                Change::Rollout { app } => {
                    let max_surge = replicas[app].div_ceil(4);
                    (app, Some(Rollout { requests: None, max_surge, max_unavailable: 0 }))
                }
            };
            let namespace = Namespace::new("default")?;
            let workload = ObjectKey { namespace, name: ObjectName::new(world.apps[app].name.as_str())? };
            let action = match rollout {
                Some(rollout) => Action::Rollout { workload, rollout },
                None => Action::Scale { workload, replicas: replicas[app] },
            };
            actions.push((SignedDuration::from_secs(step.at.into()), action));
        }
    }
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
