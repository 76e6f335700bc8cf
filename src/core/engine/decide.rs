//! Deciding: what is to be done now?
//!
//! Each concern has its decider, a pure function at its own cadence. [`decide`] composes them, for `plan` and
//! `simulate`; the controller may run them apart.

use crate::catalog::SizeFacts;
use crate::disruption::{DisruptionMemory, disrupt};
use crate::lifecycle::{LifecycleMemory, lifecycle};
use crate::model::names::VmSize;
use crate::model::settings::{Mode, Settings};
use crate::orphans::{SweepMemory, sweep};
use crate::plan::{Plan, Report};
use crate::provisioning::{ProvisionMemory, provision};
use crate::scheduling::OverlayMemory;
use crate::snapshot::Snapshot;
use crate::static_capacity::{FleetMemory, keep};
use jiff::Timestamp;
use std::sync::Arc;

/// What the deciders remember from one decision to the next. Every part is disposable, and says why; what must survive
/// a crash is written on NodeClaims and OrphanRecords instead.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Of provisioning.
    pub provision: ProvisionMemory,
    /// Of the lifecycle.
    pub lifecycle: LifecycleMemory,
    /// Of pools of fixed size.
    pub fleets: FleetMemory,
    /// Of NodeOverlays.
    pub overlays: OverlayMemory,
    /// Of disruption.
    pub disruption: DisruptionMemory,
    /// Of sweeps.
    pub sweep: SweepMemory,
}

impl Memory {
    /// Learns from what came of a command.
    pub fn note(&mut self, report: &Report, facts: impl Fn(&VmSize) -> Option<Arc<SizeFacts>>) {
        for refusal in &report.refused {
            self.provision.unavailable.note(refusal, facts(&refusal.offering.size).as_deref());
        }
        self.sweep.note(report);
    }
}

/// Decides what is to be done now. `seed` is the only source of chance: equal arguments give equal plans.
pub fn decide(snapshot: &Snapshot, memory: &mut Memory, settings: &Settings, now: Timestamp, seed: u64) -> Plan {
    if settings.mode == Mode::Provisioner {
        memory.overlays.look(snapshot);
    }
    let mut plan = lifecycle(snapshot, &mut memory.lifecycle, settings, now);
    let fleets = keep(snapshot, &mut memory.fleets, &memory.provision, settings, now, seed);
    // Nodes that pools of fixed size are about to get or lose: pods wait for the one, and nobody counts on the other.
    let seen = (!fleets.commands.is_empty()).then(|| with_started(snapshot, &fleets));
    let snapshot = seen.as_ref().unwrap_or(snapshot);
    plan.extend(fleets);
    plan.extend(provision(snapshot, &mut memory.provision, settings, now, seed));
    plan.extend(disrupt(snapshot, &mut memory.disruption, &memory.provision, settings, now, seed));
    plan.extend(sweep(snapshot, &mut memory.sweep, settings, now));
    plan
}

/// What is known, once the commands of a plan have been started.
fn with_started(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut seen = snapshot.clone();
    seen.in_progress.extend(plan.commands.iter().map(|planned| planned.command.key()));
    seen
}
