//! NodePool limits, quotas, subnets and reservations that are left during a simulation.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::{NodePool, amount};
use crate::model::names::NodePoolName;
use crate::scheduling::Input;
use crate::scheduling::offerings::available::{AvailableOfferings, InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::headroom::{
    QuotaHeadroom, QuotaShortage, ReservationHeadroom, ReservationShortage, SubnetHeadroom,
};
use std::collections::BTreeMap;

/// What is used of all that limits purchases, NodeClaims in flight and nodes of this pass included.
#[derive(Clone)]
pub(crate) struct LaunchLimits {
    usage_by_pool: BTreeMap<NodePoolName, PoolUsage>,
    /// What Azure's quotas leave, for all pools together.
    quota: QuotaHeadroom,
    /// What is left of the subnets.
    subnets: SubnetHeadroom,
    /// What is left of reservations.
    reservations: ReservationHeadroom,
    /// How many more nodes may be bought.
    pub(crate) new_nodes_left: usize,
}

/// What a pool's nodes have together, and how many there are.
#[derive(Clone, Default)]
pub(crate) struct PoolUsage {
    pub(crate) capacity: Resources,
    pub(crate) nodes: i64,
}

/// What leaves no capacity for any of some candidates.
pub(crate) enum Exhausted {
    Quota(QuotaShortage),
    Reservation(ReservationShortage),
}

impl LaunchLimits {
    pub(crate) fn new(input: Input<'_>) -> Self {
        let pools = input
            .available
            .pools
            .iter()
            .map(|pool_offerings| (pool_offerings.pool.name.clone(), usage_of(&pool_offerings.pool, input)));
        let AvailableOfferings { quota: room, subnets: addresses, reservations, .. } = input.available;
        let (room, addresses, reservations) = (room.clone(), addresses.clone(), reservations.clone());
        Self {
            usage_by_pool: pools.collect(),
            quota: room,
            subnets: addresses,
            reservations,
            new_nodes_left: input.max_new_nodes,
        }
    }

    pub(crate) fn subnets(&self) -> &SubnetHeadroom {
        &self.subnets
    }

    pub(crate) fn usage(&self, pool: &NodePoolName) -> Option<&PoolUsage> {
        self.usage_by_pool.get(pool)
    }

    /// True when neither the pool's limits, nor Azure's quotas and reservations, nor a full subnet forbid one more.
    pub(crate) fn allows(&self, pool: &NodePool, candidate: &InstanceCandidate) -> bool {
        self.allows_node(pool) && self.allows_capacity(pool, candidate)
    }

    /// True when a pool may have one more node, of whatever size.
    pub(crate) fn allows_node(&self, pool: &NodePool) -> bool {
        self.new_nodes_left > 0 && self.subnets.allows(&pool.class) && self.within_node_limit(pool)
    }

    /// True when neither the resources of the pool's limits nor Azure's quotas forbid one more of that size.
    pub(crate) fn allows_capacity(&self, pool: &NodePool, candidate: &InstanceCandidate) -> bool {
        self.within_resource_limits(pool, &candidate.instance.capacity, None) && self.quota_allows(candidate)
    }

    /// True when one may be had in place of another of the pool that has been counted, in whose place it has an address.
    pub(crate) fn allows_swap(&self, pool: &NodePool, candidate: &InstanceCandidate, of: &InstanceCandidate) -> bool {
        let (facts, own) = (&candidate.instance.facts, &of.instance.facts);
        self.within_resource_limits(pool, &candidate.instance.capacity, Some(&of.instance.capacity))
            && match candidate.reservation {
                Some(place) => of.reservation == Some(place) || self.reservations.allows(place),
                None => self.quota.allows_swap((facts, candidate.capacity_type), (own, of.capacity_type)),
            }
    }

    /// True when Azure's quotas allow one more; of what is reserved, when something of that is left.
    pub(crate) fn quota_allows(&self, candidate: &InstanceCandidate) -> bool {
        match candidate.reservation {
            Some(place) => self.reservations.allows(place),
            None => self.quota.allows(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    /// What has nothing left for any of some candidates, as the cheapest meets it. What anybody may buy comes before what
    /// is reserved: more of that is not what they are in need of.
    pub(crate) fn exhausted<'c>(
        &self,
        candidates: impl Iterator<Item = &'c InstanceCandidate> + Clone,
    ) -> Option<Exhausted> {
        if candidates.clone().any(|candidate| self.quota_allows(candidate)) {
            return None;
        }
        let quota =
            |c: &InstanceCandidate| self.quota.shortage(&c.instance.facts, c.capacity_type).map(Exhausted::Quota);
        let mut for_sale = candidates.clone().filter(|c| c.reservation.is_none());
        let reserved = |c: &InstanceCandidate| self.reservations.shortage(c.reservation?).map(Exhausted::Reservation);
        for_sale.next().and_then(quota).or_else(|| candidates.clone().find_map(reserved))
    }

    /// True when the pool's limits allow one more of so much.
    pub(crate) fn within_limits(&self, pool: &NodePool, capacity: &Resources) -> bool {
        self.within_node_limit(pool) && self.within_resource_limits(pool, capacity, None)
    }

    fn within_node_limit(&self, pool: &NodePool) -> bool {
        let below = |most: i64| self.usage_by_pool.get(&pool.name).is_some_and(|used| used.nodes < most);
        pool.limits.nodes.is_none_or(below)
    }

    /// The same of resources alone; `instead` of one that has been counted, if that is given.
    fn within_resource_limits(&self, pool: &NodePool, capacity: &Resources, instead: Option<&Resources>) -> bool {
        let limits = &pool.limits;
        if limits.resources.is_empty() {
            return true;
        }
        let Some(used) = self.usage_by_pool.get(&pool.name) else { return false };
        let back = |name: &str| instead.map_or(0, |own| amount(own, name));
        limits.resources.keys().all(|name| {
            let room = limits.room_for(name, &used.capacity);
            room.is_none_or(|room| amount(capacity, name) <= room.saturating_add(back(name)))
        })
    }

    /// Counts one more.
    pub(crate) fn take(&mut self, pool_offerings: &PoolOfferings, candidate: &InstanceCandidate) {
        let used = self.usage_by_pool.entry(pool_offerings.pool.name.clone()).or_default();
        used.capacity.add(&candidate.instance.capacity);
        used.nodes += 1;
        self.take_headroom(candidate);
        self.subnets.take(&pool_offerings.pool.class);
        self.new_nodes_left = self.new_nodes_left.saturating_sub(1);
    }

    /// Counts one less that has been counted.
    pub(crate) fn give_back(&mut self, pool_offerings: &PoolOfferings, candidate: &InstanceCandidate) {
        let used = self.usage_by_pool.entry(pool_offerings.pool.name.clone()).or_default();
        used.capacity.sub(&candidate.instance.capacity);
        used.nodes -= 1;
        self.give_back_headroom(candidate);
        self.subnets.give_back(&pool_offerings.pool.class);
        self.new_nodes_left += 1;
    }

    /// Counts one in place of another.
    pub(crate) fn swap(
        &mut self,
        pool_offerings: &PoolOfferings,
        candidate: &InstanceCandidate,
        of: &InstanceCandidate,
    ) {
        let used = self.usage_by_pool.entry(pool_offerings.pool.name.clone()).or_default();
        used.capacity.sub(&of.instance.capacity);
        used.capacity.add(&candidate.instance.capacity);
        self.give_back_headroom(of);
        self.take_headroom(candidate);
    }

    /// Counts a candidate where it is counted: of its reservation, or of quotas.
    fn take_headroom(&mut self, candidate: &InstanceCandidate) {
        match candidate.reservation {
            Some(place) => self.reservations.take(place),
            None => self.quota.take(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    fn give_back_headroom(&mut self, candidate: &InstanceCandidate) {
        match candidate.reservation {
            Some(place) => self.reservations.give_back(place),
            None => self.quota.give_back(&candidate.instance.facts, candidate.capacity_type),
        }
    }
}

/// Capacity and number of the pool's nodes, in flight included.
fn usage_of(pool: &NodePool, input: Input<'_>) -> PoolUsage {
    let mut used = PoolUsage::default();
    let types = input.available.overlaid_types.instance_types(input.snapshot, pool);
    for claim in input.snapshot.claims().values().filter(|c| c.spec.pool.as_ref() == Some(&pool.name)) {
        used.nodes += 1;
        if claim.status.launched.is_some() {
            used.capacity.add(&claim.status.capacity);
            continue;
        }
        // Not launched: the largest that it may still become counts.
        let mut most = Resources::default();
        for planned in &claim.spec.planned {
            if let Some(instance) = types.and_then(|t| t.iter().find(|t| t.facts.name == planned.key.size)) {
                most.raise_to_at_least(&instance.capacity);
            }
        }
        used.capacity.add(&most);
    }
    used
}
