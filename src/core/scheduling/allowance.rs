//! Allowance: what may still be bought under the limits of pools, the quotas of Azure, with the addresses of subnets and of
//! what is reserved?

use super::Input;
use super::candidates::{Candidate, Market, Offers};
use super::offerings::headroom::{QuotaHeadroom, QuotaShort, ReservationHeadroom, ReservationShort, SubnetHeadroom};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::{NodePool, amount};
use crate::model::names::NodePoolName;
use std::collections::BTreeMap;

/// What is used of all that limits purchases, NodeClaims in flight and nodes of this pass included.
#[derive(Clone)]
pub(super) struct Allowance {
    pools: BTreeMap<NodePoolName, Used>,
    /// What Azure's quotas leave, for all pools together.
    room: QuotaHeadroom,
    /// What is left of the subnets.
    addresses: SubnetHeadroom,
    /// What is left of reservations.
    reservations: ReservationHeadroom,
    /// How many more nodes may be bought.
    pub(super) nodes: usize,
}

/// What a pool's nodes have together, and how many there are.
#[derive(Clone, Default)]
pub(super) struct Used {
    pub(super) capacity: Resources,
    pub(super) nodes: i64,
}

/// What leaves no room for any of some candidates.
pub(super) enum Barred {
    Quota(QuotaShort),
    Reservation(ReservationShort),
}

impl Allowance {
    pub(super) fn new(input: Input<'_>) -> Self {
        let pools = input.market.offers.iter().map(|offers| (offers.pool.name.clone(), used_by(&offers.pool, input)));
        let Market { room, addresses, reservations, .. } = input.market;
        let (room, addresses, reservations) = (room.clone(), addresses.clone(), reservations.clone());
        Self { pools: pools.collect(), room, addresses, reservations, nodes: input.new_nodes }
    }

    pub(super) fn addresses(&self) -> &SubnetHeadroom {
        &self.addresses
    }

    pub(super) fn used(&self, pool: &NodePoolName) -> Option<&Used> {
        self.pools.get(pool)
    }

    /// True when neither the pool's limits, nor Azure's quotas and reservations, nor a full subnet forbid one more.
    pub(super) fn allows(&self, pool: &NodePool, candidate: &Candidate) -> bool {
        self.has_place(pool) && self.has_room(pool, candidate)
    }

    /// True when a pool may have one more node, of whatever size.
    pub(super) fn has_place(&self, pool: &NodePool) -> bool {
        self.nodes > 0 && self.addresses.allows(&pool.class) && self.within_number(pool)
    }

    /// True when neither the resources of the pool's limits nor Azure's quotas forbid one more of that size.
    pub(super) fn has_room(&self, pool: &NodePool, candidate: &Candidate) -> bool {
        self.within_resources(pool, &candidate.instance.capacity, None) && self.quota_allows(candidate)
    }

    /// True when one may be had in place of another of the pool that has been counted, in whose place it has an address.
    pub(super) fn allows_instead(&self, pool: &NodePool, candidate: &Candidate, of: &Candidate) -> bool {
        let (facts, own) = (&candidate.instance.facts, &of.instance.facts);
        self.within_resources(pool, &candidate.instance.capacity, Some(&of.instance.capacity))
            && match candidate.reserved {
                Some(place) => of.reserved == Some(place) || self.reservations.allows(place),
                None => self.room.allows_instead((facts, candidate.capacity_type), (own, of.capacity_type)),
            }
    }

    /// True when Azure's quotas allow one more; of what is reserved, when something of that is left.
    pub(super) fn quota_allows(&self, candidate: &Candidate) -> bool {
        match candidate.reserved {
            Some(place) => self.reservations.allows(place),
            None => self.room.allows(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    /// What has nothing left for any of some candidates, as the cheapest meets it. What anybody may buy comes before what
    /// is reserved: more of that is not what they are in need of.
    pub(super) fn barred<'c>(&self, candidates: impl Iterator<Item = &'c Candidate> + Clone) -> Option<Barred> {
        if candidates.clone().any(|candidate| self.quota_allows(candidate)) {
            return None;
        }
        let quota = |c: &Candidate| self.room.short(&c.instance.facts, c.capacity_type).map(Barred::Quota);
        let mut for_sale = candidates.clone().filter(|c| c.reserved.is_none());
        let reserved = |c: &Candidate| self.reservations.short(c.reserved?).map(Barred::Reservation);
        for_sale.next().and_then(quota).or_else(|| candidates.clone().find_map(reserved))
    }

    /// True when the pool's limits allow one more of so much.
    pub(super) fn within_limits(&self, pool: &NodePool, capacity: &Resources) -> bool {
        self.within_number(pool) && self.within_resources(pool, capacity, None)
    }

    fn within_number(&self, pool: &NodePool) -> bool {
        let below = |most: i64| self.pools.get(&pool.name).is_some_and(|used| used.nodes < most);
        pool.limits.nodes.is_none_or(below)
    }

    /// The same of resources alone; `instead` of one that has been counted, if that is given.
    fn within_resources(&self, pool: &NodePool, capacity: &Resources, instead: Option<&Resources>) -> bool {
        let limits = &pool.limits;
        if limits.resources.is_empty() {
            return true;
        }
        let Some(used) = self.pools.get(&pool.name) else { return false };
        let back = |name: &str| instead.map_or(0, |own| amount(own, name));
        limits.resources.keys().all(|name| {
            let room = limits.room_for(name, &used.capacity);
            room.is_none_or(|room| amount(capacity, name) <= room.saturating_add(back(name)))
        })
    }

    /// Counts one more.
    pub(super) fn take(&mut self, offers: &Offers, candidate: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.add(&candidate.instance.capacity);
        used.nodes += 1;
        self.take_of(candidate);
        self.addresses.take(&offers.pool.class);
        self.nodes = self.nodes.saturating_sub(1);
    }

    /// Counts one less that has been counted.
    pub(super) fn give_back(&mut self, offers: &Offers, candidate: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.sub(&candidate.instance.capacity);
        used.nodes -= 1;
        self.give_back_of(candidate);
        self.addresses.give_back(&offers.pool.class);
        self.nodes += 1;
    }

    /// Counts one in place of another.
    pub(super) fn swap(&mut self, offers: &Offers, candidate: &Candidate, of: &Candidate) {
        let used = self.pools.entry(offers.pool.name.clone()).or_default();
        used.capacity.sub(&of.instance.capacity);
        used.capacity.add(&candidate.instance.capacity);
        self.give_back_of(of);
        self.take_of(candidate);
    }

    /// Counts a candidate where it is counted: of its reservation, or of quotas.
    fn take_of(&mut self, candidate: &Candidate) {
        match candidate.reserved {
            Some(place) => self.reservations.take(place),
            None => self.room.take(&candidate.instance.facts, candidate.capacity_type),
        }
    }

    fn give_back_of(&mut self, candidate: &Candidate) {
        match candidate.reserved {
            Some(place) => self.reservations.give_back(place),
            None => self.room.give_back(&candidate.instance.facts, candidate.capacity_type),
        }
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
                most.raise_to_at_least(&instance.capacity);
            }
        }
        used.capacity.add(&most);
    }
    used
}
