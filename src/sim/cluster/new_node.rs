//! Nodes that kubelets register.

use jiff::Timestamp;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Labels, Taint};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, ProviderId, Uid};
use std::sync::Arc;

/// The node that a kubelet registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Name; it becomes the host name label as well.
    pub name: NodeName,
    /// The VM.
    pub provider_id: ProviderId,
    /// Labels.
    pub labels: Labels,
    /// Taints besides those of new nodes.
    pub taints: Vec<Taint>,
    /// All that it has.
    pub capacity: Resources,
    /// What pods may use.
    pub allocatable: Resources,
    /// The version of its kubelet.
    pub kubelet_version: Option<Arc<str>>,
}

impl NewNode {
    /// Its Node object, ready for pods.
    pub(super) fn into_node(self, uid: Uid, now: Timestamp) -> Node {
        let mut labels = self.labels;
        labels.insert(Arc::from(labels::HOSTNAME), self.name.text());
        Node {
            name: self.name,
            uid,
            provider_id: Some(self.provider_id),
            labels,
            taints: self.taints,
            capacity: self.capacity,
            allocatable: self.allocatable,
            ready: true,
            ready_since: now,
            created_at: now,
            deleting_at: None,
            cordoned: false,
            has_finalizer: false,
            kubelet_version: self.kubelet_version,
            do_not_disrupt: false,
            conditions: Vec::new(),
        }
    }
}
