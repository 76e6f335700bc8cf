//! Improving: would cheaper nodes hold the pods of some that were thought of?
//!
//! Pods that are placed one by one, or a few at a time, get nodes that were right for them alone. So some nodes are
//! emptied in thought, those that are worst filled first, and all their pods are packed anew, in several styles; if that is
//! cheaper, it is done. Only nodes that lie in the same domains of every label exchange pods, and only pods to which it is
//! all the same on which of those nodes they are: what was even, near or apart stays so. Work is bounded by a count, not by
//! the clock, so that the same pods get the same nodes on every machine.

use super::allowance::Allowance;
use super::axes::{AxisId, Domain, ZONE};
use super::buy::open;
use super::candidates::Offers;
use super::choice::{ChoiceId, Narrowing};
use super::fill::{Counter, Fill, Lot, Style};
use super::kinds::{KindId, largest_first};
use super::open::{Growth, NODE_MORE, NodeId, OpenNode};
use super::solve::{Seat, Solver};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many looks at a kind of pods beside a candidate are spent for each pod that is placed: some microseconds.
const WORK_PER_POD: u64 = 100;
/// And this many at the least, a few hundredths of a second: a few pods are worth a good look.
const LEAST_WORK: u64 = 500_000;
/// How often some nodes are emptied of those that are alike.
const ROUNDS: usize = 60;
/// And how many together, by turns.
const TOGETHER: [usize; 6] = [16, 2, 8, 3, 4, 6];

/// In what nodes must be alike to exchange pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    pool: usize,
    /// What they may become, by the zones in which they may be and the constraints that count them.
    base: ChoiceId,
    /// Their domains on other axes.
    domains: Vec<(AxisId, Domain)>,
}

/// How many pods of each kind, the largest first: kinds by their rank.
type Pods = BTreeMap<usize, usize>;

/// Packs pods of open nodes anew where that is cheaper. True when it was.
pub(super) fn improve(solver: &mut Solver) -> bool {
    let mut work = LEAST_WORK.max(WORK_PER_POD * solver.placed.len() as u64);
    let mut improved = false;
    let ranked = ranked(solver);
    for (likeness, mut nodes) in alike(solver, &ranked) {
        let Some(stock) = Stock::of(solver, &likeness) else { continue };
        let mut tried: BTreeSet<Vec<NodeId>> = BTreeSet::new();
        let turns = (0..ROUNDS).map(|round| (TOGETHER[round % TOGETHER.len()], 1 + round / TOGETHER.len()));
        for (together, stride) in [(nodes.len(), 1)].into_iter().chain(turns) {
            if nodes.len() < 2 || work == 0 {
                break;
            }
            nodes.sort_by_cached_key(|(node, _)| solver.shop.spot(*node));
            let (some, rest) = every(nodes, stride, together);
            let is_new = tried.insert(some.iter().map(|(node, _)| *node).collect());
            let packed = is_new.then(|| pack(solver, &stock, (&some, &ranked), &mut work)).flatten();
            improved |= packed.is_some();
            nodes = packed.unwrap_or(some);
            nodes.extend(rest);
        }
    }
    if improved {
        solver.forget_closed();
    }
    improved
}

/// The first of some nodes and each that is so many after the last, up to a number of them; and the others.
fn every<N>(nodes: Vec<N>, stride: usize, together: usize) -> (Vec<N>, Vec<N>) {
    let (mut some, mut rest) = (Vec::new(), Vec::new());
    for (n, node) in nodes.into_iter().enumerate() {
        let all = if n % stride == 0 && some.len() < together { &mut some } else { &mut rest };
        all.push(node);
    }
    (some, rest)
}

/// Kinds that were placed, those of the largest pods first.
fn ranked(solver: &Solver) -> Vec<KindId> {
    let kinds: BTreeSet<KindId> = solver.placed.iter().map(|(_, kind, _)| *kind).collect();
    let mut ranked: Vec<KindId> = kinds.into_iter().collect();
    ranked.sort_by_cached_key(|kind| largest_first(&solver.known.kinds.get(*kind).shape));
    ranked
}

/// Open nodes that may exchange pods, with the pods on each.
fn alike(solver: &mut Solver, ranked: &[KindId]) -> BTreeMap<Likeness, Vec<(NodeId, Pods)>> {
    let ranks: BTreeMap<KindId, usize> = ranked.iter().copied().zip(0..).collect();
    let mut pods: Vec<Pods> = vec![Pods::new(); solver.shop.nodes.len()];
    for (_, kind, seat) in &solver.placed {
        if let Seat::Open(node) = seat {
            *pods[*node].entry(ranks[kind]).or_default() += 1;
        }
    }
    let mut alike: BTreeMap<Likeness, Vec<(NodeId, Pods)>> = BTreeMap::new();
    for (node, pods) in pods.into_iter().enumerate() {
        let is_free = pods.keys().all(|rank| solver.known.is_free(ranked[*rank]));
        if let Some(likeness) = is_free.then(|| likeness(solver, node)).flatten() {
            alike.entry(likeness).or_default().push((node, pods));
        }
    }
    alike
}

fn likeness(solver: &mut Solver, node: NodeId) -> Option<Likeness> {
    let (shop, axes) = (&solver.shop, &solver.known.topology.axes);
    let open = &shop.nodes[node];
    let (choice, best) = (shop.choices.get(open.choice), open.best);
    let (pool, zones) = (choice.offers, choice.zones);
    if !open.needed.is_empty() || !shop.choices.offers(pool).least.is_empty() {
        return None;
    }
    let domains = (ZONE + 1..axes.len()).filter_map(|axis| Some((axis, shop.domain(node, axis, axes)?))).collect();
    let root = shop.choices.root(pool);
    let there = solver.shop.choices.narrow(root, Narrowing::Zones(zones), solver.known.names())?;
    Some(Likeness { pool, base: solver.counted_alike(there, best), domains })
}

/// Packs the pods of some nodes anew, if that is cheaper and there is enough work left for it: the nodes that hold them
/// then.
fn pack(
    solver: &mut Solver,
    stock: &Stock,
    (nodes, ranked): (&[(NodeId, Pods)], &[KindId]),
    work: &mut u64,
) -> Option<Vec<(NodeId, Pods)>> {
    let mut all = Pods::new();
    nodes.iter().flat_map(|(_, pods)| pods).for_each(|(rank, pods)| *all.entry(*rank).or_default() += pods);
    let all: Vec<(usize, usize)> = all.into_iter().collect();
    let (mut before, mut allowance) = (0, solver.shop.allowance.clone());
    for (node, _) in nodes {
        let open = &solver.shop.nodes[*node];
        let candidate = solver.shop.choices.candidate(open.choice, open.best);
        before += candidate.price.nanos();
        allowance.give_back(&stock.offers, candidate);
    }
    let mut best: Option<Packing> = None;
    for style in [Style::Largest, Style::Even] {
        let lots = lots(solver, stock, (&all, ranked));
        let mut counter = Counter::new(&stock.offers, lots, style, solver.shop.min_values);
        let most = best.as_ref().map_or(before, |best| best.price);
        let looks = (counter.width(&allowance) * all.len() * nodes.len()) as u64;
        if looks > *work {
            return None;
        }
        let packing = Packing::below(most, &mut counter, allowance.clone(), &stock.offers);
        *work = work.saturating_sub(counter.looks + stock.zones.len() as u64);
        best = packing.filter(|packing| packing.is_better(before, nodes.len())).or(best);
    }
    Some(adopt(solver, stock.base, (nodes, best?), (&all, ranked)))
}

/// Candidates with what fills them.
struct Packing {
    fills: Vec<(usize, Fill)>,
    /// In nano-USD per hour.
    price: i64,
}

impl Packing {
    /// Nodes for all that waits, if they cost less than so much.
    fn below(most: i64, counter: &mut Counter, mut allowance: Allowance, offers: &Offers) -> Option<Self> {
        let mut packing = Self { fills: Vec::new(), price: 0 };
        while packing.price < most {
            let Some((candidate, fill)) = counter.next(&allowance) else {
                return counter.is_done().then_some(packing);
            };
            packing.price += offers.candidates[candidate].price.nanos();
            allowance.take(offers, &offers.candidates[candidate]);
            packing.fills.push((candidate, fill));
        }
        None
    }

    /// True when it is better than so many nodes at a price: cheaper, and where it has more of them by more than a node
    /// more must save.
    fn is_better(&self, before: i64, nodes: usize) -> bool {
        let more = self.fills.len().saturating_sub(nodes) as i64;
        let each = before / (nodes.max(1) as i64) / NODE_MORE;
        self.price + more * each < before
    }
}

/// What nodes of a likeness may be.
struct Stock {
    pool: usize,
    offers: Arc<Offers>,
    base: ChoiceId,
    /// By candidate: the zones in which it is like those nodes.
    zones: Vec<u32>,
}

impl Stock {
    fn of(solver: &mut Solver, Likeness { pool, base, domains }: &Likeness) -> Option<Self> {
        let mut labels = domains.iter().map(|(axis, domain)| Narrowing::Label(*axis, *domain));
        let narrowed =
            labels.try_fold(*base, |choice, by| solver.shop.choices.narrow(choice, by, solver.known.names()));
        let (base, offers) = (narrowed?, Arc::clone(solver.shop.choices.offers(*pool)));
        Some(Self { pool: *pool, offers, base, zones: solver.shop.choices.zones_by_place(base) })
    }
}

fn lots(solver: &mut Solver, stock: &Stock, (all, ranked): (&[(usize, usize)], &[KindId])) -> Vec<Lot> {
    let Solver { known, shop, .. } = solver;
    let mut open: BTreeMap<_, Arc<[u32]>> = BTreeMap::new();
    let lots = all.iter().map(|(rank, pods)| {
        let kind = ranked[*rank];
        let filter = known.kinds.get(kind).filter;
        let accepted = open.entry(filter).or_insert_with(|| {
            let accepted = shop.choices.accepted(stock.pool, filter, &known.filters);
            accepted.iter().zip(&stock.zones).map(|(accepted, zones)| accepted & zones).collect()
        });
        Lot { accepted: Arc::clone(accepted), requests: known.kinds.requests(kind).clone(), waiting: *pods }
    });
    lots.collect()
}

/// Puts the nodes of a packing in place of others.
fn adopt(
    solver: &mut Solver,
    base: ChoiceId,
    (nodes, packing): (&[(NodeId, Pods)], Packing),
    (all, ranked): (&[(usize, usize)], &[KindId]),
) -> Vec<(NodeId, Pods)> {
    nodes.iter().for_each(|(node, _)| solver.shop.close(*node));
    let mut new = Vec::new();
    for (candidate, fill) in packing.fills {
        let taken = all.iter().map(|(rank, _)| *rank).zip(fill.taken);
        let pods: Pods = taken.filter(|(_, pods)| *pods > 0).collect();
        let kinds: Vec<KindId> = pods.keys().map(|rank| ranked[*rank]).collect();
        let Some(node) = open(solver, base, (candidate, fill.zones), &kinds) else { continue };
        let OpenNode { choice, best, .. } = solver.shop.nodes[node];
        for (kind, pods) in kinds.iter().zip(pods.values()) {
            let growth = Growth { cost: 0, load: 0, choice, best };
            solver.shop.put(node, growth, solver.known.want(*kind), *pods as u32);
        }
        new.push((node, pods));
    }
    reseat(solver, nodes, &new, ranked);
    new
}

/// Gives the pods of some nodes to others that hold as many of each kind, in the order in which they are bound.
fn reseat(solver: &mut Solver, old: &[(NodeId, Pods)], new: &[(NodeId, Pods)], ranked: &[KindId]) {
    let old: BTreeSet<NodeId> = old.iter().map(|(node, _)| *node).collect();
    let mut seats: BTreeMap<KindId, Vec<(NodeId, usize)>> = BTreeMap::new();
    for (node, pods) in new.iter().rev() {
        pods.iter().for_each(|(rank, pods)| seats.entry(ranked[*rank]).or_default().push((*node, *pods)));
    }
    for (_, kind, seat) in &mut solver.placed {
        let Seat::Open(node) = seat else { continue };
        let Some(left) = seats.get_mut(kind).filter(|_| old.contains(node)) else { continue };
        let Some((new, pods)) = left.last_mut() else { continue };
        *node = *new;
        *pods -= 1;
        if *pods == 0 {
            left.pop();
        }
    }
}
