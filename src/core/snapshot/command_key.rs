//! Keys of commands: one command per key runs at a time.

use crate::model::cluster::node_record::NodeRecordShard;
use crate::model::names::{ArmId, ClaimName, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName};
use std::fmt;

/// Identity of a command for the executor: one at a time per key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandKey {
    /// About a NodeClaim.
    Claim(ClaimName),
    /// Writing what is seen of the initialized node of a NodeClaim, beside what else is done about it.
    ClaimReport(ClaimName),
    /// Writing how far the drain of a NodeClaim is, and until when it must be over, beside what else is done about it.
    Drain(ClaimName),
    /// About a Node.
    Node(NodeName),
    /// About a pod.
    Pod(ObjectKey),
    /// Reading which cluster the node resource group belongs to.
    GroupOwner,
    /// Taking an inventory.
    Inventory,
    /// Writing records.
    Records,
    /// About a cloud resource.
    Resource(ArmId),
    /// About an OrphanSweep.
    Sweep(ObjectName),
    /// About a NodePool.
    Pool(NodePoolName),
    /// About an AKSNodeClass.
    Class(NodeClassName),
    /// About a NodeOverlay.
    Overlay(ObjectName),
    /// Writing a NodeRecord.
    NodeRecord(NodeRecordShard),
}

/// The object of the command, by name.
impl fmt::Display for CommandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name) | Self::ClaimReport(name) | Self::Drain(name) => f.pad(name.as_str()),
            Self::Node(name) => f.pad(name.as_str()),
            Self::Pod(key) => key.fmt(f),
            Self::GroupOwner => f.pad("node resource group"),
            Self::Inventory => f.pad("inventory"),
            Self::Records => f.pad("records"),
            Self::Resource(id) => f.pad(id.name()),
            Self::Sweep(name) | Self::Overlay(name) => f.pad(name.as_str()),
            Self::Pool(name) => f.pad(name.as_str()),
            Self::Class(name) => f.pad(name.as_str()),
            Self::NodeRecord(shard) => shard.fmt(f),
        }
    }
}
