//! The least that a load can cost: VMs bought in fractions, at any instant exactly as many as are needed.
//!
//! At each instant the cheapest fractional mix of sizes that holds the CPU and the memory (or the GPUs) of the pods that
//! are wanted, on top of the DaemonSets of each node; reserved VMs are free. Load counts once it has lasted for three
//! minutes, since a policy may take that long to launch nodes. Two simplifications may raise the bound by a trifle:
//! changed requests count after three minutes though rollouts may take longer, and a Job counts from its start by the
//! scenario, not by its pods'.

use crate::world::BenchWorld;
use anyhow::{Context, Result};
use jiff::SignedDuration;
use napkeeper_core::catalog::{
    Catalog, InstanceType, InstanceTypeOptions, Offering, RegionCatalog, instance_types, node_labels,
};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_sim::workload::{Workload, WorkloadKind};
use napkeeper_sim::world::Action;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long load must have lasted to count.
const LASTED: SignedDuration = SignedDuration::from_secs(180);
const GPU: &str = "nvidia.com/gpu";

/// CPU in cores, memory in GiB, and GPUs.
type Amounts = [f64; 3];

/// A fact that holds from a time on.
type Steps<T> = Vec<(SignedDuration, T)>;

/// The bound, in USD.
pub(crate) fn bound(catalog: &Catalog, world: &BenchWorld) -> Result<f64> {
    let region = catalog.region(&world.setup.region).context("the catalogue lacks the region")?;
    let prices = Prices::new(&region, world);
    let demand = Demand::new(world);
    let mut times: BTreeSet<SignedDuration> = BTreeSet::from([SignedDuration::ZERO, world.duration]);
    for (after, _) in &world.setup.actions {
        times.extend([*after, *after + LASTED]);
    }
    times.extend(demand.ends());
    let times: Vec<_> = times.into_iter().filter(|time| *time <= world.duration).collect();
    let cost = |pair: &[SignedDuration]| {
        let hours = (pair[1] - pair[0]).as_secs_f64() / 3600.0;
        prices.least_per_hour(demand.at(pair[0])) * hours
    };
    Ok(times.windows(2).map(cost).sum())
}

/// What is wanted, over time.
struct Demand {
    /// Pods and the requests of one, by workload.
    loads: Vec<(Steps<u32>, Steps<Amounts>)>,
    /// Runs of Jobs: start, end, and all requests.
    runs: Vec<(SignedDuration, SignedDuration, Amounts)>,
}

impl Demand {
    fn new(world: &BenchWorld) -> Self {
        let manifests = &world.setup.manifests;
        let first = |(key, workload): &(ObjectKey, Workload)| {
            let replicas = vec![(SignedDuration::MIN, 0), (SignedDuration::ZERO, workload.wanted(0))];
            let requests = vec![(SignedDuration::MIN, wanted(&workload.template.shape.requests))];
            (key.clone(), (replicas, requests))
        };
        let mut loads: BTreeMap<ObjectKey, (Steps<u32>, Steps<Amounts>)> =
            manifests.workloads.iter().map(first).collect();
        let jobs: BTreeMap<_, _> = manifests.suspended.iter().map(|(key, job)| (key, job)).collect();
        let mut runs = Vec::new();
        for (after, action) in &world.setup.actions {
            match action {
                Action::Scale { workload, replicas } => {
                    loads.entry(workload.clone()).or_default().0.push((*after, *replicas));
                }
                Action::Rollout { workload, rollout } => {
                    let requests = rollout.requests.as_ref().map(|requests| (*after, wanted(requests)));
                    loads.entry(workload.clone()).or_default().1.extend(requests);
                }
                Action::StartJob { workload } => runs.extend(jobs.get(workload).and_then(|job| run(job, *after))),
                _ => {}
            }
        }
        Self { loads: loads.into_values().collect(), runs }
    }

    /// When runs begin to count, and end.
    fn ends(&self) -> impl Iterator<Item = SignedDuration> {
        self.runs.iter().flat_map(|(start, end, _)| [*start + LASTED, *end])
    }

    /// What is wanted now and has been for long enough.
    fn at(&self, now: SignedDuration) -> Amounts {
        let mut sum = [0.0; 3];
        for (replicas, requests) in &self.loads {
            let pods = least(replicas, now, |a, b| *a.min(b)).unwrap_or(0);
            let each = least(requests, now, |a, b| std::array::from_fn(|i| a[i].min(b[i]))).unwrap_or_default();
            add(&mut sum, each.map(|amount| amount * f64::from(pods)));
        }
        for (start, end, all) in &self.runs {
            if *start + LASTED <= now && now < *end {
                add(&mut sum, *all);
            }
        }
        sum
    }
}

/// One run of a Job that begins now.
fn run(job: &Workload, now: SignedDuration) -> Option<(SignedDuration, SignedDuration, Amounts)> {
    let WorkloadKind::Job { parallelism, run_for, .. } = job.kind else { return None };
    let each = wanted(&job.template.shape.requests);
    Some((now, now + run_for, each.map(|amount| amount * f64::from(parallelism))))
}

/// The least of what has held since [`LASTED`] ago.
fn least<T: Clone>(steps: &Steps<T>, now: SignedDuration, lesser: impl Fn(&T, &T) -> T) -> Option<T> {
    let end = steps.partition_point(|(from, _)| *from <= now);
    // The one that held then began before it.
    let begin = steps.partition_point(|(from, _)| *from <= now - LASTED).saturating_sub(1);
    let values = steps.get(begin..end)?.iter().map(|(_, value)| value.clone());
    values.reduce(|a, b| lesser(&a, &b))
}

/// The prices of fractions of VMs.
struct Prices {
    /// Values of a core and of a GiB by which no size is worth more than it costs: the corners of all such values.
    corners: Vec<(f64, f64)>,
    /// USD per hour of the cheapest GPU.
    per_gpu: f64,
    /// What reserved VMs hold, for nothing.
    reserved: Amounts,
}

impl Prices {
    fn new(region: &RegionCatalog, world: &BenchWorld) -> Self {
        let manifests = &world.setup.manifests;
        let mut daemons = Resources::default();
        manifests.daemon_sets.iter().for_each(|(_, template)| daemons.add(&template.shape.requests));
        // No policy pays less for an OS disk.
        let options = InstanceTypeOptions::default();
        let types = manifests.classes.first().map_or_else(Vec::new, |class| instance_types(region, class, &options));
        let mut rows = Vec::new();
        let mut per_gpu = f64::INFINITY;
        for pool in &manifests.pools {
            for instance in &types {
                let allowed = |o: &&Offering| pool.requirements.satisfied_by(&node_labels(instance, o));
                let vm = instance.offerings.iter().filter(allowed).map(|o| o.price).min();
                let Some(cheapest) = vm.map(|price| (price + instance.costs.os_disk).nanos()) else {
                    continue;
                };
                let (price, room) = (cheapest as f64 / 1e9, amounts(&instance.allocatable.minus(&daemons)));
                if pool.taints.is_empty() {
                    rows.push((room, price));
                } else if room[2] > 0.0 {
                    per_gpu = per_gpu.min(price / room[2]);
                }
            }
        }
        Self { corners: corners(&rows), per_gpu, reserved: reserved(world, &types, &daemons) }
    }

    /// USD per hour.
    fn least_per_hour(&self, demand: Amounts) -> f64 {
        let rest: Amounts = std::array::from_fn(|i| (demand[i] - self.reserved[i]).max(0.0));
        let worth = |(core, gib): &(f64, f64)| rest[0] * core + rest[1] * gib;
        let gpus = if demand[2] > 0.0 { demand[2] * self.per_gpu } else { 0.0 };
        self.corners.iter().map(worth).fold(0.0, f64::max) + gpus
    }
}

/// What all reserved VMs hold beside the DaemonSets.
fn reserved(world: &BenchWorld, types: &[Arc<InstanceType>], daemons: &Resources) -> Amounts {
    let mut sum = [0.0; 3];
    for (_, action) in &world.setup.actions {
        if let Action::Reserve { size, capacity: Some(count), .. } = action
            && let Some(instance) = types.iter().find(|instance| instance.facts.name == *size)
        {
            let each = amounts(&instance.allocatable.minus(daemons));
            add(&mut sum, each.map(|amount| amount * *count as f64));
        }
    }
    sum
}

/// The corners of the values of a core and of a GiB by which no row is worth more than its price.
fn corners(rows: &[(Amounts, f64)]) -> Vec<(f64, f64)> {
    let least_for = |i: usize| rows.iter().map(|(room, price)| price / room[i]).fold(f64::INFINITY, f64::min);
    let mut found = vec![(least_for(0), 0.0), (0.0, least_for(1))];
    for (n, (a, a_price)) in rows.iter().enumerate() {
        for (b, b_price) in &rows[n + 1..] {
            let determinant = a[0] * b[1] - a[1] * b[0];
            if determinant.abs() > 1e-9 {
                let core = (a_price * b[1] - b_price * a[1]) / determinant;
                let gib = (b_price * a[0] - a_price * b[0]) / determinant;
                found.push((core, gib));
            }
        }
    }
    let allowed = |(core, gib): &(f64, f64)| {
        *core >= 0.0
            && *gib >= 0.0
            && rows.iter().all(|(room, price)| core * room[0] + gib * room[1] <= price * (1.0 + 1e-9))
    };
    found.retain(allowed);
    found
}

fn amounts(resources: &Resources) -> Amounts {
    let gpus = resources.extended.iter().find(|(name, _)| &**name == GPU).map_or(0, |(_, amount)| *amount);
    [resources.cpu_millis as f64 / 1e3, resources.memory as f64 / f64::from(1 << 30), gpus as f64]
}

/// What a pod adds to the demand: with GPUs only these, since the sizes that have them have CPU and memory beside them.
fn wanted(requests: &Resources) -> Amounts {
    match amounts(requests) {
        [_, _, gpus] if gpus > 0.0 => [0.0, 0.0, gpus],
        amounts => amounts,
    }
}

fn add(sum: &mut Amounts, other: Amounts) {
    for (sum, amount) in sum.iter_mut().zip(other) {
        *sum += amount;
    }
}
