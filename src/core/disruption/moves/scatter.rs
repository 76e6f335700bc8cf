//! Whether evicted pods find room however kube-scheduler places them.
//!
//! A simulation says that there is a placement; kube-scheduler, which sees one pod at a time and prefers nodes with much
//! free capacity (its scoring strategy `LeastAllocated`), may not find it. Then a pod waits, a node is launched for it, and
//! the next pass finds that node underutilized, without end. So the pods are placed once more, as kube-scheduler is likely
//! to: small ones first, each on the node that has most room. Topology constraints, which leave it less choice, are not
//! looked at.

use super::super::candidate::Candidate;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Pod;
use crate::model::names::NodeName;
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node that takes pods.
struct Room<'a> {
    node: &'a Node,
    free: Resources,
}

impl Room<'_> {
    fn takes(&self, pod: &Pod) -> bool {
        let shape = &pod.shape;
        shape.requests.fits(&self.free)
            && shape.untolerated(&self.node.taints).is_none()
            && shape.accepts_labels(&self.node.labels)
    }
}

/// What is free on all nodes that take pods.
pub(super) struct Rooms<'a>(Vec<Room<'a>>);

impl<'a> Rooms<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self(rooms(snapshot, |_| true))
    }

    /// False when some pod of a node has no room on any other, so that nothing need be simulated.
    pub(super) fn may_take_pods_of(&self, source: &Candidate<'_>) -> bool {
        let takes = |room: &Room<'_>, pod: &Pod| room.node.name != source.node.name && room.takes(pod);
        source.pods.iter().all(|pod| self.0.iter().any(|room| takes(room, pod)))
    }
}

/// True when all pods of these candidates find room on other nodes.
pub(super) fn finds_room(snapshot: &Snapshot, leaving: &BTreeSet<NodeName>, sources: &[&Candidate<'_>]) -> bool {
    let excluded: BTreeSet<&NodeName> = sources.iter().map(|source| &source.node.name).chain(leaving).collect();
    let mut rooms = rooms(snapshot, |node| !excluded.contains(&node.name));
    let mut pods: Vec<&Arc<Pod>> = sources.iter().flat_map(|source| &source.pods).collect();
    pods.sort_by_key(|pod| (pod.shape.requests.cpu_millis, pod.shape.requests.memory, &pod.key));
    pods.iter().all(|pod| place(pod, &mut rooms))
}

fn rooms(snapshot: &Snapshot, is_kept: impl Fn(&Node) -> bool) -> Vec<Room<'_>> {
    let nodes = snapshot.nodes().values().map(|node| &**node);
    nodes
        .filter(|node| node.is_open() && is_kept(node))
        .map(|node| Room { node, free: snapshot.free_capacity(node) })
        .collect()
}

fn place(pod: &Pod, rooms: &mut [Room<'_>]) -> bool {
    let takes = |room: &&mut Room<'_>| room.takes(pod);
    let preference = |room: &&mut Room<'_>| {
        let is_avoided = room.node.taints.iter().any(|taint| pod.shape.avoids(taint));
        (!is_avoided, free_permille(room))
    };
    match rooms.iter_mut().filter(takes).max_by_key(preference) {
        Some(room) => {
            room.free.sub(&pod.shape.requests);
            true
        }
        None => false,
    }
}

/// The mean of the free parts of CPU and memory.
fn free_permille(room: &Room<'_>) -> i128 {
    let part = |free: i64, all: i64| i128::from(free) * 500 / i128::from(all.max(1));
    let all = &room.node.allocatable;
    part(room.free.cpu_millis, all.cpu_millis) + part(room.free.memory, all.memory)
}
