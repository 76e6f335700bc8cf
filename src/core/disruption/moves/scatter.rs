//! Whether evicted pods find room however kube-scheduler places them.
//!
//! A simulation says that there is a placement; kube-scheduler, which sees one pod at a time and prefers nodes with much
//! free capacity (its scoring strategy `LeastAllocated`), may not find it. Then a pod waits, a node is launched for it, and
//! the next pass finds that node underutilized, without end. So the pods are placed once more, as kube-scheduler is likely
//! to: small ones first, each on the node that has most room. Topology constraints, which leave it less choice, are not
//! looked at.

use super::super::candidate::Candidate;
use super::reserved::ReservedRoom;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::NodeName;
use crate::snapshot::Snapshot;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// A node that takes pods.
struct Room<'a> {
    node: &'a Node,
    free: Resources,
}

impl Room<'_> {
    fn takes(&self, shape: &PodShape) -> bool {
        shape.requests.fits(&self.free)
            && shape.untolerated(&self.node.taints).is_none()
            && shape.accepts_labels(&self.node.labels)
    }

    /// How much kube-scheduler prefers it for pods of this shape.
    fn rank(&self, shape: &PodShape, index: usize) -> Rank {
        let is_avoided = self.node.taints.iter().any(|taint| shape.avoids(taint));
        Rank { is_preferred: !is_avoided, free_permille: self.free_permille(), index }
    }

    /// The mean of the free parts of CPU and memory.
    fn free_permille(&self) -> i128 {
        let part = |free: i64, all: i64| i128::from(free) * 500 / i128::from(all.max(1));
        let all = &self.node.allocatable;
        part(self.free.cpu_millis, all.cpu_millis) + part(self.free.memory, all.memory)
    }
}

/// What is free on all nodes that take pods.
pub(super) struct Rooms<'a> {
    all: Vec<Room<'a>>,
    /// By shape of pods: the first two that take one.
    first: RefCell<BTreeMap<*const PodShape, Vec<&'a NodeName>>>,
}

impl<'a> Rooms<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self { all: rooms(snapshot, |_| true), first: RefCell::default() }
    }

    /// False when some pod of a node has no room on any other, so that nothing need be simulated.
    pub(super) fn may_take_pods_of(&self, source: &Candidate<'_>) -> bool {
        let mut first = self.first.borrow_mut();
        source.pods.iter().all(|pod| {
            let taking = || self.all.iter().filter(|room| room.takes(&pod.shape)).map(|room| &room.node.name);
            let nodes = first.entry(Arc::as_ptr(&pod.shape)).or_insert_with(|| taking().take(2).collect());
            nodes.iter().any(|node| **node != source.node.name)
        })
    }
}

/// True when all pods of these candidates find room on other nodes, and then those for which room is reserved there do too.
pub(super) fn finds_room(
    snapshot: &Snapshot,
    reserved: &ReservedRoom,
    leaving: &BTreeSet<NodeName>,
    sources: &[&Candidate<'_>],
) -> bool {
    let excluded: BTreeSet<&NodeName> = sources.iter().map(|source| &source.node.name).chain(leaving).collect();
    let rooms = rooms(snapshot, |node| !excluded.contains(&node.name));
    let mut placing = Placing { rooms, by_shape: BTreeMap::new() };
    let mut place_all = |mut pods: Vec<&Arc<Pod>>| {
        pods.sort_by_key(|pod| (pod.shape.requests.cpu_millis, pod.shape.requests.memory, &pod.key));
        pods.iter().all(|pod| placing.place(&pod.shape))
    };
    place_all(sources.iter().flat_map(|source| &source.pods).collect()) && place_all(reserved.on_nodes().collect())
}

fn rooms(snapshot: &Snapshot, is_kept: impl Fn(&Node) -> bool) -> Vec<Room<'_>> {
    let nodes = snapshot.nodes().values().map(|node| &**node);
    nodes
        .filter(|node| node.is_open() && is_kept(node))
        .map(|node| Room { node, free: snapshot.free_capacity(node) })
        .collect()
}

/// The place of a node in kube-scheduler's preference: the greatest is taken.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_preferred: bool,
    free_permille: i128,
    index: usize,
}

/// Places one pod after another. What is free only shrinks, so that a rank that is out of date is too high, and a node
/// that does not take a pod takes none of that shape any more.
struct Placing<'a> {
    rooms: Vec<Room<'a>>,
    /// By shape of pods: the nodes that may take one.
    by_shape: BTreeMap<*const PodShape, BinaryHeap<Rank>>,
}

impl Placing<'_> {
    fn place(&mut self, shape: &Arc<PodShape>) -> bool {
        let rooms = &mut self.rooms;
        let taking = || rooms.iter().enumerate().filter(|(_, room)| room.takes(shape));
        let ranks = self.by_shape.entry(Arc::as_ptr(shape));
        let ranks = ranks.or_insert_with(|| taking().map(|(index, room)| room.rank(shape, index)).collect());
        while let Some(rank) = ranks.pop() {
            let room = &mut rooms[rank.index];
            let is_current = rank.free_permille == room.free_permille();
            let takes = shape.requests.fits(&room.free);
            if is_current && takes {
                room.free.sub(&shape.requests);
            }
            if takes {
                ranks.push(room.rank(shape, rank.index));
            }
            if is_current && takes {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Dice, cluster, node, pool, shape};

    /// Which node takes a pod, found by looking at all of them.
    fn best(rooms: &[Room<'_>], shape: &PodShape) -> Option<usize> {
        let taking = rooms.iter().enumerate().filter(|(_, room)| room.takes(shape));
        taking.max_by_key(|(index, room)| room.rank(shape, *index)).map(|(index, _)| index)
    }

    #[test]
    fn each_pod_goes_to_the_node_with_most_room() {
        let mut dice = Dice(5);
        for _ in 0..100 {
            let mut snapshot = cluster([pool("general")]);
            for n in 0..10 {
                snapshot.put_node(node(&format!("n{n}"), 1, 2 + dice.roll(6) as i64));
            }
            let shapes: Vec<Arc<PodShape>> = (0..5)
                .map(|n| Arc::new(shape(&format!("s{n}"), 100 * (1 + dice.roll(15) as i64), 1 + dice.roll(4) as i64)))
                .collect();
            let mut placing = Placing { rooms: rooms(&snapshot, |_| true), by_shape: BTreeMap::new() };
            let mut plain = rooms(&snapshot, |_| true);
            loop {
                let shape = &shapes[dice.roll(shapes.len())];
                let expected = best(&plain, shape);
                assert_eq!(placing.place(shape), expected.is_some());
                let Some(index) = expected else { break };
                plain[index].free.sub(&shape.requests);
                let free = |rooms: &[Room<'_>]| rooms.iter().map(|room| room.free.clone()).collect::<Vec<_>>();
                assert_eq!(free(&placing.rooms), free(&plain));
            }
        }
    }
}
