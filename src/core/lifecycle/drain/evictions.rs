//! Evicts pods, no faster than the API server and PodDisruptionBudgets can take it.

use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::pod::{DoNotDisrupt, Pod};
use crate::model::errors::{ClusterError, EffectError};
use crate::model::names::{ObjectKey, Uid};
use crate::plan::{Command, CommandReport, Effect, EvictionReport, Reply, Script, Step, scope_of_pod};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The back-off after the first refusal. It doubles with each further one, as in Karpenter's eviction queue.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_millis(100);
/// The longest back-off, unless the API server asks for more.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Most evictions that are under way in the whole cluster, and most deletions of pods beside them.
const MAX_IN_FLIGHT: usize = 32;
/// How often a pod that refuses disruption is looked at again.
const REFUSING_POD_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Evictions and deletions of pods that were tried, by the UID of their pod. Disposable: without it, a pod is tried again
/// at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::lifecycle) struct Evictions(BTreeMap<Uid, Attempts>);

/// The attempts to evict or delete a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempts {
    /// Refusals one after the other.
    refusals: u32,
    /// The last one.
    refusal: Option<ClusterError>,
    /// When the next attempt is due.
    due: Timestamp,
    /// By the Snapshot, a PodDisruptionBudget would refuse the last one.
    was_blocked: bool,
    /// The last one was a deletion: it does not wait for the back-off of an eviction.
    is_deletion: bool,
}

impl Evictions {
    /// Learns the API server's answer.
    pub(in crate::lifecycle) fn record(&mut self, report: &EvictionReport) {
        let Some(attempts) = self.0.get_mut(&report.pod) else { return };
        let backoff = match report.refusal {
            Some(refusal) => {
                attempts.refusals = attempts.refusals.saturating_add(1);
                backoff_after(attempts.refusals).max(refusal.retry_after())
            }
            // Its deletion is seen meanwhile.
            None => {
                attempts.refusals = 0;
                MAX_BACKOFF
            }
        };
        attempts.refusal = report.refusal;
        attempts.due = report.at.saturating_add(backoff).unwrap_or(Timestamp::MAX);
    }

    /// Why the API server refused the last attempt, if it did.
    pub(super) fn refusal_of(&self, pod: &Pod) -> Option<ClusterError> {
        self.0.get(&pod.uid)?.refusal
    }

    /// Forgets pods that are not tried any more: they have left.
    pub(in crate::lifecycle) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, attempts| now.duration_since(attempts.due) < MAX_BACKOFF * 6);
    }

    /// When the next attempt is due; `None` where that is now. A PodDisruptionBudget that allows evictions again ends a
    /// back-off for which the API server has not asked.
    fn due_at(
        &self,
        pod: &Pod,
        Attempt { is_blocked, is_deletion, .. }: Attempt<'_>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let attempts = self.0.get(&pod.uid).filter(|attempts| attempts.is_deletion || !is_deletion)?;
        let asked = attempts.refusal.is_some_and(|refusal| refusal.retry_after() > SignedDuration::ZERO);
        let is_freed = attempts.was_blocked && !is_blocked && !asked;
        (attempts.due > now && !is_freed).then_some(attempts.due)
    }

    /// A pod is evicted or deleted now. If no answer arrives, it is tried again soon.
    fn begin(&mut self, pod: &Pod, Attempt { is_blocked, is_deletion, .. }: Attempt<'_>, now: Timestamp) {
        let new = || Attempts { refusals: 0, refusal: None, due: now, was_blocked: false, is_deletion };
        let attempts = self.0.entry(pod.uid.clone()).or_insert_with(new);
        if attempts.is_deletion != is_deletion {
            *attempts = new();
        }
        attempts.due = now.saturating_add(backoff_after(attempts.refusals + 1)).unwrap_or(Timestamp::MAX);
        attempts.was_blocked = is_blocked;
    }
}

/// The back-off after so many refusals one after the other.
fn backoff_after(refusals: u32) -> SignedDuration {
    INITIAL_BACKOFF.saturating_mul(1 << refusals.saturating_sub(1).min(10)).min(MAX_BACKOFF)
}

/// What is to be done with a pod.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    /// The PodDisruptionBudgets that count it.
    budgets: &'a [ObjectKey],
    /// By the Snapshot, one of them refuses it.
    is_blocked: bool,
    /// It is deleted past them.
    is_deletion: bool,
}

/// The evictions and deletions of pods that are under way: as many as [`MAX_IN_FLIGHT`] of each, and one eviction for each
/// PodDisruptionBudget, since all but one would be refused while the API server counts it.
#[derive(Debug, Default)]
pub(in crate::lifecycle) struct EvictionsInFlight {
    evictions: usize,
    deletions: usize,
    budgets: BTreeSet<ObjectKey>,
}

impl EvictionsInFlight {
    pub(in crate::lifecycle) fn of(snapshot: &Snapshot, tried: &Evictions) -> Self {
        let mut found = Self::default();
        for key in &snapshot.in_progress {
            let CommandKey::Pod(key) = key else { continue };
            let pod = snapshot.pods().get(key);
            if pod.and_then(|pod| tried.0.get(&pod.uid)).is_some_and(|attempts| attempts.is_deletion) {
                found.deletions += 1;
                continue;
            }
            found.evictions += 1;
            if let Some(pod) = pod {
                found.budgets.extend(snapshot.budgets_of(pod).map(|budget| budget.key.clone()));
            }
        }
        found
    }

    /// Begins one more, if there is room.
    fn begin(&mut self, Attempt { budgets, is_deletion, .. }: Attempt<'_>) -> bool {
        let number = if is_deletion { &mut self.deletions } else { &mut self.evictions };
        if *number >= MAX_IN_FLIGHT || budgets.iter().any(|budget| self.budgets.contains(budget)) {
            return false;
        }
        *number += 1;
        self.budgets.extend(budgets.iter().cloned());
        true
    }
}

impl ClaimReconciler<'_> {
    /// Evicts pods, except those that refuse to be disrupted.
    pub(in crate::lifecycle) fn evict(&mut self, reason: &str, pods: &[Arc<Pod>]) {
        for pod in pods.iter().filter(|pod| pod.deleting_at.is_none()) {
            if pod.refuses_disruption(self.now) {
                self.plan.wake_at(refuses_until(pod).unwrap_or(self.now + REFUSING_POD_INTERVAL));
                continue;
            }
            let budgets: Vec<ObjectKey> = self.snapshot.budgets_of(pod).map(|budget| budget.key.clone()).collect();
            let is_blocked = self.snapshot.eviction_blocker(pod).is_some();
            if self.begins(pod, Attempt { budgets: &budgets, is_blocked, is_deletion: false }) {
                let command = Command::Evict { pod: pod.key.clone(), uid: pod.uid.clone() };
                self.plan.push(command, reason);
            }
        }
    }

    /// Deletes a pod past all PodDisruptionBudgets and annotations, with so much time to end.
    pub(super) fn delete_pod(&mut self, pod: &Pod, grace: SignedDuration, reason: &str) {
        if self.begins(pod, Attempt { budgets: &[], is_blocked: false, is_deletion: true }) {
            let command = Command::DeletePod { pod: pod.key.clone(), uid: pod.uid.clone(), grace };
            self.plan.push(command, reason);
        }
    }

    /// True if a pod is to be evicted or deleted now, which is noted.
    fn begins(&mut self, pod: &Pod, attempt: Attempt<'_>) -> bool {
        let is_in_progress = self.snapshot.in_progress.contains(&CommandKey::Pod(pod.key.clone()));
        if is_in_progress || self.snapshot.pause.blocks_disruption(&scope_of_pod(pod, self.snapshot), self.now) {
            return false;
        }
        if let Some(due) = self.memory.evictions.due_at(pod, attempt, self.now) {
            self.plan.wake_at(due);
            return false;
        }
        // The end of another one is followed by a decision.
        if !self.in_flight.begin(attempt) {
            return false;
        }
        self.memory.evictions.begin(pod, attempt, self.now);
        true
    }
}

/// Until when a pod refuses to be disrupted; `None` where that is not known.
fn refuses_until(pod: &Pod) -> Option<Timestamp> {
    match pod.do_not_disrupt {
        Some(DoNotDisrupt::For(time)) if !pod.opaque => pod.started_at?.saturating_add(time).ok(),
        _ => None,
    }
}

/// Evicts or deletes a pod, and reports the API server's answer.
#[derive(Debug)]
pub struct EvictionScript {
    effect: Option<Effect>,
    pod: Uid,
}

impl EvictionScript {
    /// The script of this effect on a pod.
    #[must_use]
    pub fn new(effect: Effect, pod: Uid) -> Self {
        Self { effect: Some(effect), pod }
    }
}

impl Script for EvictionScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        if let Some(effect) = self.effect.take() {
            return Step::perform(effect);
        }
        let (refusal, error) = match reply {
            // It has left, or another one has its name.
            None | Some(Ok(_) | Err(EffectError::Cluster(ClusterError::NotFound))) => (None, None),
            Some(Err(EffectError::Cluster(refusal))) => {
                let is_normal = refusal.is_budget() || refusal == ClusterError::Conflict;
                (Some(refusal), (!is_normal).then_some(EffectError::Cluster(refusal)))
            }
            Some(Err(error)) => return Step::failed(error),
        };
        let eviction = Some(Box::new(EvictionReport { pod: self.pod.clone(), refusal, at: now }));
        Step::End(CommandReport { eviction, error, ..CommandReport::default() })
    }
}
