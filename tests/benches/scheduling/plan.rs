//! Plans in one form for napkeeper and for the peer: new nodes, and the node of each pod.

use crate::market::OfferingIndex;

/// The node of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// To a node that exists.
    Standing(usize),
    /// To a new one.
    New(usize),
}

/// A plan.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The cheapest offering that fits the pods of each new node.
    pub(crate) offerings: Vec<OfferingIndex>,
    /// Pods and their nodes, in the order of the plan, without unplaced ones.
    pub(crate) goes: Vec<(usize, Goes)>,
}

impl Plan {
    /// The price of all new nodes, in USD per hour.
    pub(crate) fn price(&self) -> f64 {
        price(self.offerings.iter().copied())
    }
}

/// In USD per hour.
pub(crate) fn price(offerings: impl Iterator<Item = OfferingIndex>) -> f64 {
    offerings.map(|offering| offering.price().nanos() as f64 / 1e9).sum()
}
