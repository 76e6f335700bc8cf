//! The market: 400 sizes of 1 to 400 cores at 2 GiB each, and their nodes.
//!
//! Every size has five offerings at one price: spot in two zones, on demand in three. A core and its memory cost the
//! same in every size, so that only unused capacity makes a plan expensive.

use crate::workload::Work;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as WireNode;
use napkeeper_core::catalog::{
    Arch, CapacityType, InstanceType, NodeCosts, Offering, OfferingKey, SizeFacts, node_labels,
};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodPhase};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{VmSize, Zone};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of sizes.
pub(crate) const SIZES: usize = 400;
/// The zones.
pub(crate) const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];
/// Resources reserved for the kubelet.
const RESERVED_CPU: i64 = 100;
const RESERVED_MEMORY: i64 = 10 << 20;
/// The price of one core and its 2 GiB in nano-USD per hour, times ten: it is 0.3147483648.
const TENTHS_OF_NANOS: i64 = 3_147_483_648;

/// The offerings of a size: index of the zone, and the capacity type. Zone 1 of spot is the first.
pub(crate) const WAYS: [(usize, CapacityType); 5] = [
    (0, CapacityType::Spot),
    (1, CapacityType::Spot),
    (0, CapacityType::OnDemand),
    (1, CapacityType::OnDemand),
    (2, CapacityType::OnDemand),
];

/// An offering: the indices of its size and of [`WAYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferingIndex {
    pub(crate) size: usize,
    pub(crate) way: usize,
}

impl OfferingIndex {
    pub(crate) fn zone(self) -> usize {
        WAYS[self.way].0
    }

    pub(crate) fn price(self) -> HourlyPrice {
        price(self.size)
    }
}

/// A launched node.
#[derive(Debug, Clone)]
pub(crate) struct PurchasedNode {
    pub(crate) offering: OfferingIndex,
    /// As kube-scheduler reads it.
    pub(crate) wire: WireNode,
    pub(crate) core: Arc<Node>,
}

/// The sizes.
#[derive(Debug)]
pub(crate) struct Sizes {
    types: Arc<Vec<Arc<InstanceType>>>,
    index: HashMap<VmSize, usize>,
}

/// The nodes so far, and where each pod runs.
#[derive(Debug, Default, Clone)]
pub(crate) struct State {
    pub(crate) nodes: Vec<PurchasedNode>,
    /// By pod.
    pub(crate) on: Vec<Option<usize>>,
}

impl State {
    /// No nodes, and all pods pending.
    pub(crate) fn of(work: &Work) -> Self {
        Self { nodes: Vec::new(), on: vec![None; work.rows.len()] }
    }

    /// The pods without a node.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        (0..self.on.len()).filter(|pod| self.on[*pod].is_none()).collect()
    }
}

/// Nano-USD per hour of a size in any offering.
pub(crate) fn price(size: usize) -> HourlyPrice {
    HourlyPrice::from_nanos(cores(size) * TENTHS_OF_NANOS / 10)
}

/// The least that pods can cost: the price of their CPU or of their memory, whichever is more, with the resources
/// reserved on one node for each of the fifth of pods with anti-affinity. Whole sizes are more expensive.
pub(crate) fn bound(work: &Work) -> f64 {
    let nodes = (work.rows.len() / 5) as i64;
    let cpu = work.rows.iter().map(|r| r.cpu).sum::<i64>() + nodes * RESERVED_CPU;
    let memory = work.rows.iter().map(|r| r.memory).sum::<i64>() + nodes * RESERVED_MEMORY;
    let cores = (cpu as f64 / 1000.0).max(memory as f64 / (2_u64 << 30) as f64);
    cores * TENTHS_OF_NANOS as f64 / 1e10
}

/// The allocatable resources.
pub(crate) fn room(size: usize) -> Resources {
    let capacity = capacity(size);
    let (cpu, memory) = (capacity.cpu_millis - RESERVED_CPU, capacity.memory - RESERVED_MEMORY);
    Resources { pods: capacity.pods, ..Resources::cpu_memory(cpu, memory) }
}

fn cores(size: usize) -> i64 {
    size as i64 + 1
}

fn capacity(size: usize) -> Resources {
    let cores = cores(size);
    Resources { pods: 10 * cores, ..Resources::cpu_memory(1000 * cores, cores * (2 << 30)) }
}

impl Sizes {
    pub(crate) fn new() -> Result<Self> {
        let types = (0..SIZES).map(|size| instance(size).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        let index = types.iter().enumerate().map(|(i, t)| (t.facts.name.clone(), i)).collect();
        Ok(Self { types: Arc::new(types), index })
    }

    /// The index of an offering of a plan.
    pub(crate) fn offering_index(&self, key: &OfferingKey) -> Result<OfferingIndex> {
        let size = *self.index.get(&key.size).with_context(|| format!("there is no {key}"))?;
        let same = |(zone, capacity_type): &(usize, CapacityType)| {
            ZONES[*zone] == key.zone.as_str() && *capacity_type == key.capacity_type
        };
        let way = WAYS.iter().position(same).with_context(|| format!("{key} cannot be bought"))?;
        Ok(OfferingIndex { size, way })
    }

    /// The node of an offering.
    pub(crate) fn node(&self, index: OfferingIndex, name: &str) -> Result<PurchasedNode> {
        let instance = &self.types[index.size];
        let (zone, capacity_type) = WAYS[index.way];
        let offering = Offering { zone: Zone::new(ZONES[zone])?, capacity_type, price: index.price() };
        let mut labels = node_labels(instance, &offering);
        labels.insert(Arc::from(labels::HOSTNAME), Arc::from(name));
        labels.insert(Arc::from(labels::NODEPOOL), Arc::from("general"));
        let amounts = |of: &Resources| {
            let (cpu, pods) = (format!("{}m", of.cpu_millis), of.pods.to_string());
            json!({ "cpu": cpu, "memory": of.memory.to_string(), "pods": pods })
        };
        let wire: WireNode = serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "labels": labels, "creationTimestamp": fixtures::instant() },
            "spec": {},
            "status": {
                "capacity": amounts(&instance.capacity),
                "allocatable": amounts(&instance.allocatable),
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": fixtures::instant() }],
            },
        }))?;
        let core = napkeeper_api::convert::node(&wire).map_err(|e| anyhow::anyhow!("{e:?}"))?;
        Ok(PurchasedNode { offering: index, wire, core: Arc::new(core) })
    }

    /// The cluster as napkeeper sees it: one pool over all sizes, the nodes, the pods that run and those that wait.
    pub(crate) fn snapshot(&self, work: &Work, state: &State) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let class = fixtures::class();
        snapshot.instance_types.insert(class.name.clone(), Arc::clone(&self.types));
        snapshot.put_class(class.name.clone(), class);
        let pool = pool();
        snapshot.put_pool(pool.name.clone(), pool);
        for node in &state.nodes {
            snapshot.put_node(Arc::clone(&node.core));
        }
        for (pod, on) in work.core.iter().zip(&state.on) {
            match on {
                Some(node) => snapshot.put_pod(running(pod, &state.nodes[*node].core)),
                None => snapshot.put_pod(Arc::clone(pod)),
            }
        }
        snapshot
    }
}

fn running(pod: &Pod, node: &Node) -> Pod {
    Pod {
        node: Some(node.name.clone()),
        phase: PodPhase::Running,
        started_at: Some(fixtures::instant()),
        unschedulable: false,
        ..pod.clone()
    }
}

/// A pool that asks for nothing, with limits that are far away.
fn pool() -> NodePool {
    let mut pool = fixtures::pool("general");
    pool.requirements = Requirements::new();
    pool.labels.insert(Arc::from("testing/cluster"), Arc::from("unspecified"));
    pool.limits.resources.insert(Arc::from("cpu"), 10_000_000 * 1000);
    pool.limits.resources.insert(Arc::from("memory"), 10_000_000 << 30);
    pool
}

fn instance(size: usize) -> Result<InstanceType> {
    let name = VmSize::new(format!("fake-it-{size}"))?;
    let cores = u32::try_from(cores(size))?;
    let capacity = capacity(size);
    let offering = |(zone, capacity_type): (usize, CapacityType)| -> Result<Offering> {
        Ok(Offering { zone: Zone::new(ZONES[zone])?, capacity_type, price: price(size) })
    };
    let facts = SizeFacts {
        name: name.clone(),
        family: Arc::from("fake"),
        vcpus: cores,
        memory_mib: 2048 * u64::from(cores),
        arch: Arch::Amd64,
        hyperv_v1: true,
        hyperv_v2: true,
        max_data_disks: 8,
        max_nics: 1,
        accelerated_networking: true,
        premium_io: true,
        ephemeral: None,
        encryption_at_host: true,
        spot_eligible: true,
        gpu: None,
    };
    let large = cores > 4 && capacity.memory > 8 << 30;
    let mut requirements = Requirements::new();
    requirements.add(labels::INSTANCE_TYPE, Requirement::any_of([name.as_str()]));
    requirements.add(labels::ARCH, Requirement::any_of(["amd64"]));
    requirements.add(labels::OS, Requirement::any_of(["linux", "windows", "darwin"]));
    requirements.add(labels::ZONE, Requirement::any_of(ZONES));
    requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["spot", "on-demand"]));
    requirements.add("size", Requirement::any_of([if large { "large" } else { "small" }]));
    let special = if large { Requirement::any_of(["optional"]) } else { Requirement::does_not_exist() };
    requirements.add("special", special);
    requirements.add("integer", Requirement::any_of([cores.to_string()]));
    Ok(InstanceType {
        facts: Arc::new(facts),
        requirements,
        allocatable: room(size),
        capacity,
        offerings: WAYS.into_iter().map(offering).collect::<Result<_>>()?,
        // As in Karpenter's benchmark, a node costs what its VM costs.
        costs: NodeCosts::default(),
    })
}
