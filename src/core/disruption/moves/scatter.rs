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

/// True when all pods of these candidates find room on other nodes.
pub(super) fn finds_room(snapshot: &Snapshot, leaving: &BTreeSet<NodeName>, sources: &[&Candidate<'_>]) -> bool {
    let excluded: BTreeSet<&NodeName> = sources.iter().map(|source| &source.node.name).chain(leaving).collect();
    let mut rooms: Vec<Room<'_>> = snapshot
        .nodes()
        .values()
        .filter(|node| node.ready && !node.cordoned && node.deleting_at.is_none() && !excluded.contains(&node.name))
        .map(|node| Room { node, free: snapshot.free_capacity(node) })
        .collect();
    let mut pods: Vec<&Arc<Pod>> = sources.iter().flat_map(|source| &source.pods).collect();
    pods.sort_by_key(|pod| (pod.shape.requests.cpu_millis, pod.shape.requests.memory, &pod.key));
    pods.iter().all(|pod| place(pod, &mut rooms))
}

fn place(pod: &Pod, rooms: &mut [Room<'_>]) -> bool {
    let shape = &pod.shape;
    let takes = |room: &&mut Room<'_>| {
        shape.requests.fits(&room.free)
            && shape.untolerated(&room.node.taints).is_none()
            && shape.accepts_labels(&room.node.labels)
    };
    match rooms.iter_mut().filter(takes).max_by_key(|room| free_permille(room)) {
        Some(room) => {
            room.free.sub(&shape.requests);
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
