//! Applies those actions of a scenario that concern the baseline too.

use super::Autoscaler;
use crate::world::Action;
use napkeeper_core::catalog::CapacityType;

impl Autoscaler {
    /// Applies an action if it is about the load or about what Azure sells; all others are about napkeeper's own things, or
    /// are outages that the baseline is spared.
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
}
