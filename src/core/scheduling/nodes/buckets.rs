//! Buckets of open nodes with equal candidate set and candidate, by utilization.
//!
//! Nodes of one candidate set that would be the same candidate are in one bucket, the emptiest first. What a pod of a
//! pod class makes of such a node is a matter of the bucket; only whether there is room for it is one of the node.

use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::CandidateSetId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// Index of a bucket.
pub(crate) type NodeBucketId = usize;
/// How full a node is, in thousandths, and its number.
pub(crate) type NodeByUtilization = (u32, OpenNodeId);

/// Open nodes that are alike.
pub(crate) struct NodeBucket {
    pub(crate) candidate_set: CandidateSetId,
    pub(crate) candidate: CandidateIndex,
    nodes: BTreeSet<NodeByUtilization>,
}

/// All open nodes.
#[derive(Default)]
pub(crate) struct NodeBuckets {
    numbers: BTreeMap<(CandidateSetId, CandidateIndex), NodeBucketId>,
    pub(crate) buckets: Vec<NodeBucket>,
    /// Nodes in the order in which they were put into a bucket.
    pub(crate) changed: Vec<OpenNodeId>,
}

impl NodeBucket {
    /// The emptiest node, or the next after one.
    pub(crate) fn next_after(&self, last: Option<NodeByUtilization>) -> Option<NodeByUtilization> {
        let from = last.map_or(Unbounded, Excluded);
        self.nodes.range((from, Unbounded)).next().copied()
    }
}

impl NodeBuckets {
    pub(crate) fn insert(&mut self, like: (CandidateSetId, CandidateIndex), (load, node): NodeByUtilization) {
        let (numbers, all) = (&mut self.numbers, &mut self.buckets);
        let bucket = *numbers.entry(like).or_insert_with(|| {
            all.push(NodeBucket { candidate_set: like.0, candidate: like.1, nodes: BTreeSet::new() });
            all.len() - 1
        });
        self.buckets[bucket].nodes.insert((load, node));
        self.changed.push(node);
    }

    pub(crate) fn remove(&mut self, like: (CandidateSetId, CandidateIndex), placement: NodeByUtilization) {
        if let Some(bucket) = self.numbers.get(&like) {
            self.buckets[*bucket].nodes.remove(&placement);
        }
    }
}
