//! Packing: which new nodes hold the rest of the demand at the lowest price?
//!
//! Pools go by weight. Within a pool, nodes are bought one after another: each candidate is filled with what still
//! waits, and the one with the lowest price per value of the pods it holds is bought. The value of a pod is the least
//! that its share of any candidate would cost, so a candidate filled to the brim in every resource scores 1, and waste
//! scores worse. Only candidates that no other beats in price and room are tried.

use super::Input;
use super::candidates::{Candidate, Offers, node_labels_accept};
use super::demand::Demand;
use super::outcome::{NewNode, Outcome, Placement, Target, WhyNot};
use super::spread::{cap_per_node, counts_per_node};
use crate::catalog::OfferingKey;
use crate::cluster::claim::PlannedOffering;
use crate::cluster::pod::PodShape;
use crate::cluster::pool::{NodePool, amount};
use crate::facts::Room;
use crate::names::{NodePoolName, Zone};
use crate::resources::Resources;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most offerings that a new node is planned for.
const MOST_OFFERINGS: usize = 60;

/// Buys new nodes.
#[derive(Clone)]
pub(super) struct Packer {
    pub(super) pools: Vec<PoolState>,
    pub(super) budget: usize,
}

/// A pool with what it may buy and how much of its limits is used.
#[derive(Clone)]
pub(super) struct PoolState {
    pub(super) offers: Arc<Offers>,
    pub(super) used: Resources,
    pub(super) nodes: i64,
    /// What Azure's quotas leave, for all pools together.
    pub(super) room: Room,
}

/// Bits of the zones in which each candidate accepts each demand: first by candidate, then by demand.
type Accepted = Vec<Vec<u32>>;

/// A candidate filled with demand: pods taken of each demand.
struct Fill {
    taken: Vec<usize>,
    zones: u32,
    value: i128,
}

impl Fill {
    /// Pods taken so far that the shape's own host name constraints count.
    fn alike(&self, shape: &PodShape, rest: &[Demand]) -> i64 {
        let counted = rest.iter().zip(&self.taken).filter(|(other, _)| counts_per_node(shape, &other.shape));
        counted.map(|(_, taken)| *taken as i64).sum()
    }
}

impl Packer {
    pub(super) fn new(input: Input<'_>) -> Self {
        let state = |offers: &Arc<Offers>| {
            let (used, nodes) = used_by(&offers.pool, input);
            PoolState { offers: Arc::clone(offers), used, nodes, room: input.market.room.clone() }
        };
        let pools = if input.new_nodes > 0 { input.market.offers.iter().map(state).collect() } else { Vec::new() };
        Self { pools, budget: input.new_nodes }
    }

    /// Zones in which some pool may buy a node for the shape.
    pub(super) fn zones_for(&self, shape: &PodShape) -> BTreeSet<Zone> {
        let mut zones = BTreeSet::new();
        for pool in &self.pools {
            let mask = pool.mask_for(shape);
            zones.extend(
                pool.offers.zones.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0).map(|(_, z)| z.clone()),
            );
        }
        zones
    }

    /// Buys nodes for the demands. What found no place comes back, and stands in the outcome with its reasons.
    pub(super) fn pack(&mut self, mut rest: Vec<Demand>, outcome: &mut Outcome) -> Vec<Demand> {
        let mut room = self.pools.first().map(|pool| pool.room.clone()).unwrap_or_default();
        for pool in &mut self.pools {
            pool.room = room;
            pool.buy(&mut rest, &mut self.budget, outcome);
            room = pool.room.clone();
        }
        for pool in &mut self.pools {
            pool.room = room.clone();
        }
        rest.retain(|d| !d.pods.is_empty());
        for demand in &rest {
            let mut why: Vec<(Option<NodePoolName>, WhyNot)> =
                self.pools.iter().map(|p| (Some(p.offers.pool.name.clone()), p.why_not(demand, self.budget))).collect();
            if why.is_empty() {
                why.push((None, if self.budget == 0 { WhyNot::NewNodes } else { WhyNot::NoPool }));
            }
            outcome.refuse(demand.pods.clone(), why);
        }
        rest
    }
}

impl PoolState {
    /// Bits of the zones where a node for the shape may be bought.
    fn mask_for(&self, shape: &PodShape) -> u32 {
        if shape.untolerated(&self.offers.pool.taints).is_some() {
            return 0;
        }
        let allowed = self.offers.zone_mask(shape, None);
        let large = self.offers.candidates.iter().filter(|c| shape.requests.fits(&c.room) && self.quota_allows(c));
        large.fold(0, |mask, c| mask | self.offers.accepts(shape, c, allowed))
    }

    fn buy(&mut self, rest: &mut [Demand], budget: &mut usize, outcome: &mut Outcome) {
        let masks: Vec<u32> = rest.iter().map(|d| self.mask_of(d)).collect();
        let accepted: Accepted = self
            .offers
            .candidates
            .iter()
            .map(|c| rest.iter().zip(&masks).map(|(d, mask)| self.offers.accepts(&d.shape, c, *mask)).collect())
            .collect();
        let mut front = self.front(&accepted);
        let mut values = self.values(rest, &front, &accepted);
        while *budget > 0 {
            if !front.iter().all(|c| self.may_buy(&self.offers.candidates[*c])) {
                front = self.front(&accepted);
                values = self.values(rest, &front, &accepted);
            }
            let mut best: Option<(usize, Fill)> = None;
            for &c in &front {
                let Some(fill) = self.fill(c, rest, &accepted[c], &values) else { continue };
                if best.as_ref().is_none_or(|(b, best)| self.beats((c, &fill), (*b, best))) {
                    best = Some((c, fill));
                }
            }
            let Some((c, fill)) = best else { return };
            let node = self.node(c, &fill, rest);
            self.take(c, node, outcome);
            *budget -= 1;
        }
    }

    /// Bits of the zones that a demand may go to; none when it does not tolerate the pool's taints.
    fn mask_of(&self, demand: &Demand) -> u32 {
        let tolerated = demand.shape.untolerated(&self.offers.pool.taints).is_none();
        if tolerated { self.offers.zone_mask(&demand.shape, demand.zone.as_ref()) } else { 0 }
    }

    /// The value of one pod of each demand.
    fn values(&self, rest: &[Demand], front: &[usize], accepted: &Accepted) -> Vec<i128> {
        rest.iter().enumerate().map(|(d, demand)| self.value(demand, d, front, accepted)).collect()
    }

    /// Candidates within limits that no other for the same demands in the same zones beats: at most its price, at least
    /// its room. A purchase that puts one of them out of limits calls for a new front: the next best were beaten by it.
    fn front(&self, accepted: &Accepted) -> Vec<usize> {
        let candidates = &self.offers.candidates;
        let mut groups: BTreeMap<&[u32], Vec<usize>> = BTreeMap::new();
        for (c, candidate) in candidates.iter().enumerate() {
            let wanted = accepted[c].iter().any(|zones| *zones != 0);
            if !wanted || !self.may_buy(candidate) {
                continue;
            }
            let group = groups.entry(&accepted[c]).or_default();
            if !group.iter().any(|&kept| candidate.room.fits(&candidates[kept].room)) {
                group.push(c);
            }
        }
        let mut front: Vec<usize> = groups.into_values().flatten().collect();
        front.sort_unstable();
        front
    }

    /// The value of one pod of a demand, in nano-USD per hour: its greatest share of any resource of a candidate times
    /// the candidate's price, at the cheapest candidate for it. 0 where no candidate holds it.
    fn value(&self, demand: &Demand, d: usize, front: &[usize], accepted: &Accepted) -> i128 {
        let shares = front.iter().filter(|c| accepted[**c][d] != 0).filter_map(|&c| {
            let candidate = &self.offers.candidates[c];
            share_of(&demand.shape.requests, &candidate.room, i128::from(candidate.price.nanos()))
        });
        shares.min().map_or(0, |v| v.max(1))
    }

    /// Fills a candidate with what waits, largest pods first; `None` when it takes nothing.
    fn fill(&self, c: usize, rest: &[Demand], accepted: &[u32], values: &[i128]) -> Option<Fill> {
        let candidate = &self.offers.candidates[c];
        let mut room = candidate.room.clone();
        let mut fill = Fill { taken: vec![0; rest.len()], zones: candidate.zones, value: 0 };
        for (d, demand) in rest.iter().enumerate() {
            if demand.pods.is_empty() || fill.zones & accepted[d] == 0 {
                continue;
            }
            let fits = demand.shape.requests.times_in(&room).unwrap_or(i64::MAX);
            let fits = cap_per_node(&demand.shape).map_or(fits, |cap| fits.min(cap - fill.alike(&demand.shape, rest)));
            let taken = usize::try_from(fits).unwrap_or(0).min(demand.pods.len());
            if taken > 0 {
                room.sub(&demand.shape.requests.times(taken as i64));
                fill.taken[d] = taken;
                fill.zones &= accepted[d];
                fill.value += values[d] * taken as i128;
            }
        }
        (fill.value > 0).then_some(fill)
    }

    /// A lower price per value wins; then more value; then the earlier candidate.
    fn beats(&self, (c, a): (usize, &Fill), (d, b): (usize, &Fill)) -> bool {
        let price = |c: usize| i128::from(self.offers.candidates[c].price.nanos().max(1));
        let (ours, theirs) = (price(c) * b.value, price(d) * a.value);
        (ours, Reverse(a.value), c) < (theirs, Reverse(b.value), d)
    }

    /// The node that a fill describes, with every offering that would hold it; takes its pods out of the demand.
    fn node(&self, c: usize, fill: &Fill, rest: &mut [Demand]) -> NewNode {
        let chosen = &self.offers.candidates[c];
        let mut requests = chosen.instance.allocatable.minus(&chosen.room);
        let mut shapes = Vec::new();
        for (demand, taken) in rest.iter().zip(&fill.taken).filter(|(_, taken)| **taken > 0) {
            requests.add(&demand.shape.requests.times(*taken as i64));
            shapes.push(Arc::clone(&demand.shape));
        }
        let offerings = self.offerings(chosen, fill, &requests, &shapes);
        let pods = rest.iter_mut().zip(&fill.taken).flat_map(|(d, taken)| d.pods.drain(..*taken)).collect();
        let (pool, class) = (self.offers.pool.name.clone(), self.offers.pool.class.clone());
        NewNode { pool, class, offerings, requests, labels: self.offers.labels.clone(), pods }
    }

    /// Offerings that hold the node's pods, cheapest first. Where the pool limits a resource, none of them has more of
    /// it than the chosen one, so that the limits hold whichever is launched.
    fn offerings(
        &self,
        chosen: &Candidate,
        fill: &Fill,
        requests: &Resources,
        shapes: &[Arc<PodShape>],
    ) -> Vec<PlannedOffering> {
        let capacity = &chosen.instance.capacity;
        let no_more = |other: &Resources| {
            self.offers.pool.limits.resources.keys().all(|name| amount(other, name) <= amount(capacity, name))
        };
        let own = chosen.instance.allocatable.minus(&chosen.room);
        let mut planned = Vec::new();
        for candidate in &self.offers.candidates {
            let daemons = candidate.instance.allocatable.minus(&candidate.room);
            let needed = requests.minus(&own).plus(&daemons);
            if candidate.zones & fill.zones == 0
                || !self.quota_allows(candidate)
                || !needed.fits(&candidate.instance.allocatable)
                || !no_more(&candidate.instance.capacity)
            {
                continue;
            }
            for offering in candidate.instance.offerings.iter().filter(|o| o.capacity_type == candidate.capacity_type) {
                let bit = self.offers.zones.iter().position(|z| *z == offering.zone);
                let open = bit.is_some_and(|bit| candidate.zones & fill.zones & (1 << bit) != 0);
                let key = OfferingKey {
                    size: candidate.instance.facts.name.clone(),
                    zone: offering.zone.clone(),
                    capacity_type: candidate.capacity_type,
                };
                let fits = |s: &Arc<PodShape>| node_labels_accept(s, &candidate.instance, &key, &self.offers.labels);
                if open && shapes.iter().all(fits) {
                    planned.push(PlannedOffering { key, price: offering.price });
                }
            }
            if planned.len() >= MOST_OFFERINGS {
                break;
            }
        }
        planned.sort_by(|a, b| (a.price, &a.key).cmp(&(b.price, &b.key)));
        planned.truncate(MOST_OFFERINGS);
        planned
    }

    /// Counts the chosen candidate against the limits: of what they limit, no planned offering has more.
    fn take(&mut self, c: usize, node: NewNode, outcome: &mut Outcome) {
        let target = Target::New(outcome.new.len());
        outcome.placements.extend(node.pods.iter().map(|p| Placement { pod: p.key.clone(), target: target.clone() }));
        let chosen = &self.offers.candidates[c];
        self.used.add(&chosen.instance.capacity);
        self.room.take(&chosen.instance.facts, chosen.capacity_type);
        self.nodes += 1;
        outcome.new.push(node);
    }

    /// True when neither the pool's limits nor Azure's quotas forbid one more.
    pub(super) fn may_buy(&self, candidate: &Candidate) -> bool {
        self.within_limits(&candidate.instance.capacity) && self.quota_allows(candidate)
    }

    fn quota_allows(&self, candidate: &Candidate) -> bool {
        self.room.allows(&candidate.instance.facts, candidate.capacity_type)
    }

    fn within_limits(&self, capacity: &Resources) -> bool {
        let limits = &self.offers.pool.limits;
        limits.nodes.is_none_or(|most| self.nodes < most)
            && limits
                .resources
                .keys()
                .all(|name| limits.room_for(name, &self.used).is_none_or(|room| amount(capacity, name) <= room))
    }

    /// Why the pool buys nothing for a demand.
    fn why_not(&self, demand: &Demand, budget: usize) -> WhyNot {
        let pool = &self.offers.pool;
        if let Some(fields) = &self.offers.unhonoured {
            return WhyNot::Class(Arc::clone(fields));
        }
        if let Some(taint) = demand.shape.untolerated(&pool.taints) {
            return WhyNot::Taint(Arc::clone(&taint.key));
        }
        if let Err(why) = pool.requirements.compatible(&demand.shape.selector, |_| true) {
            return WhyNot::Labels(why);
        }
        let mask = self.mask_of(demand);
        let labels: Vec<&Candidate> =
            self.offers.candidates.iter().filter(|c| self.offers.accepts(&demand.shape, c, mask) != 0).collect();
        if labels.is_empty() {
            return WhyNot::NoOffering;
        }
        let large: Vec<_> = labels.into_iter().filter(|c| demand.shape.requests.fits(&c.room)).collect();
        if large.is_empty() {
            return WhyNot::TooLarge;
        }
        if large.iter().all(|c| !self.within_limits(&c.instance.capacity)) {
            return WhyNot::Limit;
        }
        let mut in_limits = large.iter().filter(|c| self.within_limits(&c.instance.capacity));
        if let Some(first) = in_limits.next()
            && let Some(short) = self.room.short(&first.instance.facts, first.capacity_type)
            && in_limits.all(|c| !self.quota_allows(c))
        {
            return WhyNot::Quota(short);
        }
        if budget == 0 { WhyNot::NewNodes } else { WhyNot::NoOffering }
    }
}

/// What share of a room a request takes, by the resource that takes most, times a price; `None` when it does not fit.
fn share_of(requests: &Resources, room: &Resources, price: i128) -> Option<i128> {
    if !requests.fits(room) {
        return None;
    }
    let share = |need: i64, room: i64| if need > 0 { price * i128::from(need) / i128::from(room.max(1)) } else { 0 };
    let extended = requests.extended.iter().map(|(name, need)| share(*need, room.extended(name)));
    [
        share(requests.cpu_millis, room.cpu_millis),
        share(requests.memory, room.memory),
        share(requests.ephemeral_storage, room.ephemeral_storage),
        share(requests.pods, room.pods),
    ]
    .into_iter()
    .chain(extended)
    .max()
}

/// Capacity and number of the pool's nodes, in flight included.
fn used_by(pool: &NodePool, input: Input<'_>) -> (Resources, i64) {
    let mut used = Resources::default();
    let mut nodes = 0;
    let types = input.snapshot.instance_types.get(&pool.class);
    for claim in input.snapshot.claims().values().filter(|c| c.spec.pool.as_ref() == Some(&pool.name)) {
        nodes += 1;
        if claim.status.launched.is_some() {
            used.add(&claim.status.capacity);
            continue;
        }
        // Not launched: the largest that it may still become counts.
        let mut most = Resources::default();
        for planned in &claim.spec.planned {
            if let Some(instance) = types.and_then(|t| t.iter().find(|t| t.facts.name == planned.key.size)) {
                most.raise_to(&instance.capacity);
            }
        }
        used.add(&most);
    }
    (used, nodes)
}
