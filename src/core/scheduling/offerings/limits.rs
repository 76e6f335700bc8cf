//! Remaining NodePool limits, quotas, subnet addresses and reservations during a simulation.

use crate::catalog::InstanceTypes;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::{Claim, PlannedOffering};
use crate::model::cluster::pool::{NodePool, amount};
use crate::model::names::NodePoolName;
use crate::scheduling::Input;
use crate::scheduling::offerings::available::{AvailableOfferings, InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::headroom::{
    QuotaHeadroom, QuotaShortage, ReservationHeadroom, ReservationShortage, SubnetHeadroom,
};
use crate::scheduling::offerings::node_overlays::OverlaidInstanceTypes;
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limits on launches and their usage, including NodeClaims in flight and open nodes.
#[derive(Clone)]
pub(crate) struct LaunchLimits {
    usage_by_pool: BTreeMap<NodePoolName, PoolUsage>,
    /// Pools whose limits do not count, to find how much they would need.
    lifted: BTreeSet<NodePoolName>,
    /// Remaining quotas, for all pools together.
    quota: QuotaHeadroom,
    /// Remaining subnet addresses.
    subnets: SubnetHeadroom,
    /// Remaining reserved capacity.
    reservations: ReservationHeadroom,
    /// How many more nodes may be launched.
    pub(crate) new_nodes_left: usize,
}

/// Total capacity and number of a pool's nodes.
#[derive(Clone, Default)]
pub(crate) struct PoolUsage {
    pub(crate) capacity: Resources,
    pub(crate) nodes: i64,
}

/// What is exhausted for some candidates.
pub(crate) enum Exhausted {
    Quota(QuotaShortage),
    Reservation(ReservationShortage),
}

impl LaunchLimits {
    pub(crate) fn new(input: Input<'_>) -> Self {
        let pools = input.available.pools.iter().map(|pool_offerings| {
            let pool = &pool_offerings.pool;
            let types = input.available.overlaid_types.instance_types(input.snapshot, pool);
            (pool.name.clone(), PoolUsage::of(pool, input.snapshot, types))
        });
        let AvailableOfferings { quota, subnets, reservations, .. } = input.available;
        Self {
            usage_by_pool: pools.collect(),
            lifted: BTreeSet::new(),
            quota: quota.clone(),
            subnets: subnets.clone(),
            reservations: reservations.clone(),
            new_nodes_left: input.max_new_nodes,
        }
    }

    /// Lets some pools exceed their limits.
    pub(crate) fn lift(&mut self, pools: &BTreeSet<NodePoolName>) {
        self.lifted.clone_from(pools);
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

    /// True when a candidate is allowed instead of another of the pool that has been counted, whose address it reuses.
    pub(crate) fn allows_swap(&self, pool: &NodePool, candidate: &InstanceCandidate, old: &InstanceCandidate) -> bool {
        let (facts, old_facts) = (&candidate.instance.facts, &old.instance.facts);
        self.within_resource_limits(pool, &candidate.instance.capacity, Some(&old.instance.capacity))
            && match candidate.reservation {
                Some(index) => old.reservation == Some(index) || self.reservations.allows(index),
                None => self.quota.allows_swap((facts, candidate.capacity_type), (old_facts, old.capacity_type)),
            }
    }

    /// True when Azure's quotas allow one more; of a reserved candidate, when its reservation does.
    pub(crate) fn quota_allows(&self, candidate: &InstanceCandidate) -> bool {
        match candidate.reservation {
            Some(index) => self.reservations.allows(index),
            None => self.quota.allows(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    /// The quota or reservation that is exhausted for all of some candidates, of the cheapest. Quotas come before
    /// reservations, since a larger quota helps without a reservation.
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

    /// True when the pool's limits allow one more node of this capacity.
    pub(crate) fn within_limits(&self, pool: &NodePool, capacity: &Resources) -> bool {
        self.within_node_limit(pool) && self.within_resource_limits(pool, capacity, None)
    }

    fn within_node_limit(&self, pool: &NodePool) -> bool {
        let below = |most: i64| self.usage_by_pool.get(&pool.name).is_some_and(|used| used.nodes < most);
        pool.limits.nodes.is_none_or(below) || self.lifted.contains(&pool.name)
    }

    /// The same of resources alone; `instead` of a node that has been counted, if that is given.
    fn within_resource_limits(&self, pool: &NodePool, capacity: &Resources, instead: Option<&Resources>) -> bool {
        let limits = &pool.limits;
        if limits.resources.is_empty() || self.lifted.contains(&pool.name) {
            return true;
        }
        let Some(used) = self.usage_by_pool.get(&pool.name) else { return false };
        let freed = |name: &str| instead.map_or(0, |own| amount(own, name));
        limits.resources.keys().all(|name| {
            let free = limits.free(name, &used.capacity);
            free.is_none_or(|free| amount(capacity, name) <= free.saturating_add(freed(name)))
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

    /// Gives back one node that has been counted.
    pub(crate) fn give_back(&mut self, pool_offerings: &PoolOfferings, candidate: &InstanceCandidate) {
        let used = self.usage_by_pool.entry(pool_offerings.pool.name.clone()).or_default();
        used.capacity.sub(&candidate.instance.capacity);
        used.nodes -= 1;
        self.give_back_headroom(candidate);
        self.subnets.give_back(&pool_offerings.pool.class);
        self.new_nodes_left += 1;
    }

    /// Counts one instead of another.
    pub(crate) fn swap(
        &mut self,
        pool_offerings: &PoolOfferings,
        candidate: &InstanceCandidate,
        old: &InstanceCandidate,
    ) {
        let used = self.usage_by_pool.entry(pool_offerings.pool.name.clone()).or_default();
        used.capacity.sub(&old.instance.capacity);
        used.capacity.add(&candidate.instance.capacity);
        self.give_back_headroom(old);
        self.take_headroom(candidate);
    }

    /// Counts a candidate against its reservation, or against quotas.
    fn take_headroom(&mut self, candidate: &InstanceCandidate) {
        match candidate.reservation {
            Some(index) => self.reservations.take(index),
            None => self.quota.take(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    fn give_back_headroom(&mut self, candidate: &InstanceCandidate) {
        match candidate.reservation {
            Some(index) => self.reservations.give_back(index),
            None => self.quota.give_back(&candidate.instance.facts, candidate.capacity_type),
        }
    }
}

/// True if the limits of a NodePool allow one more node of each of these offerings, beside what has been ordered since they were
/// planned.
pub(crate) fn may_launch(snapshot: &Snapshot, pool: &NodePool, planned: &[&PlannedOffering]) -> bool {
    let limits = &pool.limits;
    if limits.resources.is_empty() && limits.nodes.is_none() {
        return true;
    }
    let overlaid = OverlaidInstanceTypes::of(snapshot);
    let types = overlaid.instance_types(snapshot, pool);
    let mut used = PoolUsage::of(pool, snapshot, types);
    planned.iter().for_each(|offering| used.add_planned(std::slice::from_ref(*offering), types));
    limits.nodes.is_none_or(|most| used.nodes <= most)
        && limits.resources.iter().all(|(name, most)| amount(&used.capacity, name) <= *most)
}

impl PoolUsage {
    /// Capacity and number of the pool's nodes, in flight included.
    fn of(pool: &NodePool, snapshot: &Snapshot, types: Option<&InstanceTypes>) -> Self {
        let mut used = Self::default();
        // One that Azure has refused has no VM, and is deleted.
        let counts =
            |claim: &&Arc<Claim>| claim.spec.pool.as_ref() == Some(&pool.name) && claim.status.launch_failed.is_none();
        for claim in snapshot.claims().values().filter(counts) {
            if claim.status.launched.is_some() {
                used.nodes += 1;
                used.capacity.add(&claim.status.capacity);
            } else {
                used.add_planned(&claim.spec.planned, types);
            }
        }
        used
    }

    /// Counts a node that is not launched: as the largest possible instance type.
    fn add_planned(&mut self, planned: &[PlannedOffering], types: Option<&InstanceTypes>) {
        let mut most = Resources::default();
        for planned in planned {
            if let Some(instance) = types.and_then(|t| t.iter().find(|t| t.facts.name == planned.key.size)) {
                most.raise_to_at_least(&instance.capacity);
            }
        }
        self.capacity.add(&most);
        self.nodes += 1;
    }
}
