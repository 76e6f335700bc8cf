//! Plans in one form for napkeeper and for the peer: nodes to be bought, and the node of each pod.

use crate::market::Buy;

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// To a node that exists.
    Standing(usize),
    /// To one of those that are to be bought.
    New(usize),
}

/// A plan.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What is to be bought: of each node the cheapest that holds its pods.
    pub(crate) buys: Vec<Buy>,
    /// Pods and where they go, in the order of the plan. Those without a place are not in it.
    pub(crate) goes: Vec<(usize, Goes)>,
}

impl Plan {
    /// The price of all that is to be bought, in USD per hour.
    pub(crate) fn price(&self) -> f64 {
        price(self.buys.iter().copied())
    }
}

/// In USD per hour.
pub(crate) fn price(buys: impl Iterator<Item = Buy>) -> f64 {
    buys.map(|buy| buy.price().nanos() as f64 / 1e9).sum()
}
