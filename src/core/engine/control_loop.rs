//! The control loop over Snapshot, deciders and executor.
//!
//! A pure state machine without a clock: the simulation and the live controller drive the very same one. A decision is
//! requested as a [`DecisionRequest`], which may be computed on another thread while changes arrive; its commands about
//! objects that have changed since are dropped, and decided again.

use super::decide::{Memory, decide};
use super::executor::Executor;
use crate::catalog::live::{InfrastructureFacts, Quota};
use crate::catalog::{
    InstanceTypeOptions, InstanceTypes, RegionCatalog, ReservedZones, SizeFacts, instance_types, with_reserved,
};
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::pool::NodeClass;
use crate::model::errors::EffectError;
use crate::model::names::{NodeClassName, ObjectKey, VmSize};
use crate::model::settings::{DeletionRule, Settings};
use crate::plan::{CommandReport, Effect, Plan, PlannedCommand, Reply};
use crate::snapshot::delta::{Delta, apply_delta};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Retry delay of a failed command.
const FAILURE_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// A decider that requests an immediate wake-up would stop simulated time.
const MIN_WAKE_INTERVAL: SignedDuration = SignedDuration::from_millis(1);

/// Inputs of decisions that do not change between them.
#[derive(Debug, Clone, Copy)]
pub struct ControllerConfig<'a> {
    /// Settings of the deciders.
    pub settings: &'a Settings,
    /// The region's catalogue.
    pub catalog: &'a RegionCatalog,
    /// Cluster-wide settings of nodes.
    pub options: InstanceTypeOptions,
    /// The only source of chance.
    pub seed: u64,
}

/// Snapshot, memory and running commands. All but the Snapshot's source is lost in a crash.
#[derive(Debug, Default)]
pub struct Controller {
    snapshot: Snapshot,
    memory: Memory,
    executor: Executor,
    running_commands: BTreeMap<CommandKey, PlannedCommand>,
    instance_types: BTreeMap<NodeClassName, CachedInstanceTypes>,
    wake: Option<Timestamp>,
    /// A question is open: the memory is with it.
    decision_pending: bool,
    /// Reports that arrived during an open decision.
    deferred_reports: Vec<CommandReport>,
}

/// Instance types and their inputs.
#[derive(Debug)]
struct CachedInstanceTypes {
    class: Arc<NodeClass>,
    reserved_zones: ReservedZones,
    types: InstanceTypes,
}

/// All that a decision depends on, frozen.
#[derive(Debug)]
pub struct DecisionRequest {
    snapshot: Snapshot,
    memory: Memory,
}

/// A decision and its inputs.
#[derive(Debug)]
pub struct DecisionResult {
    snapshot: Snapshot,
    memory: Memory,
    plan: Plan,
}

impl DecisionRequest {
    /// Decides. This is the heavy part.
    #[must_use]
    pub fn decide(mut self, settings: &Settings, now: Timestamp, seed: u64) -> DecisionResult {
        let mut plan = self.memory.launch_check.decide(&self.snapshot, settings, now);
        self.snapshot.launch_hold.clone_from(&self.memory.launch_check.hold);
        if settings.deletion_rules.enforces(DeletionRule::FailingPoolsHeld) {
            self.snapshot.pool_holds = self.memory.lifecycle.pool_failures.holds(&self.snapshot, now);
        }
        plan.extend(decide(&self.snapshot, &mut self.memory, settings, now, seed));
        DecisionResult { snapshot: self.snapshot, memory: self.memory, plan }
    }
}

impl Controller {
    /// All that is known.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The deciders' memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A command that runs, as planned.
    #[must_use]
    pub fn running(&self, key: &CommandKey) -> Option<&PlannedCommand> {
        self.running_commands.get(key)
    }

    /// The keys of the commands that run.
    #[must_use]
    pub fn in_progress(&self) -> BTreeSet<CommandKey> {
        self.executor.in_progress()
    }

    /// The instance types of a class.
    #[must_use]
    pub fn instance_types_of(&self, class: &NodeClassName) -> Option<&InstanceTypes> {
        self.instance_types.get(class).map(|cached| &cached.types)
    }

    /// Learns of a change.
    pub fn apply(&mut self, delta: &Delta) {
        apply_delta(delta, &mut self.snapshot);
    }

    /// Loses everything that is not durable, as in a crash, and starts from the current objects.
    pub fn restart(&mut self, snapshot: Snapshot) {
        // Instance types depend on their class alone: they are only a cache. Azure's quota, the facts about the group,
        // and CapacityBuffers come from elsewhere.
        let quota = self.snapshot.quota.take();
        let infrastructure = std::mem::take(&mut self.snapshot.infrastructure);
        let (buffers, buffers_unread) = (self.snapshot.buffers().clone(), self.snapshot.buffers_unsynced);
        *self = Self { snapshot, instance_types: std::mem::take(&mut self.instance_types), ..Self::default() };
        self.snapshot.quota = quota;
        self.snapshot.infrastructure = infrastructure;
        self.snapshot.buffers_unsynced = buffers_unread;
        buffers.values().for_each(|buffer| self.snapshot.put_buffer(buffer.key.clone(), Arc::clone(buffer)));
    }

    /// Computes the instance types of classes that are new or have changed, or whose reserved sizes have changed.
    pub fn refresh_instance_types(&mut self, catalog: &RegionCatalog, options: &InstanceTypeOptions) {
        let classes: Vec<_> = self.snapshot.classes().iter().map(|(n, c)| (n.clone(), Arc::clone(c))).collect();
        for (name, class) in classes {
            let reserved_zones = self.snapshot.infrastructure.reserved_for(&class);
            let known = self
                .instance_types
                .get(&name)
                .filter(|known| known.class == class && known.reserved_zones == reserved_zones);
            let compute = || Arc::new(with_reserved(instance_types(catalog, &class, options), &reserved_zones));
            let types = known.map_or_else(compute, |known| Arc::clone(&known.types));
            self.snapshot.instance_types.insert(name.clone(), Arc::clone(&types));
            self.instance_types.insert(name, CachedInstanceTypes { class, reserved_zones, types });
        }
    }

    /// The catalogue has changed: instance types are rebuilt by the next [`Controller::refresh_instance_types`].
    pub fn invalidate_instance_types(&mut self) {
        self.instance_types.clear();
        self.snapshot.invalidate_instance_types();
    }

    /// Learns how many cores Azure sells now.
    pub fn set_quota(&mut self, quota: Option<Arc<Quota>>) {
        self.snapshot.set_quota(quota);
    }

    /// Sets the facts about the node resource group.
    pub fn set_infrastructure(&mut self, infrastructure: Arc<InfrastructureFacts>) {
        self.snapshot.set_infrastructure(infrastructure);
    }

    /// Suspends disruption until CapacityBuffers are synced.
    pub fn mark_buffers_unsynced(&mut self) {
        self.snapshot.buffers_unsynced = true;
    }

    /// Sets all CapacityBuffers.
    pub fn sync_buffers(&mut self, buffers: &BTreeMap<ObjectKey, Arc<Buffer>>) {
        self.snapshot.buffers_unsynced = false;
        let known: Vec<(ObjectKey, Arc<Buffer>)> =
            self.snapshot.buffers().iter().map(|(key, buffer)| (key.clone(), Arc::clone(buffer))).collect();
        for (key, _) in known.iter().filter(|(key, _)| !buffers.contains_key(key)) {
            self.snapshot.remove_buffer(key);
        }
        for (key, buffer) in buffers {
            if self.snapshot.buffers().get(key) != Some(buffer) {
                self.snapshot.put_buffer(key.clone(), Arc::clone(buffer));
            }
        }
    }

    /// When it has something to do without a change; `None` is only on change.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        [self.wake, self.next_step()].into_iter().flatten().min()
    }

    /// When a command that runs takes its next step; `None` when all wait for a reply.
    #[must_use]
    pub fn next_step(&self) -> Option<Timestamp> {
        self.executor.next_wake()
    }

    /// When to decide again; `None` is only on change.
    #[must_use]
    pub fn next_decision(&self) -> Option<Timestamp> {
        self.wake
    }

    /// Decide again at this time, or earlier if that was requested already.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Requests a decision; `None` while one is open. Commands of `settling` count as running: they have ended, but
    /// their writes are not visible yet.
    pub fn begin_decision(&mut self, settling: BTreeSet<CommandKey>) -> Option<DecisionRequest> {
        if std::mem::replace(&mut self.decision_pending, true) {
            return None;
        }
        self.wake = None;
        let mut snapshot = self.snapshot.clone();
        snapshot.in_progress = self.executor.in_progress();
        snapshot.in_progress.extend(settling);
        Some(DecisionRequest { snapshot, memory: std::mem::take(&mut self.memory) })
    }

    /// Starts the decided commands, except those about objects that have changed since; returns the started ones.
    pub fn apply_decision(
        &mut self,
        answer: DecisionResult,
        rules: ControllerConfig<'_>,
        now: Timestamp,
    ) -> Vec<PlannedCommand> {
        self.decision_pending = false;
        self.memory = answer.memory;
        for report in std::mem::take(&mut self.deferred_reports) {
            self.record_report(&report, rules);
        }
        if let Some(at) = answer.plan.next {
            self.wake_at(at.max(now + MIN_WAKE_INTERVAL));
        }
        let mut started = Vec::new();
        for planned in answer.plan.commands {
            let key = planned.command.key();
            if has_changed(&key, &answer.snapshot, &self.snapshot) {
                self.wake_at(now);
            } else if self.executor.start(planned.clone(), &answer.snapshot, rules.settings, now) {
                self.running_commands.insert(key, planned.clone());
                started.push(planned);
            }
        }
        started
    }

    /// The next effect that is due, with its command; commands that ended on the way are added to `ended`.
    pub fn next_effect(
        &mut self,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) -> Option<(CommandKey, Effect)> {
        self.executor.next_effect(now, ended)
    }

    /// Hands a command the reply to its effect.
    pub fn reply(
        &mut self,
        key: &CommandKey,
        reply: Result<Reply, EffectError>,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) {
        self.executor.reply(key, reply, now, ended);
    }

    /// Learns from a command that has ended.
    pub fn command_ended(
        &mut self,
        key: &CommandKey,
        report: CommandReport,
        rules: ControllerConfig<'_>,
        now: Timestamp,
    ) {
        self.running_commands.remove(key);
        self.wake_at(if report.error.is_some() { now + FAILURE_RETRY } else { now });
        if let Some(inventory) = &report.inventory {
            self.snapshot.inventory = Some(Arc::clone(inventory));
        }
        if self.decision_pending {
            self.deferred_reports.push(report);
        } else {
            self.record_report(&report, rules);
        }
    }

    fn record_report(&mut self, report: &CommandReport, rules: ControllerConfig<'_>) {
        let facts =
            |size: &VmSize| -> Option<Arc<SizeFacts>> { rules.catalog.size(size).map(|s| Arc::clone(&s.facts)) };
        self.memory.record(report, facts);
    }
}

/// True when the object of a command has changed since the decision.
fn has_changed(key: &CommandKey, seen: &Snapshot, now: &Snapshot) -> bool {
    match key {
        CommandKey::Claim(name) => seen.claims().get(name) != now.claims().get(name),
        CommandKey::Node(name) => seen.nodes().get(name) != now.nodes().get(name),
        CommandKey::Pod(key) => seen.pods().get(key) != now.pods().get(key),
        CommandKey::Records => seen.records != now.records,
        CommandKey::Pool(name) => seen.pools().get(name) != now.pools().get(name),
        CommandKey::Sweep(name) => seen.sweeps().get(name) != now.sweeps().get(name),
        // Azure resources are read again right before they are changed. What a sweep that cannot be read any more
        // excludes is not known.
        CommandKey::Resource(_) => seen.unreadable_sweeps != now.unreadable_sweeps,
        CommandKey::GroupOwner | CommandKey::Inventory => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::fixtures::{claim, offering, pool, settings, start as now};
    use crate::model::names::ArmId;
    use crate::model::orphans::sweep::UnreadableSweeps;
    use crate::plan::Command;

    #[test]
    fn a_decision_of_a_sweep_is_dropped_when_an_orphan_sweep_becomes_unreadable() {
        let id = ArmId::new("/subscriptions/s/resourceGroups/g").unwrap();
        let seen = Snapshot::default();
        let mut now = seen.clone();
        assert!(!has_changed(&CommandKey::Resource(id.clone()), &seen, &now));
        let unreadable = UnreadableSweeps::of([(Arc::from("nightly"), Arc::from("wrong"))]);
        apply_delta(&Delta::UnreadableSweeps(unreadable), &mut now);
        assert!(has_changed(&CommandKey::Resource(id), &seen, &now));
    }

    #[test]
    fn a_command_about_a_changed_object_is_dropped_and_decided_again() {
        let mut claim = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
        claim.deleting_at = Some(now());
        let settings = settings();
        let catalog = RegionCatalog { region: settings.cluster.region.clone(), sizes: Vec::new() };
        let rules = ControllerConfig {
            settings: &settings,
            catalog: &catalog,
            options: InstanceTypeOptions::default(),
            seed: 1,
        };
        let mut controller = Controller::default();
        // Of the start, and of no object.
        let asked = Command::ReadGroupOwner;
        controller.apply(&Delta::Claim(Arc::new(claim.clone())));
        let answer = controller.begin_decision(BTreeSet::new()).unwrap().decide(&settings, now(), 1);
        assert!(controller.begin_decision(BTreeSet::new()).is_none(), "one question at a time");
        claim.spec.expire_after = None;
        claim.spec.labels.clear();
        controller.apply(&Delta::Claim(Arc::new(claim)));
        let started = controller.apply_decision(answer, rules, now());
        assert!(started.iter().all(|planned| planned.command == asked), "{started:?}");
        assert_eq!(controller.next_decision(), Some(now()));
        let answer = controller.begin_decision(BTreeSet::new()).unwrap().decide(&settings, now(), 1);
        let started = controller.apply_decision(answer, rules, now());
        assert!(matches!(&started[..], [p] if matches!(p.command, Command::RemoveFinalizer { .. })));
    }
}
