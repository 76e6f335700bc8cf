//! The control loop over Snapshot, deciders and executor.
//!
//! A pure state machine without a clock: the simulation and the live controller drive the very same one. A decision is
//! requested as a [`DecisionRequest`], which may be computed on another thread while changes arrive; its commands about
//! objects that have changed since, or whose preconditions do not hold any more, are dropped, and decided again. There are
//! two kinds, each with its own memory, so that one that takes long holds up nothing of the other.

use super::decide::Memory;
use super::decision::{DeciderMemory, DecisionKind, DecisionRequest, DecisionResult, has_changed, hold_launches};
use super::executor::Executor;
use crate::catalog::live::{InfrastructureFacts, Quota};
use crate::catalog::{
    InstanceTypeOptions, InstanceTypes, RegionCatalog, ReservedZones, SizeFacts, instance_types, with_reserved,
};
use crate::disruption::{DisruptionMemory, PodWithoutRoom};
use crate::history::OwnDeletions;
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::node_base::NodeBase;
use crate::model::cluster::pool::{DisruptionReason, NodeClass};
use crate::model::errors::EffectError;
use crate::model::names::{ClaimName, NodeClassName, ObjectKey, VmSize};
use crate::model::settings::{DisruptionScope, Settings};
use crate::plan::{CommandReport, Effect, PlannedCommand, Reply, disruption_scope};
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
    disruption: DisruptionMemory,
    executor: Executor,
    running_commands: BTreeMap<CommandKey, PlannedCommand>,
    own_deletions: OwnDeletions,
    /// What holds up the deletion of NodePools, as the last decision on disruption has found.
    irreplaceable: BTreeMap<ClaimName, PodWithoutRoom>,
    /// How many nodes could be disrupted for each reason, by the last decision on disruption.
    eligible: BTreeMap<DisruptionReason, usize>,
    instance_types: BTreeMap<NodeClassName, CachedInstanceTypes>,
    wakes: BTreeMap<DecisionKind, Timestamp>,
    /// The decisions that are open: their memory is with them.
    pending: BTreeSet<DecisionKind>,
    /// Reports that arrived during an open decision.
    deferred_reports: Vec<CommandReport>,
    /// What time it was last.
    time: Timestamp,
}

/// Instance types and their inputs.
#[derive(Debug)]
struct CachedInstanceTypes {
    class: Arc<NodeClass>,
    reserved_zones: ReservedZones,
    types: InstanceTypes,
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

    /// How many nodes could be disrupted for each reason, by the last decision on disruption.
    #[must_use]
    pub fn eligible_nodes(&self) -> &BTreeMap<DisruptionReason, usize> {
        &self.eligible
    }

    /// A command that runs, as planned.
    #[must_use]
    pub fn running(&self, key: &CommandKey) -> Option<&PlannedCommand> {
        self.running_commands.get(key)
    }

    /// Whose disruption a command is that runs, as the pause switch knows it.
    #[must_use]
    pub fn disruption_scope(&self, key: &CommandKey) -> DisruptionScope {
        disruption_scope(key, self.running(key).map(|planned| &planned.command), &self.snapshot)
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
        let node_base = std::mem::take(&mut self.snapshot.node_base);
        let (buffers, buffers_unread) = (self.snapshot.buffers().clone(), self.snapshot.buffers_unsynced);
        *self = Self { snapshot, instance_types: std::mem::take(&mut self.instance_types), ..Self::default() };
        self.snapshot.quota = quota;
        self.snapshot.infrastructure = infrastructure;
        self.snapshot.node_base = node_base;
        self.snapshot.buffers_unsynced = buffers_unread;
        buffers.values().for_each(|buffer| self.snapshot.put_buffer(buffer.key.clone(), Arc::clone(buffer)));
    }

    /// Loses everything that is not durable but for what Azure has refused lately, and starts from the current objects. Otherwise the
    /// same would be asked for each time that a late watch makes the controller list the cluster anew.
    pub fn list_anew(&mut self, snapshot: Snapshot) {
        let unavailable = std::mem::take(&mut self.memory.provision.unavailable);
        self.restart(snapshot);
        self.memory.provision.unavailable = unavailable;
    }

    /// Computes the instance types of classes that are new or have changed, or whose reserved sizes have changed.
    pub fn refresh_instance_types(&mut self, catalog: &RegionCatalog, options: &InstanceTypeOptions) {
        let classes: Vec<_> = self.snapshot.classes().iter().map(|(n, c)| (n.clone(), Arc::clone(c))).collect();
        for (name, class) in classes {
            let reserved_zones = self.snapshot.infrastructure.reserved_for(&class);
            let known = self
                .instance_types
                .get(&name)
                .filter(|known| known.class.has_spec_of(&class) && known.reserved_zones == reserved_zones);
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

    /// Sets the facts about the node resource group and its region.
    pub fn set_infrastructure(&mut self, infrastructure: Arc<InfrastructureFacts>) {
        self.snapshot.set_infrastructure(infrastructure);
    }

    /// Sets what nodes are made from beside their NodePool and AKSNodeClass.
    pub fn set_node_base(&mut self, base: Arc<NodeBase>) {
        self.snapshot.node_base = base;
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

    /// When a command that runs takes its next step; `None` when all wait for a reply.
    #[must_use]
    pub fn next_step(&self) -> Option<Timestamp> {
        self.executor.next_wake()
    }

    /// When to decide again; `None` is only on change, or after another decision that is open now.
    #[must_use]
    pub fn next_decision(&self, kind: DecisionKind) -> Option<Timestamp> {
        self.wakes.get(&kind).copied().filter(|_| self.may_begin(kind))
    }

    /// No other decision has the memory that this one needs.
    fn may_begin(&self, kind: DecisionKind) -> bool {
        !self.pending.contains(&kind) && !self.pending.contains(&DecisionKind::Reconciliation)
    }

    /// Learns what time it is. If the clock has been set back, what would be decided or done later by the old time, which
    /// may be hours ahead, is decided or done now.
    pub fn tell_time(&mut self, now: Timestamp) {
        if now < self.time {
            self.wake_at(now);
            self.executor.clock_set_back(now);
        }
        self.time = now;
    }

    /// Decide everything again at this time, or earlier if that was requested already.
    pub fn wake_at(&mut self, at: Timestamp) {
        DecisionKind::ALL.into_iter().for_each(|kind| self.wake_kind_at(kind, at));
    }

    fn wake_kind_at(&mut self, kind: DecisionKind, at: Timestamp) {
        let wake = self.wakes.entry(kind).or_insert(at);
        *wake = at.min(*wake);
    }

    /// Requests a decision; `None` while one of the kind is open, or the memory that it reads is with another. Commands of
    /// `settling` count as running: they have ended, but their writes are not visible yet.
    pub fn begin_decision(
        &mut self,
        kind: DecisionKind,
        settling: BTreeSet<CommandKey>,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<DecisionRequest> {
        if !self.may_begin(kind) {
            return None;
        }
        self.pending.insert(kind);
        self.wakes.remove(&kind);
        let mut snapshot = self.snapshot.clone();
        snapshot.in_progress = self.executor.in_progress();
        snapshot.in_progress.extend(settling);
        let memory = match kind {
            DecisionKind::Reconciliation => {
                let mut own = std::mem::take(&mut self.memory);
                // For the next listing, which drops the decision.
                self.memory.provision.unavailable.clone_from(&own.provision.unavailable);
                own.history.own_deletions.clone_from(&self.own_deletions);
                own.status.irreplaceable.clone_from(&self.irreplaceable);
                DeciderMemory::Reconciliation(Box::new(own))
            }
            DecisionKind::Disruption => {
                hold_launches(&self.memory, &mut snapshot, settings, now);
                let own = std::mem::take(&mut self.disruption);
                DeciderMemory::Disruption(Box::new((own, self.memory.provision.clone())))
            }
        };
        Some(DecisionRequest { snapshot, memory })
    }

    /// Starts the decided commands, except those about objects that have changed since, and those whose preconditions do not
    /// hold; returns the started ones.
    pub fn apply_decision(
        &mut self,
        answer: DecisionResult,
        rules: ControllerConfig<'_>,
        now: Timestamp,
    ) -> Vec<PlannedCommand> {
        let kind = answer.kind();
        self.pending.remove(&kind);
        match answer.memory {
            DeciderMemory::Reconciliation(memory) => {
                self.memory = *memory;
                for report in std::mem::take(&mut self.deferred_reports) {
                    self.record_report(&report, rules);
                }
            }
            DeciderMemory::Disruption(memory) => {
                self.disruption = memory.0;
                self.eligible.clone_from(self.disruption.eligible());
                let irreplaceable = self.disruption.irreplaceable();
                if self.irreplaceable != irreplaceable {
                    self.irreplaceable = irreplaceable;
                    self.wake_kind_at(DecisionKind::Reconciliation, now);
                }
            }
        }
        if let Some(at) = answer.plan.next {
            self.wake_kind_at(kind, at.max(now + MIN_WAKE_INTERVAL));
        }
        let mut started = Vec::new();
        for planned in answer.plan.commands {
            let key = planned.command.key();
            let holds = planned.preconditions.as_ref().is_none_or(|all| all.hold(&self.snapshot));
            if !holds || has_changed(&key, &answer.snapshot, &self.snapshot) {
                self.wake_kind_at(kind, now);
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
        let (key, effect) = self.executor.next_effect(now, ended)?;
        self.own_deletions.effect_started(&effect, self.running_commands.get(&key), &self.snapshot);
        Some((key, effect))
    }

    /// Hands a command the reply to its effect.
    pub fn reply(
        &mut self,
        key: &CommandKey,
        reply: Result<Reply, EffectError>,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) {
        self.own_deletions.effect_replied(key, &reply);
        self.executor.reply(key, reply, now, ended);
    }

    /// Learns from a command that has ended.
    pub fn command_ended(
        &mut self,
        key: &CommandKey,
        mut report: CommandReport,
        rules: ControllerConfig<'_>,
        now: Timestamp,
    ) {
        self.running_commands.remove(key);
        if let CommandKey::NodeRecord(shard) = key {
            report.recorded = report.error.is_none().then_some(*shard);
        }
        if let CommandKey::Sweep(name) = key {
            report.unreported_sweep = report.error.is_some().then(|| name.clone());
        }
        // Evictions have a back-off of their own, which is shorter.
        let has_failed = report.error.is_some() && report.eviction.is_none();
        self.wake_at(if has_failed { now + FAILURE_RETRY } else { now });
        if let Some(inventory) = &report.inventory {
            self.snapshot.inventory = Some(Arc::clone(inventory));
        }
        if self.pending.contains(&DecisionKind::Reconciliation) {
            for refusal in &report.launch_refusals {
                let facts = facts(rules, &refusal.offering.size);
                self.memory.provision.unavailable.record(refusal, facts.as_deref());
            }
            self.deferred_reports.push(report);
        } else {
            self.record_report(&report, rules);
        }
    }

    fn record_report(&mut self, report: &CommandReport, rules: ControllerConfig<'_>) {
        self.memory.record(report, |size| facts(rules, size));
    }
}

fn facts(rules: ControllerConfig<'_>, size: &VmSize) -> Option<Arc<SizeFacts>> {
    rules.catalog.size(size).map(|size| Arc::clone(&size.facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::fixtures::{at, claim, cluster, managed, offering, pool, put, running, settings, shape, start as now};
    use crate::model::cluster::node::Node;
    use crate::model::cluster::pod::Taint;
    use crate::model::errors::{CloudError, CloudErrorCode, ClusterError, LaunchRefusal};
    use crate::model::names::ArmId;
    use crate::model::orphans::sweep::UnreadableSweeps;
    use crate::plan::{ClaimUpdate, ClusterWrite, Command, NodeUpdate};

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

    fn rules<'a>(settings: &'a Settings, catalog: &'a RegionCatalog) -> ControllerConfig<'a> {
        ControllerConfig { settings, catalog, options: InstanceTypeOptions::default(), seed: 1 }
    }

    /// Two nodes of which one's pods fit on the other, as a decision on disruption has found before.
    fn underutilized() -> (Controller, Node, Node) {
        let pool = pool("general");
        let mut controller = Controller { snapshot: cluster([pool.clone()]), ..Controller::default() };
        let mut nodes = ["general-a", "general-b"].map(|name| {
            let (mut claim, node) = managed(name, &pool, offering("Standard_D8s_v5", 1, OnDemand));
            claim.status.initialized = Some(at(-3_600));
            put(&mut controller.snapshot, (claim, node.clone()));
            controller.snapshot.put_pod(running(&format!("of-{name}"), &Arc::new(shape("web", 2_000, 1)), &node));
            node
        });
        let [kept, deleted] = &mut nodes;
        // Which of the two goes.
        controller.snapshot.put_pod(running("more", &Arc::new(shape("web", 1_000, 1)), kept));
        assert!(disrupted(&mut controller, 0, |_| ()).is_empty(), "it must hold");
        (controller, kept.clone(), deleted.clone())
    }

    /// What is started after a decision on disruption, while which something happens.
    fn disrupted(
        controller: &mut Controller,
        seconds: i64,
        meanwhile: impl FnOnce(&mut Controller),
    ) -> Vec<PlannedCommand> {
        let (settings, catalog) = (settings(), RegionCatalog { region: settings().cluster.region, sizes: Vec::new() });
        let rules = rules(&settings, &catalog);
        let request = controller.begin_decision(DecisionKind::Disruption, BTreeSet::new(), &settings, at(seconds));
        let answer = request.unwrap().decide(&settings, at(seconds), 1);
        meanwhile(controller);
        let started = controller.apply_decision(answer, rules, at(seconds));
        started.into_iter().filter(|planned| matches!(planned.command, Command::DeleteClaim { .. })).collect()
    }

    #[test]
    fn a_node_is_deleted_only_while_its_pods_still_fit_on_others() {
        let (mut controller, ..) = underutilized();
        assert_eq!(disrupted(&mut controller, 20, |_| ()).len(), 1);
        let fill = |controller: &mut Controller, node: &Node, cpu| {
            let pod = running("late", &Arc::new(shape("late", cpu, 1)), node);
            controller.apply(&Delta::Pod(Arc::new(pod)));
        };
        for (cpu, count) in [(1_000, 1), (4_000, 0)] {
            let (mut controller, kept, _) = underutilized();
            let started = disrupted(&mut controller, 20, |controller| fill(controller, &kept, cpu));
            assert_eq!(started.len(), count, "{cpu} on the other node");
        }
        let (mut controller, _, deleted) = underutilized();
        assert!(disrupted(&mut controller, 20, |controller| fill(controller, &deleted, 100)).is_empty());
        assert_eq!(controller.next_decision(DecisionKind::Disruption), Some(at(20)), "it is decided again");
    }

    #[test]
    fn a_decision_on_disruption_holds_up_no_other() {
        let (mut controller, ..) = underutilized();
        let settings = settings();
        let mut begin = |kind| controller.begin_decision(kind, BTreeSet::new(), &settings, at(20));
        assert!(begin(DecisionKind::Disruption).is_some());
        assert!(begin(DecisionKind::Disruption).is_none());
        assert!(begin(DecisionKind::Reconciliation).is_some());
        assert!(begin(DecisionKind::Reconciliation).is_none());
    }

    #[test]
    fn a_command_about_a_changed_object_is_dropped_and_decided_again() {
        let mut claim = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
        claim.deleting_at = Some(now());
        let settings = settings();
        let catalog = RegionCatalog { region: settings.cluster.region.clone(), sizes: Vec::new() };
        let rules = rules(&settings, &catalog);
        let mut controller = Controller::default();
        // Of the start, and of no object.
        let asked = Command::ReadGroupOwner;
        controller.apply(&Delta::Claim(Arc::new(claim.clone())));
        let answer = controller
            .begin_decision(DecisionKind::Reconciliation, BTreeSet::new(), &settings, now())
            .unwrap()
            .decide(&settings, now(), 1);
        assert!(
            controller.begin_decision(DecisionKind::Reconciliation, BTreeSet::new(), &settings, now()).is_none(),
            "one question at a time"
        );
        claim.spec.expire_after = None;
        claim.spec.labels.clear();
        controller.apply(&Delta::Claim(Arc::new(claim)));
        let started = controller.apply_decision(answer, rules, now());
        assert!(started.iter().all(|planned| planned.command == asked), "{started:?}");
        assert_eq!(controller.next_decision(DecisionKind::Reconciliation), Some(now()));
        let answer = controller
            .begin_decision(DecisionKind::Reconciliation, BTreeSet::new(), &settings, now())
            .unwrap()
            .decide(&settings, now(), 1);
        let started = controller.apply_decision(answer, rules, now());
        assert!(matches!(&started[..], [p] if matches!(p.command, Command::RemoveFinalizer { .. })));
    }

    #[test]
    fn what_azure_has_refused_is_known_after_a_new_listing_and_not_after_a_crash() {
        let settings = settings();
        let error = CloudError::new(CloudErrorCode::AllocationFailed, "none left");
        let offering = offering("Standard_D2s_v5", 1, OnDemand).key;
        let refusal = LaunchRefusal { offering, reservation: None, error, applies_to_all_offerings: false, at: now() };
        let catalog = RegionCatalog { region: settings.cluster.region.clone(), sizes: Vec::new() };
        let rules = rules(&settings, &catalog);
        let report = CommandReport { launch_refusals: vec![refusal], ..CommandReport::default() };
        for is_deciding in [false, true] {
            let mut controller = Controller::default();
            if is_deciding {
                // The decision is dropped.
                controller.begin_decision(DecisionKind::Reconciliation, BTreeSet::new(), &settings, now()).unwrap();
            }
            controller.command_ended(&CommandKey::Records, report.clone(), rules, now());
            controller.list_anew(Snapshot::default());
            let known = |controller: &Controller| controller.memory().provision.unavailable.iter().count();
            assert!(known(&controller) > 0, "{is_deciding}");
            controller.list_anew(Snapshot::default());
            assert!(known(&controller) > 0, "{is_deciding}");
            controller.restart(Snapshot::default());
            assert_eq!(known(&controller), 0);
        }
    }

    #[test]
    fn what_waits_is_due_once_the_clock_has_been_set_back() {
        let mut controller = Controller::default();
        let ask = PlannedCommand { command: Command::ReadGroupOwner, reason: "a test".into(), preconditions: None };
        controller.executor.start(ask, &Snapshot::default(), &settings(), at(7_230));
        controller.wake_at(at(7_220));
        let due = |c: &Controller| (c.next_decision(DecisionKind::Disruption), c.next_step());
        for time in [7_200, 7_210] {
            controller.tell_time(at(time));
            assert_eq!(due(&controller), (Some(at(7_220)), Some(at(7_230))));
        }
        controller.tell_time(at(10));
        assert_eq!(due(&controller), (Some(at(10)), Some(at(10))));
    }

    #[test]
    fn a_node_loses_its_taint_before_its_claim_is_unmarked_although_no_watch_has_shown_it() {
        let (claim, node) = managed("general-a", &pool("general"), offering("Standard_D2s_v5", 1, OnDemand));
        let command = Command::UpdateClaim { claim: claim.reference(), update: ClaimUpdate::NotDisrupted };
        let (untaint, unmark) = (
            ClusterWrite::UpdateNode(node.name.clone(), node.uid.clone(), NodeUpdate::RemoveTaint(Taint::disrupted())),
            ClusterWrite::UpdateClaim(claim.reference(), ClaimUpdate::NotDisrupted),
        );
        let mut snapshot = Snapshot::default();
        put(&mut snapshot, (claim, node));
        for (answer, second) in
            [(Ok(Reply::Done), Some(unmark)), (Err(EffectError::Cluster(ClusterError::Conflict)), None)]
        {
            let mut controller = Controller::default();
            let planned = PlannedCommand { command: command.clone(), reason: "a test".into(), preconditions: None };
            controller.executor.start(planned, &snapshot, &settings(), now());
            let mut ended = Vec::new();
            let (key, first) = controller.next_effect(now(), &mut ended).unwrap();
            assert_eq!(first, Effect::Cluster(untaint.clone()));
            controller.reply(&key, answer, now(), &mut ended);
            let next = controller.next_effect(now(), &mut ended).map(|(_, effect)| effect);
            assert_eq!(next, second.map(Effect::Cluster));
            assert_eq!(ended.len(), usize::from(next.is_none()));
        }
    }
}
