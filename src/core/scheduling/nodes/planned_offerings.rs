//! Turns open nodes into new NodeClaims with their planned offerings.

use crate::catalog::OfferingKey;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::Pod;
use crate::scheduling::nodes::new_node::{OpenNode, OpenNodeId, OpenNodes};
use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::min_values::ChosenCandidate;
use crate::scheduling::offerings::min_values::Load;
use crate::scheduling::result::{NewNode, PodPlacement, SchedulingResult, Target};
use crate::scheduling::topology::domain::{MAX_ZONES, ZONE_KEY};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Greater than the number of nodes of any simulation.
const NODE_COUNT_BOUND: u32 = 1 << 20;

/// Most offerings that a new node is planned for.
const MAX_OFFERINGS: usize = 60;

/// Converts node references to placements, and open nodes to new nodes.
pub(crate) fn write_result(state: &SchedulingState, result: &mut SchedulingResult) {
    let mut pods: Vec<Vec<Arc<Pod>>> = vec![Vec::new(); state.open.nodes.len()];
    for (pod, _, node_ref) in &state.placed {
        let target = match *node_ref {
            NodeRef::Existing(index) => state.existing.target(index).clone(),
            NodeRef::Open(node) => {
                pods[node].push(Arc::clone(pod));
                Target::New(node)
            }
        };
        result.placements.push(PodPlacement { pod: pod.key.clone(), target });
    }
    // Nodes that may be in several zones go to the one with the fewest, except to zones that would be a new, empty
    // domain of a spread constraint.
    let mut in_zone: Vec<u32> = (0..MAX_ZONES as u32).map(|zone| state.open.node_count_in(zone)).collect();
    for (node, pods) in pods.into_iter().enumerate() {
        if state.open.zone(node).is_some() {
            result.new_nodes.push(new_node(&state.open, node, pods, &in_zone));
            continue;
        }
        let weights: Vec<u32> = in_zone
            .iter()
            .zip(0..)
            .map(|(nodes, zone)| state.groups_gaining_domain(node, zone) * NODE_COUNT_BOUND + nodes)
            .collect();
        let new = new_node(&state.open, node, pods, &weights);
        let first = new.offerings.first().map(|offering| offering.key.zone.text());
        let zone = first.and_then(|zone| state.constraints.topology.keys.known_domain(ZONE_KEY, &zone));
        zone.into_iter().for_each(|zone| in_zone[zone as usize] += 1);
        result.new_nodes.push(new);
    }
}

/// The node with all offerings that hold its pods.
pub(crate) fn new_node(open_nodes: &OpenNodes, node: OpenNodeId, pods: Vec<Arc<Pod>>, in_zone: &[u32]) -> NewNode {
    let open = &open_nodes.nodes[node];
    let pool_offerings =
        open_nodes.candidate_sets.pool_offerings(open_nodes.candidate_sets.get(open.candidate_set).pool);
    let chosen = &pool_offerings.candidates[open.candidate as usize];
    let daemons = chosen.instance.allocatable.minus(&chosen.pod_capacity);
    NewNode {
        pool: pool_offerings.pool.name.clone(),
        class: pool_offerings.pool.class.clone(),
        offerings: planned_offerings(open_nodes, open, in_zone),
        requests: open.requests.plus(&daemons),
        labels: pool_offerings.labels.clone(),
        pods,
    }
}

/// An offering with the number of nodes in its zone, the candidate that it is of, and the bit of its zone.
type WeightedOffering<'c> = (u32, PlannedOffering, (&'c InstanceCandidate, u32));

/// Offerings that hold the node's pods, cheapest first; of equals those of the zone with the fewest nodes.
pub(crate) fn planned_offerings(open_nodes: &OpenNodes, open: &OpenNode, in_zone: &[u32]) -> Vec<PlannedOffering> {
    let pool_offerings =
        open_nodes.candidate_sets.pool_offerings(open_nodes.candidate_sets.get(open.candidate_set).pool);
    let chosen = &pool_offerings.candidates[open.candidate as usize];
    let load = Load { requests: &open.requests, disks: open.disks, min_values: &[] };
    let chosen = ChosenCandidate { candidate: chosen, load };
    let mut planned: Vec<WeightedOffering<'_>> = Vec::new();
    for (candidate, zones) in open_nodes.candidate_sets.candidates_in(open.candidate_set) {
        // What is cheaper holds less: only after refusals is a node launched that may not hold other pods.
        let is_too_small = open.holds_any && candidate.price < chosen.candidate.price;
        if is_too_small || !pool_offerings.can_substitute(candidate, chosen, &open_nodes.limits) {
            continue;
        }
        for offering in candidate.instance.offerings.iter().filter(|o| o.capacity_type == candidate.capacity_type) {
            let Some(bit) = pool_offerings.zones.iter().position(|z| *z == offering.zone) else { continue };
            if zones & (1 << bit) == 0 {
                continue;
            }
            let size = candidate.instance.facts.name.clone();
            let key = OfferingKey { size, zone: offering.zone.clone(), capacity_type: candidate.capacity_type };
            let weight = in_zone.get(bit).copied().unwrap_or(0);
            planned.push((
                weight,
                PlannedOffering { key, price: candidate.instance.node_price(offering) },
                (candidate, 1 << bit),
            ));
        }
        if planned.len() >= MAX_OFFERINGS && open.min_values.is_empty() {
            break;
        }
    }
    planned.sort_by(|(v, a, _), (w, b, _)| (a.price, v, &a.key).cmp(&(b.price, w, &b.key)));
    if open.min_values.is_empty() {
        planned.truncate(MAX_OFFERINGS);
    } else {
        truncate_keeping_min_values(pool_offerings, &open.min_values, &mut planned);
    }
    planned.into_iter().map(|(_, offering, _)| offering).collect()
}

/// Truncates to [`MAX_OFFERINGS`]: those that `minValues` needs, and of the others the cheapest.
fn truncate_keeping_min_values(
    pool_offerings: &PoolOfferings,
    needed: &[u32],
    planned: &mut Vec<WeightedOffering<'_>>,
) {
    let mut retained = BTreeSet::new();
    for ((key, _), needed) in pool_offerings.min_values.iter().zip(needed) {
        let mut values = BTreeSet::new();
        for (n, (_, _, (candidate, zone))) in planned.iter().enumerate() {
            let known = values.len();
            values.extend(pool_offerings.label_values(candidate, *zone, key));
            if values.len() > known {
                retained.insert(n);
            }
            if values.len() >= *needed as usize {
                break;
            }
        }
    }
    let rest = (0..planned.len()).filter(|n| !retained.contains(n));
    let rest: Vec<usize> = rest.take(MAX_OFFERINGS.saturating_sub(retained.len())).collect();
    retained.extend(rest);
    let mut n = 0..;
    planned.retain(|_| n.next().is_some_and(|n| retained.contains(&n)));
}
