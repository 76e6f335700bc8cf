//! Finishing: what comes of a simulation for whoever asked for it?

use super::allowance::Allowance;
use super::axes::ZONE;
use super::candidates::{Candidate, MOST_ZONES, Offers};
use super::open::{NodeId, OpenNode, Shop};
use super::outcome::{NewNode, Outcome, Placement, Target};
use super::solve::{Seat, Solver};
use crate::catalog::OfferingKey;
use crate::cluster::claim::PlannedOffering;
use crate::cluster::pod::Pod;
use crate::cluster::pool::amount;
use std::sync::Arc;

/// More nodes than there are in one simulation.
const MANY: u32 = 1 << 20;

/// Most offerings that a new node is planned for.
const MOST_OFFERINGS: usize = 60;

/// Turns seats into placements and open nodes into new ones.
pub(super) fn finish(solver: &Solver, outcome: &mut Outcome) {
    let mut pods: Vec<Vec<Arc<Pod>>> = vec![Vec::new(); solver.shop.nodes.len()];
    for (pod, _, seat) in &solver.placed {
        let target = match *seat {
            Seat::Bin(site) => solver.bins.target(site).clone(),
            Seat::Open(node) => {
                pods[node].push(Arc::clone(pod));
                Target::New(node)
            }
        };
        outcome.placements.push(Placement { pod: pod.key.clone(), target });
    }
    // Nodes that may be in any of several zones go where there are fewest, but open up no zone that somebody who is to be
    // even over zones does not know of.
    let mut in_zone: Vec<u32> = (0..MOST_ZONES as u32).map(|zone| solver.shop.nodes_in(zone)).collect();
    for (node, pods) in pods.into_iter().enumerate() {
        if solver.shop.zone(node).is_some() {
            outcome.new.push(new_node(&solver.shop, node, pods, &in_zone));
            continue;
        }
        let weights: Vec<u32> =
            in_zone.iter().zip(0..).map(|(nodes, zone)| solver.would_open(node, zone) * MANY + nodes).collect();
        let new = new_node(&solver.shop, node, pods, &weights);
        let first = new.offerings.first().map(|offering| offering.key.zone.text());
        let zone = first.and_then(|zone| solver.known.topology.axes.known(ZONE, &zone));
        zone.into_iter().for_each(|zone| in_zone[zone as usize] += 1);
        outcome.new.push(new);
    }
}

/// The node with every offering that would hold its pods.
pub(super) fn new_node(shop: &Shop, node: NodeId, pods: Vec<Arc<Pod>>, in_zone: &[u32]) -> NewNode {
    let open = &shop.nodes[node];
    let offers = shop.choices.offers(shop.choices.get(open.choice).offers);
    let chosen = &offers.candidates[open.best as usize];
    let daemons = chosen.instance.allocatable.minus(&chosen.room);
    NewNode {
        pool: offers.pool.name.clone(),
        class: offers.pool.class.clone(),
        offerings: offerings(shop, open, in_zone),
        requests: open.requests.plus(&daemons),
        labels: offers.labels.clone(),
        pods,
    }
}

/// Offerings that hold the node's pods, cheapest first; of equals those of the zone with the fewest nodes. Where the pool
/// limits a resource, none of them has more of it than the chosen one, so that the limits hold whichever is launched.
pub(super) fn offerings(shop: &Shop, open: &OpenNode, in_zone: &[u32]) -> Vec<PlannedOffering> {
    let offers = shop.choices.offers(shop.choices.get(open.choice).offers);
    let chosen = &offers.candidates[open.best as usize];
    let mut planned: Vec<(u32, PlannedOffering)> = Vec::new();
    for (candidate, zones) in shop.choices.each(open.choice) {
        let own = std::ptr::eq(candidate, chosen);
        if !own && !may_stand_in(offers, (candidate, chosen), open, &shop.allowance) {
            continue;
        }
        for offering in candidate.instance.offerings.iter().filter(|o| o.capacity_type == candidate.capacity_type) {
            let Some(bit) = offers.zones.iter().position(|z| *z == offering.zone) else { continue };
            if zones & (1 << bit) == 0 {
                continue;
            }
            let size = candidate.instance.facts.name.clone();
            let key = OfferingKey { size, zone: offering.zone.clone(), capacity_type: candidate.capacity_type };
            let weight = in_zone.get(bit).copied().unwrap_or(0);
            planned.push((weight, PlannedOffering { key, price: offering.price }));
        }
        if planned.len() >= MOST_OFFERINGS {
            break;
        }
    }
    planned.sort_by(|(v, a), (w, b)| (a.price, v, &a.key).cmp(&(b.price, w, &b.key)));
    planned.truncate(MOST_OFFERINGS);
    planned.into_iter().map(|(_, offering)| offering).collect()
}

/// True when a candidate holds the pods too, within limits and quotas.
fn may_stand_in(
    offers: &Offers,
    (candidate, chosen): (&Candidate, &Candidate),
    open: &OpenNode,
    allowance: &Allowance,
) -> bool {
    let (more, capacity) = (&candidate.instance.capacity, &chosen.instance.capacity);
    candidate.holds(&open.requests, open.disks)
        && offers.pool.limits.resources.keys().all(|name| amount(more, name) <= amount(capacity, name))
        && allowance.quota_allows(candidate)
}
