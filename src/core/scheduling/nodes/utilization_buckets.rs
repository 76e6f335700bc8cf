//! Buckets of open nodes with equal candidate set and candidate, by utilization.
//!
//! Nodes of one candidate set that would be the same candidate are in one bucket, the emptiest first. How a pod class
//! narrows such nodes is decided once per bucket; only whether a pod fits is decided per node.

use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::CandidateSetId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// Index of a bucket.
pub(crate) type NodeBucketId = usize;
/// How full a node is, in thousandths, and its number.
pub(crate) type NodeByUtilization = (u32, OpenNodeId);

/// Open nodes with equal candidate set and candidate.
pub(crate) struct NodeBucket {
    pub(crate) candidate_set: CandidateSetId,
    pub(crate) candidate: CandidateIndex,
    nodes: BTreeSet<NodeByUtilization>,
}

/// All open nodes.
#[derive(Default)]
pub(crate) struct NodeBuckets {
    ids: BTreeMap<(CandidateSetId, CandidateIndex), NodeBucketId>,
    pub(crate) buckets: Vec<NodeBucket>,
    /// Nodes in the order in which they were added to a bucket.
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
    pub(crate) fn insert(&mut self, key: (CandidateSetId, CandidateIndex), (load, node): NodeByUtilization) {
        let (ids, all) = (&mut self.ids, &mut self.buckets);
        let bucket = *ids.entry(key).or_insert_with(|| {
            all.push(NodeBucket { candidate_set: key.0, candidate: key.1, nodes: BTreeSet::new() });
            all.len() - 1
        });
        self.buckets[bucket].nodes.insert((load, node));
        self.changed.push(node);
    }

    pub(crate) fn remove(&mut self, key: (CandidateSetId, CandidateIndex), node: NodeByUtilization) {
        if let Some(bucket) = self.ids.get(&key) {
            self.buckets[*bucket].nodes.remove(&node);
        }
    }
}
