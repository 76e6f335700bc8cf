//! What a world wants, over time.
//!
//! Load counts once it has lasted for three minutes, since a policy may take that long to launch nodes. Two simplifications
//! may raise bounds by a trifle: changed requests count after three minutes though rollouts may take longer, and a Job
//! counts from its start by the scenario, not by its pods'.

use crate::world::BenchWorld;
use jiff::SignedDuration;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::PodShape;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_sim::workload::{Workload, WorkloadKind};
use napkeeper_sim::world::Action;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long load must have lasted to count.
pub(super) const LASTED: SignedDuration = SignedDuration::from_secs(180);

/// A fact that holds from a time on.
type Steps<T> = Vec<(SignedDuration, T)>;

/// Equal pods that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Their constraints. Their requests may have changed since.
    pub(super) shape: Arc<PodShape>,
    /// What one of them requests.
    pub(super) requests: Resources,
    /// How many there are.
    pub(super) pods: u32,
}

/// A time during which the same pods are wanted.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub(super) wanted: Vec<Wanted>,
    /// After the start of the world.
    pub(super) from: SignedDuration,
    /// In hours.
    pub(super) hours: f64,
}

/// The stretches of a world, one after the other.
pub(super) fn stretches(world: &BenchWorld) -> Vec<Stretch> {
    let demand = Demand::new(world);
    let mut times = demand.changes(world);
    times.extend([SignedDuration::ZERO, LASTED, world.duration]);
    let times: Vec<_> = times.into_iter().filter(|time| *time <= world.duration).collect();
    let mut stretches: Vec<Stretch> = Vec::new();
    for pair in times.windows(2) {
        let hours = (pair[1] - pair[0]).as_secs_f64() / 3600.0;
        let wanted = demand.at(pair[0]);
        match stretches.last_mut() {
            Some(last) if last.wanted == wanted => last.hours += hours,
            _ => stretches.push(Stretch { wanted, from: pair[0], hours }),
        }
    }
    stretches
}

/// Replicas and requests of the pods of a workload.
struct Load {
    shape: Arc<PodShape>,
    replicas: Steps<u32>,
    requests: Steps<Resources>,
}

/// What is wanted, over time.
struct Demand {
    loads: Vec<Load>,
    /// Runs of Jobs: start, end, and the pods.
    runs: Vec<(SignedDuration, SignedDuration, Wanted)>,
}

impl Demand {
    fn new(world: &BenchWorld) -> Self {
        let manifests = &world.setup.manifests;
        let first = |(key, workload): &(ObjectKey, Workload)| {
            let shape = Arc::clone(&workload.template.shape);
            let replicas = vec![(SignedDuration::MIN, 0), (SignedDuration::ZERO, workload.wanted(0))];
            let requests = vec![(SignedDuration::MIN, shape.requests.clone())];
            (key.clone(), Load { shape, replicas, requests })
        };
        let mut loads: BTreeMap<ObjectKey, Load> = manifests.workloads.iter().map(first).collect();
        let jobs: BTreeMap<_, _> = manifests.suspended.iter().map(|(key, job)| (key, job)).collect();
        let mut runs = Vec::new();
        for (after, action) in &world.setup.actions {
            match action {
                Action::Scale { workload, replicas } => {
                    if let Some(load) = loads.get_mut(workload) {
                        load.replicas.push((*after, *replicas));
                    }
                }
                Action::Rollout { workload, rollout } => {
                    if let (Some(load), Some(requests)) = (loads.get_mut(workload), &rollout.requests) {
                        load.requests.push((*after, requests.clone()));
                    }
                }
                Action::StartJob { workload } => runs.extend(jobs.get(workload).and_then(|job| run(job, *after))),
                _ => {}
            }
        }
        Self { loads: loads.into_values().collect(), runs }
    }

    /// When it may change.
    fn changes(&self, world: &BenchWorld) -> BTreeSet<SignedDuration> {
        let actions = world.setup.actions.iter().flat_map(|(after, _)| [*after, *after + LASTED]);
        let runs = self.runs.iter().flat_map(|(start, end, _)| [*start + LASTED, *end]);
        actions.chain(runs).collect()
    }

    /// What is wanted now and has been for long enough.
    fn at(&self, now: SignedDuration) -> Vec<Wanted> {
        let load = |load: &Load| {
            let pods = least(&load.replicas, now, |a, b| *a.min(b)).unwrap_or(0);
            let requests = least(&load.requests, now, lesser).unwrap_or_default();
            Wanted { shape: Arc::clone(&load.shape), requests, pods }
        };
        let runs = self.runs.iter().filter(|(start, end, _)| *start + LASTED <= now && now < *end);
        let all = self.loads.iter().map(load).chain(runs.map(|(_, _, wanted)| wanted.clone()));
        all.filter(|wanted| wanted.pods > 0).collect()
    }
}

/// One run of a Job that begins now.
fn run(job: &Workload, now: SignedDuration) -> Option<(SignedDuration, SignedDuration, Wanted)> {
    let WorkloadKind::Job { parallelism, run_for, .. } = job.kind else { return None };
    let shape = Arc::clone(&job.template.shape);
    let requests = shape.requests.clone();
    Some((now, now + run_for, Wanted { shape, requests, pods: parallelism }))
}

/// The least of what has held since [`LASTED`] ago.
fn least<T: Clone>(steps: &Steps<T>, now: SignedDuration, lesser: impl Fn(&T, &T) -> T) -> Option<T> {
    let end = steps.partition_point(|(from, _)| *from <= now);
    // The one that held then began before it.
    let begin = steps.partition_point(|(from, _)| *from <= now - LASTED).saturating_sub(1);
    let values = steps.get(begin..end)?.iter().map(|(_, value)| value.clone());
    values.reduce(|a, b| lesser(&a, &b))
}

/// The lesser of each amount.
fn lesser(a: &Resources, b: &Resources) -> Resources {
    let extended = a.extended.iter().map(|(name, amount)| (Arc::clone(name), (*amount).min(b.extended(name))));
    Resources {
        cpu_millis: a.cpu_millis.min(b.cpu_millis),
        memory: a.memory.min(b.memory),
        ephemeral_storage: a.ephemeral_storage.min(b.ephemeral_storage),
        pods: a.pods.min(b.pods),
        extended: extended.filter(|(_, amount)| *amount > 0).collect(),
    }
}
