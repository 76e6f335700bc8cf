//! How far a drain is, and which pod blocks it.

use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Pod;
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::model::support::hash::fnv1a;
use crate::plan::scope_of_pod;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// A drain takes at least so long from its taint on, as in Karpenter: load balancers need a moment to leave the node out, and
/// pods that were bound just before are seen.
pub(super) const MIN_DRAIN: SignedDuration = SignedDuration::from_secs(5);
/// A drain whose pods have not changed for so long is blocked, unless they are about to end.
const BLOCKED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// A drain that does not move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedDrain {
    /// Its NodeClaim; `None` for a Node that has none.
    pub claim: Option<ClaimName>,
    /// A pod that holds it.
    pub pod: ObjectKey,
    /// Why that does not leave.
    pub reason: Arc<str>,
}

/// The pod, and why it does not leave.
impl fmt::Display for BlockedDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}: {}", self.pod, self.reason)
    }
}

/// How far the drain of a node is. Disposable: after a restart a drain takes a few seconds longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lifecycle) struct DrainProgress {
    /// When its taint was seen.
    began: Timestamp,
    /// The pods that hold it, which of them are being deleted, and which are to leave now, as a hash.
    pods: u64,
    /// Since when they have not changed.
    unchanged_since: Timestamp,
}

#[cfg(test)]
impl DrainProgress {
    /// That of a drain of no pods.
    pub(in crate::lifecycle) fn begun(at: Timestamp) -> Self {
        Self { began: at, pods: 0, unchanged_since: at }
    }
}

impl ClaimReconciler<'_> {
    /// When the VM of a node may be deleted at the earliest, once its pods have left.
    pub(super) fn earliest_end(&self, node: &Node) -> Timestamp {
        let began = self.memory.drains.get(&node.name).map_or(self.now, |progress| progress.began);
        began.saturating_add(MIN_DRAIN).unwrap_or(Timestamp::MAX)
    }

    /// Notes which pods hold the drain of a tainted node, and whether one of those that are to leave now blocks it.
    pub(in crate::lifecycle) fn note_progress(
        &mut self,
        node: &Node,
        claim: Option<&Claim>,
        pods: &[Arc<Pod>],
        leaving: &[Arc<Pod>],
    ) {
        let hash = pods_hash(pods).wrapping_add(pods_hash(leaving));
        // After a restart a drain that is known to be blocked stays so.
        let is_told = claim.is_some_and(|claim| {
            claim.status.termination.drained.as_ref().is_some_and(|drained| drained.holds == Some(false))
        });
        let unchanged_since = if is_told { self.now - BLOCKED_AFTER } else { self.now };
        let new = DrainProgress { began: self.now, pods: hash, unchanged_since };
        let progress = self.memory.drains.entry(node.name.clone()).or_insert(new);
        if progress.pods != hash {
            (progress.pods, progress.unchanged_since) = (hash, self.now);
        }
        let due = progress.unchanged_since + BLOCKED_AFTER;
        if due > self.now && !leaving.is_empty() {
            self.plan.wake_at(due);
        }
        let blocking = || leaving.iter().find_map(|pod| Some((pod.key.clone(), self.why_it_stays(pod, node)?)));
        match (due <= self.now).then(blocking).flatten() {
            Some((pod, reason)) => {
                let claim = claim.map(|claim| claim.name.clone());
                let blocked = BlockedDrain { claim, pod, reason: Arc::from(reason) };
                self.memory.blocked_drains.insert(node.name.clone(), blocked);
            }
            None => drop(self.memory.blocked_drains.remove(&node.name)),
        }
    }

    /// Load balancers are told now to leave a node out: its drain takes at least so long from now on as any does.
    pub(super) fn begin_anew(&mut self, node: &NodeName) {
        if let Some(progress) = self.memory.drains.get_mut(node) {
            progress.began = self.now;
        }
    }

    /// The drain of a node has ended.
    pub(super) fn forget_progress(&mut self, node: &NodeName) {
        self.memory.blocked_drains.remove(node);
    }

    /// Why a pod does not leave; `None` while it is about to.
    fn why_it_stays(&self, pod: &Pod, node: &Node) -> Option<String> {
        if pod.deleting_at.is_some() {
            return (!node.ready)
                .then(|| "it is being deleted, and the kubelet of its node does not report".to_owned());
        }
        if pod.opaque {
            return Some("it cannot be read, and counts as karpenter.sh/do-not-disrupt".to_owned());
        }
        if pod.refuses_disruption(self.now) {
            return Some("its annotation karpenter.sh/do-not-disrupt forbids it".to_owned());
        }
        if self.snapshot.pause.blocks_disruption(&scope_of_pod(pod, self.snapshot), self.now) {
            return Some("the pause switch holds evictions back".to_owned());
        }
        if let Some(blocker) = self.snapshot.eviction_blocker(pod) {
            let counts = self.snapshot.budgets_of(pod).map(|budget| {
                format!(
                    "{}: currentHealthy {}, desiredHealthy {}, disruptionsAllowed {}",
                    budget.key.name, budget.healthy, budget.desired_healthy, budget.disruptions_allowed
                )
            });
            let counts: Vec<String> = counts.collect();
            return Some(format!("{blocker} ({})", counts.join("; ")));
        }
        let refusal = self.memory.evictions.refusal_of(pod)?;
        Some(format!("the API server refuses its eviction: {refusal}"))
    }
}

/// A hash of pods, and of which are being deleted.
fn pods_hash(pods: &[Arc<Pod>]) -> u64 {
    fnv1a(pods.iter().flat_map(|pod| pod.uid.as_str().bytes().chain([u8::from(pod.deleting_at.is_some())])))
}
