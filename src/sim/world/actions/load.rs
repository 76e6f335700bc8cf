//! The actions of a scenario that concern every policy on a simulated cluster: those on the load, and on what Azure sells.

use super::Action;
use crate::cloud::{Faults, Limits};
use crate::cluster::Cluster;
use crate::workload::SuspendedJobs;
use jiff::Timestamp;
use napkeeper_core::catalog::CapacityType;

/// What such actions change, of a policy that keeps its own VMs.
pub(crate) struct LoadTargets<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) jobs: &'a mut SuspendedJobs,
    pub(crate) limits: &'a mut Limits,
    pub(crate) faults: &'a mut Faults,
}

impl LoadTargets<'_> {
    /// Applies an action; those on VMs are the policy's to apply, and all others concern napkeeper's own objects, or are
    /// outages, which only napkeeper has.
    pub(crate) fn apply(self, action: Action, now: Timestamp) {
        match action {
            Action::Scale { workload, replicas } => self.cluster.scale(&workload, replicas, now),
            Action::Rollout { workload, rollout } => self.cluster.roll_out(&workload, rollout, now),
            Action::StartJob { workload } => {
                if let Some((key, job)) = self.jobs.run(&workload) {
                    self.cluster.apply_workload(key, job, now);
                }
            }
            Action::Delete { workload } => self.cluster.delete_workload(&workload, now),
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
