//! The input of a simulation.

use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::scheduling::offerings::available::AvailableOfferings;
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Most new nodes of one simulation.
pub const MAX_NEW_NODES: usize = 5_000;

/// The input of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What its pools may launch.
    pub available: &'a AvailableOfferings,
    /// Nodes that are to be treated as deleted.
    pub excluded_nodes: &'a BTreeSet<NodeName>,
    /// How many new nodes may be launched at most.
    pub max_new_nodes: usize,
    /// The NodeClaims in flight that pods were planned for before: a pod keeps the capacity launched for it.
    pub claim_of_pod: &'a BTreeMap<ObjectKey, ClaimName>,
}
