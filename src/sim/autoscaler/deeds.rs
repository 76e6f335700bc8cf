//! Deeds: what of a scenario happens to the baseline too?

use super::Autoscaler;
use crate::world::Deed;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::names::{ObjectKey, ObjectName};

impl Autoscaler {
    /// Plays a deed if it is about the load or about what Azure sells; all others are about napkeeper's own things, or
    /// are outages that the baseline is spared.
    pub(super) fn play(&mut self, deed: Deed) {
        let now = self.now;
        match deed {
            Deed::Scale { workload, replicas } => self.cluster.scale(&workload, replicas, now),
            Deed::StartJob { workload } => self.start_job(&workload),
            Deed::Delete { workload } => self.cluster.delete_workload(&workload, now),
            Deed::EvictSpot { count } => self.evict_spot(count),
            Deed::Quota { family, capacity_type, cores } => match (family, cores, capacity_type) {
                (Some(family), Some(cores), _) => drop(self.limits.families.insert(family, cores)),
                (Some(family), None, _) => drop(self.limits.families.remove(&family)),
                (None, cores, Some(CapacityType::Spot)) => self.limits.spot = cores,
                (None, cores, _) => self.limits.regional = cores,
            },
            Deed::Refuse(scarce) => self.faults.refused.push(scarce.shortage(now)),
            Deed::NoCapacity(scarce) => self.faults.unallocatable.push(scarce.shortage(now)),
            _ => {}
        }
    }

    /// As the world does it: under a name of its own.
    fn start_job(&mut self, workload: &ObjectKey) {
        let Some(job) = self.suspended.get(workload).cloned() else { return };
        self.jobs_started += 1;
        let Ok(name) = ObjectName::new(format!("{}-{}", workload.name, self.jobs_started)) else { return };
        let key = ObjectKey { namespace: workload.namespace.clone(), name };
        self.cluster.apply_workload(key, job, self.now);
    }
}
