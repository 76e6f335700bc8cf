//! Adds nodes for pods that spread over zones, where kube-scheduler leaves them without room.
//!
//! A pod that spreads over zones waits until the other zones have their share. Meanwhile kube-scheduler fills the nodes that
//! are ready with other pods, and the room that is left in the end may be in another zone than the one that is needed. So
//! binding is played in several orders in which nodes may become ready. Pods that find no room are planned on further
//! nodes at once, which would be launched later anyway.

use crate::model::amounts::resources::Resources;
use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::packing::binding_order::queue_order;
use crate::scheduling::packing::fill::{FillOrder, PoolFiller};
use crate::scheduling::packing::repack::{
    NewNodeFill, Packing, PodCounts, RepackOptions, RepackedNodes, apply_packing, classes_by_size, exchangeable_nodes,
    fill_groups, new_node_fills,
};
use crate::scheduling::pods::pod_class::PodClassId;
use crate::scheduling::topology::domain::{Domain, ZONE_KEY, zone_bit, zones_in_mask};
use crate::scheduling::topology::{GroupCounts, Topology};
use std::collections::BTreeMap;

/// Fewer nodes are left as they are.
const MIN_NODES: usize = 3;
/// How many orders are played.
const ORDERS: u64 = 5;
/// Most nodes that are tried for pods of one kind, in one order: a few hundredths of a second.
const MAX_EVALUATIONS: usize = 5_000_000;
/// Into how many parts the queue is divided at the most.
const MAX_PARTS: usize = 16;

/// How many pods of each rank find no room, by the zone that they need.
type LeftPods = BTreeMap<Domain, PodCounts>;

/// Adds nodes for as many pods as find no room in the median of some orders.
pub(crate) fn add_nodes_for_spread_pods(state: &mut SchedulingState) {
    let ranked = classes_by_size(state);
    let Some(play) = Play::of(state, &ranked) else { return };
    let topology = &mut state.constraints.topology;
    let mut left: Vec<LeftPods> = (0..ORDERS).map(|order| play.left_pods(topology, order)).collect();
    left.sort_by_cached_key(count);
    let median = left.swap_remove(left.len() / 2);
    if count(&median) > 0 {
        add_nodes(state, &ranked, median);
    }
}

fn count(left: &LeftPods) -> usize {
    left.values().flat_map(PodCounts::values).sum()
}

/// Pods of one rank that wait one after another in kube-scheduler's queue.
#[derive(Debug, Clone, Copy)]
struct QueuedPods {
    rank: usize,
    pods: usize,
}

/// Planned nodes and their pods, as kube-scheduler sees them.
struct Play<'a> {
    ranked: &'a [PodClassId],
    nodes: Vec<PlayedNode>,
    queue: Vec<QueuedPods>,
    /// By rank: the requests of a pod.
    requests: Vec<Resources>,
    /// Ranks whose pods spread over zones.
    spreads: Vec<bool>,
    /// What the groups of zones count before anything is bound.
    counts_before: GroupCounts,
    zones: u32,
}

struct PlayedNode {
    room: Resources,
    zone: Domain,
    /// By rank: whether it takes pods of it.
    accepts: Vec<bool>,
}

impl<'a> Play<'a> {
    /// None where no pods spread over zones, or there is too much to try.
    fn of(state: &mut SchedulingState, ranked: &'a [PodClassId]) -> Option<Self> {
        let topology = &state.constraints.topology;
        let spreads: Vec<bool> = ranked.iter().map(|class| topology.affects(*class, ZONE_KEY)).collect();
        if state.open.nodes.len() < MIN_NODES || !spreads.contains(&true) {
            return None;
        }
        let groups = exchangeable_nodes(state, ranked);
        let all: Vec<(OpenNodeId, PodCounts)> = groups.into_values().flatten().collect();
        if all.len() < MIN_NODES {
            return None;
        }
        let repacked = RepackedNodes { nodes: &all, ranked };
        let counts: Vec<(usize, usize)> = (0..ranked.len()).map(|rank| (rank, 0)).collect();
        let queue = queue_order(state, repacked, &counts);
        // Whenever a node is ready, pods of each kind try all that are.
        let evaluations = all.len() * all.len() * ranked.len();
        if evaluations > MAX_EVALUATIONS {
            return None;
        }
        let queue = in_parts(&queue, (MAX_EVALUATIONS / evaluations).min(MAX_PARTS));
        let nodes: Option<Vec<PlayedNode>> =
            all.iter().enumerate().map(|(n, (node, _))| PlayedNode::of(state, (n, *node), ranked)).collect();
        let nodes = nodes?;
        let zones = nodes.iter().fold(0, |zones, node| zones | zone_bit(Some(node.zone)));
        let requests = ranked.iter().map(|class| state.constraints.classes.requests(*class).clone()).collect();
        let counts_before = counts_before(state, repacked);
        Some(Self { ranked, nodes, queue, requests, spreads, counts_before, zones })
    }

    /// The pods that find no room if nodes become ready in this order. Counts of the topology are as before afterwards.
    fn left_pods(&self, topology: &mut Topology, order: u64) -> LeftPods {
        let counts = topology.counts(ZONE_KEY);
        topology.set_counts(ZONE_KEY, self.counts_before.clone());
        let room = self.nodes.iter().map(|node| node.room.clone()).collect();
        let left = Binding { play: self, topology, room, ready: Vec::new() }.run(order);
        topology.set_counts(ZONE_KEY, counts);
        left
    }
}

/// kube-scheduler's queue, by ranks, in parts, in each of which pods come kind by kind.
fn in_parts(queue: &[usize], parts: usize) -> Vec<QueuedPods> {
    let mut runs = Vec::new();
    for part in queue.chunks(queue.len().div_ceil(parts.max(1)).max(1)) {
        let mut pods: BTreeMap<usize, usize> = BTreeMap::new();
        part.iter().for_each(|rank| *pods.entry(*rank).or_default() += 1);
        runs.extend(pods.into_iter().map(|(rank, pods)| QueuedPods { rank, pods }));
    }
    runs
}

/// What the groups of zones count without the pods of these nodes.
fn counts_before(state: &mut SchedulingState, RepackedNodes { nodes, ranked }: RepackedNodes<'_>) -> GroupCounts {
    let (open, topology) = (&state.open, &mut state.constraints.topology);
    let counts = topology.counts(ZONE_KEY);
    for (node, pods) in nodes {
        let Some(zone) = open.zone(*node) else { continue };
        pods.iter().for_each(|(rank, pods)| topology.uncount(ranked[*rank], *pods as u32, (ZONE_KEY, zone)));
    }
    let before = topology.counts(ZONE_KEY);
    topology.set_counts(ZONE_KEY, counts);
    before
}

impl PlayedNode {
    fn of(state: &mut SchedulingState, (n, node): (usize, OpenNodeId), ranked: &[PodClassId]) -> Option<Self> {
        let open = &state.open.nodes[node];
        let (set, best) = (open.candidate_set, open.candidate as usize);
        let (pool, mask) = (state.open.candidate_sets.get(set).pool, state.open.candidate_sets.get(set).zones);
        let room = state.open.candidate_sets.candidate(set, open.candidate).pod_capacity.clone();
        // One that may be in several zones is in one of them, in turn.
        let zones: Vec<Domain> = zones_in_mask(mask).collect();
        let zone = *zones.get(n % zones.len().max(1))?;
        let mut accepts = Vec::with_capacity(ranked.len());
        for class in ranked {
            let filter = state.constraints.classes.get(*class).filter;
            let accepted = state.open.candidate_sets.accepted_zones(pool, filter, &state.constraints.filters);
            accepts.push(accepted[best] & zone_bit(Some(zone)) != 0 && state.constraints.is_interchangeable(*class));
        }
        Some(Self { room, zone, accepts })
    }
}

/// One order of binding.
struct Binding<'a> {
    play: &'a Play<'a>,
    topology: &'a mut Topology,
    room: Vec<Resources>,
    ready: Vec<usize>,
}

impl Binding<'_> {
    fn run(&mut self, order: u64) -> LeftPods {
        let mut nodes: Vec<usize> = (0..self.play.nodes.len()).collect();
        nodes.sort_by_cached_key(|node| shuffled(*node as u64, order));
        let mut waiting = self.play.queue.clone();
        for node in nodes {
            self.ready.push(node);
            // A pod that was bound may let others of its kind follow in other zones.
            while self.bind_waiting(&mut waiting, node) {}
            let (room, requests) = (&self.room, &self.play.requests);
            self.ready.retain(|node| requests.iter().any(|requests| requests.fits(&room[*node])));
        }
        let mut left = LeftPods::new();
        for QueuedPods { rank, pods } in waiting {
            for n in 0..pods {
                let Some(zone) = self.wanted_zone(rank, n) else { continue };
                self.count(rank, zone);
                *left.entry(zone).or_default().entry(rank).or_default() += 1;
            }
        }
        left
    }

    /// Binds what fits, in the order of the queue. True when a pod that spreads was bound.
    fn bind_waiting(&mut self, waiting: &mut Vec<QueuedPods>, newest: usize) -> bool {
        let mut progress = false;
        waiting.retain_mut(|queued| {
            let rank = queued.rank;
            if self.play.spreads[rank] {
                while queued.pods > 0 && self.bind_spread(rank) {
                    queued.pods -= 1;
                    progress = true;
                }
            } else if self.play.nodes[newest].accepts[rank] {
                let requests = &self.play.requests[rank];
                let fits = requests.copies_that_fit(&self.room[newest]).unwrap_or(i64::MAX);
                let pods = usize::try_from(fits).unwrap_or(0).min(queued.pods);
                self.room[newest].sub_times(requests, pods as i64);
                queued.pods -= pods;
            }
            queued.pods > 0
        });
        progress
    }

    /// Binds a pod that spreads: in the allowed zone with the fewest of its kind, on the newest node with room.
    fn bind_spread(&mut self, rank: usize) -> bool {
        let (class, requests) = (self.play.ranked[rank], &self.play.requests[rank]);
        let nodes = &self.play.nodes;
        let fits = |node: &&usize| nodes[**node].accepts[rank] && requests.fits(&self.room[**node]);
        let in_zone = |zone: Domain| self.ready.iter().rev().find(|node| nodes[**node].zone == zone && fits(node));
        let with_room: BTreeMap<Domain, usize> =
            zones_in_mask(self.play.zones).filter_map(|zone| Some((zone, *in_zone(zone)?))).collect();
        let weighted = with_room.iter().map(|(zone, node)| (*node as u32, *zone));
        let zones = self.topology.domains_in_order(class, ZONE_KEY, weighted);
        let Some(node) = zones.first().and_then(|zone| with_room.get(zone)).copied() else { return false };
        self.room[node].sub_times(requests, 1);
        self.count(rank, nodes[node].zone);
        true
    }

    /// The zone where the n-th pod that is left of a kind would be allowed if there was room.
    fn wanted_zone(&self, rank: usize, n: usize) -> Option<Domain> {
        let (class, zones) = (self.play.ranked[rank], zones_in_mask(self.play.zones));
        if !self.play.spreads[rank] {
            return zones.clone().nth(n % zones.count().max(1));
        }
        self.topology.domains_in_order(class, ZONE_KEY, zones.map(|zone| (0, zone))).first().copied()
    }

    fn count(&mut self, rank: usize, zone: Domain) {
        self.topology.count(self.play.ranked[rank], 1, |key| (key == ZONE_KEY).then_some(zone), |_| true);
    }
}

/// A number that orders nodes as by chance, in another way for each order.
fn shuffled(node: u64, order: u64) -> u64 {
    (node + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * order + 1).rotate_left(31)
}

/// Moves pods that find no room to further nodes in the zones that they need.
fn add_nodes(state: &mut SchedulingState, ranked: &[PodClassId], mut left: LeftPods) {
    for (key, nodes) in exchangeable_nodes(state, ranked) {
        let zone = nodes.first().and_then(|(node, _)| state.open.zone(*node));
        let Some(moving) = zone.and_then(|zone| left.get_mut(&zone)) else { continue };
        let Some(options) = RepackOptions::of(state, &key) else { continue };
        let (mut fills, moved) = without(state, &nodes, moving);
        if moved.is_empty() {
            continue;
        }
        for (rank, pods) in &moved {
            moving.entry(*rank).and_modify(|left| *left -= pods);
        }
        let counts: Vec<(usize, usize)> = moved.into_iter().collect();
        let groups = fill_groups(state, &options, &counts, ranked);
        let policy = state.open.min_values_policy;
        let mut filler = PoolFiller::new(&options.pool_offerings, groups, FillOrder::LargestFirst, policy);
        let limits = state.open.limits.clone();
        let Some(packing) = Packing::cheaper_than(i64::MAX, &mut filler, limits, &options.pool_offerings) else {
            continue;
        };
        let ranks: Vec<usize> = counts.iter().map(|(rank, _)| *rank).collect();
        fills.extend(new_node_fills(packing.fills, &ranks));
        let repacked = RepackedNodes { nodes: &nodes, ranked };
        for (node, _) in apply_packing(state, options.candidate_set, repacked, fills) {
            state.open.nodes[node].holds_any = true;
        }
    }
    state.remove_closed_nodes();
}

/// The same nodes without these pods, as far as they have them, and which of the pods they had. Each keeps a pod.
fn without(
    state: &SchedulingState,
    nodes: &[(OpenNodeId, PodCounts)],
    moving: &PodCounts,
) -> (Vec<NewNodeFill>, PodCounts) {
    let (mut moving, mut moved, mut fills) = (moving.clone(), PodCounts::new(), Vec::new());
    for (node, pods) in nodes {
        let mut kept = pods.clone();
        for (rank, left) in &mut moving {
            let all: usize = kept.values().sum();
            let Some(pods) = kept.get_mut(rank) else { continue };
            let taken = (*left).min(*pods).min(all.saturating_sub(1));
            *pods -= taken;
            *left -= taken;
            *moved.entry(*rank).or_default() += taken;
        }
        kept.retain(|_, pods| *pods > 0);
        let open = &state.open.nodes[*node];
        let zones = state.open.candidate_sets.get(open.candidate_set).zones;
        fills.push(NewNodeFill { candidate: open.candidate as usize, zones, pods: kept });
    }
    moved.retain(|_, pods| *pods > 0);
    (fills, moved)
}
