//! Conditions of nodes, as the Node Problem Detector reports them.

use super::Cluster;
use jiff::Timestamp;
use napkeeper_core::model::cluster::node::{Node, NodeCondition};
use napkeeper_core::model::names::NodeName;

impl Cluster {
    /// Sets a condition of a node. It keeps its time while its status is the same.
    pub fn set_node_condition(&mut self, name: &NodeName, condition: NodeCondition, now: Timestamp) {
        self.advance_clock(now);
        let Some(node) = self.store.nodes().get(name) else { return };
        let mut node = Node::clone(node);
        match node.conditions.iter_mut().find(|known| known.kind == condition.kind) {
            Some(known) if known.status == condition.status => {
                *known = NodeCondition { since: known.since, ..condition };
            }
            Some(known) => *known = condition,
            None => node.conditions.push(condition),
        }
        self.put_node(node);
    }
}
