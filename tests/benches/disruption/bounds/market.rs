//! What the NodePools of a world may buy, and which pods may run there.
//!
//! A node costs its VM and its OS disk, which is ephemeral where it fits: no policy pays less. Reserved VMs are free. Of each
//! node the DaemonSets take their part. Zones differ in nothing but which sizes they have, so sizes of several zones are one
//! offer. Constraints between pods (spread, affinity) are left out: they hold when a pod is bound and may be broken later,
//! and where all zones have the same sizes at the same prices nodes bought in fractions satisfy them for nothing.

use super::demand::{Stretch, Wanted};
use super::program::{Amounts, Class, Offer, Program};
use crate::world::BenchWorld;
use anyhow::{Result, ensure};
use napkeeper_core::catalog::{
    CapacityType, InstanceType, InstanceTypeOptions, Offering, RegionCatalog, instance_types, node_labels,
};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, PodShape};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_sim::world::Action;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const GPU: &str = "nvidia.com/gpu";

/// All sizes that a world may buy, with their prices.
pub(super) fn sizes(region: &RegionCatalog, world: &BenchWorld) -> Vec<Arc<InstanceType>> {
    let options = InstanceTypeOptions::default();
    let class = world.setup.manifests.classes.first();
    class.map_or_else(Vec::new, |class| instance_types(region, class, &options))
}

/// What the DaemonSets of a world request on each node.
pub(super) fn daemons(world: &BenchWorld) -> Resources {
    let mut daemons = Resources::default();
    world.setup.manifests.daemon_sets.iter().for_each(|(_, template)| daemons.add(&template.shape.requests));
    daemons
}

/// Reserved VMs: their size, offering and number.
pub(super) fn reserved<'t>(
    world: &BenchWorld,
    types: &'t [Arc<InstanceType>],
) -> Vec<(&'t Arc<InstanceType>, Offering, u64)> {
    let of = |action: &Action| {
        let Action::Reserve { size, zone: Some(zone), capacity: Some(count), .. } = action else { return None };
        let instance = types.iter().find(|instance| instance.facts.name == *size)?;
        let offering =
            Offering { zone: zone.clone(), capacity_type: CapacityType::Reserved, price: Default::default() };
        Some((instance, offering, *count))
    };
    world.setup.actions.iter().filter_map(|(_, action)| of(action)).collect()
}

/// The programme of a world, and the demand of each stretch by its classes.
pub(super) fn program(
    region: &RegionCatalog,
    world: &BenchWorld,
    stretches: &[Stretch],
) -> Result<(Program, Vec<Vec<f64>>)> {
    let (nodes, offers) = offers(&sizes(region, world), world);
    let mut admitted: BTreeMap<&Arc<PodShape>, Vec<bool>> = BTreeMap::new();
    let mut ids: BTreeMap<Class, usize> = BTreeMap::new();
    let mut demands = Vec::new();
    for stretch in stretches {
        let mut demand: BTreeMap<usize, f64> = BTreeMap::new();
        for Wanted { shape, requests, pods } in &stretch.wanted {
            let of = || nodes.iter().map(|node| node.admits(shape)).collect();
            let admitted = admitted.entry(shape).or_insert_with(of).clone();
            let next = ids.len();
            let id = *ids.entry(Class { requests: amounts(requests), admitted }).or_insert(next);
            *demand.entry(id).or_default() += f64::from(*pods);
        }
        demands.push(demand);
    }
    let mut classes: Vec<_> = ids.into_iter().collect();
    classes.sort_by_key(|(_, id)| *id);
    let mut program = Program { classes: classes.into_iter().map(|(class, _)| class).collect(), offers };
    program.drop_dominated();
    let count = program.classes.len();
    let held = |class: usize| {
        (0..program.offers.len()).any(|o| program.offers[o].limit.is_none() && program.copies(class, o) > 0)
    };
    let lacking = (0..count).find(|class| !held(*class)).map(|class| &program.classes[class]);
    ensure!(lacking.is_none(), "no node holds {lacking:?}");
    let dense =
        |demand: BTreeMap<usize, f64>| (0..count).map(|class| demand.get(&class).copied().unwrap_or(0.0)).collect();
    Ok((program, demands.into_iter().map(dense).collect()))
}

/// The nodes of an offer, as pods see them.
struct NodeKind<'w> {
    pool: &'w NodePool,
    labels: Labels,
}

impl NodeKind<'_> {
    fn admits(&self, shape: &PodShape) -> bool {
        shape.accepts_labels(&self.labels) && shape.untolerated(&self.pool.taints).is_none()
    }
}

fn offers<'w>(types: &[Arc<InstanceType>], world: &'w BenchWorld) -> (Vec<NodeKind<'w>>, Vec<Offer>) {
    let daemons = daemons(world);
    let (mut nodes, mut offers) = (Vec::new(), Vec::new());
    for pool in &world.setup.manifests.pools {
        let mut add = |instance: &InstanceType, offering: &Offering, limit: Option<f64>| {
            let mut labels = node_labels(instance, offering);
            if pool.requirements.satisfied_by(&labels) {
                labels.extend(pool.labels.clone());
                let price = if limit.is_some() { 0.0 } else { instance.node_price(offering).nanos() as f64 / 1e9 };
                nodes.push(NodeKind { pool, labels });
                offers.push(Offer { price, room: amounts(&instance.allocatable.minus(&daemons)), limit });
            }
        };
        for instance in types {
            instance.offerings.iter().for_each(|offering| add(instance, offering, None));
        }
        for (instance, offering, count) in reserved(world, types) {
            add(instance, &offering, Some(count as f64));
        }
    }
    (nodes, offers)
}

fn amounts(resources: &Resources) -> Amounts {
    [resources.cpu_millis, resources.memory, resources.extended(GPU), resources.pods]
}
