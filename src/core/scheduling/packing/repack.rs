//! Repacks pods of open nodes where that is cheaper, within a fixed amount of work.
//!
//! Pods that are placed one by one, or a few at a time, get nodes that were right for them alone. So some nodes are
//! emptied tentatively, those that are worst filled first, and all their pods are repacked, in several styles; if that
//! is cheaper, it is done. Only nodes that lie in the same domains of every label exchange pods, and only pods to which
//! it is all the same on which of those nodes they are: what was even, near or apart stays so. Work is bounded by a
//! count, not by the clock, so that the same pods get the same nodes on every machine.

use crate::scheduling::nodes::new_node::{OpenNode, OpenNodeId};
use crate::scheduling::nodes::pod_needs::{NEW_NODE_SAVING_DIVISOR, PodAddition};
use crate::scheduling::nodes::state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::available::PoolOfferings;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::packing::fill::{Fill, FillGroup, FillOrder, PoolFiller};
use crate::scheduling::packing::greedy::open_candidate;
use crate::scheduling::pods::class::{PodClassId, largest_first};
use crate::scheduling::topology::domain::{Domain, TopologyKeyId, ZONE_KEY};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many looks at a pod class beside a candidate are spent for each pod that is placed: some microseconds.
const EVALUATIONS_PER_POD: u64 = 100;
/// And this many at the least, a few hundredths of a second: a few pods are worth a good look.
const MIN_EVALUATIONS: u64 = 500_000;
/// How often some nodes are emptied of those that are alike.
const ROUNDS: usize = 60;
/// And how many together, by turns.
const NODES_PER_ROUND: [usize; 6] = [16, 2, 8, 3, 4, 6];

/// In what nodes must be alike to exchange pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ExchangeKey {
    pool: usize,
    /// What they may become, by the zones in which they may be and the constraints that count them.
    candidate_set: CandidateSetId,
    /// Their domains on other topology keys.
    domains: Vec<(TopologyKeyId, Domain)>,
}

/// How many pods of each class, the largest first: pod classes by their rank.
type PodCounts = BTreeMap<usize, usize>;

/// Repacks pods of open nodes where that is cheaper. True when it was.
pub(crate) fn repack(state: &mut SchedulingState) -> bool {
    let mut work = MIN_EVALUATIONS.max(EVALUATIONS_PER_POD * state.placed.len() as u64);
    let mut improved = false;
    let ranked = classes_by_size(state);
    for (exchange_key, mut nodes) in exchangeable_nodes(state, &ranked) {
        let Some(repack_options) = RepackOptions::of(state, &exchange_key) else { continue };
        let mut tried: BTreeSet<Vec<OpenNodeId>> = BTreeSet::new();
        let turns = (0..ROUNDS)
            .map(|round| (NODES_PER_ROUND[round % NODES_PER_ROUND.len()], 1 + round / NODES_PER_ROUND.len()));
        for (together, stride) in [(nodes.len(), 1)].into_iter().chain(turns) {
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

/// The first of some nodes and each that is so many after the last, up to a number of them; and the others.
fn every_nth<N>(nodes: Vec<N>, stride: usize, together: usize) -> (Vec<N>, Vec<N>) {
    let (mut some, mut rest) = (Vec::new(), Vec::new());
    for (n, node) in nodes.into_iter().enumerate() {
        let all = if n % stride == 0 && some.len() < together { &mut some } else { &mut rest };
        all.push(node);
    }
    (some, rest)
}

/// Pod classes that were placed, those of the largest pods first.
fn classes_by_size(state: &SchedulingState) -> Vec<PodClassId> {
    let classes: BTreeSet<PodClassId> = state.placed.iter().map(|(_, class, _)| *class).collect();
    let mut ranked: Vec<PodClassId> = classes.into_iter().collect();
    ranked.sort_by_cached_key(|class| largest_first(&state.constraints.classes.get(*class).shape));
    ranked
}

/// Open nodes that may exchange pods, with the pods on each.
fn exchangeable_nodes(
    state: &mut SchedulingState,
    ranked: &[PodClassId],
) -> BTreeMap<ExchangeKey, Vec<(OpenNodeId, PodCounts)>> {
    let ranks: BTreeMap<PodClassId, usize> = ranked.iter().copied().zip(0..).collect();
    let mut pods: Vec<PodCounts> = vec![PodCounts::new(); state.open.nodes.len()];
    for (_, class, node_ref) in &state.placed {
        if let NodeRef::Open(node) = node_ref {
            *pods[*node].entry(ranks[class]).or_default() += 1;
        }
    }
    let mut alike: BTreeMap<ExchangeKey, Vec<(OpenNodeId, PodCounts)>> = BTreeMap::new();
    for (node, pods) in pods.into_iter().enumerate() {
        let is_free = pods.keys().all(|rank| state.constraints.is_interchangeable(ranked[*rank]));
        if let Some(exchange_key) = is_free.then(|| exchange_key(state, node)).flatten() {
            alike.entry(exchange_key).or_default().push((node, pods));
        }
    }
    alike
}

fn exchange_key(state: &mut SchedulingState, node: OpenNodeId) -> Option<ExchangeKey> {
    let (open_nodes, known_keys) = (&state.open, &state.constraints.topology.keys);
    let open = &open_nodes.nodes[node];
    let (set_id, best) = (open_nodes.candidate_sets.get(open.candidate_set), open.candidate);
    let (pool, zones) = (set_id.pool, set_id.zones);
    if !open.min_values.is_empty() || !open_nodes.candidate_sets.pool_offerings(pool).min_values.is_empty() {
        return None;
    }
    let domains = (ZONE_KEY + 1..known_keys.len())
        .filter_map(|topology_key| Some((topology_key, open_nodes.domain(node, topology_key, known_keys)?)))
        .collect();
    let root = open_nodes.candidate_sets.root(pool);
    let there =
        state.open.candidate_sets.narrow(root, Narrowing::Zones(zones), state.constraints.filters_and_keys())?;
    Some(ExchangeKey { pool, candidate_set: state.pin_counting(there, best), domains })
}

/// Nodes that are emptied together.
#[derive(Clone, Copy)]
struct RepackedNodes<'a> {
    nodes: &'a [(OpenNodeId, PodCounts)],
    /// Pod classes by rank.
    ranked: &'a [PodClassId],
}

/// Repacks the pods of some nodes, if that is cheaper and there is enough work left for it: the nodes that hold them
/// then.
fn repack_nodes(
    state: &mut SchedulingState,
    options: &RepackOptions,
    repacked: RepackedNodes<'_>,
    work: &mut u64,
) -> Option<Vec<(OpenNodeId, PodCounts)>> {
    let RepackedNodes { nodes, ranked } = repacked;
    let mut all = PodCounts::new();
    nodes.iter().flat_map(|(_, pods)| pods).for_each(|(rank, pods)| *all.entry(*rank).or_default() += pods);
    let all: Vec<(usize, usize)> = all.into_iter().collect();
    let (mut before, mut launch_limits) = (0, state.open.limits.clone());
    for (node, _) in nodes {
        let open = &state.open.nodes[*node];
        let candidate = state.open.candidate_sets.candidate(open.candidate_set, open.candidate);
        before += candidate.price.nanos();
        launch_limits.give_back(&options.pool_offerings, candidate);
    }
    let mut best: Option<Packing> = None;
    for style in [FillOrder::LargestFirst, FillOrder::DotProduct] {
        let fill_groups = fill_groups(state, options, &all, ranked);
        let mut counter = PoolFiller::new(&options.pool_offerings, fill_groups, style, state.open.min_values_policy);
        let most = best.as_ref().map_or(before, |best| best.price);
        let looks = (counter.candidate_count(&launch_limits) * all.len() * nodes.len()) as u64;
        if looks > *work {
            return None;
        }
        let packing = Packing::cheaper_than(most, &mut counter, launch_limits.clone(), &options.pool_offerings);
        *work = work.saturating_sub(counter.evaluations + options.zones.len() as u64);
        best = packing.filter(|packing| packing.is_better(before, nodes.len())).or(best);
    }
    let pods_by_rank = all.iter().map(|(rank, _)| *rank).collect::<Vec<_>>();
    let fills = best?.fills.into_iter().map(|(candidate, fill)| NewNodeFill {
        candidate,
        zones: fill.zones,
        pods: pods_by_rank.iter().copied().zip(fill.taken).filter(|(_, pods)| *pods > 0).collect(),
    });
    Some(apply_packing(state, options.candidate_set, repacked, fills.collect()))
}

/// A node that takes the place of others: its candidate, in which zones, with which pods.
struct NewNodeFill {
    candidate: usize,
    zones: u32,
    pods: PodCounts,
}

/// Candidates with what fills them.
struct Packing {
    fills: Vec<(usize, Fill)>,
    /// In nano-USD per hour.
    price: i64,
}

impl Packing {
    /// Nodes for all that waits, if they cost less than so much.
    fn cheaper_than(
        most: i64,
        filler: &mut PoolFiller,
        mut limits: LaunchLimits,
        pool_offerings: &PoolOfferings,
    ) -> Option<Self> {
        let mut packing = Self { fills: Vec::new(), price: 0 };
        while packing.price < most {
            let Some((candidate, fill)) = filler.next_node(&limits) else {
                return filler.is_done().then_some(packing);
            };
            packing.price += pool_offerings.candidates[candidate].price.nanos();
            limits.take(pool_offerings, &pool_offerings.candidates[candidate]);
            packing.fills.push((candidate, fill));
        }
        None
    }

    /// True when it is better than so many nodes at a price: cheaper, and where it has more of them by more than a node
    /// more must save.
    fn is_better(&self, before: i64, nodes: usize) -> bool {
        let more = self.fills.len().saturating_sub(nodes) as i64;
        let each = before / (nodes.max(1) as i64) / NEW_NODE_SAVING_DIVISOR;
        self.price + more * each < before
    }
}

/// What nodes of one exchange key may be.
struct RepackOptions {
    pool: usize,
    pool_offerings: Arc<PoolOfferings>,
    candidate_set: CandidateSetId,
    /// By candidate: the zones in which it is like those nodes.
    zones: Vec<u32>,
}

impl RepackOptions {
    fn of(
        state: &mut SchedulingState,
        ExchangeKey { pool, candidate_set: base, domains }: &ExchangeKey,
    ) -> Option<Self> {
        let mut labels = domains.iter().map(|(topology_key, domain)| Narrowing::Label(*topology_key, *domain));
        let narrowed = labels.try_fold(*base, |set_id, by| {
            state.open.candidate_sets.narrow(set_id, by, state.constraints.filters_and_keys())
        });
        let (base, pool_offerings) = (narrowed?, Arc::clone(state.open.candidate_sets.pool_offerings(*pool)));
        Some(Self {
            pool: *pool,
            pool_offerings,
            candidate_set: base,
            zones: state.open.candidate_sets.zones_by_candidate(base),
        })
    }
}

fn fill_groups(
    state: &mut SchedulingState,
    options: &RepackOptions,
    all: &[(usize, usize)],
    ranked: &[PodClassId],
) -> Vec<FillGroup> {
    let SchedulingState { constraints: known, open: open_nodes, .. } = state;
    let mut open: BTreeMap<_, Arc<[u32]>> = BTreeMap::new();
    let fill_groups = all.iter().map(|(rank, pods)| {
        let class = ranked[*rank];
        let filter = known.classes.get(class).filter;
        let accepted = open.entry(filter).or_insert_with(|| {
            let accepted = open_nodes.candidate_sets.accepted_zones(options.pool, filter, &known.filters);
            accepted.iter().zip(&options.zones).map(|(accepted, zones)| accepted & zones).collect()
        });
        FillGroup {
            accepted_zones: Arc::clone(accepted),
            requests: known.classes.requests(class).clone(),
            pending: *pods,
        }
    });
    fill_groups.collect()
}

/// Puts the nodes of a packing in place of others.
fn apply_packing(
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
        let OpenNode { candidate_set: set_id, candidate: best, .. } = state.open.nodes[node];
        for (class, pods) in classes.iter().zip(pods.values()) {
            let pod_addition = PodAddition { added_cost: 0, utilization: 0, candidate_set: set_id, candidate: best };
            state.open.add_pods(node, pod_addition, state.constraints.pod_needs(*class), *pods as u32);
        }
        new.push((node, pods));
    }
    reassign_pods(state, nodes, &new, ranked);
    new
}

/// Gives the pods of some nodes to others that hold as many of each class, in the order in which they are bound.
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
