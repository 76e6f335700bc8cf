//! The controller: how do Snapshot, deciders and executor go round?
//!
//! A pure state machine without a clock: the embedded world and the live controller drive the very same one. A
//! decision is asked as a [`Question`], which may be answered on another thread while changes keep coming in; what it
//! decided about objects that have moved since is dropped, and asked anew.

use super::decide::{Memory, decide};
use super::executor::Executor;
use crate::catalog::live::{Quota, Surroundings};
use crate::catalog::{
    InstanceTypeOptions, InstanceTypes, RegionCatalog, ReservedPlaces, SizeFacts, instance_types, with_reserved,
};
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::pool::NodeClass;
use crate::model::errors::PortError;
use crate::model::names::{NodeClassName, ObjectKey, VmSize};
use crate::model::settings::Settings;
use crate::plan::{Effect, Plan, Planned, Reply, Report};
use crate::snapshot::delta::{Delta, apply};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A failed command is looked at again after this time.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(5);
/// A decider that asks to be woken at once would keep time from moving on.
const SHORTEST_SLEEP: SignedDuration = SignedDuration::from_millis(1);

/// What decisions are made by, and does not change from one to the next.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Settings of the deciders.
    pub settings: &'a Settings,
    /// What the region offers.
    pub catalog: &'a RegionCatalog,
    /// What the cluster decides about its nodes.
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
    planned: BTreeMap<CommandKey, Planned>,
    types: BTreeMap<NodeClassName, Made>,
    wake: Option<Timestamp>,
    /// A question is open: the memory is with it.
    deciding: bool,
    /// Reports that came while a question was open.
    unread: Vec<Report>,
}

/// Instance types, and what they were made from.
#[derive(Debug)]
struct Made {
    class: Arc<NodeClass>,
    places: ReservedPlaces,
    types: InstanceTypes,
}

/// All that a decision depends on, frozen.
#[derive(Debug)]
pub struct Question {
    snapshot: Snapshot,
    memory: Memory,
}

/// A decision, and what it was made from.
#[derive(Debug)]
pub struct Answer {
    snapshot: Snapshot,
    memory: Memory,
    plan: Plan,
}

impl Question {
    /// Decides. This is the heavy part.
    #[must_use]
    pub fn answer(mut self, settings: &Settings, now: Timestamp, seed: u64) -> Answer {
        let plan = decide(&self.snapshot, &mut self.memory, settings, now, seed);
        Answer { snapshot: self.snapshot, memory: self.memory, plan }
    }
}

impl Controller {
    /// All that is known.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What the deciders remember.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A command that runs, as planned.
    #[must_use]
    pub fn running(&self, key: &CommandKey) -> Option<&Planned> {
        self.planned.get(key)
    }

    /// The keys of the commands that run.
    #[must_use]
    pub fn in_progress(&self) -> BTreeSet<CommandKey> {
        self.executor.in_progress()
    }

    /// The instance types of a class.
    #[must_use]
    pub fn types_of(&self, class: &NodeClassName) -> Option<&InstanceTypes> {
        self.types.get(class).map(|made| &made.types)
    }

    /// Learns of a change.
    pub fn apply(&mut self, delta: &Delta) {
        apply(delta, &mut self.snapshot);
    }

    /// Loses everything that is not durable, as in a crash, and starts from what a source of objects holds.
    pub fn restart(&mut self, snapshot: Snapshot) {
        // Instance types are worked out from their class alone: keeping them saves time and remembers nothing.
        // So are Azure's quota, what is around the group, and CapacityBuffers, which come from elsewhere.
        let quota = self.snapshot.quota.take();
        let surroundings = std::mem::take(&mut self.snapshot.surroundings);
        let (buffers, buffers_unread) = (self.snapshot.buffers().clone(), self.snapshot.buffers_unread);
        *self = Self { snapshot, types: std::mem::take(&mut self.types), ..Self::default() };
        self.snapshot.quota = quota;
        self.snapshot.surroundings = surroundings;
        self.snapshot.buffers_unread = buffers_unread;
        buffers.values().for_each(|buffer| self.snapshot.put_buffer(buffer.key.clone(), Arc::clone(buffer)));
    }

    /// Works out the instance types of classes that are new or have changed, or of whose sizes others are reserved.
    pub fn refresh_types(&mut self, catalog: &RegionCatalog, options: &InstanceTypeOptions) {
        let classes: Vec<_> = self.snapshot.classes().iter().map(|(n, c)| (n.clone(), Arc::clone(c))).collect();
        for (name, class) in classes {
            let places = self.snapshot.surroundings.reserved_for(&class);
            let known = self.types.get(&name).filter(|known| known.class == class && known.places == places);
            let made = || Arc::new(with_reserved(instance_types(catalog, &class, options), &places));
            let types = known.map_or_else(made, |known| Arc::clone(&known.types));
            self.snapshot.instance_types.insert(name.clone(), Arc::clone(&types));
            self.types.insert(name, Made { class, places, types });
        }
    }

    /// The catalogue has changed: instance types are made anew by the next [`Controller::refresh_types`].
    pub fn forget_types(&mut self) {
        self.types.clear();
        self.snapshot.forget_types();
    }

    /// Learns how many cores Azure sells now.
    pub fn learn_quota(&mut self, quota: Option<Arc<Quota>>) {
        self.snapshot.learn_quota(quota);
    }

    /// Learns what is around the node resource group.
    pub fn learn_surroundings(&mut self, surroundings: Arc<Surroundings>) {
        self.snapshot.learn_surroundings(surroundings);
    }

    /// Waits with disruption until it is known which room CapacityBuffers ask for.
    pub fn await_buffers(&mut self) {
        self.snapshot.buffers_unread = true;
    }

    /// Learns of all CapacityBuffers there are.
    pub fn learn_buffers(&mut self, buffers: &BTreeMap<ObjectKey, Arc<Buffer>>) {
        self.snapshot.buffers_unread = false;
        let known: Vec<(ObjectKey, Arc<Buffer>)> =
            self.snapshot.buffers().iter().map(|(key, buffer)| (key.clone(), Arc::clone(buffer))).collect();
        for (key, _) in known.iter().filter(|(key, _)| !buffers.contains_key(key)) {
            self.snapshot.take_buffer(key);
        }
        for (key, buffer) in buffers {
            if self.snapshot.buffers().get(key) != Some(buffer) {
                self.snapshot.put_buffer(key.clone(), Arc::clone(buffer));
            }
        }
    }

    /// When it wants to do something by itself; `None` is only on change.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        [self.wake, self.next_step()].into_iter().flatten().min()
    }

    /// When a command that runs takes its next step; `None` when all wait for a reply.
    #[must_use]
    pub fn next_step(&self) -> Option<Timestamp> {
        self.executor.next_wake()
    }

    /// When the deciders want to be asked again; `None` is only on change.
    #[must_use]
    pub fn next_decision(&self) -> Option<Timestamp> {
        self.wake
    }

    /// Decide again at this time, or earlier if that was asked for already.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Asks for a decision; `None` while one is open. Commands of `settling` count as running: they have ended, but
    /// what they have written is not to be seen yet.
    pub fn ask(&mut self, settling: BTreeSet<CommandKey>) -> Option<Question> {
        if std::mem::replace(&mut self.deciding, true) {
            return None;
        }
        self.wake = None;
        let mut snapshot = self.snapshot.clone();
        snapshot.in_progress = self.executor.in_progress();
        snapshot.in_progress.extend(settling);
        Some(Question { snapshot, memory: std::mem::take(&mut self.memory) })
    }

    /// Starts what was decided, but what is about objects that have moved since; returns what was started.
    pub fn follow(&mut self, answer: Answer, rules: Rules<'_>, now: Timestamp) -> Vec<Planned> {
        self.deciding = false;
        self.memory = answer.memory;
        for report in std::mem::take(&mut self.unread) {
            self.note(&report, rules);
        }
        if let Some(at) = answer.plan.next {
            self.wake_at(at.max(now + SHORTEST_SLEEP));
        }
        let mut started = Vec::new();
        for planned in answer.plan.commands {
            let key = planned.command.key();
            if moved(&key, &answer.snapshot, &self.snapshot) {
                self.wake_at(now);
            } else if self.executor.start(planned.clone(), &answer.snapshot, rules.settings, now) {
                self.planned.insert(key, planned.clone());
                started.push(planned);
            }
        }
        started
    }

    /// The next effect that is due, with its command; commands that ended on the way are added to `ended`.
    pub fn next_effect(
        &mut self,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, Report)>,
    ) -> Option<(CommandKey, Effect)> {
        self.executor.next_effect(now, ended)
    }

    /// Hands a command the reply to its effect.
    pub fn reply(
        &mut self,
        key: &CommandKey,
        reply: Result<Reply, PortError>,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, Report)>,
    ) {
        self.executor.reply(key, reply, now, ended);
    }

    /// Learns from a command that has ended.
    pub fn learn(&mut self, key: &CommandKey, report: Report, rules: Rules<'_>, now: Timestamp) {
        self.planned.remove(key);
        self.wake_at(if report.failed.is_some() { now + AFTER_FAILURE } else { now });
        if let Some(inventory) = &report.inventory {
            self.snapshot.inventory = Some(Arc::clone(inventory));
        }
        if self.deciding {
            self.unread.push(report);
        } else {
            self.note(&report, rules);
        }
    }

    fn note(&mut self, report: &Report, rules: Rules<'_>) {
        let facts =
            |size: &VmSize| -> Option<Arc<SizeFacts>> { rules.catalog.size(size).map(|s| Arc::clone(&s.facts)) };
        self.memory.note(report, facts);
    }
}

/// True when the object that a command is about is not what the decision saw.
fn moved(key: &CommandKey, seen: &Snapshot, now: &Snapshot) -> bool {
    match key {
        CommandKey::Claim(name) => seen.claims().get(name) != now.claims().get(name),
        CommandKey::Node(name) => seen.nodes().get(name) != now.nodes().get(name),
        CommandKey::Pod(key) => seen.pods().get(key) != now.pods().get(key),
        CommandKey::Records => seen.records != now.records,
        CommandKey::Sweep(name) => seen.sweeps().get(name) != now.sweeps().get(name),
        // What is in Azure is looked at again right before it is touched.
        CommandKey::Inventory | CommandKey::Resource(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::fixtures::{claim, offering, pool, settings, start as now};

    #[test]
    fn a_command_about_an_object_that_has_moved_is_dropped_and_asked_anew() {
        let mut claim = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
        claim.deleting_at = Some(now());
        let settings = settings();
        let catalog = RegionCatalog { region: settings.cluster.region.clone(), sizes: Vec::new() };
        let rules = Rules { settings: &settings, catalog: &catalog, options: InstanceTypeOptions::default(), seed: 1 };
        let mut controller = Controller::default();
        controller.apply(&Delta::Claim(Arc::new(claim.clone())));
        let answer = controller.ask(BTreeSet::new()).unwrap().answer(&settings, now(), 1);
        assert!(controller.ask(BTreeSet::new()).is_none(), "one question at a time");
        claim.has_finalizer = false;
        controller.apply(&Delta::Claim(Arc::new(claim)));
        assert_eq!(controller.follow(answer, rules, now()), []);
        assert_eq!(controller.next_decision(), Some(now()));
        let answer = controller.ask(BTreeSet::new()).unwrap().answer(&settings, now(), 1);
        let started = controller.follow(answer, rules, now());
        assert!(matches!(&started[..], [p] if matches!(p.command, crate::plan::Command::ReleaseClaim { .. })));
    }
}
