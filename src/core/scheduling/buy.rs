//! Buying: which new nodes hold pods that ask nothing of each other at the lowest price?
//!
//! Pools go by weight. Within a pool, nodes are bought one after another, each the one that is [best filled](super::fill).

use super::candidates::Place;
use super::choice::{ChoiceId, Narrowing};
use super::fill::{Counter, Fill, Lot, Style};
use super::kinds::{Demand, KindId};
use super::open::{Growth, NodeId};
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
    let root = solver.shop.choices.root(pool);
    let Some(node) = open(solver, root, (candidate, fill.zones), &kinds) else { return };
    let best = solver.shop.nodes[node].best;
    for ((demand, pods), kind) in taken.into_iter().zip(kinds) {
        let choice = solver.shop.nodes[node].choice;
        let growth = solver.settled(node, Growth { cost: 0, load: 0, choice, best }, kind);
        solver.shop.put(node, growth, solver.known.want(kind), pods as u32);
        solver.count_on_open(node, kind, pods as u32);
        let bound = rest[demand].pods.drain(..pods);
        solver.placed.extend(bound.map(|pod| (pod, kind, Seat::Open(node))));
    }
}

/// Thinks of a node that is a candidate of a choice in some zones, and that may become whatever suits pods of these kinds. The
/// candidate suits all of them: whoever filled it has seen to it.
pub(super) fn open(
    solver: &mut Solver,
    from: ChoiceId,
    (candidate, zones): (usize, u32),
    kinds: &[KindId],
) -> Option<NodeId> {
    let filters = kinds.iter().map(|kind| Narrowing::Filter(solver.known.kinds.get(*kind).filter));
    let mut by = filters.chain([Narrowing::Zones(zones)]);
    let choice = by.try_fold(from, |choice, by| solver.shop.choices.narrow(choice, by, solver.known.names()))?;
    Some(solver.shop.open(choice, candidate as Place, solver.known.want(*kinds.first()?)))
}
