//! The cost of a plan after kube-scheduler has bound the pods freely.
//!
//! kube-scheduler does not know the plan. The nodes are launched, each as the cheapest that its plan allows; the
//! emulation of kube-scheduler binds the pods in some order; pending ones are planned again beside all running pods;
//! and so on until every pod has a node. The price of all nodes is the real price of the plan.

use crate::market::{Sizes, State};
use crate::plan::{self, Plan};
use crate::workload::Work;
use anyhow::Result;
use napkeeper_sim::random::Random;
use napkeeper_tests::kube_scheduler::Cluster;

/// The number of orders in which pods are scheduled: that of creation, and random ones.
const ORDERS: u64 = 6;
/// Most rounds.
const MOST_ROUNDS: usize = 20;

/// The result of one order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    /// USD per hour of all nodes.
    pub(crate) price: f64,
    pub(crate) nodes: usize,
    pub(crate) rounds: usize,
    /// Pods still pending at the end.
    pub(crate) left: usize,
}

/// A planner.
pub(crate) type Planner<'a> = &'a dyn Fn(&State) -> Result<Plan>;

/// Runs the rounds in every order. All begin with the same plan.
pub(crate) fn close(work: &Work, sizes: &Sizes, first: &Plan, planner: Planner<'_>) -> Result<Vec<Closed>> {
    (0..ORDERS).map(|seed| close_in(seed, work, sizes, first, planner)).collect()
}

/// Runs the rounds in the order of one seed.
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
        for offering in &plan.offerings {
            let node = sizes.node(*offering, &format!("node-{:05}", state.nodes.len()))?;
            cluster.add_node(&node.wire);
            state.nodes.push(node);
        }
        for pod in &order {
            if state.on[*pod].is_none() {
                state.on[*pod] = cluster.schedule(&work.wire[*pod]).ok();
            }
        }
        let still = state.waiting().len();
        if still == left && plan.offerings.is_empty() {
            break;
        }
        left = still;
    }
    let price = plan::price(state.nodes.iter().map(|n| n.offering));
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
