//! The controller of the embedded world: Snapshot, deciders and executor, and its crashes.

use super::World;
use crate::cluster::Cluster;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{InstanceTypeOptions, SizeFacts, instance_types};
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::cluster::delta::apply;
use napkeeper_core::decide::{Memory, decide};
use napkeeper_core::executor::Executor;
use napkeeper_core::labels;
use napkeeper_core::names::VmSize;
use napkeeper_core::plan::{CommandKey, Planned, Report};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A failed command is looked at again after this time.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(5);

/// Snapshot, memory and running commands; all but the Snapshot's source is lost in a crash.
#[derive(Debug, Default)]
pub(super) struct Controller {
    pub(super) snapshot: Snapshot,
    pub(super) memory: Memory,
    pub(super) executor: Executor,
    /// The commands that run, as planned.
    pub(super) planned: BTreeMap<CommandKey, Planned>,
    wake: Option<Timestamp>,
    /// It is down until this time.
    pub(super) down_until: Option<Timestamp>,
    /// Writes performed so far.
    pub(super) writes: u64,
    /// Crashes to come.
    pub(super) crashes: Vec<Crash>,
}

/// A crash of the controller at one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// At which write.
    pub at: Moment,
    /// Before or after the write takes effect.
    pub when: When,
    /// How long the controller is down.
    pub down_for: SignedDuration,
}

/// A write at which the controller may crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This write, counted from 0 over the whole run.
    Write(u64),
    /// The next one.
    NextWrite,
    /// The next DELETE of a sweep.
    SweepDelete,
}

/// On which side of a write a crash falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// The write never happens.
    Before,
    /// The write happens, and its reply is lost.
    After,
}

impl Controller {
    /// When it will do something by itself.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        if self.down_until.is_some() {
            return self.down_until;
        }
        [self.wake, self.executor.next_wake()].into_iter().flatten().min()
    }

    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Loses everything that is not durable.
    pub(super) fn crash(&mut self, until: Timestamp) {
        let (writes, crashes) = (self.writes, std::mem::take(&mut self.crashes));
        *self = Self { down_until: Some(until), writes, crashes, ..Self::default() };
    }

    /// Comes back when its time has come, knowing what the API server knows.
    pub(super) fn restart_if_due(&mut self, cluster: &Cluster, now: Timestamp) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            self.snapshot = cluster.relist();
            self.wake = Some(now);
        }
    }

    /// The crash that is due at this write, on this side of it.
    pub(super) fn crash_due(&mut self, when: When, sweeps: bool) -> Option<Crash> {
        let now = Moment::Write(self.writes);
        let due = |c: &Crash| {
            let here = c.at == now || c.at == Moment::NextWrite || sweeps && c.at == Moment::SweepDelete;
            c.when == when && here
        };
        let at = self.crashes.iter().position(due)?;
        Some(self.crashes.swap_remove(at))
    }

    fn is_up(&self) -> bool {
        self.down_until.is_none()
    }
}

impl World {
    /// Brings the controller's Snapshot up to date; true when something has changed.
    pub(super) fn watch(&mut self) -> bool {
        let deltas = self.cluster.watch();
        for delta in &deltas {
            if self.controller.is_up() {
                apply(delta, &mut self.controller.snapshot);
            }
        }
        if !deltas.is_empty() {
            self.books.measure(self.cluster.state(), |node| node.label(labels::NODEPOOL).is_some());
        }
        if !deltas.is_empty() || self.controller.snapshot.instance_types.is_empty() {
            self.refresh_types();
        }
        !deltas.is_empty()
    }

    /// Computes the instance types of classes that are new or have changed.
    fn refresh_types(&mut self) {
        let classes: Vec<_> =
            self.controller.snapshot.classes().iter().map(|(n, c)| (n.clone(), Arc::clone(c))).collect();
        for (name, class) in classes {
            let known = self.types.get(&name).filter(|(of, _)| *of == class).map(|(_, types)| Arc::clone(types));
            let types = known
                .unwrap_or_else(|| Arc::new(instance_types(&self.catalog, &class, &InstanceTypeOptions::default())));
            self.types.insert(name.clone(), (class, Arc::clone(&types)));
            self.controller.snapshot.instance_types.insert(name, types);
        }
    }

    /// Lets the deciders decide, if something has changed or their time has come.
    pub(super) fn decide(&mut self, changed: bool) -> bool {
        let due = self.controller.wake.is_some_and(|at| at <= self.now);
        if !self.controller.is_up() || !(changed || due) {
            return false;
        }
        let controller = &mut self.controller;
        controller.snapshot.in_progress = controller.executor.in_progress();
        controller.wake = None;
        let plan = decide(&controller.snapshot, &mut controller.memory, &self.settings, self.now, self.seed);
        if let Some(at) = plan.next {
            // A decider that asks to be woken at once would keep the world from moving on.
            controller.wake_at(at.max(self.now + SignedDuration::from_millis(1)));
        }
        let mut started = Vec::new();
        for planned in plan.commands {
            let key = planned.command.key();
            if controller.executor.start(planned.clone(), &controller.snapshot, &self.settings, self.now) {
                controller.planned.insert(key, planned.clone());
                started.push(planned);
            }
        }
        self.tell_waiting();
        let any = !started.is_empty();
        for planned in started {
            self.tell_start(&planned);
        }
        any
    }

    /// Learns from commands that ended; true when the deciders should look again at once.
    pub(super) fn learn(&mut self, ended: Vec<(CommandKey, Report)>) {
        for (key, report) in ended {
            self.tell_end(&key, &report);
            let now = self.now;
            let catalog = &self.catalog;
            let facts = |size: &VmSize| -> Option<Arc<SizeFacts>> { catalog.size(size).map(|s| Arc::clone(&s.facts)) };
            let controller = &mut self.controller;
            controller.memory.note(&report, facts);
            controller.planned.remove(&key);
            if report.failed.is_some() {
                controller.wake_at(now + AFTER_FAILURE);
            } else {
                controller.wake_at(now);
            }
            if let Some(inventory) = report.inventory {
                controller.snapshot.inventory = Some(inventory);
            }
        }
    }
}
