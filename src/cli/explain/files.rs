//! Files: how does a folder of manifests become a cluster in which pods wait?
//!
//! The world that `simulate` plays is played up to the instant at which they do.

use super::scene::Scene;
use super::who::Name;
use crate::simulate::input::{self, Asked, Input};
use anyhow::{anyhow, bail};
use jiff::SignedDuration;
use napkeeper_api::duration;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::{ObjectKey, Region};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_sim::scenario::Scenario;
use napkeeper_sim::world::World;
use std::collections::BTreeSet;
use std::path::Path;

/// What of the command line is about files.
pub(super) struct Files<'a> {
    pub(super) path: &'a Path,
    pub(super) scenario: Option<&'a Path>,
    /// How long after the start; absent is as soon as such pods wait.
    pub(super) at: Option<SignedDuration>,
    pub(super) region: Option<&'a Region>,
    pub(super) catalog: &'a Catalog,
}

/// Plays the world of a folder up to when pods of a name wait. `None` when something is wrong with the manifests, all of
/// which has been written to stderr. With the region.
pub(super) fn scene(files: &Files<'_>, name: &Name) -> anyhow::Result<Option<(Scene, Region)>> {
    let asked = Asked { path: Some(files.path), scenario: files.scenario, catalog: files.catalog };
    let change = |scenario: &mut Scenario| {
        scenario.region = files.region.cloned().unwrap_or_else(|| scenario.region.clone());
    };
    let Some(input) = input::read(asked, change, &mut anstream::stderr())? else { return Ok(None) };
    let instants = match files.at {
        Some(at) if at > input.scenario.duration => {
            let end = duration::format(input.scenario.duration);
            bail!("--at {}: {} ends after {end}", duration::format(at), input.scenario.name)
        }
        Some(at) => vec![at],
        None => instants(&input.scenario),
    };
    let mut world = World::new(files.catalog, input.scenario.setup(input.manifests.clone()))?;
    let mut last = None;
    for at in instants {
        let now = world.started_at() + at;
        world.run_until(now).map_err(|violation| anyhow!("{}: running the scenario: {violation}", input.from))?;
        let snapshot = with_pods(world.known(), &input.manifests.pods);
        let chosen = name.choose(&snapshot);
        let found = !chosen.is_empty();
        let waits = !chosen.waiting.is_empty();
        if waits || (found && last.is_none()) || files.at.is_some() {
            let unavailable = world.unavailable().clone();
            last = Some(Scene { snapshot, unavailable, now, from: input.from.clone(), at: Some(at) });
        }
        if waits {
            break;
        }
    }
    match last {
        Some(scene) if !name.choose(&scene.snapshot).is_empty() => Ok(Some((scene, input.scenario.region.clone()))),
        last => Err(absent(name, &input, last.as_ref(), &world)),
    }
}

/// When something happens to the load: the start, and every step.
fn instants(scenario: &Scenario) -> Vec<SignedDuration> {
    let actions = scenario.actions().into_iter().map(|(at, _)| at);
    let all: BTreeSet<SignedDuration> = actions.chain([SignedDuration::ZERO]).collect();
    all.into_iter().collect()
}

/// A cluster with the pods of the manifests that nobody made.
fn with_pods(known: &Snapshot, pods: &[Pod]) -> Snapshot {
    let mut snapshot = known.clone();
    for pod in pods {
        // Volumes of a folder are no volumes of a cluster: which zone they will be in nobody knows.
        snapshot.put_pod(Pod { unschedulable: pod.node.is_none(), volumes: Vec::new(), ..pod.clone() });
    }
    snapshot
}

fn absent(name: &Name, input: &Input, last: Option<&Scene>, world: &World) -> anyhow::Error {
    let all = input.manifests.workloads.iter().chain(&input.manifests.suspended);
    let keys: Vec<ObjectKey> = all.map(|(key, _)| key.clone()).collect();
    let meant = keys.iter().find(|key| key.namespace == name.namespace && name.text.ends_with(key.name.as_str()));
    let snapshot = last.map_or_else(|| world.known(), |scene| &scene.snapshot);
    match meant {
        Some(key) => anyhow!(
            "{}: {key} has no pods{}: it has no replicas at that time, no step has started it yet, or it has ended; \
             see docs/simulate.md, Steps",
            input.from,
            last.and_then(|scene| scene.at).map(|at| format!(" at {}", duration::format(at))).unwrap_or_default()
        ),
        None => name.unknown(snapshot, &input.from, &keys),
    }
}
