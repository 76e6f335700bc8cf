//! How many nodes each NodePool has, and how large they are, as upstream's `nodepool.counter` counts them.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::labels::NODEPOOL;
use crate::model::names::NodePoolName;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The resource under which nodes are counted.
const NODES: &str = "nodes";

/// The nodes of a NodePool, from the launch of their VM until their end.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolUsage {
    /// How many there are.
    pub(super) nodes: i64,
    /// What they have.
    capacity: Resources,
    /// The NodeClaims that are drifted.
    pub(super) drifted: Vec<Arc<Claim>>,
}

impl PoolUsage {
    /// What they have, and how many they are.
    pub(super) fn resources(self) -> Resources {
        let mut resources = self.capacity;
        resources.set_extended(NODES, self.nodes);
        resources
    }

    fn count(&mut self, capacity: &Resources) {
        self.nodes = self.nodes.saturating_add(1);
        self.capacity.add(capacity);
    }
}

/// The nodes of all NodePools. A Node without a NodeClaim counts by its label.
pub(super) fn usage_by_pool(snapshot: &Snapshot) -> BTreeMap<NodePoolName, PoolUsage> {
    let mut usage: BTreeMap<NodePoolName, PoolUsage> = BTreeMap::new();
    for claim in snapshot.claims().values().filter(|claim| claim.status.provider_id.is_some()) {
        let Some(pool) = &claim.spec.pool else { continue };
        let of_pool = usage.entry(pool.clone()).or_default();
        of_pool.count(capacity_of(claim, snapshot.node_of(claim).map(|node| &**node)));
        if claim.status.drifted.is_some() {
            of_pool.drifted.push(Arc::clone(claim));
        }
    }
    for node in snapshot.nodes().values() {
        if node.provider_id.as_ref().is_some_and(|id| snapshot.claim_by_provider_id(id).is_some()) {
            continue;
        }
        if let Some(pool) = node.label(NODEPOOL).and_then(|name| NodePoolName::new(name).ok()) {
            usage.entry(pool).or_default().count(&node.capacity);
        }
    }
    usage
}

/// What a node has: until it is initialized its kubelet may not have told all, and its NodeClaim says what is expected.
fn capacity_of<'a>(claim: &'a Claim, node: Option<&'a Node>) -> &'a Resources {
    match node {
        Some(node) if claim.status.initialized.is_some() || claim.status.capacity == Resources::default() => {
            &node.capacity
        }
        _ => &claim.status.capacity,
    }
}
