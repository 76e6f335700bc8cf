//! Lower bound of the cost of new nodes (dual of the fractional packing).
//!
//! A plan is expensive for two reasons: pods do not fill nodes, or nothing cheaper is offered. The bound distinguishes
//! them. It allows fractions of nodes and of pods. Of all prices per core, per byte and so on by which no size is worth
//! more than it costs, it takes those by which the pods are worth most (the dual of the linear programme). No mix of
//! nodes that holds the pods costs less than that.

use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::amount;
use crate::scheduling::nodes::simulation_state::{NodeRef, SchedulingState};
use crate::scheduling::pods::node_filter::NodeFilterId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most simplex pivots; with a few resources a dozen suffice.
const MAX_PIVOTS: usize = 200;
/// Values below this count as 0.
const EPSILON: f64 = 1e-9;

/// The price of a plan's new nodes, and its lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PlanCost {
    /// The price of all new nodes, each as its cheapest offering.
    pub price: HourlyPrice,
    /// No mix of sizes that holds all their pods costs less.
    pub lower_bound: HourlyPrice,
}

impl PlanCost {
    /// The sum of two plans.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: HourlyPrice, b: HourlyPrice| HourlyPrice::from_nanos(a.nanos().saturating_add(b.nanos()));
        Self { price: sum(self.price, other.price), lower_bound: sum(self.lower_bound, other.lower_bound) }
    }

    /// How much more expensive than the bound, in thousandths of it; `None` where the bound is 0.
    #[must_use]
    pub fn gap_permille(&self) -> Option<i64> {
        let (price, bound) = (i128::from(self.price.nanos()), i128::from(self.lower_bound.nanos()));
        (bound > 0).then(|| i64::try_from((price - bound) * 1_000 / bound).unwrap_or(i64::MAX))
    }
}

/// The cost of the new nodes of a simulation.
pub(crate) fn plan_cost(state: &mut SchedulingState) -> PlanCost {
    let SchedulingState { constraints, open: open_nodes, placed, .. } = state;
    let prices = open_nodes
        .nodes
        .iter()
        .map(|node| open_nodes.candidate_sets.candidate(node.candidate_set, node.candidate).price.nanos());
    let price = HourlyPrice::from_nanos(prices.fold(0, i64::saturating_add));
    let mut demand = Resources::default();
    let mut filters: BTreeSet<NodeFilterId> = BTreeSet::new();
    for (_, class, node_ref) in placed.iter() {
        if let NodeRef::Open(_) = node_ref {
            demand.add(constraints.pod_needs(*class).requests);
            filters.insert(constraints.classes.get(*class).filter);
        }
    }
    let mut compatible: BTreeSet<(usize, usize)> = BTreeSet::new();
    for pool in 0..open_nodes.candidate_sets.pool_count() {
        for filter in &filters {
            let accepted = open_nodes.candidate_sets.accepted_zones(pool, *filter, &constraints.filters);
            compatible.extend(accepted.iter().enumerate().filter(|(_, zones)| **zones != 0).map(|(c, _)| (pool, c)));
        }
    }
    let candidates = compatible.iter().map(|(pool, c)| &open_nodes.candidate_sets.pool_offerings(*pool).candidates[*c]);
    PlanCost { price, lower_bound: lower_bound(&demand, candidates.map(|c| (&c.pod_capacity, c.price.nanos()))) }
}

/// The lowest price of a fractional mix of capacities that holds a demand.
fn lower_bound<'r>(demand: &Resources, capacities: impl Iterator<Item = (&'r Resources, i64)> + Clone) -> HourlyPrice {
    let all: f64 = dual_prices(demand, capacities).per_resource.iter().map(|(_, worth, _)| worth).sum();
    HourlyPrice::from_nanos(all.floor().max(0.0) as i64)
}

/// Dual prices of resources.
pub(crate) struct DualPrices {
    /// Each requested resource: the value of its whole demand in nano-USD per hour, and the amount of that demand.
    per_resource: Vec<(Arc<str>, f64, f64)>,
}

impl DualPrices {
    /// The value of a request, in nano-USD per hour.
    pub(crate) fn value_of(&self, requests: &Resources) -> i128 {
        let each = self.per_resource.iter().map(|(name, worth, whole)| amount(requests, name) as f64 * worth / whole);
        each.sum::<f64>() as i128
    }
}

/// The prices of resources by which a demand is worth most while no capacity is worth more than it costs, in nano-USD per
/// hour.
pub(crate) fn dual_prices<'r>(
    demand: &Resources,
    capacities: impl Iterator<Item = (&'r Resources, i64)> + Clone,
) -> DualPrices {
    let names = names(demand);
    let demands: Vec<f64> = names.iter().map(|name| amount(demand, name) as f64).collect();
    // In shares of the demand, so that cores and bytes weigh alike.
    let rows: Vec<(Vec<f64>, f64)> = capacities
        .map(|(capacity, price)| {
            let shares = names.iter().zip(&demands).map(|(name, demand)| amount(capacity, name).max(0) as f64 / demand);
            (shares.collect(), price as f64)
        })
        .collect();
    let worth = solve_dual(&rows, names.len());
    // Rounding may have made some size worth slightly more than it costs: lower all prices by that factor.
    let value = |shares: &[f64]| shares.iter().zip(&worth).map(|(share, worth)| share * worth).sum::<f64>();
    let over = rows.iter().map(|(shares, price)| value(shares) / price.max(1.0)).fold(1.0, f64::max);
    let by = names.into_iter().zip(worth).zip(demands).map(|((name, worth), whole)| (name, worth / over, whole));
    DualPrices { per_resource: by.collect() }
}

/// Names of requested resources.
fn names(demand: &Resources) -> Vec<Arc<str>> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].map(Arc::<str>::from);
    let extended = demand.extended.iter().map(|(name, _)| Arc::clone(name));
    plain.into_iter().chain(extended).filter(|name| amount(demand, name) > 0).collect()
}

/// The prices of `width` resources, at least 0, with the greatest sum by which no row is worth more than its price: the
/// simplex method, by Bland's rule, from all prices 0.
fn solve_dual(rows: &[(Vec<f64>, f64)], width: usize) -> Vec<f64> {
    // One equation per row, each with its slack; `basis` is the variable of each row.
    let mut table: Vec<Vec<f64>> = rows.iter().map(|(shares, price)| [&shares[..], &[*price]].concat()).collect();
    let mut gain = vec![1.0; width];
    // Variables of columns and rows: a resource if below `width`, else the slack of a row.
    let mut columns: Vec<usize> = (0..width).collect();
    let mut basis: Vec<usize> = (width..width + rows.len()).collect();
    for _ in 0..MAX_PIVOTS {
        let entering = (0..width).filter(|c| gain[*c] > EPSILON).min_by_key(|c| columns[*c]);
        let Some(column) = entering else { break };
        let ratio = |row: usize| table[row][width] / table[row][column];
        let open = (0..table.len()).filter(|row| table[*row][column] > EPSILON);
        let leaving = open.min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)).then(basis[*a].cmp(&basis[*b])));
        // No size has this resource, so it is unbounded: treat it as worthless.
        let Some(row) = leaving else {
            gain[column] = 0.0;
            continue;
        };
        pivot(&mut table, &mut gain, (row, column));
        std::mem::swap(&mut basis[row], &mut columns[column]);
    }
    let mut worth = vec![0.0; width];
    for (row, variable) in basis.iter().enumerate().filter(|(_, variable)| **variable < width) {
        worth[*variable] = table[row][width].max(0.0);
    }
    worth
}

/// Exchanges the variables of a row and of a column.
fn pivot(table: &mut [Vec<f64>], gain: &mut [f64], (row, column): (usize, usize)) {
    let pivot = table[row][column];
    table[row].iter_mut().for_each(|cell| *cell /= pivot);
    table[row][column] = 1.0 / pivot;
    let own = table[row].clone();
    for (_, other) in table.iter_mut().enumerate().filter(|(n, _)| *n != row) {
        let factor = std::mem::replace(&mut other[column], 0.0);
        if factor != 0.0 {
            other.iter_mut().zip(&own).for_each(|(cell, own)| *cell -= factor * own);
        }
    }
    let factor = std::mem::replace(&mut gain[column], 0.0);
    gain.iter_mut().zip(&own).for_each(|(cell, own)| *cell -= factor * own);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::GIB;
    use proptest::prelude::*;

    fn size(cpu: i64, gib: i64) -> Resources {
        Resources { pods: 110, ..Resources::cpu_memory(cpu, gib * GIB) }
    }

    fn least(demand: &Resources, capacities: &[(Resources, i64)]) -> i64 {
        lower_bound(demand, capacities.iter().map(|(capacity, price)| (capacity, *price))).nanos()
    }

    #[test]
    fn the_bound_of_pods_that_fill_nodes_exactly_is_the_price_of_the_nodes() {
        let capacities = [(size(2_000, 8), 1_000_000), (size(4_000, 8), 1_500_000)];
        // One of each: 6 cores and 16 GiB. By cores alone the second size would be better.
        let both = least(&size(6_000, 16), &capacities);
        assert!((2_499_999..=2_500_000).contains(&both), "{both}");
        let cores = least(&size(4_000, 1), &capacities);
        assert!((1_499_999..=1_500_000).contains(&cores), "{cores}");
    }

    #[test]
    fn resources_that_no_size_has_are_worthless_and_an_empty_demand_is_free() {
        let mut gpu = size(1_000, 1);
        gpu.set_extended("nvidia.com/gpu", 1);
        assert!(least(&gpu, &[(size(2_000, 8), 1_000_000)]) <= 1_000_000);
        assert_eq!(least(&size(1_000, 1), &[]), 0);
        assert_eq!(least(&Resources::default(), &[(size(2_000, 8), 1_000_000)]), 0);
    }

    proptest! {
        #[test]
        fn no_mix_that_holds_the_demand_costs_less(
            capacities in prop::collection::vec((1_i64..64, 1_i64..512, 1_i64..5_000), 1..12),
            mix in prop::collection::vec((0_usize..12, 1_i64..20), 1..6),
        ) {
            let capacities: Vec<(Resources, i64)> =
                capacities.into_iter().map(|(cpu, gib, price)| (size(cpu * 1_000, gib), price * 1_000_000)).collect();
            let (mut held, mut price) = (Resources::default(), 0);
            for (which, number) in mix {
                let (capacity, one) = &capacities[which % capacities.len()];
                held.add(&capacity.times(number));
                price += one * number;
            }
            let least = least(&held, &capacities);
            prop_assert!(least <= price, "{least} of {price}");
            // It is also at least the best rate per core or per byte.
            let per = |by: fn(&Resources) -> i64| {
                let rates = capacities.iter().map(|(capacity, price)| *price as f64 / by(capacity) as f64);
                by(&held) as f64 * rates.fold(f64::INFINITY, f64::min)
            };
            let simple = per(|r| r.cpu_millis).max(per(|r| r.memory));
            prop_assert!(least as f64 >= simple * 0.999 - 1.0, "{least} below {simple}");
        }
    }
}
