//! What a move or a node waits for.

use crate::disruption::DisruptionBlocker;
use crate::lifecycle::NodeOutage;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::labels::DO_NOT_DISRUPT;
use crate::model::names::{NodePoolName, ObjectKey};
use crate::model::settings::{MaintenanceHold, PauseEnd, Paused};
use crate::static_capacity::StaticShortfall;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// What a move or a node waits for, or keeps it for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// So many nodes are not ready that nothing is disrupted.
    Outage(NodeOutage),
    /// No node may be launched in this cluster, and why.
    LaunchesHeld(String),
    /// Nodes of this NodePool did not come up, so that it launches none, and why.
    PoolHeld(NodePoolName, Arc<str>),
    /// Pods wait for a node that is not launched yet, which is done first.
    PendingPods,
    /// The budgets of a NodePool allow no more now.
    Budget {
        /// The NodePool.
        pool: NodePoolName,
        /// The reason by which budgets know it.
        reason: DisruptionReason,
        /// When they allow it by their schedules; `None` where they do not in 90 days, or where they would allow it but for nodes
        /// that are disrupted already.
        opens: Option<Timestamp>,
    },
    /// `consolidateAfter` ends.
    ConsolidateAfter(Timestamp),
    /// It is worth it from then on if nothing changes.
    WorthFrom(Timestamp),
    /// The node is replaced from then on since it expires.
    ReplacedFrom(Timestamp),
    /// The node is deleted then whatever else keeps it, since it expires.
    Expires(Timestamp),
    /// It waits for a maintenance window of AKS.
    Maintenance(MaintenanceHold),
    /// The node or a pod on it must not be disrupted.
    Blocked(DisruptionBlocker),
    /// This pod has the annotation `karpenter.sh/do-not-disrupt` with a duration, which ends then.
    PodRefusesUntil(ObjectKey, Timestamp),
    /// Moves before it use what its budgets allow, or change what it rests on.
    EarlierMoves,
    /// Nodes have drifted by what cannot be seen from here, and are replaced first.
    DriftFirst,
    /// The node is being replaced already.
    BeingReplaced(DisruptionReason),
    /// Its NodePool is not there or cannot be read.
    NoPool,
    /// Its NodePool has a fixed number of nodes: none is consolidated.
    FixedSize,
    /// Its NodePool has a fixed number of nodes, and it has drifted or expires, but no replacement of it has been found.
    NoReplacement,
    /// Its NodePool has a fixed number of nodes, which cannot be replaced now.
    NotReplaceable(StaticShortfall),
    /// `consolidateAfter` of its NodePool is `Never`.
    NeverConsolidated,
    /// `consolidationPolicy` of its NodePool is `WhenEmpty`, and it has pods.
    OnlyWhenEmpty,
    /// Pending pods are expected on it.
    Nominated,
    /// Its NodeClaim says that it has drifted, which cannot be seen from here.
    DriftNotSeen(Arc<str>),
    /// Another Karpenter, as that of managed NAP, has created it and decides about it.
    OtherKarpenter,
    /// No move with it has been found that is worth what it costs.
    NothingSaves,
    /// It has drifted or expires, and no move with it has been found.
    NoneFound,
}

impl Obstacle {
    /// It keeps a node from being replaced, but not from being deleted where its pods fit on others.
    pub(super) const fn is_replacement_loop(&self) -> bool {
        matches!(self, Self::Blocked(DisruptionBlocker::ReplacementLoop(_)))
    }

    /// Until when it lasts if nothing else changes; `None` where that is not known.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::ConsolidateAfter(at) | Self::WorthFrom(at) | Self::ReplacedFrom(at) | Self::Expires(at) => Some(*at),
            Self::PodRefusesUntil(_, at) => Some(*at),
            Self::Maintenance(hold) => hold.until,
            Self::Budget { opens, .. } => *opens,
            Self::Blocked(DisruptionBlocker::Paused(Paused { end: PauseEnd::At(end), .. })) => Some(*end),
            Self::Blocked(DisruptionBlocker::ReplacementLoop(found)) => Some(found.next_at),
            _ => None,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outage(outage) => write!(f, "{outage}: nothing is disrupted"),
            Self::LaunchesHeld(why) => write!(f, "no node is launched: {why}"),
            Self::PoolHeld(pool, why) => write!(f, "NodePool {pool} launches no node: {why}"),
            Self::PendingPods => f.write_str("pods wait for a node that is not launched yet"),
            Self::Budget { pool, reason, opens } => {
                let reason = reason.as_str();
                write!(f, "budgets of NodePool {pool} allow no more nodes to be disrupted now ({reason})")?;
                opens.map_or(Ok(()), |at| write!(f, ", but from {at}"))
            }
            Self::ConsolidateAfter(at) => write!(f, "consolidateAfter ends at {at}"),
            Self::WorthFrom(at) => write!(f, "it is worth its evictions from {at} if nothing changes"),
            Self::ReplacedFrom(at) => write!(f, "it expires, and is replaced from {at}"),
            Self::Expires(at) => write!(f, "expireAfter ends at {at}"),
            Self::Maintenance(hold) => write!(f, "it {hold}"),
            Self::Blocked(blocker) => write!(f, "{blocker}"),
            Self::PodRefusesUntil(pod, at) => write!(f, "pod {pod} has the annotation {DO_NOT_DISRUPT}, until {at}"),
            Self::EarlierMoves => f.write_str("earlier disruptions must finish first"),
            Self::DriftFirst => f.write_str("nodes whose drift this command cannot verify are replaced first"),
            Self::BeingReplaced(reason) => write!(f, "the node is being replaced already ({})", reason.as_str()),
            Self::NoPool => f.write_str("its NodePool does not exist or cannot be read"),
            Self::FixedSize => f.write_str("its NodePool has a fixed number of nodes"),
            Self::NoReplacement => f.write_str("no replacement of it was found"),
            Self::NotReplaceable(why) => write!(f, "the outdated nodes of its NodePool cannot be replaced: {why}"),
            Self::NeverConsolidated => f.write_str("consolidateAfter is Never"),
            Self::OnlyWhenEmpty => f.write_str("consolidationPolicy is WhenEmpty, and it has pods"),
            Self::Nominated => f.write_str("pods are expected on it"),
            Self::DriftNotSeen(reason) => write!(f, "it has drifted ({reason}), which this command cannot verify"),
            Self::OtherKarpenter => {
                f.write_str("managed NAP or another Karpenter has created it, and decides about it")
            }
            Self::NothingSaves => f.write_str("no move with it was found that is worth its cost"),
            Self::NoneFound => f.write_str("no move with it was found: its pods may not fit on other or new nodes"),
        }
    }
}
