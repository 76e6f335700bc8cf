//! A folder of manifests as a cluster with pending pods.
//!
//! The scenario is simulated up to the time when the pods are pending.

use super::pod_query::PodQuery;
use super::state::SchedulingState;
use crate::repository::ReadingArgs;
use crate::simulate::input::{self, Input, InputArgs};
use anyhow::{anyhow, bail};
use jiff::SignedDuration;
use napkeeper_api::types::duration;
use napkeeper_controller::config_file::RepositoryFacts;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::{ObjectKey, Region};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_sim::scenario::Scenario;
use napkeeper_sim::world::World;
use std::collections::BTreeSet;
use std::path::Path;

/// The part of the command line about files.
pub(super) struct FileArgs<'a> {
    pub(super) path: &'a Path,
    pub(super) scenario: Option<&'a Path>,
    pub(super) reading: &'a ReadingArgs,
    /// The cluster that the folder is for.
    pub(super) facts: &'a RepositoryFacts,
    /// The time since the start; absent is as soon as such pods are pending.
    pub(super) at: Option<SignedDuration>,
    pub(super) region: Option<&'a Region>,
    pub(super) catalog: &'a Catalog,
}

/// Simulates a folder until matching pods are pending. Also returns the region. `None` where manifests are wrong: all
/// problems have been written to stderr.
pub(super) fn state(files: &FileArgs<'_>, query: &PodQuery) -> anyhow::Result<Option<(SchedulingState, Region)>> {
    let args = InputArgs {
        path: Some(files.path),
        scenario: files.scenario,
        reading: files.reading,
        facts: files.facts,
        catalog: files.catalog,
    };
    let change = |scenario: &mut Scenario| {
        scenario.region = files.region.cloned().unwrap_or_else(|| scenario.region.clone());
    };
    let Some(input) = input::read(args, change, &mut anstream::stderr())? else { return Ok(None) };
    let instants = match files.at {
        Some(at) if at > input.scenario.duration => {
            let end = duration::format(input.scenario.duration);
            bail!("--at {}: {} ends after {end}", duration::format(at), input.scenario.name)
        }
        Some(at) => vec![at],
        None => instants(&input.scenario),
    };
    let mut world = World::new(files.catalog, input.scenario.setup(input.manifests.clone()))?;
    world.set_node_options(files.facts.options);
    let mut last = None;
    for at in instants {
        let now = world.started_at() + at;
        world.run_until(now).map_err(|violation| anyhow!("{}: running the scenario: {violation}", input.from))?;
        let snapshot = with_pods(world.known(), &input.manifests.pods);
        let matched = query.find(&snapshot);
        let found = !matched.is_empty();
        let is_pending = !matched.pending.is_empty();
        if is_pending || (found && last.is_none()) || files.at.is_some() {
            let unavailable = world.unavailable().clone();
            last = Some(SchedulingState { snapshot, unavailable, now, from: input.from.clone(), at: Some(at) });
        }
        if is_pending {
            break;
        }
    }
    match last {
        Some(state) if !query.find(&state.snapshot).is_empty() => Ok(Some((state, input.scenario.region.clone()))),
        last => Err(not_found(query, &input, last.as_ref(), &world)),
    }
}

/// The times at which the load changes: the start, and every step.
fn instants(scenario: &Scenario) -> Vec<SignedDuration> {
    let actions = scenario.actions().into_iter().map(|(at, _)| at);
    let all: BTreeSet<SignedDuration> = actions.chain([SignedDuration::ZERO]).collect();
    all.into_iter().collect()
}

/// The cluster with the bare pods of the manifests.
fn with_pods(known: &Snapshot, pods: &[Pod]) -> Snapshot {
    let mut snapshot = known.clone();
    for pod in pods {
        // The zone of volumes in manifests is unknown.
        snapshot.put_pod(Pod { unschedulable: pod.node.is_none(), volumes: Vec::new(), ..pod.clone() });
    }
    snapshot
}

fn not_found(query: &PodQuery, input: &Input, last: Option<&SchedulingState>, world: &World) -> anyhow::Error {
    let all = input.manifests.workloads.iter().chain(&input.manifests.suspended);
    let keys: Vec<ObjectKey> = all.map(|(key, _)| key.clone()).collect();
    let meant = keys.iter().find(|key| key.namespace == query.namespace && query.text.ends_with(key.name.as_str()));
    let snapshot = last.map_or_else(|| world.known(), |state| &state.snapshot);
    match meant {
        Some(key) => anyhow!(
            "{}: {key} has no pods{}: it has no replicas at that time, no step has started it yet, or it has ended; \
             see docs/simulate.md, Steps",
            input.from,
            last.and_then(|state| state.at).map(|at| format!(" at {}", duration::format(at))).unwrap_or_default()
        ),
        None => query.not_found(snapshot, &input.from, &keys),
    }
}
