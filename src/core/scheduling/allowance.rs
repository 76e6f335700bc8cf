//! Allowance: what may still be bought under the limits of pools and the quotas of Azure?

use super::Input;
use super::candidates::{Candidate, Offers};
use crate::cluster::pool::{NodePool, amount};
use crate::facts::Room;
use crate::names::NodePoolName;
use crate::resources::Resources;
use std::collections::BTreeMap;

/// What is used of all that limits purchases, NodeClaims in flight and nodes of this pass included.
#[derive(Clone)]
pub(super) struct Allowance {
    pools: BTreeMap<NodePoolName, Used>,
    /// What Azure's quotas leave, for all pools together.
    room: Room,
    /// How many more nodes may be bought.
    pub(super) nodes: usize,
}

/// What a pool's nodes have together, and how many there are.
#[derive(Clone, Default)]
pub(super) struct Used {
    pub(super) capacity: Resources,
    pub(super) nodes: i64,
}

impl Allowance {
    pub(super) fn new(input: Input<'_>) -> Self {
        let pools = input.market.offers.iter().map(|offers| (offers.pool.name.clone(), used_by(&offers.pool, input)));
        Self { pools: pools.collect(), room: input.market.room.clone(), nodes: input.new_nodes }
    }

    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    pub(super) fn used(&self, pool: &NodePoolName) -> Option<&Used> {
        self.pools.get(pool)
    }

    /// True when neither the pool's limits nor Azure's quotas forbid one more.
    pub(super) fn allows(&self, pool: &NodePool, candidate: &Candidate) -> bool {
        self.within_limits(pool, &candidate.instance.capacity, None) && self.quota_allows(candidate)
    }

    /// True when one may be had in place of another that has been counted.
    pub(super) fn allows_instead(&self, pool: &NodePool, candidate: &Candidate, of: &Candidate) -> bool {
        let (facts, own) = (&candidate.instance.facts, &of.instance.facts);
        self.within_limits(pool, &candidate.instance.capacity, Some(&of.instance.capacity))
            && self.room.allows_instead((facts, candidate.capacity_type), (own, of.capacity_type))
    }

    /// True when Azure's quotas allow one more.
    pub(super) fn quota_allows(&self, candidate: &Candidate) -> bool {
        self.room.allows(&candidate.instance.facts, candidate.capacity_type)
    }

    /// True when the pool's limits allow one more of so much; `instead` of one that has been counted, if that is given.
    pub(super) fn within_limits(&self, pool: &NodePool, capacity: &Resources, instead: Option<&Resources>) -> bool {
        let limits = &pool.limits;
        if limits.nodes.is_none() && limits.resources.is_empty() {
            return true;
        }
        let Some(used) = self.pools.get(&pool.name) else { return false };
        let back = |name: &str| instead.map_or(0, |own| amount(own, name));
        (instead.is_some() || limits.nodes.is_none_or(|most| used.nodes < most))
            && limits.resources.keys().all(|name| {
                let room = limits.room_for(name, &used.capacity);
                room.is_none_or(|room| amount(capacity, name) <= room.saturating_add(back(name)))
            })
    }

    /// Counts one more.
    pub(super) fn take(&mut self, offers: &Offers, candidate: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.add(&candidate.instance.capacity);
        used.nodes += 1;
        self.room.take(&candidate.instance.facts, candidate.capacity_type);
        self.nodes = self.nodes.saturating_sub(1);
    }

    /// Counts one less that has been counted.
    pub(super) fn give_back(&mut self, offers: &Offers, candidate: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.sub(&candidate.instance.capacity);
        used.nodes -= 1;
        self.room.give_back(&candidate.instance.facts, candidate.capacity_type);
        self.nodes += 1;
    }

    /// Counts one in place of another.
    pub(super) fn swap(&mut self, offers: &Offers, candidate: &Candidate, of: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.sub(&of.instance.capacity);
        used.capacity.add(&candidate.instance.capacity);
        self.room.give_back(&of.instance.facts, of.capacity_type);
        self.room.take(&candidate.instance.facts, candidate.capacity_type);
    }
}

/// Capacity and number of the pool's nodes, in flight included.
fn used_by(pool: &NodePool, input: Input<'_>) -> Used {
    let mut used = Used::default();
    let types = input.market.overlaid.types(input.snapshot, pool);
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
                most.raise_to(&instance.capacity);
            }
        }
        used.capacity.add(&most);
    }
    used
}
