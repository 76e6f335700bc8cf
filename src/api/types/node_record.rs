//! NodeRecords, `napkeeper.io/v1alpha1`.
//!
//! Nobody writes these by hand. Each object holds at most [`MAX_ENTRIES`] entries, so that it stays far below what etcd
//! takes. The list is atomic: there is one writer.

use crate::types::common::wire;
use kube::CustomResource;
use napkeeper_core::model::cluster::node_record::{MAX_ENTRIES, MAX_REPLACEMENTS, MAX_TEXT, RemovedBy};

/// What is counted fits 32 bits.
const MAX_COUNT: i64 = u32::MAX as i64;

wire! {
    /// NodeRecordSpec is which nodes were removed, and by what they were replaced.
    #[derive(CustomResource)]
    #[kube(
        group = "napkeeper.io",
        version = "v1alpha1",
        kind = "NodeRecord",
        plural = "noderecords",
        doc = "NodeRecord holds the history of removed and replaced nodes. napkeeper writes it; deleting it forgets them.",
        category = "napkeeper",
        derive = "PartialEq",
        printcolumn(name = "LastRemoval", type_ = "date", json_path = ".spec.lastRemoval"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )]
    NodeRecordSpec {
        /// When the last removal began.
        #[schemars(extend("format" = "date-time"))]
        last_removal?: String,
        /// Removals by their begin, the oldest first.
        #[schemars(extend("maxItems" = MAX_ENTRIES, "x-kubernetes-list-type" = "atomic"))]
        removals?: Vec<RemovalEntry>,
    }
}

wire! {
    /// The removal of a node.
    RemovalEntry {
        /// Who removed it: `other` is a user or another controller.
        #[schemars(extend("enum" = RemovedBy::ALL.map(RemovedBy::as_str)))]
        by: String,
        /// Why, for people: for drift, the fields that have changed.
        #[schemars(extend("maxLength" = MAX_TEXT + 1))]
        cause?: String,
        /// When its NodeClaim was gone, as far as that was seen.
        #[schemars(extend("format" = "date-time"))]
        ended?: String,
        /// Its NodePool.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        node_pool?: String,
        /// Pods that had to leave it when its deletion began: without those that had ended, those of DaemonSets, and static
        /// ones.
        #[schemars(extend("minimum" = 0, "maximum" = MAX_COUNT))]
        pods: i64,
        /// Why, as a word: as in the condition `DisruptionReason`, where it has one.
        #[schemars(extend("minLength" = 1, "maxLength" = 100))]
        reason: String,
        /// What was removed.
        removed: RecordedNode,
        /// The nodes that were launched to replace it, alone or with others.
        #[schemars(extend("maxItems" = MAX_REPLACEMENTS, "x-kubernetes-list-type" = "atomic"))]
        replacements?: Vec<RecordedNode>,
        /// When the deletion of its NodeClaim was requested.
        #[schemars(extend("format" = "date-time"))]
        started: String,
        /// UID of its NodeClaim.
        #[schemars(extend("minLength" = 1, "maxLength" = 128))]
        uid: String,
    }
}

wire! {
    /// A NodeClaim with its node and what it was launched as.
    RecordedNode {
        /// Its capacity type.
        #[schemars(extend("enum" = ["on-demand", "reserved", "spot"]))]
        capacity_type?: String,
        /// Its Node, if it had joined.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        node?: String,
        /// Its NodeClaim.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        node_claim: String,
        /// Its price when it was planned, in nano-USD per hour.
        #[schemars(extend("minimum" = 0))]
        price?: i64,
        /// Its VM size.
        #[schemars(extend("minLength" = 1, "maxLength" = 100))]
        size?: String,
        /// Its zone.
        #[schemars(extend("minLength" = 1, "maxLength" = 100))]
        zone?: String,
    }
}
