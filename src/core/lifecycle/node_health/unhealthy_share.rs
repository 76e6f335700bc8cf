//! Holds repairs back while many nodes are unhealthy: then the cause is rarely the nodes.

use crate::lifecycle::lost_node::{MAX_UNREADY_PERCENT, NodeOutage, is_in_use};
use crate::model::cluster::claim::{Claim, ForcefulReason};
use crate::model::cluster::node::Node;
use crate::model::names::{ClaimName, NodePoolName};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A node that has been repaired counts as unhealthy for so long: what makes its successor unhealthy too, or one node after
/// the other, is rarely the nodes either.
const REPAIR_COUNTS_FOR: SignedDuration = SignedDuration::from_mins(30);

/// Why an unhealthy node is not repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairBlock {
    /// More than 20 % of the NodePool are unhealthy, rounded up as in Karpenter.
    Pool {
        /// Which.
        pool: NodePoolName,
        /// How many of its nodes.
        share: UnhealthyShare,
    },
    /// More than 20 % of the cluster are.
    Cluster(UnhealthyShare),
    /// There is an outage of nodes.
    Outage(NodeOutage),
    /// No node would be launched in its place.
    NoLaunches {
        /// The NodePool, if it is the reason.
        pool: Option<NodePoolName>,
        /// Why.
        reason: Arc<str>,
    },
}

/// How many nodes are unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnhealthyShare {
    /// Nodes that are unhealthy, tolerated or not, and those that have been repaired in the last 30 minutes.
    pub unhealthy: usize,
    /// All nodes that are in use.
    pub nodes: usize,
}

impl UnhealthyShare {
    /// More than the share, rounded up: of few nodes, one.
    fn is_exceeded(self) -> bool {
        self.unhealthy > (self.nodes * MAX_UNREADY_PERCENT).div_ceil(100)
    }
}

impl RepairBlock {
    /// Its kind and the NodePool that it concerns: those that have both in common are reported once.
    #[must_use]
    pub fn key(&self) -> (&'static str, Option<&NodePoolName>) {
        match self {
            Self::Pool { pool, .. } => ("pool", Some(pool)),
            Self::Cluster(_) => ("cluster", None),
            Self::Outage(_) => ("outage", None),
            Self::NoLaunches { pool, .. } => ("no_launches", pool.as_ref()),
        }
    }
}

impl fmt::Display for RepairBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, of) = match self {
            Self::Pool { pool, share } => (share, format!("NodePool {pool}")),
            Self::Cluster(share) => (share, "the cluster".to_owned()),
            Self::Outage(outage) => return write!(f, "node outage: {outage}"),
            Self::NoLaunches { reason, .. } => return write!(f, "no node is launched in its place: {reason}"),
        };
        let UnhealthyShare { unhealthy, nodes } = share;
        let minutes = REPAIR_COUNTS_FOR.as_mins();
        write!(
            f,
            "more than {MAX_UNREADY_PERCENT} % of {of} are unhealthy or were repaired in the last {minutes} minutes: \
             {unhealthy} of {nodes} nodes"
        )
    }
}

/// Nodes that are being repaired, or were lately. After a restart those are forgotten whose NodeClaim is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::lifecycle) struct RecentRepairs(BTreeMap<ClaimName, Repair>);

/// The repair of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Repair {
    pool: Option<NodePoolName>,
    /// When its NodeClaim was deleted.
    at: Timestamp,
    /// Its NodeClaim still exists, and counts for as long as it does.
    is_under_way: bool,
}

impl RecentRepairs {
    /// Learns from the NodeClaims, which say why they are deleted.
    pub(in crate::lifecycle) fn update(&mut self, snapshot: &Snapshot, now: Timestamp) {
        self.0.retain(|name, repair| {
            // What is later than now is from before the clock was set back.
            (repair.at, repair.is_under_way) = (repair.at.min(now), false);
            // A mark that was taken back is none.
            snapshot.claims().get(name).is_none() && now.duration_since(repair.at) < REPAIR_COUNTS_FOR
        });
        let is_limited = |claim: &&Arc<Claim>| claim.status.forced.is_some_and(ForcefulReason::is_limited);
        for claim in snapshot.claims().values().filter(|claim| claim.is_ours()).filter(is_limited) {
            let (pool, at) = (claim.spec.pool.clone(), claim.deleting_at.unwrap_or(now));
            if !counts_no_longer(claim, now) {
                let is_under_way =
                    claim.deleting_at.is_none() || claim.status.forced != Some(ForcefulReason::Interrupted);
                self.0.insert(claim.name.clone(), Repair { pool, at, is_under_way });
            }
        }
    }

    /// When the first of them counts no longer.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.0.values().filter(|repair| !repair.is_under_way).map(|repair| repair.at + REPAIR_COUNTS_FOR).min()
    }
}

/// An interruption counts for as long as a repair, though its NodeClaim may be there for hours, until Azure takes its VM away.
pub(super) fn counts_no_longer(claim: &Claim, now: Timestamp) -> bool {
    let deleting_at = claim.deleting_at.filter(|_| claim.status.forced == Some(ForcefulReason::Interrupted));
    deleting_at.is_some_and(|at| now.duration_since(at) >= REPAIR_COUNTS_FOR)
}

/// How many nodes are unhealthy in each NodePool, and in the cluster.
#[derive(Debug, Default)]
pub(in crate::lifecycle) struct UnhealthyShares {
    pools: BTreeMap<NodePoolName, UnhealthyShare>,
    cluster: UnhealthyShare,
}

impl UnhealthyShares {
    /// Counts the nodes that are in use, by what they show and which are being repaired, and those that were repaired lately and
    /// are not in use any more.
    pub(super) fn of(
        snapshot: &Snapshot,
        repairs: &RecentRepairs,
        is_unhealthy: impl Fn(&Node, Option<&Claim>) -> bool,
        now: Timestamp,
    ) -> Self {
        let mut found = Self::default();
        let mut counted = BTreeSet::new();
        for node in snapshot.nodes().values().filter(|node| is_in_use(snapshot, node, now)) {
            let claim = snapshot.claim_of(node).map(|claim| &**claim);
            let is_repaired = claim.is_some_and(|claim| repairs.0.contains_key(&claim.name));
            found.count(snapshot.pool_of(node), 1, is_repaired || is_unhealthy(node, claim));
            counted.extend(claim.map(|claim| &claim.name));
        }
        for (_, repair) in repairs.0.iter().filter(|(name, _)| !counted.contains(name)) {
            found.count(repair.pool.clone(), 0, true);
        }
        found
    }

    fn count(&mut self, pool: Option<NodePoolName>, nodes: usize, is_unhealthy: bool) {
        let of_pool = pool.map(|pool| self.pools.entry(pool).or_default());
        for share in of_pool.into_iter().chain([&mut self.cluster]) {
            share.nodes += nodes;
            share.unhealthy += usize::from(is_unhealthy);
        }
    }

    /// Why no node of this NodePool is repaired.
    pub(super) fn block(&self, pool: Option<&NodePoolName>) -> Option<RepairBlock> {
        let of_pool = pool.and_then(|pool| Some((pool, *self.pools.get(pool)?)));
        match of_pool.filter(|(_, share)| share.is_exceeded()) {
            Some((pool, share)) => Some(RepairBlock::Pool { pool: pool.clone(), share }),
            None => self.cluster.is_exceeded().then_some(RepairBlock::Cluster(self.cluster)),
        }
    }
}
