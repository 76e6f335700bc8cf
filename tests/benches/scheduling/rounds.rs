//! What a plan costs once kube-scheduler has put the pods where it likes.
//!
//! It knows nothing of the plan. The nodes are bought, each as the cheapest that its plan allows; the emulation of
//! kube-scheduler binds the pods in some order; those that it finds no place for are given to the planner again beside
//! all that runs; and so on until every pod has a node. The price of all nodes is the price of the plan in earnest.

use crate::market::{Sizes, State};
use crate::plan::{self, Plan};
use crate::workload::Work;
use anyhow::Result;
use napkeeper_sim::random::Random;
use napkeeper_tests::kube_scheduler::Cluster;

/// The orders in which pods come to kube-scheduler: that of creation, and random ones.
const ORDERS: u64 = 6;
/// After so many rounds it is given up.
const MOST_ROUNDS: usize = 20;

/// What came of one order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    /// USD per hour of all nodes.
    pub(crate) price: f64,
    pub(crate) nodes: usize,
    pub(crate) rounds: usize,
    /// Pods without a place when nothing moved any more.
    pub(crate) left: usize,
}

/// What makes plans.
pub(crate) type Planner<'a> = &'a dyn Fn(&State) -> Result<Plan>;

/// Goes through the rounds in every order. All begin with the same plan.
pub(crate) fn close(work: &Work, sizes: &Sizes, first: &Plan, planner: Planner<'_>) -> Result<Vec<Closed>> {
    (0..ORDERS).map(|seed| close_in(seed, work, sizes, first, planner)).collect()
}

/// Goes through the rounds in the order of one seed.
fn close_in(seed: u64, work: &Work, sizes: &Sizes, first: &Plan, planner: Planner<'_>) -> Result<Closed> {
    let order = order(work, seed);
    let mut state = State::of(work);
    let mut cluster = Cluster::new(seed);
    let mut rounds = 0;
    let mut left = work.rows.len();
    while left > 0 && rounds < MOST_ROUNDS {
        rounds += 1;
        let again;
        let plan = if rounds == 1 {
            first
        } else {
            again = planner(&state)?;
            &again
        };
        for buy in &plan.buys {
            let node = sizes.node(*buy, &format!("node-{:05}", state.nodes.len()))?;
            cluster.add_node(&node.wire);
            state.nodes.push(node);
        }
        for pod in &order {
            if state.on[*pod].is_none() {
                state.on[*pod] = cluster.schedule(&work.wire[*pod]).ok();
            }
        }
        let still = state.waiting().len();
        if still == left && plan.buys.is_empty() {
            break;
        }
        left = still;
    }
    let price = plan::price(state.nodes.iter().map(|n| n.buy));
    Ok(Closed { price, nodes: state.nodes.len(), rounds, left })
}

/// The order of creation for the first seed, a random one for every other.
fn order(work: &Work, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..work.rows.len()).collect();
    if seed > 0 {
        let mut chance = Random::new(seed);
        for last in (1..order.len()).rev() {
            let drawn = chance.between(0, last as u64);
            order.swap(last, usize::try_from(drawn).unwrap_or(last));
        }
    }
    order
}
