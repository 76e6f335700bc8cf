//! Buying: which new nodes hold pods that ask nothing of each other at the lowest price?
//!
//! Pools go by weight. Within a pool, nodes are bought one after another, each the one that is [best filled](super::fill).

use super::choice::Narrowing;
use super::fill::{Counter, Fill, Lot, Style};
use super::kinds::{Demand, KindId};
use super::open::Growth;
use super::solve::{Seat, Solver};
use std::sync::Arc;

/// Buys nodes for the demands, which keep the pods that found no place.
pub(super) fn buy(solver: &mut Solver, rest: &mut [Demand]) {
    for pool in 0..solver.shop.choices.pools() {
        if rest.iter().all(|demand| demand.pods.is_empty()) {
            return;
        }
        let offers = Arc::clone(solver.shop.choices.offers(pool));
        let lots = rest.iter().map(|demand| lot(solver, pool, demand)).collect();
        let mut counter = Counter::new(&offers, lots, Style::Largest, solver.shop.min_values);
        while let Some((candidate, fill)) = counter.next(&solver.shop.allowance) {
            take(solver, pool, (candidate, &fill), rest);
        }
    }
}

fn lot(solver: &mut Solver, pool: usize, demand: &Demand) -> Lot {
    let kind = solver.known.kinds.get(demand.family.bare);
    let accepted = solver.shop.choices.accepted(pool, kind.filter, &solver.known.filters);
    Lot { accepted, requests: kind.shape.requests.clone(), waiting: demand.pods.len() }
}

/// Thinks of a node for a fill, and takes its pods out of the demand.
fn take(solver: &mut Solver, pool: usize, (candidate, fill): (usize, &Fill), rest: &mut [Demand]) {
    let taken: Vec<(usize, usize)> = fill.taken.iter().copied().enumerate().filter(|(_, taken)| *taken > 0).collect();
    let kinds: Vec<KindId> = taken.iter().map(|(d, _)| rest[*d].family.bare).collect();
    let filters = kinds.iter().map(|kind| Narrowing::Filter(solver.known.kinds.get(*kind).filter));
    let mut narrowings = filters.chain([Narrowing::Zones(fill.zones)]);
    let root = solver.shop.choices.root(pool);
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
