//! NodePools of a workload, and the nodes that they can launch.

use super::pod_specs::{DEDICATED, TIER};
use super::storage::DRIVER_ZONE;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as WireNode;
use napkeeper_core::catalog::{
    Catalog, InstanceType, InstanceTypeOptions, InstanceTypes, Offering, OfferingKey, instance_types, node_labels,
};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Taint, TaintEffect};
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::labels::{
    CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL, SKU_CPU, SKU_FAMILY, SKU_GPU_MANUFACTURER, ZONE,
};
use napkeeper_core::model::names::Region;
use napkeeper_core::model::requirements::Operator;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_sim::random::Random;
use napkeeper_tests::fixtures;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The extended resource that pins a pod to one node: only that node has it.
pub(super) fn pin(node: &str) -> String {
    format!("pin.example.com/{node}")
}

/// NodePools and their offerings.
#[derive(Debug)]
pub(super) struct Offerings {
    class: NodeClass,
    types: InstanceTypes,
    pools: Vec<NodePool>,
}

/// A purchased offering, with additional labels.
#[derive(Debug)]
pub(super) struct PurchasedNode {
    pub(super) instance: Arc<InstanceType>,
    pub(super) offering: Offering,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Value>,
}

impl Offerings {
    /// Pools that differ a little from seed to seed: one for all, one with a taint, one with GPUs.
    pub(super) fn new(chance: &mut Random) -> Result<Self> {
        let region = Region::new("westeurope")?;
        let mut class = fixtures::class();
        class.max_pods = Some(if chance.one_in(3) { 6 } else { 110 });
        let region = Catalog::embedded()?.region(&region).context("westeurope is in no catalogue")?;
        let types = Arc::new(instance_types(&region, &class, &InstanceTypeOptions::default()));
        let pools = vec![general(chance)?, gold(chance)?, gpus(chance)?];
        Ok(Self { class, types, pools })
    }

    /// A cluster with the pools and nothing else.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.instance_types.insert(self.class.name.clone(), Arc::clone(&self.types));
        snapshot.put_class(self.class.name.clone(), self.class.clone());
        for pool in &self.pools {
            snapshot.put_pool(pool.name.clone(), pool.clone());
        }
        snapshot
    }

    /// What a node is made of that has this offering and is of this pool.
    pub(super) fn purchased_node(
        &self,
        key: &OfferingKey,
        pool: &str,
        labels: BTreeMap<String, String>,
    ) -> Result<PurchasedNode> {
        let instance = self.types.iter().find(|t| t.facts.name == key.size);
        let instance = instance.with_context(|| format!("there is no size {key}"))?;
        let same = |o: &&Offering| o.zone == key.zone && o.capacity_type == key.capacity_type;
        let offering = instance.offerings.iter().find(same).with_context(|| format!("there is no offering {key}"))?;
        let pool = self.pools.iter().find(|p| p.name.as_str() == pool).with_context(|| format!("no pool {pool}"))?;
        let taints = pool.taints.iter().map(|taint| json!(taint));
        let (instance, offering) = (Arc::clone(instance), offering.clone());
        Ok(PurchasedNode { instance, offering, labels, taints: taints.collect() })
    }

    /// The largest nodes that each NodePool could launch: if none of them fits a pod, no node does.
    pub(super) fn greatest(&self, name: &str) -> Result<Vec<WireNode>> {
        let mut nodes = Vec::new();
        for pool in &self.pools {
            let all = self.types.iter().filter(|t| pool.requirements.is_compatible(&t.requirements, |_| true));
            let all: Vec<_> = all.filter(|t| t.offerings.iter().any(|o| allows(pool, t, o))).collect();
            let cpu = all.iter().max_by_key(|t| t.allocatable.cpu_millis);
            let memory = all.iter().max_by_key(|t| t.allocatable.memory);
            let gpus = all.iter().max_by_key(|t| t.allocatable.extended("nvidia.com/gpu"));
            let disks = all.iter().max_by_key(|t| (t.facts.max_data_disks, t.allocatable.cpu_millis));
            for instance in cpu.into_iter().chain(memory).chain(gpus).chain(disks) {
                for offering in instance.offerings.iter().filter(|o| allows(pool, instance, o)) {
                    let (zone, capacity_type) = (offering.zone.clone(), offering.capacity_type);
                    let key = OfferingKey { size: instance.facts.name.clone(), zone, capacity_type };
                    let mut labels: BTreeMap<String, String> =
                        pool.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
                    labels.insert(NODEPOOL.to_owned(), pool.name.to_string());
                    labels.insert(NODECLASS.to_owned(), pool.class.to_string());
                    nodes.push(self.purchased_node(&key, pool.name.as_str(), labels)?.node(name)?);
                }
            }
        }
        Ok(nodes)
    }

    /// How many data disks the size of a node has.
    pub(super) fn most_disks(&self, node: &WireNode) -> Option<u32> {
        let size = node.metadata.labels.as_ref()?.get(INSTANCE_TYPE)?;
        self.types.iter().find(|t| t.facts.name.as_str() == size).map(|t| t.facts.max_data_disks)
    }

    /// Any offering of a size of 2 to 8 cores.
    pub(super) fn any(&self, chance: &mut Random) -> Option<(Arc<InstanceType>, Offering)> {
        let small: Vec<_> = self.types.iter().filter(|t| t.facts.vcpus <= 8 && t.offerings.len() > 1).collect();
        let instance = chance.pick(&small)?;
        Some((Arc::clone(instance), chance.pick(&instance.offerings)?.clone()))
    }
}

impl PurchasedNode {
    /// The Node that it becomes.
    pub(super) fn node(&self, name: &str) -> Result<WireNode> {
        let mut labels: BTreeMap<String, String> = node_labels(&self.instance, &self.offering)
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        labels.extend(self.labels.clone());
        labels.insert(HOSTNAME.to_owned(), name.to_owned());
        if let Some(zone) = labels.get(ZONE).cloned() {
            labels.insert(DRIVER_ZONE.to_owned(), zone);
        }
        let wire = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "taints": self.taints },
            "status": {
                "capacity": amounts(&self.instance.capacity, name),
                "allocatable": amounts(&self.instance.allocatable, name),
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        serde_json::from_value(wire).with_context(|| format!("making the node {name}"))
    }
}

/// True if a NodePool allows an offering.
fn allows(pool: &NodePool, instance: &InstanceType, offering: &Offering) -> bool {
    let mut labels = node_labels(instance, offering);
    labels.extend(pool.labels.clone());
    pool.requirements.satisfied_by(&labels)
}

fn amounts(of: &Resources, name: &str) -> Value {
    let mut all = Map::new();
    all.insert("cpu".to_owned(), json!(format!("{}m", of.cpu_millis)));
    all.insert("memory".to_owned(), json!(of.memory.to_string()));
    all.insert("ephemeral-storage".to_owned(), json!(of.ephemeral_storage.to_string()));
    all.insert("pods".to_owned(), json!(of.pods.to_string()));
    all.insert(pin(name), json!("1000"));
    all.extend(of.extended.iter().map(|(name, amount)| (name.to_string(), json!(amount.to_string()))));
    Value::Object(all)
}

fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: Arc::from(key), value: Arc::from(value), effect }
}

/// Small nodes, so that there are many; in some seeds with a label, or not in all zones.
fn general(chance: &mut Random) -> Result<NodePool> {
    let mut pool = fixtures::pool("general");
    pool.requirements.add_entry(SKU_FAMILY, Operator::In, &["D", "E", "F"])?;
    let most = if chance.one_in(2) { "9" } else { "17" };
    pool.requirements.add_entry(SKU_CPU, Operator::Lt, &[most])?;
    if chance.one_in(5) {
        pool.requirements.add_entry(ZONE, Operator::In, &["westeurope-1", "westeurope-3"])?;
    }
    if chance.one_in(2) {
        pool.labels.insert(Arc::from(TIER), Arc::from("bronze"));
        pool.requirements.add_entry(TIER, Operator::In, &["bronze"])?;
    }
    Ok(pool)
}

fn gold(chance: &mut Random) -> Result<NodePool> {
    let mut pool = fixtures::pool("gold");
    pool.requirements.add_entry(SKU_FAMILY, Operator::In, &["D", "F"])?;
    pool.requirements.add_entry(CAPACITY_TYPE, Operator::In, &["on-demand"])?;
    pool.requirements.add_entry(TIER, Operator::In, &["gold"])?;
    pool.labels.insert(Arc::from(TIER), Arc::from("gold"));
    let effect = match chance.between(0, 4) {
        0 => TaintEffect::PreferNoSchedule,
        1 => TaintEffect::NoExecute,
        _ => TaintEffect::NoSchedule,
    };
    pool.taints.push(taint(DEDICATED, "gold", effect));
    pool.weight = if chance.one_in(2) { 10 } else { 0 };
    Ok(pool)
}

fn gpus(chance: &mut Random) -> Result<NodePool> {
    let mut pool = fixtures::pool("gpus");
    pool.requirements.add_entry(SKU_GPU_MANUFACTURER, Operator::In, &["nvidia"])?;
    if chance.one_in(2) {
        pool.taints.push(taint("nvidia.com/gpu", "present", TaintEffect::NoSchedule));
    }
    Ok(pool)
}
