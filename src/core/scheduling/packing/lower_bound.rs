//! Lower bound of the cost of new nodes (dual of the fractional packing).
//!
//! A plan is expensive for two reasons: pods do not fill nodes, and nothing cheaper is to be had. The bound tells them
//! apart. It is that of a fluid: nodes may be bought in parts, and pods poured into them. In numbers: of all prices per
//! core, per byte and so on by which no size is worth more than it costs, those by which the pods are worth the most
//! (the dual of the linear programme). What the pods are worth by any such prices, no mix of nodes that holds them
//! costs less.

use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::amount;
use crate::scheduling::nodes::state::{NodeRef, SchedulingState};
use crate::scheduling::pods::node_filter::NodeFilterId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most steps towards the best prices; with a handful of resources a dozen do.
const MAX_PIVOTS: usize = 200;
/// What counts as nothing.
const EPSILON: f64 = 1e-9;

/// What the new nodes of a plan cost, and what they cost at the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PlanCost {
    /// Of all new nodes, each as the cheapest of its offerings.
    pub price: HourlyPrice,
    /// No mix of sizes that suit any of their pods costs less if it has room for them all.
    pub lower_bound: HourlyPrice,
}

impl PlanCost {
    /// That of two plans together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: HourlyPrice, b: HourlyPrice| HourlyPrice::from_nanos(a.nanos().saturating_add(b.nanos()));
        Self { price: sum(self.price, other.price), lower_bound: sum(self.lower_bound, other.lower_bound) }
    }

    /// How much more expensive than the bound, in thousandths of it; `None` where the bound is nothing.
    #[must_use]
    pub fn gap_permille(&self) -> Option<i64> {
        let (price, bound) = (i128::from(self.price.nanos()), i128::from(self.lower_bound.nanos()));
        (bound > 0).then(|| i64::try_from((price - bound) * 1_000 / bound).unwrap_or(i64::MAX))
    }
}

/// What the new nodes of a scheduler cost.
pub(crate) fn plan_cost(state: &mut SchedulingState) -> PlanCost {
    let SchedulingState { constraints: known, open: open_nodes, placed, .. } = state;
    let prices = open_nodes
        .nodes
        .iter()
        .map(|node| open_nodes.candidate_sets.candidate(node.candidate_set, node.candidate).price.nanos());
    let price = HourlyPrice::from_nanos(prices.fold(0, i64::saturating_add));
    let mut demand = Resources::default();
    let mut filters: BTreeSet<NodeFilterId> = BTreeSet::new();
    for (_, class, node_ref) in placed.iter() {
        if let NodeRef::Open(_) = node_ref {
            demand.add(known.pod_needs(*class).requests);
            filters.insert(known.classes.get(*class).filter);
        }
    }
    let mut suiting: BTreeSet<(usize, usize)> = BTreeSet::new();
    for pool in 0..open_nodes.candidate_sets.pool_count() {
        for filter in &filters {
            let accepted = open_nodes.candidate_sets.accepted_zones(pool, *filter, &known.filters);
            suiting.extend(accepted.iter().enumerate().filter(|(_, zones)| **zones != 0).map(|(c, _)| (pool, c)));
        }
    }
    let candidates = suiting.iter().map(|(pool, c)| &open_nodes.candidate_sets.pool_offerings(*pool).candidates[*c]);
    PlanCost { price, lower_bound: lower_bound(&demand, candidates.map(|c| (&c.pod_capacity, c.price))) }
}

/// The least price of a fluid mix of rooms that holds a demand.
fn lower_bound<'r>(
    demand: &Resources,
    rooms: impl Iterator<Item = (&'r Resources, HourlyPrice)> + Clone,
) -> HourlyPrice {
    let all: f64 = dual_prices(demand, rooms).per_resource.iter().map(|(_, worth, _)| worth).sum();
    HourlyPrice::from_nanos(all.floor().max(0.0) as i64)
}

/// What resources are worth.
pub(crate) struct DualPrices {
    /// Of each that is asked for: what the whole demand for it is worth, in nano-USD per hour, and how much that is.
    per_resource: Vec<(Arc<str>, f64, f64)>,
}

impl DualPrices {
    /// What such a request is worth, in nano-USD per hour.
    pub(crate) fn value_of(&self, requests: &Resources) -> i128 {
        let each = self.per_resource.iter().map(|(name, worth, whole)| amount(requests, name) as f64 * worth / whole);
        each.sum::<f64>() as i128
    }
}

/// The prices of resources by which a demand is worth the most while no capacity is worth more than it costs.
pub(crate) fn dual_prices<'r>(
    demand: &Resources,
    rooms: impl Iterator<Item = (&'r Resources, HourlyPrice)> + Clone,
) -> DualPrices {
    let names = names(demand);
    let wanted: Vec<f64> = names.iter().map(|name| amount(demand, name) as f64).collect();
    // In shares of what is wanted, so that cores and bytes weigh alike.
    let rows: Vec<(Vec<f64>, f64)> = rooms
        .map(|(room, price)| {
            let shares = names.iter().zip(&wanted).map(|(name, wanted)| amount(room, name).max(0) as f64 / wanted);
            (shares.collect(), price.nanos() as f64)
        })
        .collect();
    let worth = solve_dual(&rows, names.len());
    // Rounding may have made some size worth a little more than it costs: by prices that much lower none is.
    let value = |shares: &[f64]| shares.iter().zip(&worth).map(|(share, worth)| share * worth).sum::<f64>();
    let over = rows.iter().map(|(shares, price)| value(shares) / price.max(1.0)).fold(1.0, f64::max);
    let by = names.into_iter().zip(worth).zip(wanted).map(|((name, worth), whole)| (name, worth / over, whole));
    DualPrices { per_resource: by.collect() }
}

/// Names of what is asked for at all.
fn names(demand: &Resources) -> Vec<Arc<str>> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].map(Arc::<str>::from);
    let extended = demand.extended.iter().map(|(name, _)| Arc::clone(name));
    plain.into_iter().chain(extended).filter(|name| amount(demand, name) > 0).collect()
}

/// The prices of `width` resources, at least 0, with the greatest sum by which no row is worth more than its price: the
/// simplex method, by Bland's rule, from all prices 0.
fn solve_dual(rows: &[(Vec<f64>, f64)], width: usize) -> Vec<f64> {
    // One equation for each row, with a slack of its own; `basis` says which variable each row stands for.
    let mut table: Vec<Vec<f64>> = rows.iter().map(|(shares, price)| [&shares[..], &[*price]].concat()).collect();
    let mut gain = vec![1.0; width];
    // Of the columns and of the rows: a resource below `width`, or the slack of a row.
    let mut columns: Vec<usize> = (0..width).collect();
    let mut basis: Vec<usize> = (width..width + rows.len()).collect();
    for _ in 0..MAX_PIVOTS {
        let entering = (0..width).filter(|c| gain[*c] > EPSILON).min_by_key(|c| columns[*c]);
        let Some(column) = entering else { break };
        let ratio = |row: usize| table[row][width] / table[row][column];
        let open = (0..table.len()).filter(|row| table[*row][column] > EPSILON);
        let leaving = open.min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)).then(basis[*a].cmp(&basis[*b])));
        // Nothing holds this resource at all: whatever it is worth, nobody is worth more than he costs.
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

    fn room(cpu: i64, gib: i64) -> Resources {
        Resources { pods: 110, ..Resources::cpu_memory(cpu, gib * GIB) }
    }

    fn least(demand: &Resources, rooms: &[(Resources, i64)]) -> i64 {
        lower_bound(demand, rooms.iter().map(|(room, price)| (room, HourlyPrice::from_nanos(*price)))).nanos()
    }

    #[test]
    fn what_fills_nodes_exactly_costs_what_they_do() {
        let rooms = [(room(2_000, 8), 1_000_000), (room(4_000, 8), 1_500_000)];
        // One of each: 6 cores and 16 GiB. By cores alone the second sort would be the better one.
        let both = least(&room(6_000, 16), &rooms);
        assert!((2_499_999..=2_500_000).contains(&both), "{both}");
        let cores = least(&room(4_000, 1), &rooms);
        assert!((1_499_999..=1_500_000).contains(&cores), "{cores}");
    }

    #[test]
    fn what_nobody_offers_is_worth_nothing_and_nothing_costs_nothing() {
        let mut gpu = room(1_000, 1);
        gpu.set_extended("nvidia.com/gpu", 1);
        assert!(least(&gpu, &[(room(2_000, 8), 1_000_000)]) <= 1_000_000);
        assert_eq!(least(&room(1_000, 1), &[]), 0);
        assert_eq!(least(&Resources::default(), &[(room(2_000, 8), 1_000_000)]), 0);
    }

    proptest! {
        #[test]
        fn no_mix_that_holds_the_demand_costs_less(
            rooms in prop::collection::vec((1_i64..64, 1_i64..512, 1_i64..5_000), 1..12),
            mix in prop::collection::vec((0_usize..12, 1_i64..20), 1..6),
        ) {
            let rooms: Vec<(Resources, i64)> =
                rooms.into_iter().map(|(cpu, gib, price)| (room(cpu * 1_000, gib), price * 1_000_000)).collect();
            let (mut held, mut price) = (Resources::default(), 0);
            for (which, number) in mix {
                let (room, one) = &rooms[which % rooms.len()];
                held.add(&room.times(number));
                price += one * number;
            }
            let least = least(&held, &rooms);
            prop_assert!(least <= price, "{least} of {price}");
            // And it is not idle: some sort at the best rate per core or per byte costs no less either.
            let per = |by: fn(&Resources) -> i64| {
                let rates = rooms.iter().map(|(room, price)| *price as f64 / by(room) as f64);
                by(&held) as f64 * rates.fold(f64::INFINITY, f64::min)
            };
            let simple = per(|r| r.cpu_millis).max(per(|r| r.memory));
            prop_assert!(least as f64 >= simple * 0.999 - 1.0, "{least} below {simple}");
        }
    }
}
