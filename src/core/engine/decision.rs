//! Decisions: what is decided together, from what, and whether its commands still apply.

use super::decide::{Memory, decide};
use crate::disruption::{DisruptionMemory, disrupt};
use crate::model::settings::{DeletionRule, Settings};
use crate::plan::{Command, Plan, PlannedCommand};
use crate::provisioning::{NOMINATION_PERIOD, ProvisionMemory, claim_draft};
use crate::scheduling::{NewNode, Target, UnavailableOfferings};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;

/// What is decided together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecisionKind {
    /// Lifecycle, provisioning, pools of fixed size and sweeps, which decide at once.
    Reconciliation,
    /// Disruption, which may think for long.
    Disruption,
}

impl DecisionKind {
    /// All kinds, in the order in which decisions of one instant are made.
    pub const ALL: [Self; 2] = [Self::Reconciliation, Self::Disruption];
}

/// All that a decision depends on, frozen.
#[derive(Debug)]
pub struct DecisionRequest {
    pub(super) snapshot: Snapshot,
    pub(super) memory: DeciderMemory,
}

/// The memory of a kind of decision.
#[derive(Debug)]
pub(super) enum DeciderMemory {
    Reconciliation(Box<Memory>),
    /// With what provisioning knows.
    Disruption(Box<(DisruptionMemory, ProvisionMemory)>),
}

/// A decision and its inputs.
#[derive(Debug)]
pub struct DecisionResult {
    pub(super) snapshot: Snapshot,
    pub(super) memory: DeciderMemory,
    pub(super) plan: Plan,
}

impl DecisionRequest {
    /// Decides. This is the heavy part.
    #[must_use]
    pub fn decide(mut self, settings: &Settings, now: Timestamp, seed: u64) -> DecisionResult {
        let mut plan = match &mut self.memory {
            DeciderMemory::Reconciliation(memory) => {
                let mut plan = memory.launch_check.decide(&self.snapshot, settings, now);
                hold_launches(memory, &mut self.snapshot, settings, now);
                plan.extend(decide(&self.snapshot, memory, settings, now, seed));
                plan
            }
            DeciderMemory::Disruption(memory) => {
                let (disruption, provision) = &mut **memory;
                disrupt(&self.snapshot, disruption, provision, settings, now, seed)
            }
        };
        // A pause ends and a maintenance window opens without a change of any object.
        let released = self.snapshot.pause.next_release(now);
        let by_time = released.into_iter().chain(settings.maintenance_windows.next_opening(now));
        by_time.for_each(|at| plan.wake_at(at));
        DecisionResult { snapshot: self.snapshot, memory: self.memory, plan }
    }
}

impl DecisionResult {
    /// What was decided.
    #[must_use]
    pub fn kind(&self) -> DecisionKind {
        self.memory.kind()
    }

    /// Where nodes are to be launched for pods that wait, lets another choose them, who knows which offerings Azure has
    /// refused: for comparisons of provisioners, in clusters without NodePools of fixed size and CapacityBuffers.
    pub fn replace_launches(
        &mut self,
        choose: impl FnOnce(&UnavailableOfferings) -> Vec<NewNode>,
        seed: u64,
        now: Timestamp,
    ) {
        let DeciderMemory::Reconciliation(memory) = &mut self.memory else { return };
        let is_launch = |planned: &PlannedCommand| matches!(planned.command, Command::CreateClaim(_));
        if !self.plan.commands.iter().any(is_launch) {
            return;
        }
        self.plan.commands.retain(|planned| !is_launch(planned));
        for (index, node) in choose(&memory.provision.unavailable).into_iter().enumerate() {
            let reason = format!("{} pending pods", node.pods.len());
            // Other names than those that pods are remembered to be planned for.
            if let Some(draft) = claim_draft(&self.snapshot, node, !seed, now, index) {
                memory.provision.nominated.insert(Target::Claim(draft.name.clone()), now + NOMINATION_PERIOD);
                self.plan.push(Command::CreateClaim(Box::new(draft)), reason);
            }
        }
    }
}

impl DeciderMemory {
    fn kind(&self) -> DecisionKind {
        match self {
            Self::Reconciliation(_) => DecisionKind::Reconciliation,
            Self::Disruption(_) => DecisionKind::Disruption,
        }
    }
}

/// Writes down what holds launches back.
pub(super) fn hold_launches(memory: &Memory, snapshot: &mut Snapshot, settings: &Settings, now: Timestamp) {
    snapshot.launch_hold.clone_from(&memory.launch_check.hold);
    if settings.deletion_rules.enforces(DeletionRule::FailingPoolsHeld) {
        snapshot.pool_holds = memory.lifecycle.pool_failures.holds(snapshot, now);
    }
}

/// True when the object of a command has changed since the decision.
pub(super) fn has_changed(key: &CommandKey, seen: &Snapshot, now: &Snapshot) -> bool {
    match key {
        CommandKey::Claim(name) => match (seen.claims().get(name), now.claims().get(name)) {
            (Some(seen), Some(now)) => !seen.is_decided_like(now),
            (seen, now) => seen != now,
        },
        CommandKey::Node(name) => seen.nodes().get(name) != now.nodes().get(name),
        CommandKey::Pod(key) => seen.pods().get(key) != now.pods().get(key),
        CommandKey::Records => seen.records != now.records,
        CommandKey::Pool(name) => {
            seen.pools().get(name) != now.pools().get(name)
                || seen.invalid_pools().get(name) != now.invalid_pools().get(name)
        }
        CommandKey::Class(name) => {
            seen.classes().get(name) != now.classes().get(name)
                || seen.invalid_classes().get(name) != now.invalid_classes().get(name)
        }
        CommandKey::Overlay(name) => {
            seen.overlays().get(name) != now.overlays().get(name)
                || seen.invalid_overlays().get(name) != now.invalid_overlays().get(name)
        }
        CommandKey::Sweep(name) => seen.sweeps().get(name) != now.sweeps().get(name),
        // Azure resources are read again right before they are changed. What a sweep that cannot be read any more
        // excludes is not known.
        CommandKey::Resource(_) => seen.unreadable_sweeps != now.unreadable_sweeps,
        CommandKey::ClaimReport(_)
        | CommandKey::Drain(_)
        | CommandKey::GroupOwner
        | CommandKey::Inventory
        | CommandKey::NodeRecord(_) => false,
    }
}
