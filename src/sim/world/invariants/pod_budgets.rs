//! The invariant that no PodDisruptionBudget is broken, by the simulator's own count of healthy pods.

use super::Violation;
use crate::world::World;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::plan::{ClusterWrite, Reply};
use std::collections::BTreeMap;

impl World {
    /// Writes to the cluster. What ends a pod leaves each PodDisruptionBudget as many healthy pods as it demands, until
    /// the drain of the node must be over.
    pub(in crate::world) fn write_within_budgets(
        &mut self,
        write: &ClusterWrite,
    ) -> Result<Result<Reply, EffectError>, Violation> {
        let pod = match write {
            ClusterWrite::Evict(pod, _) | ClusterWrite::DeletePod(pod, ..) => self.cluster.state().pods().get(pod),
            _ => return Ok(self.cluster.write(write, self.now)),
        };
        if pod.is_none_or(|pod| self.must_end(pod)) {
            return Ok(self.cluster.write(write, self.now));
        }
        let before: BTreeMap<ObjectKey, u32> =
            self.cluster.budget_health().map(|(key, healthy, _)| (key.clone(), healthy)).collect();
        let reply = self.cluster.write(write, self.now);
        let is_broken = |(key, healthy, demanded): &(&ObjectKey, u32, u32)| {
            healthy < demanded && before.get(*key).is_some_and(|before| healthy < before)
        };
        match self.cluster.budget_health().find(is_broken) {
            Some((key, healthy, demanded)) => {
                let message = format!("{write:?} leaves {healthy} healthy pods to {key}, which demands {demanded}");
                Err(self.violation("pod-budget", message))
            }
            None => Ok(reply),
        }
    }

    /// Only the pod's own grace period is left until the drain of its node must be over.
    fn must_end(&self, pod: &Pod) -> bool {
        let cluster = self.cluster.state();
        let node = pod.node.as_ref().and_then(|node| cluster.nodes().get(node));
        let claim = node.and_then(|node| cluster.claim_by_provider_id(node.provider_id.as_ref()?));
        let deadline = claim.and_then(|claim| claim.drain_deadline());
        deadline.is_some_and(|deadline| deadline - pod.termination_grace <= self.now + self.truth.clock_error)
    }
}
