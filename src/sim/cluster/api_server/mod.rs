//! The API server's answers to the controller's reads and writes.

mod claims;
mod edits;
mod finalizers;
mod listing;
mod pools;
mod statuses;

use super::{Cluster, Delta};
use crate::workload::PodBudget;
pub use finalizers::FinalizedObject;
use jiff::{SignedDuration, Timestamp};
pub(super) use listing::ApiServerFaults;
pub use listing::ClusterListing;
use napkeeper_core::model::cluster::node_record::with_removals;
use napkeeper_core::model::cluster::pod::{Pod, PodPhase};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{NodeName, ObjectKey, Uid};
use napkeeper_core::orphans::apply;
use napkeeper_core::plan::{ClusterRead, ClusterWrite, RecordChange, Reply, SweepReport};
pub use pools::Propagation;
use std::sync::Arc;

impl Cluster {
    /// Writes to the cluster.
    ///
    /// # Errors
    /// [`EffectError::Cluster`] as the API server would refuse it, or while faults are injected.
    pub fn write(&mut self, write: &ClusterWrite, now: Timestamp) -> Result<Reply, EffectError> {
        self.advance_clock(now);
        let reply = self.faults.check_reachable(self.now).and_then(|()| self.accept(write));
        reply.map(|()| Reply::Done).map_err(EffectError::Cluster)
    }

    /// Reads from the cluster.
    ///
    /// # Errors
    /// As [`Cluster::write`].
    pub fn read(&mut self, read: &ClusterRead, now: Timestamp) -> Result<Reply, EffectError> {
        self.advance_clock(now);
        let reply = self.faults.check_reachable(self.now).and_then(|()| self.answer(read));
        reply.map_err(EffectError::Cluster)
    }

    fn accept(&mut self, write: &ClusterWrite) -> Result<(), ClusterError> {
        match write {
            ClusterWrite::CreateClaim(draft) => self.create_claim(draft)?,
            ClusterWrite::WriteIntent(claim, intent) => self.write_intent(claim, intent)?,
            ClusterWrite::UpdateClaim(claim, step) => self.advance_claim(claim, step)?,
            ClusterWrite::UpdateNode(name, uid, step) => self.advance_node(name, uid, step)?,
            ClusterWrite::DeleteClaim(claim) => self.delete_claim_object(claim)?,
            ClusterWrite::RemoveFinalizer(claim) => self.release_claim(claim)?,
            ClusterWrite::DeleteNode(name, uid) => {
                self.node(name, uid)?;
                self.release_node(name);
            }
            ClusterWrite::Evict(pod, uid) => self.evict(pod, uid)?,
            ClusterWrite::DeletePod(pod, uid, grace) => self.delete_incarnation(pod, uid, Some(*grace))?,
            ClusterWrite::RecordDeadline(claim, deadline) => self.record_deadline(claim, *deadline)?,
            ClusterWrite::WriteRecords(change) => {
                self.faults.check_records(self.now)?;
                apply(Arc::make_mut(&mut self.store.records), RecordChange::clone(change));
                let records = Arc::clone(&self.store.records);
                self.deltas.push(Delta::Records(records));
            }
            ClusterWrite::ReportSweep(report) => self.report_sweep(report)?,
            ClusterWrite::HoldPool(pool, uid) => self.hold_pool(pool, uid)?,
            ClusterWrite::ReleasePool(release) => self.release_pool(release)?,
            ClusterWrite::DisownClaim(claim) => self.disown_claim(claim)?,
            ClusterWrite::ReportPool(report) => self.report_pool(report)?,
            ClusterWrite::ReportClass(report) => self.report_class(report)?,
            ClusterWrite::ReportOverlay(report) => self.report_overlay(report)?,
            ClusterWrite::RecordRemovals(change) => {
                let known = self.removals.remove(&change.shard).unwrap_or_default();
                self.removals.insert(change.shard, with_removals(known, change.removals.iter().cloned()));
            }
        }
        Ok(())
    }

    fn answer(&mut self, read: &ClusterRead) -> Result<Reply, ClusterError> {
        match read {
            ClusterRead::Claim(name) => {
                self.faults.check_allowed(ClusterListing::Claims)?;
                Ok(Reply::Claim(self.store.claims().get(name).cloned()))
            }
            ClusterRead::Node(provider) => {
                self.faults.check_allowed(ClusterListing::Nodes)?;
                let named = || {
                    let name = provider.vm().name().to_ascii_lowercase();
                    self.store.nodes().values().find(|node| node.name.as_str() == name)
                };
                Ok(Reply::Node(self.store.node_by_provider_id(provider).or_else(named).cloned()))
            }
            ClusterRead::Pods(node) => {
                let keys = self.store.node_usage(node).map(|u| &u.pods).into_iter().flatten();
                Ok(Reply::Pods(keys.filter_map(|key| self.store.pods().get(key)).cloned().collect()))
            }
            ClusterRead::Volume(name) => {
                self.faults.check_allowed(ClusterListing::Volumes)?;
                Ok(Reply::Volume(self.store.volumes().get(name).cloned()))
            }
        }
    }

    fn report_sweep(&mut self, report: &SweepReport) -> Result<(), ClusterError> {
        if self.store.sweeps().get(&report.sweep).is_none() {
            return Err(ClusterError::NotFound);
        }
        self.reports.insert(report.sweep.clone(), report.clone());
        Ok(())
    }

    /// The eviction API: pods that do not run may always go; others only if the budget that guards them allows it, or
    /// its `unhealthyPodEvictionPolicy` if they are not ready. What several budgets guard is never evicted.
    fn evict(&mut self, key: &ObjectKey, uid: &Uid) -> Result<(), ClusterError> {
        let pod = self.store.pods().get(key).ok_or(ClusterError::NotFound)?;
        if pod.uid != *uid {
            return Err(ClusterError::Conflict);
        }
        let protecting: Vec<&PodBudget> = self.budgets.values().filter(|budget| budget.guards_pod(pod)).collect();
        let refusal = match protecting[..] {
            [budget] if !self.allows_eviction(budget, pod) => Some(ClusterError::Budget { retry_after: 0 }),
            [] | [_] => None,
            _ => Some(ClusterError::SeveralBudgets),
        };
        if let Some(refusal) = refusal.filter(|_| pod.phase == PodPhase::Running && pod.deleting_at.is_none()) {
            return Err(refusal);
        }
        let pod = Arc::clone(pod);
        self.count_eviction(&pod);
        self.end_pod(key);
        Ok(())
    }

    fn allows_eviction(&self, budget: &PodBudget, pod: &Pod) -> bool {
        let counts = self.counts_of(budget);
        counts.allows_one() || !pod.ready && counts.allows_unready(budget)
    }

    /// The policy deletes a pod past all budgets, as at the end of a termination grace period.
    ///
    /// # Errors
    /// [`ClusterError`] when there is no such pod of this UID.
    pub fn delete_pod_by_policy(&mut self, key: &ObjectKey, uid: &Uid, now: Timestamp) -> Result<(), ClusterError> {
        self.advance_clock(now);
        self.delete_incarnation(key, uid, None)
    }

    /// Deletes a pod of this UID, with so much time to end; `None` is its own.
    fn delete_incarnation(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<SignedDuration>,
    ) -> Result<(), ClusterError> {
        let pod = self.store.pods().get(key).map(Arc::clone).ok_or(ClusterError::NotFound)?;
        if pod.uid != *uid {
            return Err(ClusterError::Conflict);
        }
        self.count_eviction(&pod);
        self.end_pod_within(key, grace.unwrap_or(SignedDuration::MAX));
        Ok(())
    }

    /// The policy deletes the VM of a node: pods that still run on it end by force, and count as evicted.
    pub fn vm_deleted_by_policy(&mut self, node: &NodeName, now: Timestamp) {
        self.advance_clock(now);
        let keys = self.store.node_usage(node).map(|usage| &usage.pods).into_iter().flatten();
        let pods: Vec<_> = keys.filter_map(|key| self.store.pods().get(key)).map(Arc::clone).collect();
        for pod in pods.iter().filter(|pod| pod.phase == PodPhase::Running) {
            self.count_eviction(pod);
        }
    }

    /// The policy ends a pod. One whose machine is lost has ended before.
    fn count_eviction(&mut self, pod: &Pod) {
        if !pod.node.as_ref().is_some_and(|node| self.kubelets.is_lost(node)) {
            self.measures.pod_evicted(pod, self.now);
        }
    }

    /// The PodDisruptionBudgets, and whether each allows an eviction now.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (&PodBudget, bool)> {
        self.budgets.values().map(|budget| (budget, self.counts_of(budget).allows_one()))
    }
}
