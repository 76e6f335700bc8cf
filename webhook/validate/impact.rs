//! Nodes and pods that a change of a NodePool or AKSNodeClass affects.

use jiff::Timestamp;
use napkeeper_core::catalog::Offering;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, NodePoolName, ObjectKey};
use napkeeper_core::scheduling::{AvailableOfferings, Input, SchedulingResult, schedule};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most pods whose rescheduling is simulated, to bound the latency.
pub(crate) const MAX_PODS_SIMULATED: usize = 1_000;
/// Most new nodes in such a simulation.
const MAX_NEW_NODES: usize = 200;

/// What runs on nodes that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Impact {
    /// NodeClaims, those without a node yet among them.
    pub(crate) claims: usize,
    /// Their nodes.
    pub(crate) nodes: BTreeSet<NodeName>,
    /// Reschedulable pods on the nodes, by key.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Those of them that must not be disrupted now.
    pub(crate) do_not_disrupt_pods: usize,
    /// The total capacity of the nodes.
    pub(crate) capacity: Resources,
    /// Their list price per hour, where size and zone are known.
    pub(crate) price: HourlyPrice,
}

impl Impact {
    /// Of the NodeClaims that `chosen` picks.
    pub(crate) fn of(snapshot: &Snapshot, now: Timestamp, chosen: impl Fn(&Claim) -> bool) -> Self {
        let mut impact = Self::default();
        for claim in snapshot.claims().values().filter(|claim| chosen(claim)) {
            impact.claims += 1;
            impact.capacity.add(&claim.status.capacity);
            let Some(node) = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_by_provider_id(id)) else {
                continue;
            };
            let keys = snapshot.node_usage(&node.name).into_iter().flat_map(|usage| &usage.pods);
            impact
                .pods
                .extend(keys.filter_map(|key| snapshot.pods().get(key)).filter(|p| p.is_reschedulable()).cloned());
            impact.price = impact.price + price(snapshot, claim, node).unwrap_or_default();
            impact.nodes.insert(node.name.clone());
        }
        impact.do_not_disrupt_pods = impact.pods.iter().filter(|pod| pod.refuses_disruption(now)).count();
        impact
    }

    /// Of the NodeClaims of a pool.
    pub(crate) fn of_pool(snapshot: &Snapshot, now: Timestamp, pool: &NodePoolName) -> Self {
        Self::of(snapshot, now, |claim| claim.spec.pool.as_ref() == Some(pool))
    }

    /// Pods that would be unschedulable without the nodes and these NodePools, of the first [`MAX_PODS_SIMULATED`]
    /// reschedulable ones. New nodes need [`Snapshot::instance_types`]. It runs the scheduler, which takes its time in a
    /// large cluster.
    pub(crate) fn unschedulable_without(
        &self,
        snapshot: &Snapshot,
        offerings: &AvailableOfferings,
        without: &[NodePoolName],
        now: Timestamp,
    ) -> Vec<ObjectKey> {
        let mut remaining = snapshot.clone();
        for pool in without {
            remaining.remove_pool(pool);
        }
        let offerings = offerings.without_pools(without, &remaining, now);
        let promised = BTreeMap::new();
        let input = Input {
            snapshot: &remaining,
            available: &offerings,
            excluded_nodes: &self.nodes,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &promised,
        };
        let movable = self.pods.iter().filter(|pod| pod.owner == PodOwner::Controller).take(MAX_PODS_SIMULATED);
        let unbound: Vec<Arc<Pod>> = movable.map(|pod| Arc::new(Pod { node: None, ..(**pod).clone() })).collect();
        let SchedulingResult { unschedulable: unplaced, .. } = schedule(input, &unbound);
        unplaced.into_iter().flat_map(|group| group.pods).map(|pod| pod.key.clone()).collect()
    }
}

/// The list price of a node, by its labels.
fn price(snapshot: &Snapshot, claim: &Claim, node: &Node) -> Option<HourlyPrice> {
    let types = snapshot.instance_types.get(&claim.spec.class)?;
    let size = node.label(labels::INSTANCE_TYPE)?;
    let instance = types.iter().find(|t| t.facts.name.as_str() == size)?;
    let (zone, capacity_type) = (node.label(labels::ZONE)?, node.label(labels::CAPACITY_TYPE)?);
    let matches_node = |o: &&Offering| o.zone.as_str() == zone && o.capacity_type.as_str() == capacity_type;
    instance.offerings.iter().find(matches_node).map(|o| o.price)
}

/// Resources whose usage exceeds the limit of the NodePool: name, usage, limit.
pub(crate) fn over_limits(pool: &NodePool, impact: &Impact) -> Vec<(Arc<str>, i64, i64)> {
    let nodes = impact.claims as i64;
    let of_nodes = pool.limits.nodes.filter(|most| nodes > *most).map(|most| (Arc::from("nodes"), nodes, most));
    let of_resources = pool.limits.resources.iter().filter_map(|(name, limit)| {
        let used = napkeeper_core::model::cluster::pool::amount(&impact.capacity, name);
        (used > *limit).then(|| (Arc::clone(name), used, *limit))
    });
    of_nodes.into_iter().chain(of_resources).collect()
}

/// True if both NodePools may launch the same node, and have equal weight.
pub(crate) fn overlap(a: &NodePool, b: &NodePool) -> bool {
    let dynamic = a.replicas.is_none() && b.replicas.is_none();
    dynamic
        && a.weight == b.weight
        && a.taints == b.taints
        && a.requirements.intersect(&b.requirements).first_empty().is_none()
}
