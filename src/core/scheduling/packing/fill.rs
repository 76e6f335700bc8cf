//! Fills candidates with pending pods and takes the lowest price per value.
//!
//! Each candidate of a pool is filled with pending pods, and the one with the lowest price per value of its pods is the
//! best. Only candidates that no other dominates in price and capacity are tried. The value of a pod, and the order in
//! which pods fill a candidate, depend on [`FillOrder`].

use crate::catalog::CapacityType;
use crate::model::amounts::resources::Resources;
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::offerings::available::PoolOfferings;
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::offerings::min_values::ChosenCandidate;
use crate::scheduling::offerings::min_values::Load;
use crate::scheduling::packing::binding_queue::BindingQueue;
use crate::scheduling::packing::lower_bound::dual_prices;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How candidates are filled and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillOrder {
    /// The largest pods first. The value of a pod is the least cost of its share of any candidate, so a candidate that
    /// is full in every resource has a price per value of 1, and waste makes it worse.
    LargestFirst,
    /// Those first whose proportions are most like those of the remaining capacity (the dot product of Panigrahy et
    /// al., "Heuristics for Vector Bin Packing", 2011). The value of a pod is that of its requests by the dual prices
    /// of the [lower bound](super::lower_bound), by which no candidate is worth more than it costs.
    DotProduct,
}

/// A candidate filled with groups: pods taken of each.
#[derive(Default)]
pub(crate) struct Fill {
    pub(crate) taken: Vec<usize>,
    pub(crate) zones: u32,
    value: i128,
    /// Remaining capacity.
    remaining: Resources,
}

/// Pending pods of one class.
pub(crate) struct FillGroup {
    /// By candidate of the pool: bits of the zones that are compatible with them.
    pub(crate) accepted_zones: Arc<[u32]>,
    /// Requests of one.
    pub(crate) requests: Resources,
    /// How many are pending.
    pub(crate) pending: usize,
}

/// Fills new nodes of one pool with pending pods.
pub(crate) struct PoolFiller {
    pool: Arc<PoolOfferings>,
    groups: Vec<FillGroup>,
    order: FillOrder,
    /// How `minValues` of the pool are applied.
    min_values_policy: MinValuesPolicy,
    /// Candidates that are tried.
    pareto_front: Vec<usize>,
    /// By group: the value of one pod.
    pod_values: Vec<i128>,
    /// How many pairs of group and candidate were evaluated.
    pub(crate) evaluations: u64,
}

impl PoolFiller {
    pub(crate) fn new(
        pool_offerings: &Arc<PoolOfferings>,
        groups: Vec<FillGroup>,
        order: FillOrder,
        min_values: MinValuesPolicy,
    ) -> Self {
        Self {
            pool: Arc::clone(pool_offerings),
            groups,
            order,
            min_values_policy: min_values,
            pareto_front: Vec::new(),
            pod_values: Vec::new(),
            evaluations: 0,
        }
    }

    /// The best next candidate, filled; its pods are no longer pending.
    pub(crate) fn next_node(&mut self, limits: &LaunchLimits) -> Option<(usize, Fill)> {
        if limits.new_nodes_left == 0 || self.is_done() {
            return None;
        }
        let pool = &self.pool.pool;
        if self.pareto_front.is_empty()
            || !self.pareto_front.iter().all(|c| limits.allows(pool, &self.pool.candidates[*c]))
        {
            self.refresh(limits);
        }
        let (candidate, fill) = self.best_fill(limits)?;
        for (fill_group, taken) in self.groups.iter_mut().zip(&fill.taken) {
            fill_group.pending -= taken;
        }
        Some((candidate, fill))
    }

    /// The cheapest candidate that holds all pending pods together, filled; its pods are no longer pending.
    pub(crate) fn only_node(&mut self, limits: &LaunchLimits) -> Option<(usize, Fill)> {
        let mut candidates = self.candidates(limits);
        candidates.sort_by_key(|candidate| self.cost(*candidate));
        let pending: Vec<usize> = self.groups.iter().map(|group| group.pending).collect();
        let queue = BindingQueue::by_group(&pending);
        for candidate in candidates {
            let fill = self.fill_from_queue(candidate, u32::MAX, &mut queue.clone());
            if self.is_done() && self.meets_min_values(candidate, &fill, limits) {
                return Some((candidate, fill));
            }
            self.set_pending(&pending);
        }
        None
    }

    /// True when no pods are pending.
    pub(crate) fn is_done(&self) -> bool {
        self.groups.iter().all(|fill_group| fill_group.pending == 0)
    }

    /// The candidates that are tried for each node.
    pub(crate) fn candidates(&mut self, limits: &LaunchLimits) -> Vec<usize> {
        self.refresh(limits);
        self.pareto_front.clone()
    }

    /// What a candidate is compared by, in nano-USD per hour.
    pub(crate) fn cost(&self, candidate: usize) -> i64 {
        self.pool.candidates[candidate].cost()
    }

    /// True for a candidate on reserved capacity.
    pub(crate) fn is_reserved(&self, candidate: usize) -> bool {
        self.pool.candidates[candidate].capacity_type == CapacityType::Reserved
    }

    /// True when another node of a candidate is within limits.
    pub(crate) fn allows(&self, limits: &LaunchLimits, candidate: usize) -> bool {
        limits.new_nodes_left > 0 && limits.allows(&self.pool.pool, &self.pool.candidates[candidate])
    }

    /// A node of a candidate counts for limits.
    pub(crate) fn take(&self, limits: &mut LaunchLimits, candidate: usize) {
        limits.take(&self.pool, &self.pool.candidates[candidate]);
    }

    /// So many pods of each group are pending.
    pub(crate) fn set_pending(&mut self, pods: &[usize]) {
        self.groups.iter_mut().zip(pods).for_each(|(group, pods)| group.pending = *pods);
    }

    /// Fills a node in some zones with pods in the order of a queue, as kube-scheduler fills one that is ready; they are no
    /// longer pending.
    pub(crate) fn fill_from_queue(&mut self, candidate: usize, zones: u32, queue: &mut BindingQueue) -> Fill {
        let mut fill = Fill::default();
        self.reset(candidate, &mut fill);
        fill.zones &= zones;
        queue.offer(|group, pods| {
            let fits = self.fits(candidate, group, &fill).min(pods);
            if fits > 0 {
                self.add(group, fits, &mut fill, candidate);
            }
            fits
        });
        for (group, taken) in self.groups.iter_mut().zip(&fill.taken) {
            group.pending -= taken;
        }
        fill
    }

    /// True when an empty node of a candidate holds a pod of each group.
    pub(crate) fn holds_each(&self, candidate: usize) -> bool {
        let capacity = &self.pool.candidates[candidate].pod_capacity;
        self.groups.iter().all(|group| group.accepted_zones[candidate] != 0 && group.requests.fits(capacity))
    }

    /// The least that nodes of a candidate cost for so many pods of each group, in nano-USD per hour: with fractions of nodes
    /// and of pods.
    pub(crate) fn least_cost(&self, candidate: usize, pods: &[usize]) -> i128 {
        let candidate = &self.pool.candidates[candidate];
        let mut demand = Resources::default();
        self.groups.iter().zip(pods).for_each(|(group, pods)| demand.add(&group.requests.times(*pods as i64)));
        greatest_share(&demand, &candidate.pod_capacity, i128::from(candidate.cost()))
    }

    /// Computes the candidates to try, and the value of a pod of each group.
    fn refresh(&mut self, limits: &LaunchLimits) {
        self.pareto_front = self.compute_pareto_front(limits);
        self.pod_values = match self.order {
            FillOrder::LargestFirst => self.groups.iter().map(|fill_group| self.min_cost_share(fill_group)).collect(),
            FillOrder::DotProduct => self.dual_values(),
        };
    }

    /// Candidates within limits that no other for the same groups in the same zones dominates: at most its price, at
    /// least its capacity. It must be recomputed when one of them exceeds the limits: it dominated the next best.
    fn compute_pareto_front(&self, limits: &LaunchLimits) -> Vec<usize> {
        // Groups with the same filter share their accepted zones.
        let mut distinct: Vec<&Arc<[u32]>> = Vec::new();
        for FillGroup { accepted_zones: accepted, .. } in &self.groups {
            if !distinct.iter().any(|known| Arc::ptr_eq(known, accepted)) {
                distinct.push(accepted);
            }
        }
        let candidates = &self.pool.candidates;
        let mut groups: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for (c, candidate) in candidates.iter().enumerate() {
            let zones_by_filter: Vec<u32> = distinct.iter().map(|accepted| accepted[c]).collect();
            if zones_by_filter.iter().all(|zones| *zones == 0) || !limits.allows(&self.pool.pool, candidate) {
                continue;
            }
            let group = groups.entry(zones_by_filter).or_default();
            if !group.iter().any(|&other| candidate.pod_capacity.fits(&candidates[other].pod_capacity)) {
                group.push(c);
            }
        }
        let mut front: Vec<usize> = groups.into_values().flatten().collect();
        front.sort_unstable();
        front
    }

    /// The value of one pod of a group, in nano-USD per hour: its greatest share of any resource of a candidate times
    /// the candidate's price, at the cheapest candidate for it. 0 where no candidate holds it.
    fn min_cost_share(&self, group: &FillGroup) -> i128 {
        let compatible = self.pareto_front.iter().filter(|c| group.accepted_zones[**c] != 0);
        let shares = compatible.filter_map(|&c| {
            let candidate = &self.pool.candidates[c];
            cost_share(&group.requests, &candidate.pod_capacity, i128::from(candidate.cost()))
        });
        shares.min().map_or(0, |v| v.max(1))
    }

    /// The value of one pod of each group by the dual prices of the lower bound.
    fn dual_values(&self) -> Vec<i128> {
        let mut demand = Resources::default();
        self.groups.iter().for_each(|fill_group| demand.add(&fill_group.requests.times(fill_group.pending as i64)));
        let capacities =
            self.pareto_front.iter().map(|c| &self.pool.candidates[*c]).map(|c| (&c.pod_capacity, c.cost()));
        let prices = dual_prices(&demand, capacities);
        self.groups.iter().map(|fill_group| prices.value_of(&fill_group.requests).max(1)).collect()
    }

    /// The best next candidate. Two fills are reused, since there may be thousands of nodes.
    fn best_fill(&mut self, limits: &LaunchLimits) -> Option<(usize, Fill)> {
        let (mut best, mut fill, mut found) = (Fill::default(), Fill::default(), None);
        let mut evaluations = 0;
        let pending: Vec<usize> = (0..self.groups.len()).filter(|d| self.groups[*d].pending > 0).collect();
        for &c in &self.pareto_front {
            self.reset(c, &mut fill);
            match self.order {
                FillOrder::LargestFirst => self.fill_by_group(c, &pending, &mut fill),
                FillOrder::DotProduct => self.fill_by_dot_product(c, &mut fill, &mut evaluations),
            }
            evaluations += self.groups.len() as u64;
            if fill.value > 0
                && found.is_none_or(|b| self.is_better((c, &fill), (b, &best)))
                && self.meets_min_values(c, &fill, limits)
            {
                std::mem::swap(&mut best, &mut fill);
                found = Some(c);
            }
        }
        self.evaluations += evaluations;
        Some((found?, best))
    }

    fn fill_by_group(&self, c: usize, order: &[usize], fill: &mut Fill) {
        for d in order {
            let fits = self.fits(c, *d, fill);
            if fits > 0 {
                self.add(*d, fits, fill, c);
            }
        }
    }

    fn fill_by_dot_product(&self, c: usize, fill: &mut Fill, evaluations: &mut u64) {
        let whole = &self.pool.candidates[c].pod_capacity;
        let mut open: Vec<usize> = (0..self.groups.len()).collect();
        loop {
            *evaluations += open.len() as u64;
            open.retain(|d| self.fits(c, *d, fill) > 0);
            let similarity = |d: usize| cosine_similarity(&self.groups[d].requests, &fill.remaining, whole);
            let Some(best) =
                open.iter().copied().max_by(|a, b| similarity(*a).total_cmp(&similarity(*b)).then(b.cmp(a)))
            else {
                return;
            };
            // A quarter of those that fit: few steps fill the node, and the order adapts to the remaining capacity.
            let pods = self.fits(c, best, fill).div_ceil(4);
            self.add(best, pods, fill, c);
        }
    }

    /// Resets a fill to that of an empty candidate.
    fn reset(&self, c: usize, fill: &mut Fill) {
        let candidate = &self.pool.candidates[c];
        fill.taken.clear();
        fill.taken.resize(self.groups.len(), 0);
        fill.remaining.clone_from(&candidate.pod_capacity);
        (fill.zones, fill.value) = (candidate.zones, 0);
    }

    /// How many pods of a group fit on a partly filled candidate.
    fn fits(&self, c: usize, d: usize, fill: &Fill) -> usize {
        let fill_group = &self.groups[d];
        let left = fill_group.pending - fill.taken[d];
        if left == 0 || fill.zones & fill_group.accepted_zones[c] == 0 {
            return 0;
        }
        usize::try_from(fill_group.requests.copies_that_fit(&fill.remaining).unwrap_or(i64::MAX)).unwrap_or(0).min(left)
    }

    fn add(&self, d: usize, pods: usize, fill: &mut Fill, c: usize) {
        let fill_group = &self.groups[d];
        fill.remaining.sub_times(&fill_group.requests, pods as i64);
        fill.taken[d] += pods;
        fill.zones &= fill_group.accepted_zones[c];
        fill.value += self.pod_values[d] * pods as i128;
    }

    /// True when enough values of each `minValues` label remain for a filled candidate.
    fn meets_min_values(&self, c: usize, fill: &Fill, limits: &LaunchLimits) -> bool {
        if self.pool.min_values.is_empty() {
            return true;
        }
        let taken: Vec<(usize, &FillGroup)> =
            self.groups.iter().enumerate().filter(|(d, _)| fill.taken[*d] > 0).collect();
        let compatible = self.pool.candidates.iter().enumerate().map(|(c, candidate)| {
            (
                candidate,
                taken.iter().fold(candidate.zones, |zones, (_, fill_group)| zones & fill_group.accepted_zones[c]),
            )
        });
        let compatible = compatible.filter(|(_, zones)| *zones != 0);
        let mut requests = Resources::default();
        taken.iter().for_each(|(d, fill_group)| requests.add(&fill_group.requests.times(fill.taken[*d] as i64)));
        let chosen = &self.pool.candidates[c];
        let first = taken.first().map_or(&requests, |(_, first)| &first.requests);
        let with_load = |load| ChosenCandidate { candidate: chosen, load };
        let first = with_load(Load { requests: first, disks: 0, min_values: &[] });
        let needed = self.pool.required_values_for_first_pod(self.min_values_policy, compatible.clone(), first, limits);
        let load = Load { requests: &requests, disks: 0, min_values: &needed };
        self.pool.meets_min_values(compatible, with_load(load), limits)
    }

    /// A lower price per value wins; then more value; then the earlier candidate.
    fn is_better(&self, (c, a): (usize, &Fill), (d, b): (usize, &Fill)) -> bool {
        let cost = |c: usize| i128::from(self.pool.candidates[c].cost().max(1));
        let (left, right) = (cost(c) * b.value, cost(d) * a.value);
        (left, Reverse(a.value), c) < (right, Reverse(b.value), d)
    }
}

/// The greatest share that a request takes of any resource of a capacity, times a price; `None` when it does not fit.
fn cost_share(requests: &Resources, capacity: &Resources, price: i128) -> Option<i128> {
    requests.fits(capacity).then(|| greatest_share(requests, capacity, price))
}

/// The same, even where the request exceeds the capacity.
fn greatest_share(requests: &Resources, capacity: &Resources, price: i128) -> i128 {
    let shares = requests
        .requested_with_available(capacity)
        .map(|(need, available)| price * i128::from(need) / i128::from(available.max(1)));
    shares.max().unwrap_or(0)
}

/// How similar the proportions of a request are to those of the remaining capacity: the cosine of the angle between
/// them, in shares of the whole capacity.
fn cosine_similarity(requests: &Resources, remaining: &Resources, whole: &Resources) -> f64 {
    let shares = requests.requested_with_available(whole).zip(requests.requested_with_available(remaining));
    let (mut dot, mut norm) = (0.0, 0.0);
    for ((need, whole), (_, left)) in shares {
        let (need, left) = (need as f64 / whole.max(1) as f64, left as f64 / whole.max(1) as f64);
        dot += need * left;
        norm += need * need;
    }
    dot / norm.sqrt().max(f64::MIN_POSITIVE)
}
