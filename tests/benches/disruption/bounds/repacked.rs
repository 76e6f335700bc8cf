//! What napkeeper's planner buys for pods when the cluster is empty: an upper bound of what whole nodes must cost, as if all
//! pods could be moved at any time for nothing.

use super::demand::Wanted;
use super::market::{reserved, sizes};
use crate::world::BenchWorld;
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use napkeeper_core::catalog::live::{CapacityReservation, Fact, InfrastructureFacts};
use napkeeper_core::catalog::{CapacityType, InstanceType, Offering, RegionCatalog, with_reserved};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner, PodShape};
use napkeeper_core::model::cluster::pool::DaemonSet;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName, Uid};
use napkeeper_core::scheduling::{AvailableOfferings, Input, MAX_NEW_NODES, NewNode, UnavailableOfferings, schedule};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An empty cluster.
pub(super) struct Empty {
    snapshot: Snapshot,
    available: AvailableOfferings,
    types: Vec<Arc<InstanceType>>,
}

impl Empty {
    /// With the NodePools, AKSNodeClasses, DaemonSets and reservations of a world.
    pub(super) fn new(region: &RegionCatalog, world: &BenchWorld) -> Self {
        let manifests = &world.setup.manifests;
        let mut snapshot = Snapshot::default();
        let types = sizes(region, world);
        let group = manifests.classes.iter().find_map(|class| class.reservations.clone());
        let of = |(instance, offering, capacity): (&Arc<InstanceType>, Offering, u64)| {
            let (size, zone) = (instance.facts.name.clone(), offering.zone);
            Some(CapacityReservation { group: group.clone()?, size, zone, capacity, used: 0 })
        };
        let value = reserved(world, &types).into_iter().filter_map(of).collect();
        let reservations = Some(Fact { as_of: world.setup.at, value });
        snapshot.set_infrastructure(Arc::new(InfrastructureFacts { reservations, ..InfrastructureFacts::default() }));
        for class in &manifests.classes {
            let types = with_reserved(types.clone(), &snapshot.infrastructure.reserved_for(class));
            snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
            snapshot.put_class(class.name.clone(), class.clone());
        }
        manifests.pools.iter().for_each(|pool| snapshot.put_pool(pool.name.clone(), pool.clone()));
        for (key, template) in &manifests.daemon_sets {
            snapshot.put_daemon_set(key.clone(), DaemonSet { shape: Arc::clone(&template.shape) });
        }
        let available = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), world.setup.at);
        Self { snapshot, available, types }
    }

    /// The price of all nodes for some pods, in USD per hour.
    ///
    /// # Errors
    /// When some pod has no room on any node.
    pub(super) fn price(&self, wanted: &[Wanted], at: Timestamp) -> Result<f64> {
        let pods = pods(wanted, at)?;
        let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
        let input = Input {
            snapshot: &self.snapshot,
            available: &self.available,
            excluded_nodes: &excluded_nodes,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &claim_of_pod,
        };
        let plan = schedule(input, &pods);
        ensure!(plan.unschedulable.is_empty(), "{} pods have no room", plan.unschedulable_pods());
        let mut price = HourlyPrice::ZERO;
        for node in &plan.new_nodes {
            price = price + self.price_of(node)?;
        }
        Ok(price.nanos() as f64 / 1e9)
    }

    /// That of its cheapest offering; reserved nodes are free.
    fn price_of(&self, node: &NewNode) -> Result<HourlyPrice> {
        let key = &node.offerings.first().context("a node without offerings")?.key;
        if key.capacity_type == CapacityType::Reserved {
            return Ok(HourlyPrice::ZERO);
        }
        let instance = self.types.iter().find(|instance| instance.facts.name == key.size).context("an unknown size")?;
        let offered = |o: &&Offering| o.zone == key.zone && o.capacity_type == key.capacity_type;
        let offering = instance.offerings.iter().find(offered).context("an unknown offering")?;
        Ok(instance.node_price(offering))
    }
}

/// The pods, all waiting.
fn pods(wanted: &[Wanted], at: Timestamp) -> Result<Vec<Arc<Pod>>> {
    let mut pods = Vec::new();
    for (n, Wanted { shape, requests, pods: count }) in wanted.iter().enumerate() {
        let shape = Arc::new(PodShape { requests: requests.clone(), ..PodShape::clone(shape) });
        for replica in 0..*count {
            let name = format!("{n}-{replica}");
            let key = ObjectKey { namespace: Namespace::new("default")?, name: ObjectName::new(&name)? };
            let pod = Pod::waiting(key, Uid::new(&name)?, &shape, PodOwner::Controller);
            pods.push(Arc::new(Pod { created_at: at, ..pod }));
        }
    }
    Ok(pods)
}
