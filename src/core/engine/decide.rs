//! Runs all deciders and joins their plans.
//!
//! Each concern has its decider, a pure function at its own cadence. Disruption, which may think for long, decides apart
//! from the others, which decide at once.

use crate::catalog::SizeFacts;
use crate::disruption::reconcile_pool_deletions;
use crate::history::{HistoryMemory, record_removals};
use crate::lifecycle::{LaunchCheck, LifecycleMemory, lifecycle};
use crate::model::names::{NodePoolName, VmSize};
use crate::model::settings::{ControllerMode, Settings};
use crate::model::support::write_times::WriteTimes;
use crate::orphans::{SweepMemory, sweep};
use crate::plan::{CommandReport, Plan};
use crate::provisioning::{ProvisionMemory, provision};
use crate::scheduling::OverlayMemory;
use crate::snapshot::{CommandKey, Snapshot};
use crate::static_capacity::{StaticCapacityMemory, reconcile_static_capacity};
use crate::status::{StatusMemory, report_overlays, report_status};
use jiff::Timestamp;
use std::sync::Arc;

/// The deciders' memory between decisions. Every part is disposable, and documents why; state that must survive a crash
/// is written to NodeClaims and OrphanRecords instead.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Of the check whether nodes may be launched in this cluster.
    pub launch_check: LaunchCheck,
    /// Of provisioning.
    pub provision: ProvisionMemory,
    /// Of the lifecycle.
    pub lifecycle: LifecycleMemory,
    /// Of pools of fixed size.
    pub static_capacity: StaticCapacityMemory,
    /// Of NodeOverlays.
    pub overlays: OverlayMemory,
    /// Of sweeps.
    pub sweep: SweepMemory,
    /// Of the statuses of NodePools, AKSNodeClasses and NodeOverlays.
    pub status: StatusMemory,
    /// When finalizers of NodePools were last written, and by which command. If lost, one may be written once too often.
    pool_writes: WriteTimes<NodePoolName, &'static str>,
    /// Of the removals of nodes.
    pub history: HistoryMemory,
}

impl Memory {
    /// Records the report of a command.
    pub fn record(&mut self, report: &CommandReport, facts: impl Fn(&VmSize) -> Option<Arc<SizeFacts>>) {
        for refusal in &report.launch_refusals {
            self.provision.unavailable.record(refusal, facts(&refusal.offering.size).as_deref());
        }
        self.launch_check.record(report);
        if let Some(launch) = &report.launch {
            self.lifecycle.record_launch(launch);
        }
        if let Some(termination) = &report.termination {
            self.lifecycle.termination_denials.record(termination);
        }
        if let Some(eviction) = &report.eviction {
            self.lifecycle.record_eviction(eviction);
        }
        self.sweep.record(report);
        self.history.record(report);
    }
}

/// Decides all but disruption: what to do now. `seed` is the only source of randomness: equal arguments give equal plans.
pub fn decide(snapshot: &Snapshot, memory: &mut Memory, settings: &Settings, now: Timestamp, seed: u64) -> Plan {
    if settings.mode == ControllerMode::Provisioner {
        memory.overlays.refresh(snapshot);
    }
    let mut plan = lifecycle(snapshot, &mut memory.lifecycle, &memory.provision, settings, now);
    let statuses = report_status(snapshot, &memory.lifecycle.pool_failures, &mut memory.status, settings, now);
    if settings.mode == ControllerMode::Provisioner {
        plan.extend(report_overlays(snapshot, &memory.overlays.conflicts, &mut memory.status, now));
    }
    // One object is written once at a time: the status first, as a finalizer whose write is refused is tried for ever.
    let seen = (!statuses.commands.is_empty()).then(|| with_in_progress(snapshot, &statuses));
    plan.extend(statuses);
    plan.extend(pool_deletions(seen.as_ref().unwrap_or(snapshot), &mut memory.pool_writes, settings, now));
    plan.extend(record_removals(snapshot, &mut memory.history, settings, now));
    let static_capacity_plan =
        reconcile_static_capacity(snapshot, &mut memory.static_capacity, &memory.provision, settings, now, seed);
    // Nodes that static pools are about to launch or delete: the new ones are available to pods, the others are not.
    let seen = (!static_capacity_plan.commands.is_empty()).then(|| with_in_progress(snapshot, &static_capacity_plan));
    let snapshot = seen.as_ref().unwrap_or(snapshot);
    plan.extend(static_capacity_plan);
    plan.extend(provision(snapshot, &mut memory.provision, settings, now, seed));
    plan.extend(sweep(snapshot, &mut memory.sweep, settings, now));
    plan
}

/// What deletions of NodePools need. A write to a NodePool that has changed nothing is repeated less often each time: the right
/// to it may be missing.
fn pool_deletions(
    snapshot: &Snapshot,
    writes: &mut WriteTimes<NodePoolName, &'static str>,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let mut plan = reconcile_pool_deletions(snapshot, settings, now);
    writes.retain(|name| snapshot.pools().get(name).is_some() || snapshot.invalid_pools().get(name).is_some());
    for planned in std::mem::take(&mut plan.commands) {
        let begun = match planned.command.key() {
            CommandKey::Pool(pool) => writes.begin(&pool, planned.command.name(), true, now),
            _ => Ok(()),
        };
        match begun {
            Ok(()) => plan.commands.push(planned),
            Err(due) => plan.wake_at(due),
        }
    }
    plan
}

/// The Snapshot with the commands of a plan in progress.
fn with_in_progress(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut seen = snapshot.clone();
    seen.in_progress.extend(plan.commands.iter().map(|planned| planned.command.key()));
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::Spot;
    use crate::fixtures::{at, claim, cluster, intent, managed, offering, pool, put, settings, start};
    use crate::model::azure::cloud::ResourceKind;
    use crate::model::cluster::claim::Claim;
    use crate::model::cluster::pool::NodePool;
    use crate::model::cluster::status::PoolDeletion;
    use crate::plan::{Command, LaunchReport, TerminationReport};

    /// Decides with NodeClaims whose launches have begun; without what is told of NodePools and AKSNodeClasses.
    fn decided(claims: &[Claim], memory: &mut Memory, seconds: i64) -> Vec<Command> {
        let mut snapshot = cluster([pool("general")]);
        claims.iter().for_each(|claim| snapshot.put_claim(claim.clone()));
        let plan = decide(&snapshot, memory, &settings(), at(seconds), 7);
        let is_status = |command: &Command| matches!(command, Command::ReportPool(_) | Command::ReportClass(_));
        plan.commands.into_iter().map(|planned| planned.command).filter(|command| !is_status(command)).collect()
    }

    fn launching(name: &str) -> Claim {
        let offering = offering("Standard_D2s_v5", 1, Spot);
        let claim = claim(name, &pool("general"), vec![offering.clone()]);
        Claim { intent: Some(intent(&claim, offering)), ..claim }
    }

    #[test]
    fn a_denied_delete_of_one_claim_suspends_its_kind_for_the_next() {
        let claims = ["general-a", "general-b"].map(|name| Claim { deleting_at: Some(start()), ..launching(name) });
        let mut memory = Memory::default();
        let denied = TerminationReport {
            stopped_at: Some(ResourceKind::Nic),
            is_denied: true,
            at: at(60),
            ..TerminationReport::of(claims[0].name.clone())
        };
        let report = CommandReport { termination: Some(Box::new(denied)), ..CommandReport::default() };
        memory.record(&report, |_| None);
        let terminated: Vec<_> = decided(&claims, &mut memory, 61)
            .into_iter()
            .filter_map(|command| match command {
                Command::Terminate(terminate) => Some((terminate.claim.name.to_string(), terminate.held)),
                _ => None,
            })
            .collect();
        assert_eq!(terminated, [("general-b".to_owned(), [ResourceKind::Nic].into())]);
    }

    #[test]
    fn a_launch_that_azure_is_still_working_on_goes_on() {
        let claim = launching("general-a");
        let decide_after = |is_creating: bool| {
            let mut memory = Memory::default();
            let launch = Some(Box::new(LaunchReport { claim: claim.name.clone(), is_creating }));
            memory.record(&CommandReport { launch, ..CommandReport::default() }, |_| None);
            let commands = decided(std::slice::from_ref(&claim), &mut memory, 6 * 60);
            commands.iter().map(Command::name).collect::<Vec<_>>()
        };
        assert_eq!(decide_after(true), ["launch"]);
        assert_eq!(decide_after(false), ["delete_claim"]);
    }

    /// As without the right to patch NodePools.
    #[test]
    fn a_finalizer_that_is_refused_does_not_keep_the_status_from_being_written() {
        let mut snapshot = cluster([NodePool { deletion: PoolDeletion::default(), ..pool("general") }]);
        let mut memory = Memory::default();
        let (mut holds, mut reports) = (0, Vec::new());
        for second in (0..3600).step_by(5) {
            if second == 1800 {
                put(&mut snapshot, managed("general-a", &pool("general"), offering("Standard_D2s_v5", 1, Spot)));
            }
            for planned in decide(&snapshot, &mut memory, &settings(), at(second), 7).commands {
                match planned.command {
                    Command::HoldPool { .. } => holds += 1,
                    Command::ReportPool(report) => {
                        let known = snapshot.pools().get(&report.pool).unwrap();
                        let pool = NodePool { status: report.status, ..NodePool::clone(known) };
                        reports.push((second, pool.status.nodes));
                        snapshot.put_pool(report.pool, pool);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(reports.first(), Some(&(0, Some(0))));
        assert!(reports.contains(&(1800, Some(1))), "{reports:?}");
        assert!((5..20).contains(&holds), "{holds} attempts in an hour");
    }
}
