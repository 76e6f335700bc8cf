//! Families whose pods are hard to move; nodes are bought on demand.

use crate::world::{WorldBuilder, key, minutes, spread_over};
use anyhow::Result;
use jiff::SignedDuration;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, PodShape};
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::labels;
use napkeeper_sim::workload::{BudgetLimit, DiskRequest, PodTemplate, Workload, WorkloadKind};
use napkeeper_sim::world::Action;
use napkeeper_tests::fixtures;
use std::sync::Arc;

/// Budgets of one pod, or none at all, and spread over zones and hosts.
pub(super) fn tight_budgets_and_spread(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let mut loads = Vec::new();
    for i in 0..20 {
        let name = format!("tight-{i}");
        let cpu = i64::from(builder.between(1, 4)) * 500;
        let mut shape = PodShape::clone(&fixtures::shape(&name, cpu, 2 * cpu, true));
        if i % 2 == 0 {
            shape.spread.push(spread_over(labels::HOSTNAME, 2, &name)?);
        }
        let replicas = builder.between(8, 24);
        loads.push(builder.deployment(&name, Arc::new(shape), replicas)?);
        // One in ten can never be evicted.
        let limit = if i % 10 == 9 { BudgetLimit::MaxUnavailable(0) } else { BudgetLimit::MaxUnavailable(1) };
        builder.budget(&name, limit)?;
    }
    builder.follow_the_day(&loads, minutes(30), 3);
    Ok(())
}

/// A third of the load are StatefulSets with a zonal disk for each pod.
pub(super) fn zonal_disks(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    for i in 0..8 {
        let name = format!("db-{i}");
        let cpu = i64::from(builder.between(2, 6)) * 500;
        let template = PodTemplate::new(fixtures::shape(&name, cpu, 4 * cpu, true));
        let replicas = builder.between(3, 9);
        let disk = Some(DiskRequest { size_gib: 128, reclaim: ReclaimPolicy::Delete });
        builder.workload(&name, template, WorkloadKind::StatefulSet { replicas, disk }, replicas)?;
        builder.budget(&name, BudgetLimit::MaxUnavailable(1))?;
    }
    let loads = builder.deployments(13)?;
    builder.follow_the_day(&loads, minutes(30), 3);
    Ok(())
}

/// A third of the load are Jobs of two to nine hours that must not be disrupted.
pub(super) fn long_jobs(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    for i in 0..6 {
        let name = format!("train-{i}");
        let cpu = i64::from(builder.between(1, 3)) * 1_000;
        let mut template = PodTemplate::new(fixtures::shape(&name, cpu, 4 * cpu, false));
        template.do_not_disrupt = Some(DoNotDisrupt::Always);
        let pods = builder.between(4, 12);
        let run_for = SignedDuration::from_mins(i64::from(builder.between(120, 540)));
        let kind = WorkloadKind::Job { parallelism: pods, completions: pods, run_for };
        let job = key(&name)?;
        builder.world.setup.manifests.suspended.push((job.clone(), Workload { template, kind }));
        for run in 0..3 * builder.days() {
            let after = builder.minute_of_day(run / 3);
            builder.at(after, Action::StartJob { workload: job.clone() });
        }
    }
    let loads = builder.deployments(13)?;
    builder.follow_the_day(&loads, minutes(30), 3);
    Ok(())
}
