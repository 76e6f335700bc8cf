//! Bounds beside optima that are found by trying everything.

use super::*;
use crate::bounds::constrained;
use crate::bounds::program::Class;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Requests and numbers of the pods of a class, and whether the second half of the offers admits them.
type Kind = ((i64, i64, bool), u32, bool);

/// Offers without and with a limit in turn, so that every class has one without.
fn program(kinds: &[Kind], sizes: &[(i64, i64, i64)]) -> (Program, Vec<f64>) {
    let offers: Vec<Offer> = sizes
        .iter()
        .enumerate()
        .map(|(n, (cpu, memory, price))| {
            let limit = (n % 3 == 2).then_some(1.0);
            let price = if limit.is_some() { 0.0 } else { *price as f64 / 10.0 };
            Offer { price, room: [*cpu, *memory, i64::from(n % 2 == 0), 100], limit }
        })
        .collect();
    let admitted = |everywhere: bool| (0..sizes.len()).map(|n| everywhere || n <= sizes.len() / 2).collect();
    let class = |((cpu, memory, gpu), _, everywhere): &Kind| Class {
        requests: [*cpu, *memory, i64::from(*gpu), 1],
        admitted: admitted(*everywhere),
    };
    let program = Program { classes: kinds.iter().map(class).collect(), offers };
    (program, kinds.iter().map(|(_, count, _)| f64::from(*count)).collect())
}

/// All non-empty sets of at most the demanded pods that a node of an offer holds.
fn sets(program: &Program, demand: &[f64], offer: usize) -> Vec<Vec<i64>> {
    let mut sets = vec![vec![]];
    for (class, count) in demand.iter().enumerate() {
        let most = if program.classes[class].admitted[offer] { *count as i64 } else { 0 };
        sets = sets.iter().flat_map(|set| (0..=most).map(move |n| [&set[..], &[n]].concat())).collect();
    }
    let used = |set: &[i64], axis: usize| -> i64 {
        set.iter().zip(&program.classes).map(|(count, class)| count * class.requests[axis]).sum()
    };
    let room = program.offers[offer].room;
    sets.retain(|set| set.iter().any(|n| *n > 0) && (0..4).all(|axis| used(set, axis) <= room[axis]));
    sets
}

/// The configuration programme over all sets of at most the demanded pods.
fn by_all_sets(program: &Program, demand: &[f64]) -> f64 {
    by_sets_up_to(program, demand, demand)
}

/// The same over all sets of at most so many pods.
fn by_sets_up_to(program: &Program, most: &[f64], demand: &[f64]) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut rows = vec![Vec::new(); demand.len()];
    for (n, offer) in program.offers.iter().enumerate() {
        let bought: Vec<_> = sets(program, most, n)
            .into_iter()
            .map(|set| (problem.add_var(offer.price, (0.0, f64::INFINITY)), set))
            .collect();
        for (variable, set) in &bought {
            set.iter().zip(&mut rows).for_each(|(count, row)| row.push((*variable, *count as f64)));
        }
        if let Some(limit) = offer.limit {
            let row: Vec<_> = bought.iter().map(|(variable, _)| (*variable, 1.0)).collect();
            problem.add_constraint(row, ComparisonOp::Le, limit);
        }
    }
    for (row, count) in rows.into_iter().zip(demand) {
        problem.add_constraint(row, ComparisonOp::Ge, *count);
    }
    problem.solve().unwrap().into_solution().unwrap().objective()
}

/// The least price of whole nodes that hold all pods, by trying all sets one after the other.
fn whole(program: &Program, demand: &[f64]) -> f64 {
    let pods: Vec<i64> = demand.iter().map(|count| *count as i64).collect();
    let all: Vec<_> = (0..program.offers.len()).map(|offer| sets(program, demand, offer)).collect();
    let mut known = BTreeMap::new();
    let limited = |offer: &Offer| offer.limit.map_or(i64::MAX, |limit| limit as i64);
    let left = program.offers.iter().map(limited).collect();
    least(program, &all, (pods, left), &mut known)
}

/// Pods that have no node yet, and how many nodes of each offer are left.
type State = (Vec<i64>, Vec<i64>);

fn least(program: &Program, all: &[Vec<Vec<i64>>], (pods, left): State, known: &mut BTreeMap<State, f64>) -> f64 {
    let Some(first) = pods.iter().position(|n| *n > 0) else { return 0.0 };
    let state = (pods, left);
    if let Some(price) = known.get(&state) {
        return *price;
    }
    let mut best = f64::INFINITY;
    for (offer, sets) in all.iter().enumerate().filter(|(offer, _)| state.1[*offer] > 0) {
        for set in sets.iter().filter(|set| set[first] > 0 && set.iter().zip(&state.0).all(|(a, b)| a <= b)) {
            let rest = state.0.iter().zip(set).map(|(a, b)| a - b).collect();
            let mut left = state.1.clone();
            left[offer] = left[offer].saturating_sub(i64::from(program.offers[offer].limit.is_some()));
            best = best.min(program.offers[offer].price + least(program, all, (rest, left), known));
        }
    }
    known.insert(state, best);
    best
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let requests = (1_i64..6, 1_i64..6, prop::bool::weighted(0.2));
    prop::collection::vec((requests, 1_u32..4, any::<bool>()), 1..4)
}

fn sizes() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    // The first holds every class, the others perhaps.
    let more = prop::collection::vec((1_i64..12, 1_i64..12, 1_i64..20), 0..4);
    ((5_i64..12, 5_i64..12, 1_i64..20), more).prop_map(|(first, more)| [vec![first], more].concat())
}

proptest! {
    #[test]
    fn the_bounds_are_in_order_and_below_the_optimum(kinds in kinds(), sizes in sizes()) {
        let (program, demand) = program(&kinds, &sizes);
        let by_sets = by_all_sets(&program, &demand);
        let mut configurations = Configurations::new(&program);
        let bound = configurations.bound(&demand).unwrap();
        let rounded = configurations.whole(&demand).unwrap();
        let fluid = constrained::bound(&program, &demand).unwrap();
        let whole = whole(&program, &demand);
        prop_assert!(fluid <= bound * (1.0 + 2.0 * GAP) + 1e-6, "{fluid} of parts, {bound} of whole pods");
        prop_assert!(bound <= by_sets + 1e-6, "{bound}, by all sets {by_sets}");
        prop_assert!(by_sets <= whole + 1e-6, "{by_sets} of fractions, {whole} of whole nodes");
        prop_assert!(whole <= rounded + 1e-6, "{whole} of whole nodes, {rounded} rounded");
    }

    #[test]
    fn without_a_limit_of_pods_nothing_is_lost_to_the_optimum_of_many_pods(kinds in kinds(), sizes in sizes()) {
        // So many pods that sets of more pods than there are make no difference.
        let (program, demand) = program(&kinds, &sizes);
        let many: Vec<f64> = demand.iter().map(|count| count * 12.0).collect();
        let limited: Vec<f64> = program.offers.iter().filter_map(|offer| offer.limit).collect();
        let unlimited = vec![12.0; demand.len()];
        let bound = Configurations::new(&program).bound(&many).unwrap();
        let by_sets = by_sets_up_to(&program, &unlimited, &many);
        prop_assert!(bound <= by_sets + 1e-6 && bound >= by_sets * (1.0 - 2.0 * GAP) - 1e-6, "{bound}, by all sets {by_sets}, {limited:?}");
    }

    #[test]
    fn prices_of_one_demand_bound_the_cost_of_another(kinds in kinds(), sizes in sizes(), others in prop::collection::vec(0_u32..9, 3)) {
        let (program, demand) = program(&kinds, &sizes);
        let other: Vec<f64> = demand.iter().zip(others).map(|(_, other)| f64::from(other)).collect();
        let mut after = Configurations::new(&program);
        after.bound(&demand).unwrap();
        let (second, alone) = (after.bound(&other).unwrap(), Configurations::new(&program).bound(&other).unwrap());
        prop_assert!((second - alone).abs() <= 2.0 * GAP * alone + 1e-6, "{second}, alone {alone}");
    }
}

#[test]
fn pods_that_fill_half_of_a_node_and_a_bit_need_a_node_each() {
    let offers = vec![Offer { price: 1.0, room: [10, 10, 0, 100], limit: None }];
    let classes = vec![Class { requests: [6, 1, 0, 1], admitted: vec![true] }];
    let program = Program { classes, offers };
    assert!((Configurations::new(&program).bound(&[10.0]).unwrap() - 10.0).abs() < 1e-9);
    assert!((constrained::bound(&program, &[10.0]).unwrap() - 6.0).abs() < 1e-6);
}

#[test]
fn coarse_units_only_lower_the_bound() {
    // Amounts without a common divisor: more cells than a table may have.
    let offers = vec![Offer { price: 1.0, room: [7_571, 30_000_000_019, 0, 100], limit: None }];
    let requests = [[1_009, 3_000_000_019, 0, 1], [757, 5_000_000_029, 0, 1], [2_003, 2_000_000_011, 0, 1]];
    let classes = requests.map(|requests| Class { requests, admitted: vec![true] }).to_vec();
    let program = Program { classes, offers };
    let (demand, all) = ([30.0, 20.0, 10.0], [7.0, 6.0, 3.0]);
    let bound = Configurations::new(&program).bound(&demand).unwrap();
    let by_sets = by_sets_up_to(&program, &all, &demand);
    assert!(bound <= by_sets + 1e-6 && bound > by_sets * 0.99, "{bound}, by all sets {by_sets}");
}
