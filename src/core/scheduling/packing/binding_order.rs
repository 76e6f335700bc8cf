//! Plans nodes on which pods find room in whatever order kube-scheduler binds them.
//!
//! kube-scheduler does not know the plan. Nodes become ready one after another, in no certain order, and each is filled with
//! the pods that wait, in the order of the queue. If nodes differ, one that was planned for pods with much memory is filled
//! with others; those find no room on the nodes that are left, and later passes launch more. So the plan is compared, by the
//! cost of all nodes in the end, with nodes of one size that are planned as kube-scheduler fills them: of those it does not
//! matter which one is ready first.

use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::packing::binding_queue::BindingQueue;
use crate::scheduling::packing::fill::{Fill, FillOrder, PoolFiller};
use crate::scheduling::packing::repack::{
    PodCounts, RepackOptions, RepackedNodes, apply_packing, classes_by_size, exchangeable_nodes, fill_groups,
    new_node_fills,
};
use crate::scheduling::pods::pod_class::PodClassId;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer nodes are left as they are: pods that are bound otherwise need one node more at the most.
const MIN_NODES: usize = 3;
/// Pods, and pairs of pod class and planned node, that are evaluated for all plans that are compared. Where that is too little
/// for three orders and one size, the plan stays as it is.
const MAX_EVALUATIONS: usize = 5_000_000;
/// Nodes of one size may cost one part in so many more: otherwise some pods wait for a second launch, and what is planned for
/// them while the first nodes come up is not the cheapest.
const ONE_PASS_DIVISOR: i64 = 20;
/// Of plans whose costs differ by less than one part in so many, the one with the fewest nodes is taken: each node is one more
/// kubelet, address and set of connections to the API server, while the sizes of a family cost the same per core but for
/// rounding and what the system reserves.
const FEWER_NODES_DIVISOR: i64 = 100;
/// Orders in which the nodes of a plan may become ready: by steps of so many nodes through the plan.
const READY_STEPS: [usize; 3] = [1, 7, 13];

/// Replans nodes where those of one size are cheaper in the end. True when any was replanned.
pub(crate) fn plan_for_binding(state: &mut SchedulingState) -> bool {
    let ranked = classes_by_size(state);
    let mut work = MAX_EVALUATIONS;
    let mut replanned = false;
    for (key, nodes) in exchangeable_nodes(state, &ranked) {
        if nodes.len() < MIN_NODES {
            continue;
        }
        let Some(options) = RepackOptions::of(state, &key) else { continue };
        let planned = RepackedNodes { nodes: &nodes, ranked: &ranked };
        let Some(fills) = Replan::of(state, &options, planned).cheaper_fills(&mut work) else { continue };
        let fills = new_node_fills(fills, &planned.ranks());
        for (node, _) in apply_packing(state, options.candidate_set, planned, fills) {
            state.open.nodes[node].holds_any = true;
        }
        replanned = true;
    }
    if replanned {
        state.remove_closed_nodes();
    }
    replanned
}

/// Nodes that exchange pods, and what could replace them.
struct Replan {
    filler: PoolFiller,
    /// The plan: candidate and zones of each node.
    nodes: Vec<(usize, u32)>,
    /// How many pods of each group.
    pods: Vec<usize>,
    /// The pods, in the order in which kube-scheduler binds them.
    queue: BindingQueue,
    /// What is allowed without the plan.
    limits: LaunchLimits,
}

impl Replan {
    fn of(state: &mut SchedulingState, options: &RepackOptions, planned: RepackedNodes<'_>) -> Self {
        let all: Vec<(usize, usize)> = planned.pods_by_rank().into_iter().collect();
        let groups = fill_groups(state, options, &all, planned.ranked);
        let policy = state.open.min_values_policy;
        let filler = PoolFiller::new(&options.pool_offerings, groups, FillOrder::LargestFirst, policy);
        let mut limits = state.open.limits.clone();
        let mut nodes = Vec::with_capacity(planned.nodes.len());
        for (node, _) in planned.nodes {
            let open = &state.open.nodes[*node];
            limits.give_back(&options.pool_offerings, &options.pool_offerings.candidates[open.candidate as usize]);
            nodes.push((open.candidate as usize, state.open.candidate_sets.get(open.candidate_set).zones));
        }
        let queue = BindingQueue::new(&queue_order(state, planned, &all), all.len());
        let pods = all.into_iter().map(|(_, pods)| pods).collect();
        Self { filler, nodes, pods, queue, limits }
    }

    /// Nodes of one size for all pods, if these cost less in the end, or are fewer and cost hardly more.
    fn cheaper_fills(mut self, work: &mut usize) -> Option<Vec<(usize, Fill)>> {
        let evaluations = self.nodes.len() * self.pods.len() + self.pods.iter().sum::<usize>();
        let plans = *work / evaluations.max(1);
        let all = self.filler.candidates(&self.limits);
        let candidates = self.cheapest_of(&all, plans.checked_sub(READY_STEPS.len()).filter(|most| *most > 0)?);
        *work -= (candidates.len() + READY_STEPS.len()) * evaluations;
        let planned = self.planned();
        let (mut least_cost, mut better) = (planned.max_cost_of_fewer, Vec::new());
        for candidate in &candidates {
            let found = self.equal_nodes(*candidate, beside_fewer_nodes(least_cost).min(planned.max_cost_of_fewer));
            if let Some((cost, fills)) = found.filter(|(cost, fills)| planned.is_worse_than(*cost, fills.len())) {
                least_cost = least_cost.min(cost);
                better.push((cost, fills));
            }
        }
        Some(self.with_smaller_last(fewest_nodes(better)?.1, &all))
    }

    /// At most so many of these candidates that hold each of the pods: those of which nodes may cost the least. In their
    /// order.
    fn cheapest_of(&self, all: &[usize], most: usize) -> Vec<usize> {
        let mut candidates: Vec<usize> = all.iter().copied().filter(|c| self.filler.holds_each(*c)).collect();
        candidates.sort_by_cached_key(|candidate| (self.filler.least_cost(*candidate, &self.pods), *candidate));
        candidates.truncate(most);
        candidates.sort_unstable();
        candidates
    }

    /// The plan in the end: with the nodes for pods that find no room, the mean over several orders in which nodes become ready.
    fn planned(&mut self) -> Planned {
        let price: i64 = self.nodes.iter().map(|(candidate, _)| self.filler.cost(*candidate)).sum();
        let later = READY_STEPS.map(|step| self.nodes_of_left_pods(step));
        let orders = READY_STEPS.len();
        let cost = price + later.iter().map(|(cost, _)| cost).sum::<i64>() / orders as i64;
        let nodes = self.nodes.len() + later.iter().map(|(_, nodes)| nodes).sum::<usize>() / orders;
        if later.iter().any(|(_, nodes)| *nodes > 0) {
            let max_cost = cost + cost / ONE_PASS_DIVISOR;
            return Planned { max_cost, max_cost_of_fewer: max_cost, nodes };
        }
        // Nodes on reserved capacity are paid for anyway.
        let is_for_sale = self.nodes.iter().all(|(candidate, _)| !self.filler.is_reserved(*candidate));
        let max_cost_of_fewer = if is_for_sale { beside_fewer_nodes(cost) } else { cost };
        Planned { max_cost: cost, max_cost_of_fewer, nodes }
    }

    /// What the nodes cost that are launched for the pods that find no room if nodes become ready by these steps, and how many
    /// there are.
    fn nodes_of_left_pods(&mut self, step: usize) -> (i64, usize) {
        self.filler.set_pending(&self.pods);
        let mut queue = self.queue.clone();
        for start in 0..step.min(self.nodes.len()) {
            for (candidate, zones) in self.nodes.iter().skip(start).step_by(step) {
                self.filler.fill_from_queue(*candidate, *zones, &mut queue);
            }
        }
        let mut limits = self.limits.clone();
        let (mut cost, mut nodes) = (0, 0);
        while let Some((candidate, _)) = self.filler.next_node(&limits) {
            cost += self.filler.cost(candidate);
            nodes += 1;
            self.filler.take(&mut limits, candidate);
        }
        (cost, nodes)
    }

    /// Nodes of one candidate that are filled in the order of the queue, and their cost, if it is below `max_cost`.
    fn equal_nodes(&mut self, candidate: usize, max_cost: i64) -> Option<(i64, Vec<(usize, Fill)>)> {
        self.filler.set_pending(&self.pods);
        let (mut limits, mut queue) = (self.limits.clone(), self.queue.clone());
        let (mut fills, mut cost) = (Vec::new(), 0);
        while !self.filler.is_done() {
            if !self.filler.allows(&limits, candidate) {
                return None;
            }
            let fill = self.filler.fill_from_queue(candidate, u32::MAX, &mut queue);
            self.filler.take(&mut limits, candidate);
            cost += self.filler.cost(candidate);
            if fill.taken.iter().all(|pods| *pods == 0) || cost >= max_cost {
                return None;
            }
            fills.push((candidate, fill));
        }
        Some((cost, fills))
    }
}

/// What nodes of one size are compared with.
struct Planned {
    /// What they must cost less than.
    max_cost: i64,
    /// And if they are fewer.
    max_cost_of_fewer: i64,
    nodes: usize,
}

impl Planned {
    /// True when so many nodes that cost so much are better.
    fn is_worse_than(&self, cost: i64, nodes: usize) -> bool {
        cost < self.max_cost || nodes < self.nodes && cost < self.max_cost_of_fewer
    }
}

/// What fewer nodes must cost less than, beside nodes that cost so much.
const fn beside_fewer_nodes(cost: i64) -> i64 {
    cost + cost / FEWER_NODES_DIVISOR
}

/// Of some plans the one with the fewest nodes that costs little more than the cheapest; of those the cheapest.
fn fewest_nodes(plans: Vec<(i64, Vec<(usize, Fill)>)>) -> Option<(i64, Vec<(usize, Fill)>)> {
    let max_cost = beside_fewer_nodes(plans.iter().map(|(cost, _)| *cost).min()?);
    let cheap = plans.into_iter().filter(|(cost, _)| *cost < max_cost);
    cheap.min_by_key(|(cost, fills)| (fills.len(), *cost))
}

impl Replan {
    /// The same with the cheapest last node that holds its pods, if all pods also find room when it is ready before others.
    fn with_smaller_last(&mut self, mut fills: Vec<(usize, Fill)>, candidates: &[usize]) -> Vec<(usize, Fill)> {
        let count = fills.len();
        let Some((large, last)) = fills.last().map(|(large, fill)| (*large, fill.taken.clone())) else { return fills };
        for smaller in candidates.iter().copied().filter(|candidate| *candidate < large) {
            self.filler.set_pending(&last);
            let fill = self.filler.fill_from_queue(smaller, u32::MAX, &mut BindingQueue::by_group(&last));
            if self.filler.is_done() && [0, count / 2].iter().all(|at| self.holds_all(large, count, (*at, smaller))) {
                fills.pop();
                fills.push((smaller, fill));
                break;
            }
        }
        fills
    }

    /// True when all pods find room on so many nodes, of which one is another candidate.
    fn holds_all(&mut self, candidate: usize, count: usize, (at, other): (usize, usize)) -> bool {
        self.filler.set_pending(&self.pods);
        let mut queue = self.queue.clone();
        for node in 0..count {
            self.filler.fill_from_queue(if node == at { other } else { candidate }, u32::MAX, &mut queue);
        }
        self.filler.is_done()
    }
}

/// The groups of all pods of these nodes in the order of kube-scheduler's queue: by priority, then by age, which is known by
/// the second. Of one age all kinds come in turn, as controllers create them side by side.
pub(crate) fn queue_order(state: &SchedulingState, planned: RepackedNodes<'_>, all: &[(usize, usize)]) -> Vec<usize> {
    let nodes: BTreeSet<usize> = planned.nodes.iter().map(|(node, _)| *node).collect();
    let group_of: BTreeMap<PodClassId, usize> =
        all.iter().enumerate().map(|(group, (rank, _))| (planned.ranked[*rank], group)).collect();
    let mut kinds: BTreeMap<(Reverse<i32>, Timestamp, usize), u64> = BTreeMap::new();
    for (pod, class, node) in &state.placed {
        let is_planned = matches!(node, NodeRef::Open(node) if nodes.contains(node));
        if let Some(group) = group_of.get(class).filter(|_| is_planned) {
            *kinds.entry((Reverse(pod.shape.priority), pod.created_at, *group)).or_default() += 1;
        }
    }
    let mut queue = Vec::new();
    for ((priority, created_at, group), pods) in kinds {
        queue.extend((0..pods).map(|n| (priority, created_at, (2 * n + 1) * 1_000_000 / pods, group)));
    }
    queue.sort_unstable();
    queue.into_iter().map(|(_, _, _, group)| group).collect()
}

impl RepackedNodes<'_> {
    /// How many pods all nodes have of each rank.
    pub(crate) fn pods_by_rank(&self) -> PodCounts {
        let mut all = PodCounts::new();
        self.nodes.iter().flat_map(|(_, pods)| pods).for_each(|(rank, pods)| *all.entry(*rank).or_default() += pods);
        all
    }

    /// The ranks of their pods.
    fn ranks(&self) -> Vec<usize> {
        self.pods_by_rank().into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these plans, by cost and nodes, is taken instead of a plan; in the order of candidates.
    fn taken(planned: &Planned, alternatives: &[(i64, usize)]) -> Option<(i64, usize)> {
        let better = alternatives.iter().filter(|(cost, nodes)| planned.is_worse_than(*cost, *nodes));
        let fills = |nodes: usize| (0..nodes).map(|_| (0, Fill::default())).collect();
        let plans = better.map(|(cost, nodes)| (*cost, fills(*nodes))).collect();
        fewest_nodes(plans).map(|(cost, fills)| (cost, fills.len()))
    }

    #[test]
    fn fewer_nodes_may_cost_one_percent_more_and_cheaper_ones_need_not_be_fewer() {
        let planned = Planned { max_cost: 10_000, max_cost_of_fewer: 10_100, nodes: 10 };
        for (alternatives, expected) in [
            (&[(10_050, 9)][..], Some((10_050, 9))),
            (&[(10_100, 9)], None),
            (&[(10_050, 10)], None),
            (&[(9_999, 20)], Some((9_999, 20))),
            // One that is no better than the plan hides no better one.
            (&[(10_050, 10), (9_980, 11)], Some((9_980, 11))),
            (&[(9_000, 20), (9_050, 5)], Some((9_050, 5))),
            (&[(9_000, 20), (9_095, 5)], Some((9_000, 20))),
            (&[(9_050, 5), (9_010, 5), (9_000, 20)], Some((9_010, 5))),
        ] {
            assert_eq!(taken(&planned, alternatives), expected, "{alternatives:?}");
        }
    }
}
