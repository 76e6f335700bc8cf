//! What keeps a node from being disrupted.

use super::candidate::passes_blockers;
use super::causes::Drift;
use super::replacement_loops::{ReplacementLoop, ReplacementLoops};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::disruption_budget::EvictionBlocker;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::labels::DO_NOT_DISRUPT;
use crate::model::names::ObjectKey;
use crate::model::settings::{DisruptionScope, Paused};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// What keeps a node from being disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisruptionBlocker {
    /// It has not been initialized yet.
    NotInitialized,
    /// It is being deleted already.
    BeingDeleted,
    /// It is not ready.
    NotReady,
    /// It has the annotation `karpenter.sh/do-not-disrupt`.
    DoNotDisrupt,
    /// This pod has that annotation.
    PodRefuses(ObjectKey),
    /// This pod cannot be read.
    PodUnreadable(ObjectKey),
    /// This pod has no controller that would replace it.
    PodWithoutController(ObjectKey),
    /// The eviction API would refuse to evict this pod now.
    PodProtected(ObjectKey, EvictionBlocker),
    /// The pause switch holds its disruption back.
    Paused(Paused),
    /// Nodes of its NodePool are replaced again and again for the cause for which it would be: the next waits. Where its pods fit
    /// on others, it is consolidated all the same.
    ReplacementLoop(ReplacementLoop),
}

impl fmt::Display for DisruptionBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialized => f.write_str("the node is not initialized yet"),
            Self::BeingDeleted => f.write_str("the node is being deleted already"),
            Self::NotReady => f.write_str("the node is not ready"),
            Self::DoNotDisrupt => write!(f, "the node has the annotation {DO_NOT_DISRUPT}"),
            Self::PodRefuses(pod) => write!(f, "pod {pod} has the annotation {DO_NOT_DISRUPT}"),
            Self::PodUnreadable(pod) => write!(f, "pod {pod} cannot be parsed"),
            Self::PodWithoutController(pod) => write!(f, "pod {pod} has no controller that would replace it"),
            Self::PodProtected(pod, blocker) => write!(f, "pod {pod} cannot be evicted: {blocker}"),
            Self::ReplacementLoop(found) => write!(f, "its replacement waits: {found}"),
            Self::Paused(paused) => write!(f, "its disruption is paused: {paused}"),
        }
    }
}

/// Why a node would be disrupted.
#[derive(Debug, Clone, Copy)]
pub struct PossibleDisruption<'a> {
    /// The reason.
    pub reason: DisruptionReason,
    /// How its NodeClaim has drifted, as far as that is known.
    pub drift: Option<&'a Drift>,
    /// The loops of replacements in the cluster.
    pub loops: &'a ReplacementLoops,
}

impl PossibleDisruption<'_> {
    /// The loop for which the replacement of the node waits.
    fn waits_for(&self, snapshot: &Snapshot, claim: &Claim, now: Timestamp) -> Option<ReplacementLoop> {
        match self.reason {
            DisruptionReason::Underutilized => ReplacementLoop::of_consolidated(claim, now),
            DisruptionReason::Drifted => {
                let pool = snapshot.pools().get(claim.spec.pool.as_ref()?)?;
                let found = self.loops.get(&self.drift?.cause(pool).in_pool(&pool.name))?;
                Some(found.clone()).filter(|found| found.waits)
            }
            DisruptionReason::Empty | DisruptionReason::Expiring | DisruptionReason::NodePoolDeleted => None,
        }
    }
}

/// All that keeps the node of a NodeClaim from being disrupted now: itself, its pods, the pause switch and loops of replacements.
/// Budgets and `consolidateAfter` are not among it.
#[must_use]
pub fn disruption_blockers(
    snapshot: &Snapshot,
    claim: &Claim,
    disruption: PossibleDisruption<'_>,
    now: Timestamp,
) -> Vec<DisruptionBlocker> {
    let reason = disruption.reason;
    let Some(node) = snapshot.node_of(claim).filter(|_| claim.status.initialized.is_some()) else {
        return vec![DisruptionBlocker::NotInitialized];
    };
    let mut found: Vec<DisruptionBlocker> = node_blocker(node).into_iter().collect();
    if claim.deleting_at.is_some() && !found.contains(&DisruptionBlocker::BeingDeleted) {
        found.push(DisruptionBlocker::BeingDeleted);
    }
    let disrupted = DisruptionScope::of(claim, Some(reason));
    found.extend(snapshot.pause.disruption_pause(&disrupted, now).map(DisruptionBlocker::Paused));
    found.extend(disruption.waits_for(snapshot, claim, now).map(DisruptionBlocker::ReplacementLoop));
    let passes = passes_blockers(claim, reason);
    found.extend(snapshot.pods_on(&node.name).filter_map(|pod| pod_blocker(snapshot, pod, passes, now)));
    found
}

/// What keeps a node from being disrupted, whatever pods it has.
pub(super) fn node_blocker(node: &Node) -> Option<DisruptionBlocker> {
    if node.deleting_at.is_some() {
        Some(DisruptionBlocker::BeingDeleted)
    } else if node.do_not_disrupt {
        Some(DisruptionBlocker::DoNotDisrupt)
    } else {
        (!node.ready).then_some(DisruptionBlocker::NotReady)
    }
}

/// What keeps a pod on its node. `passes`: neither annotation nor PodDisruptionBudgets do.
pub(super) fn pod_blocker(
    snapshot: &Snapshot,
    pod: &Arc<Pod>,
    passes: bool,
    now: Timestamp,
) -> Option<DisruptionBlocker> {
    let key = || pod.key.clone();
    if !passes && pod.refuses_disruption(now) {
        let kept = if pod.opaque { DisruptionBlocker::PodUnreadable } else { DisruptionBlocker::PodRefuses };
        return Some(kept(key()));
    }
    match pod.owner {
        PodOwner::DaemonSet | PodOwner::Static | PodOwner::Buffer => None,
        PodOwner::Nobody => Some(DisruptionBlocker::PodWithoutController(key())),
        PodOwner::Controller if passes || pod.tolerates_disruption() => None,
        PodOwner::Controller => {
            snapshot.eviction_blocker(pod).map(|blocker| DisruptionBlocker::PodProtected(key(), blocker))
        }
    }
}
