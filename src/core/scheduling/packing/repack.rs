//! Repacks pods of open nodes where that is cheaper, within a fixed amount of work.
//!
//! Pods that are placed one by one, or a few at a time, get nodes that were right for them alone. So some nodes are
//! emptied tentatively, the least utilized first, and all their pods are repacked in several orders; if that is
//! cheaper, it is applied. Only nodes in the same topology domains exchange pods, and only pods whose constraints do
//! not depend on the node. Work is bounded by a count, not by the clock, so that the same pods get the same nodes on
//! every machine.

use crate::scheduling::nodes::new_node::{OpenNode, OpenNodeId};
use crate::scheduling::nodes::pod_needs::{NEW_NODE_SAVING_DIVISOR, PodAddition};
use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::available::PoolOfferings;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::packing::fill::{Fill, FillGroup, FillOrder, PoolFiller};
use crate::scheduling::packing::greedy::open_candidate;
use crate::scheduling::pods::pod_class::{PodClassId, largest_first};
use crate::scheduling::topology::domain::{Domain, TopologyKeyId, ZONE_KEY};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pairs of pod class and candidate that are evaluated per placed pod: some microseconds.
const EVALUATIONS_PER_POD: u64 = 100;
/// Minimum of evaluated pairs: a few hundredths of a second.
const MIN_EVALUATIONS: u64 = 500_000;
/// Rounds of repacking per group of exchangeable nodes.
const ROUNDS: usize = 60;
/// How many nodes are repacked together, by round.
const NODES_PER_ROUND: [usize; 6] = [16, 2, 8, 3, 4, 6];

/// Open nodes with equal keys may exchange pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RepackGroupKey {
    pool: usize,
    /// Their possible candidates: by possible zones, and by the topology groups that count them.
    candidate_set: CandidateSetId,
    /// Their domains on other topology keys.
    domains: Vec<(TopologyKeyId, Domain)>,
}

/// How many pods of each class, by its rank: the largest pods first.
pub(crate) type PodCounts = BTreeMap<usize, usize>;

/// Repacks pods of open nodes where that is cheaper. True when any was repacked.
pub(crate) fn repack(state: &mut SchedulingState) -> bool {
    let mut work = MIN_EVALUATIONS.max(EVALUATIONS_PER_POD * state.placed.len() as u64);
    let mut improved = false;
    let ranked = classes_by_size(state);
    for (key, mut nodes) in exchangeable_nodes(state, &ranked) {
        let Some(repack_options) = RepackOptions::of(state, &key) else { continue };
        let mut tried: BTreeSet<Vec<OpenNodeId>> = BTreeSet::new();
        let rounds = (0..ROUNDS)
            .map(|round| (NODES_PER_ROUND[round % NODES_PER_ROUND.len()], 1 + round / NODES_PER_ROUND.len()));
        for (together, stride) in [(nodes.len(), 1)].into_iter().chain(rounds) {
            if nodes.len() < 2 || work == 0 {
                break;
            }
            nodes.sort_by_cached_key(|(node, _)| state.open.utilization(*node));
            let (some, rest) = every_nth(nodes, stride, together);
            let is_new = tried.insert(some.iter().map(|(node, _)| *node).collect());
            let repacked = RepackedNodes { nodes: &some, ranked: &ranked };
            let packed = is_new.then(|| repack_nodes(state, &repack_options, repacked, &mut work)).flatten();
            improved |= packed.is_some();
            nodes = packed.unwrap_or(some);
            nodes.extend(rest);
        }
    }
    if improved {
        state.remove_closed_nodes();
    }
    improved
}

/// Every `stride`-th of some nodes, up to `together` of them; and the others.
fn every_nth<N>(nodes: Vec<N>, stride: usize, together: usize) -> (Vec<N>, Vec<N>) {
    let (mut some, mut rest) = (Vec::new(), Vec::new());
    for (n, node) in nodes.into_iter().enumerate() {
        let all = if n % stride == 0 && some.len() < together { &mut some } else { &mut rest };
        all.push(node);
    }
    (some, rest)
}

/// Pod classes of placed pods, those of the largest pods first.
pub(crate) fn classes_by_size(state: &SchedulingState) -> Vec<PodClassId> {
    let classes: BTreeSet<PodClassId> = state.placed.iter().map(|(_, class, _)| *class).collect();
    let mut ranked: Vec<PodClassId> = classes.into_iter().collect();
    ranked.sort_by_cached_key(|class| largest_first(&state.constraints.classes.get(*class).shape));
    ranked
}

/// Open nodes that may exchange pods, with the pods on each.
pub(crate) fn exchangeable_nodes(
    state: &mut SchedulingState,
    ranked: &[PodClassId],
) -> BTreeMap<RepackGroupKey, Vec<(OpenNodeId, PodCounts)>> {
    let ranks: BTreeMap<PodClassId, usize> = ranked.iter().copied().zip(0..).collect();
    let mut pods: Vec<PodCounts> = vec![PodCounts::new(); state.open.nodes.len()];
    for (_, class, node_ref) in &state.placed {
        if let NodeRef::Open(node) = node_ref {
            *pods[*node].entry(ranks[class]).or_default() += 1;
        }
    }
    let mut groups: BTreeMap<RepackGroupKey, Vec<(OpenNodeId, PodCounts)>> = BTreeMap::new();
    for (node, pods) in pods.into_iter().enumerate() {
        let is_interchangeable = pods.keys().all(|rank| state.constraints.is_interchangeable(ranked[*rank]));
        if let Some(key) = is_interchangeable.then(|| repack_group_key(state, node)).flatten() {
            groups.entry(key).or_default().push((node, pods));
        }
    }
    groups
}

fn repack_group_key(state: &mut SchedulingState, node: OpenNodeId) -> Option<RepackGroupKey> {
    let (open_nodes, topology_keys) = (&state.open, &state.constraints.topology.keys);
    let open = &open_nodes.nodes[node];
    let (set, best) = (open_nodes.candidate_sets.get(open.candidate_set), open.candidate);
    let (pool, zones) = (set.pool, set.zones);
    if !open.min_values.is_empty() || !open_nodes.candidate_sets.pool_offerings(pool).min_values.is_empty() {
        return None;
    }
    let domains = (ZONE_KEY + 1..topology_keys.len())
        .filter_map(|topology_key| Some((topology_key, open_nodes.domain(node, topology_key, topology_keys)?)))
        .collect();
    let root = open_nodes.candidate_sets.root(pool);
    let in_zones =
        state.open.candidate_sets.narrow(root, Narrowing::Zones(zones), state.constraints.filters_and_keys())?;
    Some(RepackGroupKey { pool, candidate_set: state.pin_counting(in_zones, best), domains })
}

/// Nodes that are repacked together.
#[derive(Clone, Copy)]
pub(crate) struct RepackedNodes<'a> {
    pub(crate) nodes: &'a [(OpenNodeId, PodCounts)],
    /// Pod classes by rank.
    pub(crate) ranked: &'a [PodClassId],
}

/// Repacks the pods of some nodes, if that is cheaper and enough work is left; returns the new nodes.
fn repack_nodes(
    state: &mut SchedulingState,
    options: &RepackOptions,
    repacked: RepackedNodes<'_>,
    work: &mut u64,
) -> Option<Vec<(OpenNodeId, PodCounts)>> {
    let RepackedNodes { nodes, ranked } = repacked;
    let all: Vec<(usize, usize)> = repacked.pods_by_rank().into_iter().collect();
    let (mut before, mut launch_limits) = (0, state.open.limits.clone());
    for (node, _) in nodes {
        let open = &state.open.nodes[*node];
        let candidate = state.open.candidate_sets.candidate(open.candidate_set, open.candidate);
        before += candidate.cost();
        launch_limits.give_back(&options.pool_offerings, candidate);
    }
    let mut best: Option<Packing> = None;
    for order in [FillOrder::LargestFirst, FillOrder::DotProduct] {
        let fill_groups = fill_groups(state, options, &all, ranked);
        let mut filler = PoolFiller::new(&options.pool_offerings, fill_groups, order, state.open.min_values_policy);
        let max_price = best.as_ref().map_or(before, |best| best.price);
        let evaluations = (filler.candidates(&launch_limits).len() * all.len() * nodes.len()) as u64;
        if evaluations > *work {
            return None;
        }
        let packing = Packing::cheaper_than(max_price, &mut filler, launch_limits.clone(), &options.pool_offerings);
        *work = work.saturating_sub(filler.evaluations + options.zones.len() as u64);
        best = packing.filter(|packing| packing.is_better(before, nodes.len())).or(best);
    }
    if let [_] = all.as_slice() {
        let groups = fill_groups(state, options, &all, ranked);
        let order = FillOrder::LargestFirst;
        let mut filler = PoolFiller::new(&options.pool_offerings, groups, order, state.open.min_values_policy);
        let max_price = best.as_ref().map_or(before, |best| best.price);
        best = Packing::only_node(&mut filler, &launch_limits).filter(|packing| packing.price < max_price).or(best);
    }
    let ranks = all.iter().map(|(rank, _)| *rank).collect::<Vec<_>>();
    Some(apply_packing(state, options.candidate_set, repacked, new_node_fills(best?.fills, &ranks)))
}

/// A node that replaces others: its candidate, zones and pods.
pub(crate) struct NewNodeFill {
    pub(crate) candidate: usize,
    pub(crate) zones: u32,
    pub(crate) pods: PodCounts,
}

/// The nodes of filled candidates, whose groups have these ranks.
pub(crate) fn new_node_fills(fills: Vec<(usize, Fill)>, ranks: &[usize]) -> Vec<NewNodeFill> {
    let node = |(candidate, fill): (usize, Fill)| NewNodeFill {
        candidate,
        zones: fill.zones,
        pods: ranks.iter().copied().zip(fill.taken).filter(|(_, pods)| *pods > 0).collect(),
    };
    fills.into_iter().map(node).collect()
}

/// Filled candidates.
pub(crate) struct Packing {
    pub(crate) fills: Vec<(usize, Fill)>,
    /// In nano-USD per hour.
    price: i64,
}

impl Packing {
    /// Nodes for all pending pods, if they cost less than `max_price`.
    pub(crate) fn cheaper_than(
        max_price: i64,
        filler: &mut PoolFiller,
        mut limits: LaunchLimits,
        pool_offerings: &PoolOfferings,
    ) -> Option<Self> {
        let mut packing = Self { fills: Vec::new(), price: 0 };
        while packing.price < max_price {
            let Some((candidate, fill)) = filler.next_node(&limits) else {
                return filler.is_done().then_some(packing);
            };
            packing.price += pool_offerings.candidates[candidate].cost();
            limits.take(pool_offerings, &pool_offerings.candidates[candidate]);
            packing.fills.push((candidate, fill));
        }
        None
    }

    /// One node for all pending pods, where a smaller one costs less per pod, but two of them more.
    fn only_node(filler: &mut PoolFiller, limits: &LaunchLimits) -> Option<Self> {
        let (candidate, fill) = filler.only_node(limits)?;
        Some(Self { price: filler.cost(candidate), fills: vec![(candidate, fill)] })
    }

    /// True when it is better than `nodes` nodes at price `before`: cheaper, and each additional node saves enough.
    fn is_better(&self, before: i64, nodes: usize) -> bool {
        let added = self.fills.len().saturating_sub(nodes) as i64;
        let each = before / (nodes.max(1) as i64) / NEW_NODE_SAVING_DIVISOR;
        self.price + added * each < before
    }
}

/// The candidates for nodes of one group.
pub(crate) struct RepackOptions {
    pool: usize,
    pub(crate) pool_offerings: Arc<PoolOfferings>,
    pub(crate) candidate_set: CandidateSetId,
    /// By candidate: the zones in which it is exchangeable with those nodes.
    zones: Vec<u32>,
}

impl RepackOptions {
    pub(crate) fn of(
        state: &mut SchedulingState,
        RepackGroupKey { pool, candidate_set: base, domains }: &RepackGroupKey,
    ) -> Option<Self> {
        let mut labels = domains.iter().map(|(topology_key, domain)| Narrowing::Label(*topology_key, *domain));
        let narrowed = labels
            .try_fold(*base, |set, by| state.open.candidate_sets.narrow(set, by, state.constraints.filters_and_keys()));
        let (base, pool_offerings) = (narrowed?, Arc::clone(state.open.candidate_sets.pool_offerings(*pool)));
        Some(Self {
            pool: *pool,
            pool_offerings,
            candidate_set: base,
            zones: state.open.candidate_sets.zones_by_candidate(base),
        })
    }
}

pub(crate) fn fill_groups(
    state: &mut SchedulingState,
    options: &RepackOptions,
    all: &[(usize, usize)],
    ranked: &[PodClassId],
) -> Vec<FillGroup> {
    let SchedulingState { constraints, open: open_nodes, .. } = state;
    let mut accepted_zones: BTreeMap<_, Arc<[u32]>> = BTreeMap::new();
    let fill_groups = all.iter().map(|(rank, pods)| {
        let class = ranked[*rank];
        let filter = constraints.classes.get(class).filter;
        let accepted = accepted_zones.entry(filter).or_insert_with(|| {
            let accepted = open_nodes.candidate_sets.accepted_zones(options.pool, filter, &constraints.filters);
            accepted.iter().zip(&options.zones).map(|(accepted, zones)| accepted & zones).collect()
        });
        FillGroup {
            accepted_zones: Arc::clone(accepted),
            requests: constraints.classes.requests(class).clone(),
            pending: *pods,
        }
    });
    fill_groups.collect()
}

/// Replaces nodes by those of a packing.
pub(crate) fn apply_packing(
    state: &mut SchedulingState,
    base: CandidateSetId,
    repacked: RepackedNodes<'_>,
    fills: Vec<NewNodeFill>,
) -> Vec<(OpenNodeId, PodCounts)> {
    let RepackedNodes { nodes, ranked } = repacked;
    nodes.iter().for_each(|(node, _)| state.open.close(*node));
    let mut new = Vec::new();
    for NewNodeFill { candidate, zones, pods } in fills {
        let classes: Vec<PodClassId> = pods.keys().map(|rank| ranked[*rank]).collect();
        let Some(node) = open_candidate(state, base, (candidate, zones), &classes) else { continue };
        let OpenNode { candidate_set, candidate, .. } = state.open.nodes[node];
        for (class, pods) in classes.iter().zip(pods.values()) {
            let pod_addition = PodAddition { added_cost: 0, utilization: 0, candidate_set, candidate };
            state.open.add_pods(node, pod_addition, state.constraints.pod_needs(*class), *pods as u32);
        }
        new.push((node, pods));
    }
    reassign_pods(state, nodes, &new, ranked);
    new
}

/// Reassigns the pods of some nodes to others that hold as many of each class, in the order in which they are bound.
fn reassign_pods(
    state: &mut SchedulingState,
    old: &[(OpenNodeId, PodCounts)],
    new: &[(OpenNodeId, PodCounts)],
    ranked: &[PodClassId],
) {
    let old: BTreeSet<OpenNodeId> = old.iter().map(|(node, _)| *node).collect();
    let mut node_refs: BTreeMap<PodClassId, Vec<(OpenNodeId, usize)>> = BTreeMap::new();
    for (node, pods) in new.iter().rev() {
        pods.iter().for_each(|(rank, pods)| node_refs.entry(ranked[*rank]).or_default().push((*node, *pods)));
    }
    for (_, class, node_ref) in &mut state.placed {
        let NodeRef::Open(node) = node_ref else { continue };
        let Some(left) = node_refs.get_mut(class).filter(|_| old.contains(node)) else { continue };
        let Some((new, pods)) = left.last_mut() else { continue };
        *node = *new;
        *pods -= 1;
        if *pods == 0 {
            left.pop();
        }
    }
}
