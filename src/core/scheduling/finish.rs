//! Finishing: what comes of a simulation for whoever asked for it?

use super::axes::ZONE;
use super::candidates::{Candidate, MOST_ZONES, Offers};
use super::open::{NodeId, OpenNode, Shop};
use super::outcome::{NewNode, Outcome, Placement, Target};
use super::solve::{Seat, Solver};
use super::variety::Load;
use crate::catalog::OfferingKey;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::Pod;
use std::collections::BTreeSet;
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

/// An offering with the number of nodes in its zone, the candidate that it is of, and the bit of its zone.
type Offered<'c> = (u32, PlannedOffering, (&'c Candidate, u32));

/// Offerings that hold the node's pods, cheapest first; of equals those of the zone with the fewest nodes.
pub(super) fn offerings(shop: &Shop, open: &OpenNode, in_zone: &[u32]) -> Vec<PlannedOffering> {
    let offers = shop.choices.offers(shop.choices.get(open.choice).offers);
    let chosen = &offers.candidates[open.best as usize];
    let load = Load { requests: &open.requests, disks: open.disks, needed: &[] };
    let mut planned: Vec<Offered<'_>> = Vec::new();
    for (candidate, zones) in shop.choices.each(open.choice) {
        if !offers.may_stand_in(candidate, chosen, load, &shop.allowance) {
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
            planned.push((weight, PlannedOffering { key, price: offering.price }, (candidate, 1 << bit)));
        }
        if planned.len() >= MOST_OFFERINGS && open.needed.is_empty() {
            break;
        }
    }
    planned.sort_by(|(v, a, _), (w, b, _)| (a.price, v, &a.key).cmp(&(b.price, w, &b.key)));
    if open.needed.is_empty() {
        planned.truncate(MOST_OFFERINGS);
    } else {
        keep_most(offers, &open.needed, &mut planned);
    }
    planned.into_iter().map(|(_, offering, _)| offering).collect()
}

/// Keeps as many as a plan may have: those that the variety asked for needs, and of the others the cheapest.
fn keep_most(offers: &Offers, needed: &[u32], planned: &mut Vec<Offered<'_>>) {
    let mut kept = BTreeSet::new();
    for ((key, _), needed) in offers.least.iter().zip(needed) {
        let mut values = BTreeSet::new();
        for (n, (_, _, (candidate, zone))) in planned.iter().enumerate() {
            let known = values.len();
            values.extend(offers.values(candidate, *zone, key));
            if values.len() > known {
                kept.insert(n);
            }
            if values.len() >= *needed as usize {
                break;
            }
        }
    }
    let rest = (0..planned.len()).filter(|n| !kept.contains(n));
    let rest: Vec<usize> = rest.take(MOST_OFFERINGS.saturating_sub(kept.len())).collect();
    kept.extend(rest);
    let mut n = 0..;
    planned.retain(|_| n.next().is_some_and(|n| kept.contains(&n)));
}
