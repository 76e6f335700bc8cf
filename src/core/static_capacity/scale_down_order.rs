//! Scale-down and replacement order of a static pool's nodes.

use crate::disruption::{DriftDetector, Expiry, ReplacementCause, ReplacementLoop, ReplacementLoops, passes_blockers};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::replacement::Replacement;
use crate::model::names::ClaimName;
use crate::model::settings::Settings;
use crate::provisioning::ProvisionMemory;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::sync::Arc;

/// The unit in which lifetimes are counted.
const MILLI: i64 = 1_000;

/// A NodeClaim that counts for its static pool.
#[derive(Debug)]
pub(crate) struct PoolMember<'a> {
    pub(crate) claim: &'a Arc<Claim>,
    /// Why it is to be replaced; only of nodes in use.
    pub(crate) cause: Option<ReplacementCause>,
    /// Pods that would have to move.
    pods: Vec<Arc<Pod>>,
    /// The node or a pod on it must not be disrupted, or a pod has no controller.
    do_not_disrupt: bool,
    /// It was recently nominated for pending pods.
    is_nominated: bool,
    /// The loop that its replacement would go on with.
    pub(crate) replacement_loop: Option<ReplacementLoop>,
}

/// What is known beside a pool.
#[derive(Clone, Copy)]
pub(crate) struct MemberInput<'a, 'p> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) provision: &'p ProvisionMemory,
    pub(crate) settings: &'p Settings,
    /// Nodes that are replaced again and again.
    pub(crate) loops: &'p ReplacementLoops,
    pub(crate) now: Timestamp,
}

/// Order of deletion when there are too many: the least first.
pub(crate) type ScaleDownOrder = (ScaleDownRank, i64, std::cmp::Reverse<Timestamp>, ClaimName);

/// How much is lost with a node, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScaleDownRank {
    /// No VM of it is known.
    Unlaunched,
    /// It would be replaced anyway, and may be now.
    Outdated,
    /// It is not in use yet.
    InFlight,
    /// No pods but daemons.
    Empty,
    /// Pods that may be moved.
    InUse,
    /// It, or a pod on it, must not be disrupted.
    DoNotDisrupt,
}

/// The NodeClaims of a pool that stand: neither failed nor being deleted.
pub(crate) fn standing_claims<'a>(pool: &NodePool, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Arc<Claim>> {
    let is_member = |claim: &&Arc<Claim>| {
        claim.spec.pool.as_ref() == Some(&pool.name)
            && claim.is_ours()
            && claim.deleting_at.is_none()
            && claim.status.launch_failed.is_none()
    };
    snapshot.claims().values().filter(is_member)
}

/// All that counts for a pool, with what is known of it.
pub(crate) fn pool_members<'a>(pool: &NodePool, input: MemberInput<'a, '_>) -> Vec<PoolMember<'a>> {
    let MemberInput { snapshot, provision, settings, loops, now } = input;
    let detector = DriftDetector::new(pool, snapshot, now);
    let loop_of = |cause: &ReplacementCause| loops.get(&cause.recurring(pool)?.in_pool(&pool.name));
    let cause = |claim: &Claim| {
        let expiry = || Expiry::soon(claim, settings, now).map(ReplacementCause::Expiry);
        let Some(drift) = detector.drift_of(claim) else { return expiry() };
        let is_held = drift.maintenance_hold(&settings.maintenance_windows, now).is_some();
        let drift = ReplacementCause::Drift(drift);
        // One that waits for a maintenance window, or in a loop, is replaced before it expires all the same.
        let waits = is_held || loop_of(&drift).is_some_and(|found| found.waits);
        let expiry = waits.then(expiry).flatten();
        expiry.or(Some(drift))
    };
    let member = |claim| {
        let member = PoolMember::new(claim, snapshot, (&cause, provision), now);
        let replacement_loop = member.cause.as_ref().and_then(loop_of).cloned();
        PoolMember { replacement_loop, ..member }
    };
    standing_claims(pool, snapshot).map(member).collect()
}

impl<'a> PoolMember<'a> {
    fn new(
        claim: &'a Arc<Claim>,
        snapshot: &Snapshot,
        (cause, provision): (&impl Fn(&Claim) -> Option<ReplacementCause>, &ProvisionMemory),
        now: Timestamp,
    ) -> Self {
        let node = snapshot.node_of(claim);
        let keys = node.and_then(|n| snapshot.node_usage(&n.name)).into_iter().flat_map(|usage| &usage.pods);
        let pods: Vec<&Arc<Pod>> = keys.filter_map(|key| snapshot.pods().get(key)).collect();
        let do_not_disrupt = node.is_some_and(|n| n.do_not_disrupt)
            || pods.iter().any(|pod| pod.refuses_disruption(now) || pod.owner == PodOwner::Nobody);
        let pods = pods.into_iter().filter(|pod| pod.is_reschedulable() || pod.opaque).cloned().collect();
        let in_use = claim.status.initialized.is_some();
        let cause = Some(claim).filter(|_| in_use).and_then(|claim| cause(claim));
        let is_nominated = provision.is_nominated(&claim.name, node.map(|node| &node.name), now);
        Self { claim, cause, pods, do_not_disrupt, is_nominated, replacement_loop: None }
    }

    /// Order of deletion when there are too many. `outdated_may_go`: the budget allows that outdated nodes are disrupted.
    pub(crate) fn scale_down_order(&self, outdated_may_go: bool, now: Timestamp) -> ScaleDownOrder {
        let status = &self.claim.status;
        let rank = if status.launched.is_none() {
            ScaleDownRank::Unlaunched
        } else if self.may_be_replaced() && outdated_may_go {
            ScaleDownRank::Outdated
        } else if self.do_not_disrupt {
            ScaleDownRank::DoNotDisrupt
        } else if status.initialized.is_none() {
            ScaleDownRank::InFlight
        } else if self.pods.is_empty() && !self.is_nominated {
            ScaleDownRank::Empty
        } else {
            ScaleDownRank::InUse
        };
        (rank, self.disruption_cost(now), std::cmp::Reverse(self.claim.created_at), self.claim.name.clone())
    }

    /// Outdated, and may be disrupted; with a termination grace period `do-not-disrupt` does not keep it when it has drifted.
    pub(crate) fn may_be_replaced(&self) -> bool {
        let reason = self.cause.as_ref().map(ReplacementCause::reason);
        reason.is_some_and(|reason| !self.do_not_disrupt || passes_blockers(self.claim, reason))
    }

    /// May be replaced, and waits neither for a maintenance window nor in a loop; what has begun before goes on.
    pub(crate) fn replacement_may_begin(&self, settings: &Settings, now: Timestamp) -> bool {
        let is_held = match &self.cause {
            Some(ReplacementCause::Drift(drift)) => {
                drift.maintenance_hold(&settings.maintenance_windows, now).is_some()
            }
            Some(ReplacementCause::Expiry(_) | ReplacementCause::PoolDeleted(_)) | None => false,
        };
        self.may_be_replaced() && !is_held && !self.replacement_loop.as_ref().is_some_and(|found| found.waits)
    }

    /// What a NodeClaim records that replaces it.
    pub(crate) fn replacement(&self, pool: &NodePool, now: Timestamp) -> Option<Replacement> {
        Some(Replacement::after(self.claim, &self.cause.as_ref()?.recurring(pool)?, false, now))
    }

    /// The reason for which it is replaced.
    pub(crate) fn reason(&self) -> DisruptionReason {
        self.cause.as_ref().map_or(DisruptionReason::Drifted, ReplacementCause::reason)
    }

    /// Why it is replaced, for people.
    pub(crate) fn cause(&self) -> String {
        self.cause.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Order of replacement of outdated nodes: empty ones, then the oldest; last those that wait for a maintenance
    /// window or in a loop.
    pub(crate) fn replacement_order(&self, settings: &Settings, now: Timestamp) -> (bool, bool, Timestamp, ClaimName) {
        let is_held = !self.replacement_may_begin(settings, now);
        (is_held, !self.pods.is_empty(), self.claim.created_at, self.claim.name.clone())
    }

    /// Why it is deleted before others, for people.
    pub(crate) fn scale_down_reason(&self, now: Timestamp) -> String {
        let pods = self.pods.len();
        match self.scale_down_order(true, now).0 {
            ScaleDownRank::Unlaunched => "it has no VM yet".to_owned(),
            ScaleDownRank::Outdated => self.cause(),
            ScaleDownRank::InFlight => "it is not in use yet".to_owned(),
            ScaleDownRank::Empty => "it runs only DaemonSet pods".to_owned(),
            ScaleDownRank::InUse => {
                format!("it has the lowest disruption cost ({pods} pods and its remaining lifetime)")
            }
            ScaleDownRank::DoNotDisrupt => {
                format!("its {pods} pods are marked do-not-disrupt, as are those on all other nodes")
            }
        }
    }

    /// The cost of evicting its pods, and one more, times the remaining share of its lifetime in thousandths.
    fn disruption_cost(&self, now: Timestamp) -> i64 {
        let pods = self.pods.iter().map(|pod| pod.eviction_cost().max(0));
        (Pod::EVICTION_COST + pods.sum::<i64>()).saturating_mul(self.lifetime_remaining(now))
    }

    /// The remaining share of its lifetime, in thousandths; 1,000 where it never expires.
    fn lifetime_remaining(&self, now: Timestamp) -> i64 {
        let Some(after) = self.claim.spec.expire_after.filter(|after| after.is_positive()) else { return MILLI };
        let age = i128::from(now.duration_since(self.claim.created_at).as_secs());
        let whole = i128::from(after.as_secs().max(1));
        let left = (whole - age) * i128::from(MILLI) / whole;
        i64::try_from(left).unwrap_or(0).clamp(0, MILLI)
    }
}
