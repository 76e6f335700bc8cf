//! The node pools that an administrator would configure for the cluster-autoscaler.

use crate::cluster::{AGENT_POOL, NewNode};
use crate::world::{SetupError, WorldSetup};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{
    Arch, CapacityType, InstanceType, InstanceTypeOptions, Offering, OfferingKey, RegionCatalog, SizeFacts, SizeName,
    instance_types, node_labels,
};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::pod::{Labels, PodShape, Taint};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NodeName, ProviderId, Zone};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most nodes of a group: what AKS allows a node pool.
pub(super) const MOST_NODES: usize = 1000;
/// vCPUs of the general sizes.
const GENERAL_VCPUS: [u32; 3] = [4, 8, 16];
/// First pause of a group that failed to grow, and the longest one; it doubles until nothing has failed for 3 h
/// (`--initial-node-group-backoff-duration`, `--max-…`, `--node-group-backoff-reset-timeout`).
const BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_mins(30);
const BACK_OFF_RESET: SignedDuration = SignedDuration::from_hours(3);

/// A node pool in one zone.
#[derive(Debug, Clone)]
pub(super) struct NodeGroup {
    /// Name of the pool.
    pub(super) name: Arc<str>,
    /// Its VM size.
    pub(super) facts: Arc<SizeFacts>,
    /// Its size, zone and capacity type.
    pub(super) offering: OfferingKey,
    /// The price of its VMs, by which it is chosen.
    pub(super) price: HourlyPrice,
    /// The price of the OS disk of each.
    pub(super) os_disk: HourlyPrice,
    /// What its VMs would cost on demand.
    pub(super) on_demand: HourlyPrice,
    /// A template node, with a placeholder name and VM.
    pub(super) template: NewNode,
    back_off: Option<BackOff>,
}

#[derive(Debug, Clone, Copy)]
struct BackOff {
    since: Timestamp,
    duration: SignedDuration,
}

impl NodeGroup {
    /// It may not grow until this time, because scaling up failed recently.
    pub(super) fn backed_off(&self, now: Timestamp) -> Option<Timestamp> {
        self.back_off.map(|b| b.since + b.duration).filter(|until| now < *until)
    }

    /// It has failed to grow.
    pub(super) fn back_off(&mut self, now: Timestamp) {
        let last = self.back_off.filter(|b| now.duration_since(b.since) < BACK_OFF_RESET);
        let duration = last.map_or(BACK_OFF, |b| (b.duration * 2).min(LONGEST_BACK_OFF));
        self.back_off = Some(BackOff { since: now, duration });
    }

    /// The same nodes in another zone.
    pub(super) fn is_similar(&self, other: &Self) -> bool {
        self.offering.size == other.offering.size && self.offering.capacity_type == other.offering.capacity_type
    }
}

/// The groups for a start. Each group is a NodePool's as far as it can be: its size is one that the class of a NodePool
/// allows, and its nodes have the labels and taints that all NodePools share which allow it (or, when none does, all
/// that may make nodes without GPUs), so that pods written for these run on them.
pub(super) fn node_groups(
    region: &RegionCatalog,
    start: &WorldSetup,
    resource_group: &ArmId,
) -> Result<Vec<NodeGroup>, SetupError> {
    // Agent pools of AKS have ephemeral OS disks by default, where the size has room for them.
    let options = InstanceTypeOptions::default();
    let types: BTreeMap<_, _> =
        start.manifests.classes.iter().map(|class| (&class.name, instance_types(region, class, &options))).collect();
    let pools: Vec<(&NodePool, &[Arc<InstanceType>])> =
        start.manifests.pools.iter().filter_map(|pool| Some((pool, types.get(&pool.class)?.as_slice()))).collect();
    let spot = pools.iter().any(|(p, _)| p.requirements.allows(labels::CAPACITY_TYPE, Some("spot")));
    let mut groups = Vec::new();
    let general = pools.first().map_or(&[][..], |(_, types)| *types);
    for instance in GENERAL_VCPUS.iter().filter_map(|vcpus| cheapest_general(general, *vcpus)) {
        let wanted = |o: &&Offering| spot || o.capacity_type == CapacityType::OnDemand;
        for offering in instance.offerings.iter().filter(wanted) {
            groups.push(group(instance, offering, &pools, groups.len(), resource_group)?);
        }
    }
    for instance in gpu_types(start, &pools) {
        for offering in instance.offerings.iter().filter(|o| o.capacity_type == CapacityType::OnDemand) {
            groups.push(group(instance, offering, &pools, groups.len(), resource_group)?);
        }
    }
    Ok(groups)
}

/// The cheapest D size with this many vCPUs, of those in the most zones.
fn cheapest_general(types: &[Arc<InstanceType>], vcpus: u32) -> Option<&InstanceType> {
    let is_general = |t: &&Arc<InstanceType>| {
        t.facts.vcpus == vcpus
            && t.facts.arch == Arch::Amd64
            && t.facts.gpu.is_none()
            && SizeName::parse(t.facts.name.as_str()).is_ok_and(|name| name.family() == "D")
    };
    let zones = |t: &InstanceType| {
        let zones: BTreeSet<&Zone> = t.offerings.iter().map(|o| &o.zone).filter(|z| !z.is_regional()).collect();
        zones.len()
    };
    types
        .iter()
        .filter(is_general)
        .filter_map(|t| Some((on_demand(t)?, t)))
        .min_by_key(|(price, t)| (Reverse(zones(t)), *price, &t.facts.name))
        .map(|(_, t)| t.as_ref())
}

fn on_demand(instance: &InstanceType) -> Option<HourlyPrice> {
    instance.offerings.iter().find(|o| o.capacity_type == CapacityType::OnDemand).map(|o| o.price)
}

/// For every workload that requests GPUs, the cheapest size on which a NodePool would run it.
fn gpu_types<'t>(start: &WorldSetup, pools: &[(&NodePool, &'t [Arc<InstanceType>])]) -> Vec<&'t InstanceType> {
    let workloads = start.manifests.workloads.iter().chain(&start.manifests.suspended);
    let shapes: BTreeSet<&PodShape> = workloads.map(|(_, w)| &*w.template.shape).filter(|s| requests_gpus(s)).collect();
    let mut chosen: Vec<&InstanceType> = Vec::new();
    for shape in shapes {
        let fits = |t: &&Arc<InstanceType>| shape.requests.fits(&t.allocatable);
        let best = pools
            .iter()
            .flat_map(|(pool, types)| types.iter().filter(|t| allows(pool, t, CapacityType::OnDemand)))
            .filter(fits)
            .filter_map(|t| Some((on_demand(t)?, t)))
            .min_by_key(|(price, t)| (*price, &t.facts.name));
        if let Some((_, instance)) = best
            && !chosen.iter().any(|c| c.facts.name == instance.facts.name)
        {
            chosen.push(instance);
        }
    }
    chosen
}

fn requests_gpus(shape: &PodShape) -> bool {
    shape.requests.extended.iter().any(|(name, _)| name.ends_with(".com/gpu"))
}

/// True when the NodePool allows nodes of this size and capacity type.
fn allows(pool: &NodePool, instance: &InstanceType, capacity_type: CapacityType) -> bool {
    pool.requirements.allows(labels::CAPACITY_TYPE, Some(capacity_type.as_str()))
        && instance.requirements.compatible(&pool.requirements, |_| true).is_ok()
}

fn group(
    instance: &InstanceType,
    offering: &Offering,
    pools: &[(&NodePool, &[Arc<InstanceType>])],
    number: usize,
    resource_group: &ArmId,
) -> Result<NodeGroup, SetupError> {
    let allowing: Vec<&NodePool> =
        pools.iter().map(|(p, _)| *p).filter(|p| allows(p, instance, offering.capacity_type)).collect();
    let (shared_labels, shared_taints) =
        if allowing.is_empty() { shared(&general_pools(pools)) } else { shared(&allowing) };
    let name: Arc<str> = Arc::from(format!("pool{number}"));
    let mut node_labels = node_labels(instance, offering);
    node_labels.extend(shared_labels);
    node_labels.insert(Arc::from(AGENT_POOL), Arc::clone(&name));
    let (node, vm) = vm_of_number(&name, 0, resource_group);
    Ok(NodeGroup {
        facts: Arc::clone(&instance.facts),
        offering: OfferingKey {
            size: instance.facts.name.clone(),
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type,
        },
        price: offering.price,
        os_disk: instance.costs.os_disk,
        on_demand: on_demand(instance).unwrap_or(offering.price),
        template: NewNode {
            name: NodeName::new(node)?,
            provider_id: ProviderId::of_vm(&vm),
            labels: node_labels,
            taints: shared_taints,
            capacity: instance.capacity.clone(),
            allocatable: instance.allocatable.clone(),
            kubelet_version: None,
        },
        name,
        back_off: None,
    })
}

/// The NodePools that may make nodes without GPUs.
fn general_pools<'p>(pools: &[(&'p NodePool, &[Arc<InstanceType>])]) -> Vec<&'p NodePool> {
    let may_be_general = |(pool, types): &&(&NodePool, &[Arc<InstanceType>])| {
        let allows_any = |t: &InstanceType| CapacityType::ALL.iter().any(|how| allows(pool, t, *how));
        types.iter().any(|t| t.facts.gpu.is_none() && allows_any(t))
    };
    pools.iter().filter(may_be_general).map(|(pool, _)| *pool).collect()
}

/// Labels and taints that all these NodePools set on their nodes; with a single NodePool also its name.
fn shared(pools: &[&NodePool]) -> (Labels, Vec<Taint>) {
    let of = |pool: &NodePool| {
        let mut labels = pool.labels.clone();
        labels.insert(Arc::from(labels::NODEPOOL), pool.name.text());
        labels
    };
    let Some((first, rest)) = pools.split_first() else { return Default::default() };
    let mut labels = of(first);
    let mut taints = first.taints.clone();
    for pool in rest {
        let other = of(pool);
        labels.retain(|key, value| other.get(key) == Some(value));
        taints.retain(|taint| pool.taints.contains(taint));
    }
    (labels, taints)
}

/// Name and VM of the machine with this number in a group.
pub(super) fn vm_of_number(group: &str, number: u32, resource_group: &ArmId) -> (String, ArmId) {
    let set = format!("aks-{group}-vmss");
    let vms = format!("Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines");
    (format!("{set}{number:06}"), resource_group.resource(&vms, &number.to_string()))
}
