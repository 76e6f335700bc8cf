//! The API server: what does it answer to an effect?

use super::{Cluster, Delta, Listed};
use crate::workload::PodBudget;
use jiff::Timestamp;
use napkeeper_core::model::cluster::pod::{Pod, PodPhase};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{ObjectKey, Uid};
use napkeeper_core::orphans::apply;
use napkeeper_core::plan::{Effect, RecordChange, Reply, SweepReport};
use std::sync::Arc;

impl Cluster {
    /// Performs an effect on Kubernetes. `None` when the effect is one on Azure, or takes both.
    ///
    /// # Errors
    /// [`EffectError::Cluster`] as the API server would refuse it, or while faults are injected.
    pub fn perform(&mut self, effect: &Effect, now: Timestamp) -> Option<Result<Reply, EffectError>> {
        self.reach(now);
        if is_of_azure(effect) {
            return None;
        }
        let reply = self.faults.check_reachable(self.now).and_then(|()| self.answer(effect));
        Some(reply.map_err(EffectError::Cluster))
    }

    fn answer(&mut self, effect: &Effect) -> Result<Reply, ClusterError> {
        match effect {
            Effect::CreateClaim(draft) => self.create_claim(draft)?,
            Effect::WriteIntent(claim, intent) => self.write_intent(claim, intent)?,
            Effect::UpdateClaim(claim, step) => self.advance_claim(claim, step)?,
            Effect::UpdateNode(name, uid, step) => self.advance_node(name, uid, step)?,
            Effect::DeleteClaim(claim) => self.delete_claim_object(claim)?,
            Effect::RemoveFinalizer(claim) => self.release_claim(claim)?,
            Effect::DeleteNode(name, uid) => {
                self.node(name, uid)?;
                self.take_node(name);
            }
            Effect::Evict(pod, uid) => self.evict(pod, uid)?,
            Effect::WriteRecords(change) => {
                apply(Arc::make_mut(&mut self.store.records), RecordChange::clone(change));
                let records = Arc::clone(&self.store.records);
                self.deltas.push(Delta::Records(records));
            }
            Effect::ReportSweep(report) => self.report_sweep(report)?,
            Effect::ReadClaim(name) => {
                self.faults.check_allowed(Listed::Claims)?;
                return Ok(Reply::Claim(self.store.claims().get(name).cloned()));
            }
            Effect::ReadNode(provider) => {
                self.faults.check_allowed(Listed::Nodes)?;
                let named = || {
                    let name = provider.vm().name().to_ascii_lowercase();
                    self.store.nodes().values().find(|node| node.name.as_str() == name)
                };
                return Ok(Reply::Node(self.store.node_by_provider_id(provider).or_else(named).cloned()));
            }
            Effect::ReadPods(node) => {
                let keys = self.store.node_usage(node).map(|u| &u.pods).into_iter().flatten();
                return Ok(Reply::Pods(keys.filter_map(|key| self.store.pods().get(key)).cloned().collect()));
            }
            Effect::ReadVolume(name) => {
                self.faults.check_allowed(Listed::Volumes)?;
                return Ok(Reply::Volume(self.store.volumes().get(name).cloned()));
            }
            Effect::Get(_)
            | Effect::PutNic(_)
            | Effect::PutVm(_)
            | Effect::PutBillingExtension(_)
            | Effect::AksMachine(_)
            | Effect::Delete(..)
            | Effect::Tag(..)
            | Effect::Untag(..)
            | Effect::Poll(_)
            | Effect::TakeInventory => {}
        }
        Ok(Reply::Done)
    }

    fn report_sweep(&mut self, report: &SweepReport) -> Result<(), ClusterError> {
        if self.store.sweeps().get(&report.sweep).is_none() {
            return Err(ClusterError::NotFound);
        }
        self.reports.insert(report.sweep.clone(), report.clone());
        Ok(())
    }

    /// The eviction API: pods that do not run may always go; others only if every budget that guards them allows it.
    fn evict(&mut self, key: &ObjectKey, uid: &Uid) -> Result<(), ClusterError> {
        let pod = self.store.pods().get(key).ok_or(ClusterError::NotFound)?;
        if pod.uid != *uid {
            return Err(ClusterError::Conflict);
        }
        let guarded = pod.phase == PodPhase::Running && pod.deleting_at.is_none();
        let shape = &pod.shape;
        let refused = |budget: &PodBudget| budget.guards(&shape.namespace, &shape.labels) && !self.has_spare(budget);
        if guarded && self.budgets.values().any(refused) {
            return Err(ClusterError::Budget);
        }
        self.end_pod(key);
        Ok(())
    }

    /// True when a budget allows one healthy pod to go. Pods of DaemonSets are not counted.
    fn has_spare(&self, budget: &PodBudget) -> bool {
        let guards = |pod: &Pod| budget.guards(&pod.shape.namespace, &pod.shape.labels);
        let healthy = |pods: &mut dyn Iterator<Item = &ObjectKey>| {
            let pods = pods.filter_map(|key| self.store.pods().get(key));
            let healthy = pods.filter(|p| guards(p) && PodBudget::is_healthy(p));
            u32::try_from(healthy.count()).unwrap_or(u32::MAX)
        };
        let bare = healthy(&mut self.workloads.bare.iter());
        let (mut running, mut wanted) = (bare, bare);
        for entry in self.workloads.all.values() {
            let shape = &entry.workload.template.shape;
            if budget.guards(&shape.namespace, &shape.labels) {
                running += healthy(&mut entry.pods.iter());
                wanted += entry.workload.wanted(entry.succeeded);
            }
        }
        budget.allows(running, wanted)
    }
}

fn is_of_azure(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Get(_)
            | Effect::PutNic(_)
            | Effect::PutVm(_)
            | Effect::PutBillingExtension(_)
            | Effect::AksMachine(_)
            | Effect::Delete(..)
            | Effect::Tag(..)
            | Effect::Untag(..)
            | Effect::Poll(_)
            | Effect::TakeInventory
    )
}
