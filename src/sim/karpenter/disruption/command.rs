//! What a method of disruption decides.

use crate::karpenter::scheduling::PlannedClaim;
use jiff::Timestamp;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::names::{NodeName, NodePoolName};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The methods that act here, in the order in which they are tried. Fixed-size pools and drift do not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::karpenter) enum Method {
    /// Deletes nodes without pods.
    Emptiness,
    /// Deletes several nodes, or replaces them by one.
    MultiNode,
    /// Deletes or replaces one node.
    SingleNode,
}

impl Method {
    pub(in crate::karpenter) const ALL: [Self; 3] = [Self::Emptiness, Self::MultiNode, Self::SingleNode];

    pub(in crate::karpenter) fn reason(self) -> DisruptionReason {
        match self {
            Self::Emptiness => DisruptionReason::Empty,
            Self::MultiNode | Self::SingleNode => DisruptionReason::Underutilized,
        }
    }
}

/// Nodes to delete, and a NodeClaim to create before.
#[derive(Debug, Clone)]
pub(in crate::karpenter) struct Command {
    pub(in crate::karpenter) nodes: Vec<NodeName>,
    pub(in crate::karpenter) replacement: Option<PlannedClaim>,
    /// Existing nodes that pods would move to.
    pub(in crate::karpenter) destinations: Vec<NodeName>,
    /// Price of the nodes in nano-USD an hour, by pool.
    pub(super) prices: BTreeMap<NodePoolName, f64>,
    /// Cost of their disruption, by pool.
    pub(super) costs: BTreeMap<NodePoolName, f64>,
    /// Price of the cheapest replacement in nano-USD an hour.
    pub(super) replacement_price: f64,
}

impl Command {
    /// What it saves in nano-USD an hour.
    pub(super) fn savings(&self) -> f64 {
        self.prices.values().sum::<f64>() - self.replacement_price
    }
}

/// A command that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunCommand {
    /// When.
    pub at: Timestamp,
    /// The VM sizes of the nodes that go, with the numbers of pods on them.
    pub nodes: Vec<(Arc<str>, usize)>,
    /// The VM size of the node that replaces them.
    pub replacement: Option<Arc<str>>,
}

impl fmt::Display for BegunCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(|(size, pods)| format!("{size} ({pods} pods)")).collect();
        match &self.replacement {
            Some(size) => write!(f, "{} replace {} by {size}", self.at, nodes.join(", ")),
            None => write!(f, "{} delete {}", self.at, nodes.join(", ")),
        }
    }
}
