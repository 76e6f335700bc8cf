//! Statuses of NodePools and AKSNodeClasses, and entries of NodeRecords, to be written.

use crate::model::cluster::node_record::{NodeRecordShard, NodeRemoval};
use crate::model::cluster::status::{Conditions, PoolStatus};
use crate::model::names::{NodeClassName, NodePoolName, Uid};

/// The status of a NodePool, as far as it is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// The NodePool.
    pub pool: NodePoolName,
    /// Its UID.
    pub uid: Uid,
    /// All of it that is to be ours.
    pub status: PoolStatus,
}

/// The conditions of an AKSNodeClass that are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// The AKSNodeClass.
    pub class: NodeClassName,
    /// Its UID.
    pub uid: Uid,
    /// All that are to be ours.
    pub conditions: Conditions,
}

/// Entries to add to a NodeRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecordChange {
    /// The NodeRecord.
    pub shard: NodeRecordShard,
    /// Entries that are new, or have ended. That there are others already, or these, changes nothing about it.
    pub removals: Vec<NodeRemoval>,
}
