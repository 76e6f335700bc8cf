//! Nodes that Karpenter's scheduling chooses, in a world in which napkeeper does everything else.
//!
//! What is compared so is mostly disruption. Beside it, when pods are planned for and what is tried when Azure refuses an
//! offering is napkeeper's, and so are the replacements of nodes. CapacityBuffers and NodePools of fixed size must not exist.

use super::node_claims::{claim_labels, pool_labels};
use super::offerings::{OfferingFilter, PoolOptions, Refused, Unavailable, launch_order};
use super::scheduling::{PlannedClaim, Request, simulate};
use super::state::ComingNode;
use super::view::{ClaimView, NodeSet, NodeView, View, sort_nodes};
use super::{Variant, state};
use crate::cluster::Cluster;
use crate::world::{ChoosesNodes, SetupError, WorldSetup, region_of};
use jiff::Timestamp;
use napkeeper_core::catalog::{Catalog, InstanceType, Offering, OfferingKey, node_labels};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::{Claim, PlannedOffering};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{PodShape, Taint};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::NodeName;
use napkeeper_core::scheduling::{NewNode, SizeOffering, UnavailableOfferings};
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many offerings a NodeClaim names, the cheapest first: further ones are tried where Azure refuses one.
const MOST_OFFERINGS: usize = 60;

/// Chooses nodes for pods that wait as Karpenter does.
#[derive(Debug)]
pub struct Launches {
    seed: u64,
    pools: Vec<Arc<PoolOptions>>,
}

impl Launches {
    /// For a world.
    ///
    /// # Errors
    /// [`SetupError`] when the catalogue does not have the region.
    pub fn new(catalog: &Catalog, setup: &WorldSetup) -> Result<Self, SetupError> {
        let region = region_of(catalog, setup)?;
        Ok(Self { seed: setup.seed, pools: state::pools(&region, setup, &Variant::default()) })
    }

    fn view(&self, cluster: &Cluster, refused: &UnavailableOfferings, now: Timestamp) -> View {
        let state = cluster.state();
        let daemons: Vec<Arc<PodShape>> = state.daemon_sets().values().map(|set| Arc::clone(&set.shape)).collect();
        let mut nodes: Vec<NodeView> = state.nodes().values().map(|node| self.joined(state, node, &daemons)).collect();
        let coming = state.claims().values().filter(|claim| claim.is_in_flight() && state.node_of(claim).is_none());
        nodes.extend(coming.filter_map(|claim| self.coming(claim, &daemons)));
        sort_nodes(&mut nodes);
        let mut view = View {
            now,
            pools: self.pools.clone(),
            nodes,
            pending: Vec::new(),
            budgets: state::eviction_limits(cluster),
            volumes: BTreeMap::new(),
            unavailable: Arc::new(self.unavailable(refused, now)),
        };
        state::add_pods(&mut view, cluster);
        view
    }

    /// What Karpenter would have noted of these refusals.
    fn unavailable(&self, refused: &UnavailableOfferings, now: Timestamp) -> Unavailable {
        let mut all = Unavailable::default();
        let types = self.pools.iter().flat_map(|options| &options.types).map(|option| &option.instance);
        for (instance, offering) in types.flat_map(|instance| instance.offerings.iter().map(move |o| (instance, o))) {
            let (facts, zone, capacity_type) = (&instance.facts, &offering.zone, offering.capacity_type);
            if refused.is_unavailable(SizeOffering { facts, zone, capacity_type }, None, now) {
                all.mark(Refused {
                    family: Some(Arc::clone(&facts.family)),
                    least_vcpus: facts.vcpus,
                    zone: Some(zone.clone()),
                    capacity_type: Some(capacity_type),
                    until: Timestamp::MAX,
                });
            }
        }
        all
    }

    fn joined(&self, state: &Snapshot, node: &Node, daemons: &[Arc<PodShape>]) -> NodeView {
        let claim = state.claim_of(node);
        // All taints but its NodePool's go before it is ready.
        let starting = claim.filter(|claim| claim.status.initialized.is_none());
        let of_pool = |taint: &&Taint| starting.is_none_or(|claim| claim.spec.taints.contains(taint));
        let startup: Vec<Taint> = node.taints.iter().filter(|taint| !of_pool(taint)).cloned().collect();
        let claim = claim.and_then(|claim| Some(claim_view(claim, self.pool_of(claim)?, self.offering_of(claim)?.0)));
        state::joined_node(state, node, (claim, &startup), daemons)
    }

    fn coming(&self, claim: &Claim, daemons: &[Arc<PodShape>]) -> Option<NodeView> {
        let (instance, offering) = self.offering_of(claim)?;
        let pool = self.pool_of(claim)?;
        let name = NodeName::new(claim.name.as_str()).ok()?;
        let labels = claim_labels(&name, pool, &claim.spec.requirements, node_labels(instance, offering));
        let coming = ComingNode {
            name: &name,
            labels,
            taints: claim.spec.taints.clone(),
            capacity: &instance.capacity,
            allocatable: &instance.allocatable,
        };
        Some(coming.view(Some(claim_view(claim, pool, instance)), daemons))
    }

    fn options_of(&self, claim: &Claim) -> Option<&Arc<PoolOptions>> {
        self.pools.iter().find(|options| claim.spec.pool.as_ref() == Some(&options.pool.name))
    }

    fn pool_of(&self, claim: &Claim) -> Option<&NodePool> {
        self.options_of(claim).map(|options| &*options.pool)
    }

    /// What a NodeClaim is launched from, or will be.
    fn offering_of(&self, claim: &Claim) -> Option<(&Arc<InstanceType>, &Offering)> {
        let planned = claim.intent.as_ref().map(|intent| &intent.offering).or_else(|| claim.spec.planned.first())?;
        let of_size =
            self.options_of(claim)?.types.iter().find(|option| option.instance.facts.name == planned.key.size)?;
        let (zone, capacity_type) = (&planned.key.zone, planned.key.capacity_type);
        let in_zone = || of_size.instance.offerings.iter().filter(|offering| offering.zone == *zone);
        // Of reserved capacity, which Karpenter does not know here, another one of its zone.
        let offering =
            in_zone().find(|offering| offering.capacity_type == capacity_type).or_else(|| in_zone().next())?;
        Some((&of_size.instance, offering))
    }

    /// The node of a NodeClaim that Karpenter would create.
    fn node(
        &self,
        planned: PlannedClaim,
        unavailable: &Unavailable,
        (number, now): (usize, Timestamp),
    ) -> Option<NewNode> {
        let pool = &self.pools.iter().find(|options| options.pool.name == planned.pool)?.pool;
        let mut requests = Resources::default();
        planned.pods.iter().for_each(|pod| requests.add(&pod.shape.requests));
        Some(NewNode {
            pool: planned.pool.clone(),
            class: pool.class.clone(),
            offerings: self.offerings(&planned, unavailable, &format!("{now} {number}")),
            requests,
            labels: pool_labels(pool, &planned.requirements),
            pods: planned.pods,
        })
    }

    /// The offerings that a NodeClaim allows, in the order in which they are launched.
    fn offerings(&self, planned: &PlannedClaim, unavailable: &Unavailable, name: &str) -> Vec<PlannedOffering> {
        let filter = OfferingFilter::of(&planned.requirements);
        let offered = planned
            .types
            .iter()
            .flat_map(|instance| unavailable.offerings(instance, &filter).map(move |offering| (instance, offering)));
        let mut offered: Vec<(&Arc<InstanceType>, &Offering)> = offered.collect();
        offered.sort_by_cached_key(|(instance, offering)| launch_order(self.seed, name, instance, offering));
        let planned = |(instance, offering): (&Arc<InstanceType>, &Offering)| PlannedOffering {
            key: OfferingKey {
                size: instance.facts.name.clone(),
                zone: offering.zone.clone(),
                capacity_type: offering.capacity_type,
            },
            price: instance.node_price(offering),
        };
        offered.into_iter().take(MOST_OFFERINGS).map(planned).collect()
    }
}

impl ChoosesNodes for Launches {
    fn choose(&self, cluster: &Cluster, refused: &UnavailableOfferings, now: Timestamp) -> Vec<NewNode> {
        let view = self.view(cluster, refused, now);
        let mut pods = view.pending.clone();
        pods.extend(view.pods_of_leaving_nodes());
        let request = Request { pods, without: &NodeSet::new(), spares_fresh: false, most_new: usize::MAX };
        let claims = simulate(&view, request).new_claims;
        let node = |(number, planned)| self.node(planned, &view.unavailable, (number, now));
        claims.into_iter().enumerate().filter_map(node).collect()
    }
}

fn claim_view(claim: &Claim, pool: &NodePool, instance: &Arc<InstanceType>) -> ClaimView {
    ClaimView {
        pool: pool.name.clone(),
        instance: Arc::clone(instance),
        initialized_at: claim.status.initialized,
        last_pod_event: claim.status.last_pod_event,
        nominated_until: None,
        queued: claim.status.disrupted.is_some(),
        marked: claim.status.disrupted.is_some() || claim.deleting_at.is_some(),
        terminating: claim.deleting_at.is_some(),
    }
}
