//! What a decision rests on that took some time to make.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::Taint;
use crate::model::names::{NodeName, ObjectKey};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// What must still be so when a command is started, though it is about other objects: else it is dropped, and decided again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preconditions {
    /// The pods of the nodes that are disrupted together: none has come or gone.
    pub pods: BTreeMap<NodeName, BTreeSet<ObjectKey>>,
    /// What the pods that move there need of other nodes: these are open to them, and have as much free.
    pub destinations: BTreeMap<NodeName, Resources>,
}

impl Preconditions {
    /// That no pod of these nodes has come or gone.
    #[must_use]
    pub fn same_pods<'n>(snapshot: &Snapshot, nodes: impl IntoIterator<Item = &'n NodeName>) -> Self {
        let pods_of = |node: &NodeName| snapshot.node_usage(node).map(|usage| usage.pods.clone()).unwrap_or_default();
        let pods = nodes.into_iter().map(|node| (node.clone(), pods_of(node))).collect();
        Self { pods, destinations: BTreeMap::new() }
    }

    /// True when all of it is so.
    #[must_use]
    pub fn hold(&self, snapshot: &Snapshot) -> bool {
        let has_same_pods = |(node, pods): (&NodeName, &BTreeSet<ObjectKey>)| {
            snapshot.node_usage(node).map_or(pods.is_empty(), |usage| usage.pods == *pods)
        };
        self.pods.iter().all(has_same_pods)
            && self.destinations.iter().all(|(node, needed)| has_room(snapshot, node, needed))
    }
}

fn has_room(snapshot: &Snapshot, name: &NodeName, needed: &Resources) -> bool {
    snapshot.nodes().get(name).is_some_and(|node| {
        node.is_open() && !node.taints.contains(&Taint::disrupted()) && needed.fits(&snapshot.free_capacity(node))
    })
}
