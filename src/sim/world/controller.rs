//! The controller of the embedded world, and its crashes.

use super::World;
use crate::cluster::Cluster;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::live::{Fact, FactKind, InfrastructureFacts};
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog};
use napkeeper_core::engine::controller::{Controller, ControllerConfig};
use napkeeper_core::model::labels;
use napkeeper_core::model::settings::Settings;
use napkeeper_core::plan::CommandReport;
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The controller, and how it fares.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) inner: Controller,
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

impl Keeper {
    /// When it will do something by itself.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.down_until.or_else(|| self.inner.next_wake())
    }

    /// Goes down, losing everything that is not durable.
    pub(super) fn crash(&mut self, until: Timestamp) {
        self.inner.restart(Snapshot::default());
        self.down_until = Some(until);
    }

    /// Comes back when its time has come, knowing what the API server knows.
    pub(super) fn restart_if_due(&mut self, cluster: &Cluster, now: Timestamp) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            self.inner.restart(cluster.relist());
            self.inner.wake_at(now);
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

fn rules<'a>(settings: &'a Settings, catalog: &'a RegionCatalog, seed: u64) -> ControllerConfig<'a> {
    ControllerConfig { settings, catalog, options: InstanceTypeOptions::default(), seed }
}

impl World {
    /// Brings the controller's Snapshot up to date; true when something has changed.
    pub(super) fn watch(&mut self) -> bool {
        let deltas = self.cluster.watch();
        self.look_at_reservations();
        let keeper = &mut self.controller;
        if keeper.is_up() {
            deltas.iter().for_each(|delta| keeper.inner.apply(delta));
        }
        if !deltas.is_empty() {
            self.books.measure(self.cluster.state(), |node| node.label(labels::NODEPOOL).is_some());
        }
        if !deltas.is_empty() || keeper.inner.snapshot().instance_types.is_empty() {
            keeper.inner.refresh_instance_types(&self.catalog, &InstanceTypeOptions::default());
        }
        !deltas.is_empty()
    }

    /// Asks Azure what is reserved, as often as the keeper of facts does. Without any that costs nothing.
    fn look_at_reservations(&mut self) {
        if self.reservations_due().is_none_or(|at| at > self.now) {
            return;
        }
        let reservations = Some(Fact { as_of: self.now, value: self.cloud.reserved() });
        let surroundings = InfrastructureFacts { reservations, ..InfrastructureFacts::default() };
        let keeper = &mut self.controller.inner;
        keeper.set_infrastructure(Arc::new(surroundings));
        keeper.refresh_instance_types(&self.catalog, &InstanceTypeOptions::default());
        keeper.wake_at(self.now);
    }

    /// When Azure is asked what is reserved; never where nothing is.
    pub(super) fn reservations_due(&self) -> Option<Timestamp> {
        let known = self.controller.inner.snapshot().infrastructure.reservations.as_ref();
        let next = known.map(|fact| fact.as_of + FactKind::Reservations.period());
        next.or_else(|| self.cloud.reserves().then_some(self.now))
    }

    /// Lets the deciders decide, if something has changed or their time has come.
    pub(super) fn decide(&mut self, changed: bool) -> bool {
        let due = self.controller.inner.next_decision().is_some_and(|at| at <= self.now);
        if !self.controller.is_up() || !(changed || due) {
            return false;
        }
        let Some(question) = self.controller.inner.begin_decision(BTreeSet::new()) else { return false };
        let answer = question.decide(&self.settings, self.now, self.seed);
        let rules = rules(&self.settings, &self.catalog, self.seed);
        let started = self.controller.inner.apply_decision(answer, rules, self.now);
        self.tell_waiting();
        let any = !started.is_empty();
        for planned in started {
            self.tell_start(&planned);
        }
        any
    }

    /// Learns from commands that ended.
    pub(super) fn learn(&mut self, ended: Vec<(CommandKey, CommandReport)>) {
        for (key, report) in ended {
            self.tell_end(&key, &report);
            let rules = rules(&self.settings, &self.catalog, self.seed);
            self.controller.inner.command_ended(&key, report, rules, self.now);
        }
    }
}
