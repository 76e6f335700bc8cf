//! Applies those actions of a scenario that concern this peer too.

use super::Karpenter;
use crate::cloud::Timings as CloudTimings;
use crate::world::Action;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::pod::{PodOwner, PodPhase};
use napkeeper_core::model::names::NodeName;

impl Karpenter {
    /// Applies an action on the load or on Azure's capacity; all others concern napkeeper's own objects, or are
    /// outages, which this peer does not have.
    pub(super) fn apply_action(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Scale { workload, replicas } => self.cluster.scale(&workload, replicas, now),
            Action::StartJob { workload } => {
                if let Some((key, job)) = self.jobs.run(&workload) {
                    self.cluster.apply_workload(key, job, now);
                }
            }
            Action::Delete { workload } => self.cluster.delete_workload(&workload, now),
            Action::EvictSpot { count } => self.evict_spot(count),
            Action::Quota { family, capacity_type, cores } => match (family, cores, capacity_type) {
                (Some(family), Some(cores), _) => drop(self.limits.families.insert(family, cores)),
                (Some(family), None, _) => drop(self.limits.families.remove(&family)),
                (None, cores, Some(CapacityType::Spot)) => self.limits.spot = cores,
                (None, cores, _) => self.limits.regional = cores,
            },
            Action::Refuse(shortage) => self.faults.refused.push(shortage.shortage(now)),
            Action::NoCapacity(shortage) => self.faults.unallocatable.push(shortage.shortage(now)),
            _ => {}
        }
    }

    /// Azure gives eviction notice to spot VMs, those with running pods first.
    fn evict_spot(&mut self, count: usize) {
        let mut spot: Vec<NodeName> =
            self.claims.iter().filter(|(_, claim)| claim.may_be_taken()).map(|(name, _)| name.clone()).collect();
        spot.sort_by_cached_key(|name| !self.is_busy(name));
        let at = self.now + CloudTimings::default().eviction_notice;
        for name in spot.iter().take(count) {
            if let Some(claim) = self.claims.get_mut(name) {
                claim.taken_at = Some(at);
            }
        }
    }

    fn is_busy(&self, node: &NodeName) -> bool {
        let mut pods = self.cluster.state().pods_on(node);
        pods.any(|p| p.phase == PodPhase::Running && !matches!(p.owner, PodOwner::DaemonSet | PodOwner::Static))
    }
}
