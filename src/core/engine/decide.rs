//! Runs all deciders and joins their plans.
//!
//! Each concern has its decider, a pure function at its own cadence. [`decide`] composes them, for `plan` and
//! `simulate`; the controller may run them apart.

use crate::catalog::SizeFacts;
use crate::disruption::{DisruptionMemory, disrupt};
use crate::lifecycle::{LaunchCheck, LifecycleMemory, lifecycle};
use crate::model::names::VmSize;
use crate::model::settings::{ControllerMode, Settings};
use crate::orphans::{SweepMemory, sweep};
use crate::plan::{CommandReport, Plan};
use crate::provisioning::{ProvisionMemory, provision};
use crate::scheduling::OverlayMemory;
use crate::snapshot::Snapshot;
use crate::static_capacity::{StaticCapacityMemory, reconcile_static_capacity};
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
    /// Of disruption.
    pub disruption: DisruptionMemory,
    /// Of sweeps.
    pub sweep: SweepMemory,
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
        self.sweep.record(report);
    }
}

/// Decides what to do now. `seed` is the only source of randomness: equal arguments give equal plans.
pub fn decide(snapshot: &Snapshot, memory: &mut Memory, settings: &Settings, now: Timestamp, seed: u64) -> Plan {
    if settings.mode == ControllerMode::Provisioner {
        memory.overlays.refresh(snapshot);
    }
    let mut plan = lifecycle(snapshot, &mut memory.lifecycle, settings, now);
    let static_capacity_plan =
        reconcile_static_capacity(snapshot, &mut memory.static_capacity, &memory.provision, settings, now, seed);
    // Nodes that static pools are about to launch or delete: the new ones are available to pods, the others are not.
    let seen = (!static_capacity_plan.commands.is_empty()).then(|| with_in_progress(snapshot, &static_capacity_plan));
    let snapshot = seen.as_ref().unwrap_or(snapshot);
    plan.extend(static_capacity_plan);
    plan.extend(provision(snapshot, &mut memory.provision, settings, now, seed));
    plan.extend(disrupt(snapshot, &mut memory.disruption, &memory.provision, settings, now, seed));
    plan.extend(sweep(snapshot, &mut memory.sweep, settings, now));
    plan
}

/// The Snapshot with the commands of a plan in progress.
fn with_in_progress(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut seen = snapshot.clone();
    seen.in_progress.extend(plan.commands.iter().map(|planned| planned.command.key()));
    seen
}
