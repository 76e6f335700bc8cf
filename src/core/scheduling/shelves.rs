//! Shelves: which open nodes are alike, and which of them is the emptiest?
//!
//! Nodes of one choice that would be the same candidate stand on one shelf, the emptiest first. What a pod of a kind makes
//! of such a node is a matter of the shelf; only whether there is room for it is one of the node.

use super::candidates::Place;
use super::choice::ChoiceId;
use super::open::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// Number of a shelf.
pub(super) type ShelfId = usize;
/// How full a node is, in thousandths, and its number.
pub(super) type Spot = (u32, NodeId);

/// Open nodes that are alike.
pub(super) struct Shelf {
    pub(super) choice: ChoiceId,
    pub(super) best: Place,
    nodes: BTreeSet<Spot>,
}

/// All open nodes.
#[derive(Default)]
pub(super) struct Shelves {
    numbers: BTreeMap<(ChoiceId, Place), ShelfId>,
    pub(super) all: Vec<Shelf>,
    /// Nodes in the order in which they were put on a shelf.
    pub(super) news: Vec<NodeId>,
}

impl Shelf {
    /// The emptiest node, or the next after one.
    pub(super) fn after(&self, last: Option<Spot>) -> Option<Spot> {
        let from = last.map_or(Unbounded, Excluded);
        self.nodes.range((from, Unbounded)).next().copied()
    }
}

impl Shelves {
    pub(super) fn put(&mut self, like: (ChoiceId, Place), (load, node): Spot) {
        let (numbers, all) = (&mut self.numbers, &mut self.all);
        let shelf = *numbers.entry(like).or_insert_with(|| {
            all.push(Shelf { choice: like.0, best: like.1, nodes: BTreeSet::new() });
            all.len() - 1
        });
        self.all[shelf].nodes.insert((load, node));
        self.news.push(node);
    }

    pub(super) fn take(&mut self, like: (ChoiceId, Place), spot: Spot) {
        if let Some(shelf) = self.numbers.get(&like) {
            self.all[*shelf].nodes.remove(&spot);
        }
    }
}
