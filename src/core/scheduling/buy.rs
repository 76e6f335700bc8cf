//! Buying: which new nodes hold pods that ask nothing of each other at the lowest price?
//!
//! Pools go by weight. Within a pool, nodes are bought one after another: each candidate is filled with what still
//! waits, and the one with the lowest price per value of the pods it holds is bought. The value of a pod is the least
//! that its share of any candidate would cost, so a candidate filled to the brim in every resource scores 1, and waste
//! scores worse. Only candidates that no other beats in price and room are tried.

use super::allowance::Allowance;
use super::candidates::Offers;
use super::choice::Narrowing;
use super::kinds::{Demand, KindId};
use super::open::Growth;
use super::solve::{Seat, Solver};
use super::variety::{Load, MinValues};
use crate::resources::Resources;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A candidate filled with demand: pods taken of each demand.
struct Fill {
    taken: Vec<usize>,
    zones: u32,
    value: i128,
}

/// A pool and what of it each demand may have.
struct Counter {
    pool: usize,
    offers: Arc<Offers>,
    /// By demand: bits of the zones in which each candidate suits it.
    accepted: Vec<Arc<[u32]>>,
    requests: Vec<Resources>,
    /// Candidates that are tried.
    front: Vec<usize>,
    /// Of one pod of each demand.
    values: Vec<i128>,
    /// What becomes of pods for which there is less variety than the pool asks for.
    min_values: MinValues,
}

/// Buys nodes for the demands, which keep the pods that found no place.
pub(super) fn buy(solver: &mut Solver, rest: &mut [Demand]) {
    for pool in 0..solver.shop.choices.pools() {
        if rest.iter().all(|demand| demand.pods.is_empty()) {
            return;
        }
        let mut counter = Counter::new(solver, pool, rest);
        counter.renew(solver);
        while solver.shop.allowance.nodes > 0 {
            let allowance = &solver.shop.allowance;
            let pool = &counter.offers.pool;
            if !counter.front.iter().all(|c| allowance.allows(pool, &counter.offers.candidates[*c])) {
                counter.renew(solver);
            }
            let Some((candidate, fill)) = counter.best(rest, &solver.shop.allowance) else { break };
            take(solver, &counter, (candidate, &fill), rest);
        }
    }
}

impl Counter {
    fn new(solver: &mut Solver, pool: usize, rest: &[Demand]) -> Self {
        let offers = Arc::clone(solver.shop.choices.offers(pool));
        let kinds = &solver.known.kinds;
        let filter = |demand: &Demand| kinds.get(demand.family.bare).filter;
        let choices = &mut solver.shop.choices;
        let accepted = rest.iter().map(|d| choices.accepted(pool, filter(d), &solver.known.filters)).collect();
        let min_values = solver.shop.min_values;
        let requests = rest.iter().map(|d| kinds.requests(d.family.bare).clone()).collect();
        Self { pool, offers, accepted, requests, front: Vec::new(), values: Vec::new(), min_values }
    }

    /// Works out anew which candidates are worth trying, and what a pod is worth.
    fn renew(&mut self, solver: &Solver) {
        self.front = self.front(solver);
        self.values = (0..self.accepted.len()).map(|demand| self.value(demand)).collect();
    }

    /// Candidates within limits that no other for the same demands in the same zones beats: at most its price, at least
    /// its room. A purchase that puts one of them out of limits calls for a new front: the next best were beaten by it.
    fn front(&self, solver: &Solver) -> Vec<usize> {
        // Demands with the same filter accept the same.
        let mut distinct: Vec<&Arc<[u32]>> = Vec::new();
        for accepted in &self.accepted {
            if !distinct.iter().any(|known| Arc::ptr_eq(known, accepted)) {
                distinct.push(accepted);
            }
        }
        let candidates = &self.offers.candidates;
        let mut groups: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for (c, candidate) in candidates.iter().enumerate() {
            let suits: Vec<u32> = distinct.iter().map(|accepted| accepted[c]).collect();
            if suits.iter().all(|zones| *zones == 0) || !solver.shop.allowance.allows(&self.offers.pool, candidate) {
                continue;
            }
            let group = groups.entry(suits).or_default();
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
    fn value(&self, demand: usize) -> i128 {
        let suiting = self.front.iter().filter(|c| self.accepted[demand][**c] != 0);
        let shares = suiting.filter_map(|&c| {
            let candidate = &self.offers.candidates[c];
            share_of(&self.requests[demand], &candidate.room, i128::from(candidate.price.nanos()))
        });
        shares.min().map_or(0, |v| v.max(1))
    }

    /// The candidate that is best bought now.
    fn best(&self, rest: &[Demand], allowance: &Allowance) -> Option<(usize, Fill)> {
        let mut best: Option<(usize, Fill)> = None;
        for &c in &self.front {
            let filled = self.fill(c, rest).filter(|fill| self.has_variety(c, fill, allowance));
            let Some(fill) = filled else { continue };
            if best.as_ref().is_none_or(|(b, best)| self.beats((c, &fill), (*b, best))) {
                best = Some((c, fill));
            }
        }
        best
    }

    /// Fills a candidate with what waits, largest pods first; `None` when it takes nothing.
    fn fill(&self, c: usize, rest: &[Demand]) -> Option<Fill> {
        let candidate = &self.offers.candidates[c];
        let mut room = candidate.room.clone();
        let mut fill = Fill { taken: vec![0; rest.len()], zones: candidate.zones, value: 0 };
        for (d, demand) in rest.iter().enumerate() {
            let zones = self.accepted[d][c];
            if demand.pods.is_empty() || fill.zones & zones == 0 {
                continue;
            }
            let fits = self.requests[d].times_in(&room).unwrap_or(i64::MAX);
            let taken = usize::try_from(fits).unwrap_or(0).min(demand.pods.len());
            if taken > 0 {
                room.sub(&self.requests[d].times(taken as i64));
                fill.taken[d] = taken;
                fill.zones &= zones;
                fill.value += self.values[d] * taken as i128;
            }
        }
        (fill.value > 0).then_some(fill)
    }

    /// True when a candidate that is filled keeps as many values on offer as the pool asks for.
    fn has_variety(&self, c: usize, fill: &Fill, allowance: &Allowance) -> bool {
        if self.offers.least.is_empty() {
            return true;
        }
        let taken: Vec<usize> = (0..fill.taken.len()).filter(|d| fill.taken[*d] > 0).collect();
        let suiting = self.offers.candidates.iter().enumerate().map(|(c, candidate)| {
            (candidate, taken.iter().fold(candidate.zones, |zones, d| zones & self.accepted[*d][c]))
        });
        let suiting = suiting.filter(|(_, zones)| *zones != 0);
        let mut requests = Resources::default();
        taken.iter().for_each(|d| requests.add(&self.requests[*d].times(fill.taken[*d] as i64)));
        let chosen = &self.offers.candidates[c];
        let first = taken.first().map_or(&requests, |first| &self.requests[*first]);
        let first = Load { requests: first, disks: 0, needed: &[] };
        let needed = self.offers.needed_from(self.min_values, suiting.clone(), (chosen, first), allowance);
        let load = Load { requests: &requests, disks: 0, needed: &needed };
        self.offers.has_variety(suiting, chosen, load, allowance)
    }

    /// A lower price per value wins; then more value; then the earlier candidate.
    fn beats(&self, (c, a): (usize, &Fill), (d, b): (usize, &Fill)) -> bool {
        let price = |c: usize| i128::from(self.offers.candidates[c].price.nanos().max(1));
        let (ours, theirs) = (price(c) * b.value, price(d) * a.value);
        (ours, Reverse(a.value), c) < (theirs, Reverse(b.value), d)
    }
}

/// Thinks of a node for a fill, and takes its pods out of the demand.
fn take(solver: &mut Solver, counter: &Counter, (candidate, fill): (usize, &Fill), rest: &mut [Demand]) {
    let taken: Vec<(usize, usize)> = fill.taken.iter().copied().enumerate().filter(|(_, taken)| *taken > 0).collect();
    let kinds: Vec<KindId> = taken.iter().map(|(d, _)| rest[*d].family.bare).collect();
    let filters = kinds.iter().map(|kind| Narrowing::Filter(solver.known.kinds.get(*kind).filter));
    let mut narrowings = filters.chain([Narrowing::Zones(fill.zones)]);
    let root = solver.shop.choices.root(counter.pool);
    let narrowed = narrowings.try_fold(root, |choice, by| solver.shop.choices.narrow(choice, by, solver.known.names()));
    // The candidate suits all of them: the fill has seen to it.
    let Some(choice) = narrowed else { return };
    let best = candidate as u32;
    let Some(first) = kinds.first() else { return };
    let node = solver.shop.open(choice, best, solver.known.want(*first));
    for ((demand, pods), kind) in taken.into_iter().zip(kinds) {
        let choice = solver.shop.nodes[node].choice;
        let growth = solver.settled(node, Growth { cost: 0, load: 0, choice, best }, kind);
        solver.shop.put(node, growth, solver.known.want(kind), pods as u32);
        solver.count_on_open(node, kind, pods as u32);
        let bound = rest[demand].pods.drain(..pods);
        solver.placed.extend(bound.map(|pod| (pod, kind, Seat::Open(node))));
    }
}

/// What share of a room a request takes, by the resource that takes most, times a price; `None` when it does not fit.
fn share_of(requests: &Resources, room: &Resources, price: i128) -> Option<i128> {
    if !requests.fits(room) {
        return None;
    }
    let shares = requests.asked_of(room).map(|(need, room)| price * i128::from(need) / i128::from(room.max(1)));
    Some(shares.max().unwrap_or(0))
}
