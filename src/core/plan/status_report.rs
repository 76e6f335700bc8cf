//! Statuses of NodePools, AKSNodeClasses, NodeOverlays, NodeClaims and OrphanSweeps, and entries of NodeRecords, to be written.

use crate::model::amounts::money::HourlyPrice;
use crate::model::azure::cloud::ResourceKind;
use crate::model::cluster::claim::ClaimStatus;
use crate::model::cluster::node_record::{NodeRecordShard, NodeRemoval};
use crate::model::cluster::status::{Conditions, PoolStatus, StatusCondition};
use crate::model::names::{NodeClassName, NodePoolName, ObjectName, Uid};
use crate::model::orphans::finding::{Classification, Finding};
use crate::model::orphans::report::{Discrepancy, ReportOnlyFinding, SweepStatusSummary};
use crate::model::orphans::sweep::Sweep;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// A NodePool whose deletion does not wait for us any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRelease {
    /// The NodePool.
    pub pool: NodePoolName,
    /// Its UID.
    pub uid: Uid,
    /// Its nodes are to be kept.
    pub keeps_nodes: bool,
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

/// The conditions of a NodeOverlay that are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayReport {
    /// The NodeOverlay.
    pub overlay: ObjectName,
    /// Its UID.
    pub uid: Uid,
    /// All that are to be ours.
    pub conditions: Conditions,
}

/// What is written on a NodeClaim about its initialized node, beside the steps of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimReport {
    /// When a pod last came to or left its node; `None` leaves what is there.
    pub last_pod_event: Option<Timestamp>,
    /// Its pods have not changed for `consolidateAfter`.
    pub consolidatable: bool,
    /// Whether its node has the resources that it was launched for.
    pub consistent_state: StatusCondition,
}

impl ClaimReport {
    /// True when a NodeClaim says all of it.
    #[must_use]
    pub fn is_on(&self, status: &ClaimStatus) -> bool {
        let Self { last_pod_event, consolidatable, consistent_state } = self;
        (last_pod_event.is_none() || *last_pod_event == status.last_pod_event)
            && *consolidatable == status.consolidatable
            && Some(consistent_state) == status.consistent_state.as_ref()
    }
}

/// Entries to add to a NodeRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecordChange {
    /// The NodeRecord.
    pub shard: NodeRecordShard,
    /// Entries that are new, or have ended. That there are others already, or these, changes nothing about it.
    pub removals: Vec<NodeRemoval>,
}

/// How much there is of one kind and classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceTotal {
    /// How many resources.
    pub resources: u32,
    /// Their total price.
    pub price: HourlyPrice,
    /// Addresses of the subnet that they hold together.
    pub addresses: u32,
}

/// The status of an OrphanSweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepReport {
    /// The sweep.
    pub sweep: ObjectName,
    /// Its UID: one that is deleted and created again has reported nothing.
    pub uid: Uid,
    /// The version of its specification.
    pub generation: Option<i64>,
    /// When the inventory was complete; `None` where this version is accepted, and nothing has been observed yet. Then all that
    /// follows is unknown.
    pub observed_at: Option<Timestamp>,
    /// Findings, most expensive first, at most [`crate::orphans::MAX_REPORTED_FINDINGS`]. What is in use is only counted.
    pub findings: Vec<Finding>,
    /// How much there is of each kind and classification.
    pub totals: BTreeMap<(ResourceKind, Classification), ResourceTotal>,
    /// Unused public IPs and frontends, at most [`crate::orphans::MAX_REPORTED_FINDINGS`]. They are never deleted.
    pub report_only: Vec<ReportOnlyFinding>,
    /// Discrepancies of NodeClaims, Nodes and AKS Machines; as many at most.
    pub discrepancies: Vec<Discrepancy>,
    /// Why the sweep is halted, if it is.
    pub halted: Option<Arc<str>>,
    /// Next steps, and other information for people.
    pub summary: SweepStatusSummary,
}

impl SweepReport {
    /// The report of a sweep for which nothing has been observed yet.
    #[must_use]
    pub fn accepted(sweep: &Sweep) -> Self {
        Self {
            sweep: sweep.name.clone(),
            uid: sweep.uid.clone(),
            generation: sweep.generation,
            observed_at: None,
            findings: Vec::new(),
            totals: BTreeMap::new(),
            report_only: Vec::new(),
            discrepancies: Vec::new(),
            halted: None,
            summary: SweepStatusSummary::default(),
        }
    }
}
