//! Finalizers of other controllers on NodeClaims and Nodes, and ours that users remove.

use crate::cluster::Cluster;
use jiff::Timestamp;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::names::{ClaimName, NodeName};

/// An object with finalizers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FinalizedObject {
    /// A NodeClaim.
    Claim(ClaimName),
    /// A Node.
    Node(NodeName),
}

impl Cluster {
    /// Another controller adds its finalizer, which the API server refuses for what is being deleted.
    pub fn add_other_finalizer(&mut self, object: FinalizedObject) {
        let deleting_at = match &object {
            FinalizedObject::Claim(name) => self.store.claims().get(name).and_then(|claim| claim.deleting_at),
            FinalizedObject::Node(name) => self.store.nodes().get(name).and_then(|node| node.deleting_at),
        };
        if deleting_at.is_none() {
            self.other_finalizers.insert(object);
        }
    }

    /// All other controllers remove their finalizers: what only these held is removed.
    pub fn remove_other_finalizers(&mut self, now: Timestamp) {
        self.advance_clock(now);
        for object in std::mem::take(&mut self.other_finalizers) {
            match &object {
                FinalizedObject::Claim(name) => {
                    let claim = self.store.claims().get(name);
                    if claim.is_some_and(|claim| claim.deleting_at.is_some() && !claim.has_finalizer) {
                        self.forget_claim(name);
                    }
                }
                FinalizedObject::Node(name) => {
                    let node = self.store.nodes().get(name);
                    if node.is_some_and(|node| node.deleting_at.is_some() && !node.has_finalizer) {
                        self.take_node(name);
                    }
                }
            }
        }
    }

    /// A user removes our finalizer.
    pub fn strip_finalizer(&mut self, object: &FinalizedObject, now: Timestamp) {
        self.advance_clock(now);
        match object {
            FinalizedObject::Claim(name) => {
                if let Some(claim) = self.store.claims().get(name).map(|claim| claim.reference()) {
                    // The NodeClaim of this UID has just been read.
                    let _ = self.release_claim(&claim);
                }
            }
            FinalizedObject::Node(name) => {
                let Some(node) = self.store.nodes().get(name).cloned() else { return };
                if node.deleting_at.is_some() {
                    self.release_node(name);
                } else {
                    self.put_node(Node { has_finalizer: false, ..Node::clone(&node) });
                }
            }
        }
    }

    /// Another controller's finalizer holds this.
    pub(in crate::cluster) fn is_held(&self, object: &FinalizedObject) -> bool {
        self.other_finalizers.contains(object)
    }

    /// Deletes a Node and removes our finalizer: one of another controller may hold it.
    pub(in crate::cluster) fn release_node(&mut self, name: &NodeName) {
        let held = self.is_held(&FinalizedObject::Node(name.clone()));
        let Some(node) = self.store.nodes().get(name).filter(|_| held).cloned() else {
            return self.take_node(name);
        };
        let deleting_at = node.deleting_at.or(Some(self.now));
        self.put_node(Node { deleting_at, has_finalizer: false, ..Node::clone(&node) });
    }
}
