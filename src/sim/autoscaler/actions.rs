//! Applies those actions of a scenario that concern the baseline too.

use super::Autoscaler;
use crate::world::Action;
use napkeeper_core::catalog::CapacityType;

impl Autoscaler {
    /// Applies an action on the load or on Azure's capacity; all others concern napkeeper's own objects, or are
    /// outages, which the baseline does not have.
    pub(super) fn apply_action(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Scale { workload, replicas } => self.cluster.scale(&workload, replicas, now),
            Action::Rollout { workload, rollout } => self.cluster.roll_out(&workload, rollout, now),
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
}
