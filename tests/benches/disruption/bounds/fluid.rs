//! The least that a load can cost if nodes and pods may be split: VMs bought in fractions, at any instant exactly as many as
//! are needed.
//!
//! At each instant the cheapest fractional mix of sizes that holds the CPU and the memory (or the GPUs) of the pods that
//! are wanted, on top of the DaemonSets of each node; reserved VMs are free.

use super::demand::Wanted;
use super::market::{GPU, daemons, reserved, sizes};
use crate::world::BenchWorld;
use napkeeper_core::catalog::{InstanceType, Offering, RegionCatalog, node_labels};
use napkeeper_core::model::amounts::resources::Resources;
use std::sync::Arc;

/// CPU in cores, memory in GiB, and GPUs.
type Amounts = [f64; 3];

/// The prices of fractions of VMs.
pub(super) struct Prices {
    /// Values of a core and of a GiB by which no size is worth more than it costs: the corners of all such values.
    corners: Vec<(f64, f64)>,
    /// USD per hour of the cheapest GPU.
    per_gpu: f64,
    /// What reserved VMs hold, for nothing.
    reserved: Amounts,
}

impl Prices {
    pub(super) fn new(region: &RegionCatalog, world: &BenchWorld) -> Self {
        let (types, daemons) = (sizes(region, world), daemons(world));
        let mut rows = Vec::new();
        let mut per_gpu = f64::INFINITY;
        for pool in &world.setup.manifests.pools {
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
        Self { corners: corners(&rows), per_gpu, reserved: all_reserved(world, &types, &daemons) }
    }

    /// USD per hour.
    pub(super) fn least_per_hour(&self, wanted: &[Wanted]) -> f64 {
        let mut demand = [0.0; 3];
        for Wanted { requests, pods, .. } in wanted {
            add(&mut demand, needed(requests).map(|amount| amount * f64::from(*pods)));
        }
        let rest: Amounts = std::array::from_fn(|i| (demand[i] - self.reserved[i]).max(0.0));
        let worth = |(core, gib): &(f64, f64)| rest[0] * core + rest[1] * gib;
        let gpus = if demand[2] > 0.0 { demand[2] * self.per_gpu } else { 0.0 };
        self.corners.iter().map(worth).fold(0.0, f64::max) + gpus
    }
}

/// What all reserved VMs hold beside the DaemonSets.
fn all_reserved(world: &BenchWorld, types: &[Arc<InstanceType>], daemons: &Resources) -> Amounts {
    let mut sum = [0.0; 3];
    for (instance, _, count) in reserved(world, types) {
        let each = amounts(&instance.allocatable.minus(daemons));
        add(&mut sum, each.map(|amount| amount * count as f64));
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
    let gpus = resources.extended(GPU);
    [resources.cpu_millis as f64 / 1e3, resources.memory as f64 / f64::from(1 << 30), gpus as f64]
}

/// What a pod adds to the demand: with GPUs only these, since the sizes that have them have CPU and memory beside them.
fn needed(requests: &Resources) -> Amounts {
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
