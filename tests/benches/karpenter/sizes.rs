//! VM sizes and prices of the embedded catalogue, as the kwok provider of Karpenter reads them.

use crate::manifests;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use napkeeper_core::catalog::{CapacityType, Catalog, InstanceType, InstanceTypeOptions, instance_types};
use napkeeper_core::model::names::Region;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose sizes and prices these are.
pub(crate) const REGION: &str = "westeurope";
/// What the kwok provider reserves of each size (`kwok/cloudprovider/helpers.go`, `newInstanceType`): thousandths of a
/// core, and bytes. It is added to each size, so that nodes have what is allocatable on AKS.
const RESERVED_BY_KWOK: (i64, i64) = (100, 10 << 20);

/// The sizes that the NodePool of a world allows.
#[derive(Debug)]
pub(crate) struct Sizes {
    types: Vec<Arc<InstanceType>>,
    prices: BTreeMap<String, i64>,
}

impl Sizes {
    /// Those of the embedded catalogue.
    pub(crate) fn of(world: &World) -> Result<Self> {
        let read = manifests::simulated(world)?;
        let pool = read.pools.first().context("a world without a NodePool")?;
        let class = read.classes.first().context("a world without an AKSNodeClass")?;
        let region = Catalog::embedded()?.region(&Region::new(REGION)?).context("the catalogue has no such region")?;
        let mut types = instance_types(&region, class, &InstanceTypeOptions::default());
        types.retain(|instance| instance.requirements.is_compatible(&pool.requirements, |_| true));
        ensure!(!types.is_empty(), "no size satisfies the NodePool of the world {}", world.name);
        let mut prices = BTreeMap::new();
        for instance in &types {
            for offering in &instance.offerings {
                let key = offering_name(instance.facts.name.as_str(), offering.capacity_type.as_str());
                prices.insert(key, offering.price.nanos());
            }
        }
        Ok(Self { types, prices })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// What a node costs, in nano-USD per hour, by [`offering_name`]; `None` for a node of another pool.
    pub(crate) fn price(&self, offering: &str) -> Option<i64> {
        self.prices.get(offering).copied()
    }

    /// The file that `INSTANCE_TYPES_FILE_PATH` names.
    pub(crate) fn kwok_file(&self) -> Value {
        self.types.iter().map(|instance| kwok_type(instance)).collect()
    }
}

/// A size and a capacity type as one word.
pub(crate) fn offering_name(size: &str, capacity_type: &str) -> String {
    format!("{size}/{capacity_type}")
}

fn kwok_type(instance: &InstanceType) -> Value {
    let offerings = instance.offerings.iter().filter(|offering| offering.capacity_type != CapacityType::Reserved);
    let offerings: Vec<Value> = offerings
        .map(|offering| {
            let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
            json!({
                "Price": offering.price.nanos() as f64 / 1e9,
                "Available": true,
                "Requirements": [
                    one("karpenter.sh/capacity-type", offering.capacity_type.as_str()),
                    one("topology.kubernetes.io/zone", offering.zone.as_str()),
                ],
            })
        })
        .collect();
    let (cpu, memory) = RESERVED_BY_KWOK;
    let allocatable = &instance.allocatable;
    json!({
        "name": instance.facts.name.as_str(),
        "offerings": offerings,
        "architecture": instance.facts.arch.as_str(),
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": format!("{}m", allocatable.cpu_millis + cpu),
            "memory": (allocatable.memory + memory).to_string(),
            "ephemeral-storage": allocatable.ephemeral_storage.to_string(),
            "pods": allocatable.pods.to_string(),
        },
    })
}
