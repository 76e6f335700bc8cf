//! Detects that many nodes are not ready at once.
//!
//! That is rarely the fault of so many machines: the network, the API server's load balancer or an update of the
//! kubelets has cut them off, and their pods run on. So nothing is terminated, disrupted or expired until it is over.

use super::NOT_READY_FOR;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::labels::{TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};
use crate::model::settings::{ControllerMode, DeletionRule, Settings};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// An outage has at least so many nodes that are not ready.
const MIN_NODES: usize = 3;
/// An outage has more than this share of all nodes, in percent.
pub(in crate::lifecycle) const MAX_UNREADY_PERCENT: usize = 20;
/// A Node without a NodeClaim may take this long until it is ready for the first time.
const JOINING: SignedDuration = SignedDuration::from_mins(10);

/// Many nodes are not ready: more than 20 % of them, and at least 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOutage {
    /// Nodes that have not been ready for a minute.
    pub not_ready: usize,
    /// All nodes that should be ready.
    pub nodes: usize,
}

impl NodeOutage {
    /// The outage at this time, if there is one; beside managed NAP there never is, since nothing depends on it.
    #[must_use]
    pub fn of(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Option<Self> {
        if settings.mode == ControllerMode::Companion || !settings.deletion_rules.enforces(DeletionRule::NodeOutage) {
            return None;
        }
        let is_silent =
            |node: &Node| node.unready_from().is_some_and(|since| now.duration_since(since) >= NOT_READY_FOR);
        // Rare, so that the nodes are seldom looked at more closely.
        if snapshot.nodes().values().filter(|node| is_silent(node)).take(MIN_NODES).count() < MIN_NODES {
            return None;
        }
        let mut found = Self { not_ready: 0, nodes: 0 };
        for node in snapshot.nodes().values().filter(|node| should_be_ready(snapshot, node, now)) {
            found.nodes += 1;
            found.not_ready += usize::from(is_silent(node));
        }
        let is_outage = found.not_ready >= MIN_NODES && found.not_ready * 100 > found.nodes * MAX_UNREADY_PERCENT;
        is_outage.then_some(found)
    }
}

impl fmt::Display for NodeOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} nodes are not ready", self.not_ready, self.nodes)
    }
}

/// False for nodes whose kubelet is expected to be silent: they say nothing about the others.
fn should_be_ready(snapshot: &Snapshot, node: &Node, now: Timestamp) -> bool {
    !node.is_tainted(TAINT_OUT_OF_SERVICE) && !node.is_tainted(TAINT_SHUTDOWN) && is_in_use(snapshot, node, now)
}

/// False for nodes that have not come up yet, and for those that have been drained or are deleted.
pub(in crate::lifecycle) fn is_in_use(snapshot: &Snapshot, node: &Node, now: Timestamp) -> bool {
    if node.deleting_at.is_some() {
        return false;
    }
    match snapshot.claim_of(node) {
        Some(claim) => claim.status.initialized.is_some() && !is_drained(snapshot, claim, node, now),
        None => now.duration_since(node.created_at) >= JOINING,
    }
}

/// Its pods have left, and its VM is being deleted.
fn is_drained(snapshot: &Snapshot, claim: &Claim, node: &Node, now: Timestamp) -> bool {
    claim.deleting_at.is_some() && !snapshot.pods_on(&node.name).any(|pod| pod.holds_drain(node.ready_from(), now))
}
