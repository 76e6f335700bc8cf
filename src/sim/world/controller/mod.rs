//! The controller of the embedded world, and its crashes.

mod azure_access;
mod clock;
pub(crate) mod effects;
mod freezes;
mod launch_reasons;
mod watches;
mod write_checks;

use super::World;
use crate::cluster::Cluster;
pub use azure_access::{AzureAccess, DirectAccess};
use clock::ControllerClock;
pub use freezes::Freeze;
use freezes::Freezes;
use jiff::{SignedDuration, Timestamp};
pub use launch_reasons::LaunchReason;
pub(super) use launch_reasons::LaunchReasons;
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::catalog::live::{Fact, FactKind, InfrastructureFacts};
use napkeeper_core::engine::control_loop::{Controller, ControllerConfig};
use napkeeper_core::engine::decision::DecisionKind;
use napkeeper_core::engine::expectations::{ClaimReading, Expectations};
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::labels;
use napkeeper_core::plan::{ClusterRead, CommandReport, Reply};
use napkeeper_core::scheduling::{NewNode, UnavailableOfferings};
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use std::sync::Arc;
use std::time::Duration;
pub use watches::WatchedKind;
use watches::Watches;

/// The controller, and its crashes.
#[derive(Debug, Default)]
pub(in crate::world) struct SimulatedController {
    pub(in crate::world) inner: Controller,
    /// What it has not yet heard of.
    pub(in crate::world) watches: Watches,
    /// Its own writes of which it has not yet heard.
    expectations: Expectations,
    /// It is down until this time.
    pub(in crate::world) down_until: Option<Timestamp>,
    /// Writes performed so far.
    pub(in crate::world) writes: u64,
    /// Scheduled crashes.
    pub(in crate::world) crashes: Vec<Crash>,
    /// Freezes, scheduled and present ones.
    pub(in crate::world) freezes: Freezes,
    /// Its clock.
    pub(in crate::world) clock: ControllerClock,
    /// Cluster-wide settings of nodes.
    pub(in crate::world) options: InstanceTypeOptions,
    /// It has taken an inventory since its start.
    pub(in crate::world) knows_inventory: bool,
}

/// Chooses the nodes for pods that wait instead of napkeeper's scheduling, for comparisons.
pub trait ChoosesNodes: std::fmt::Debug {
    /// The nodes that are to be launched now, where Azure has refused some offerings lately.
    fn choose(&self, cluster: &Cluster, refused: &UnavailableOfferings, now: Timestamp) -> Vec<NewNode>;
}

/// A crash of the controller at one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// At which write.
    pub at: CrashPoint,
    /// Before or after the write takes effect.
    pub side: WriteSide,
    /// How long the controller is down.
    pub down_for: SignedDuration,
}

/// A write at which the controller may crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// This write, counted from 0 over the entire run.
    Write(u64),
    /// The next one.
    NextWrite,
    /// The next DELETE of a sweep.
    SweepDelete,
}

/// On which side of a write a crash falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteSide {
    /// The write never happens.
    Before,
    /// The write happens, and its reply is lost.
    After,
}

impl CrashPoint {
    /// True at this write, counted from 0.
    fn is_due(self, write: u64, sweeps: bool) -> bool {
        self == Self::Write(write) || self == Self::NextWrite || sweeps && self == Self::SweepDelete
    }
}

impl SimulatedController {
    /// When it acts next without a change of the cluster.
    pub(in crate::world) fn next_wake(&self) -> Option<Timestamp> {
        let own = self.down_until.or_else(|| self.next_step().filter(|_| !self.freezes.is_frozen()));
        [own, self.freezes.next_end(), self.clock.compared_at()].into_iter().flatten().min()
    }

    /// When it acts next while it is up.
    fn next_step(&self) -> Option<Timestamp> {
        let expected = self.expectations.next_deadline().map(instant);
        // Nothing is decided by a clock that is wrong.
        let decisions = DecisionKind::ALL.into_iter().filter_map(|kind| self.inner.next_decision(kind));
        let decisions = decisions.filter(|_| self.clock.is_tolerable());
        let steps = decisions.chain(self.inner.next_step()).map(|at| self.clock.real(at));
        steps.chain(self.watches.next_arrival()).chain(expected).min()
    }

    /// Crashes, losing everything that is not durable.
    pub(in crate::world) fn crash(&mut self, until: Timestamp) {
        self.freezes.crash();
        self.knows_inventory = false;
        self.inner.restart(Snapshot::default());
        self.down_until = Some(until);
    }

    /// Restarts when due, with the state of the API server.
    pub(in crate::world) fn restart_if_due(&mut self, cluster: &Cluster, now: Timestamp) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            self.list_anew(cluster, now);
        }
    }

    /// Begins with the state of the API server.
    fn list_anew(&mut self, cluster: &Cluster, now: Timestamp) {
        self.inner.list_anew(cluster.relist());
        self.watches.relist();
        self.expectations = Expectations::default();
        self.inner.wake_at(self.clock.time(now));
    }

    /// An effect of a command begins.
    pub(in crate::world) fn effect_started(&mut self, key: &CommandKey) {
        self.expectations.effect_started(key);
    }

    /// An effect has a reply: a NodeClaim that it created, or may have, must be heard of.
    pub(in crate::world) fn effect_replied(
        &mut self,
        key: &CommandKey,
        reply: &Result<Reply, EffectError>,
        now: Timestamp,
    ) {
        let command = self.inner.running(key).map(|planned| &planned.command);
        self.expectations.effect_replied(command, reply, self.inner.snapshot(), elapsed(now));
    }

    /// The crash that is due at this write, on this side of it.
    pub(in crate::world) fn crash_due(&mut self, side: WriteSide, sweeps: bool) -> Option<Crash> {
        let due = |crash: &Crash| crash.side == side && crash.at.is_due(self.writes, sweeps);
        let at = self.crashes.iter().position(due)?;
        Some(self.crashes.swap_remove(at))
    }

    pub(super) fn is_up(&self) -> bool {
        self.down_until.is_none() && !self.freezes.is_frozen()
    }
}

/// Expectations count time from any start.
fn elapsed(now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

fn instant(elapsed: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
}

impl World {
    /// Brings the controller's Snapshot up to date, as far as its watches are; true when something has arrived.
    pub(in crate::world) fn watch(&mut self) -> bool {
        let deltas = self.cluster.watch();
        self.refresh_reservations();
        let controller = &mut self.controller;
        let has_changed = !deltas.is_empty();
        controller.watches.send(deltas, self.now);
        // What a frozen controller is sent waits for it; one that crashes lists everything anew.
        let arrived = if controller.freezes.is_frozen() { Vec::new() } else { controller.watches.receive(self.now) };
        if controller.is_up() {
            for delta in &arrived {
                controller.expectations.observe(delta);
                controller.inner.apply(delta);
            }
        }
        if has_changed {
            self.accounting.measure(self.cluster.state(), |node| node.label(labels::NODEPOOL).is_some());
        }
        if !arrived.is_empty() || controller.inner.snapshot().instance_types.is_empty() {
            controller.inner.refresh_instance_types(&self.catalog, &controller.options);
        }
        !arrived.is_empty()
    }

    /// Ends the controller's wait for its own writes, where it has taken too long: of NodeClaims that were created or
    /// deleted it reads what has become of them. True when something was overdue.
    pub(in crate::world) fn check_overdue_writes(&mut self) -> bool {
        let mut any = self.controller.is_up() && self.controller.expectations.expire(elapsed(self.now));
        let time = self.controller_time();
        if any {
            self.controller.inner.wake_at(time);
        }
        while self.controller.is_up()
            && let Some(claim) = self.controller.expectations.overdue_claim(elapsed(self.now))
        {
            any = true;
            if let Ok(Reply::Claim(found)) = self.cluster.read(&ClusterRead::Claim(claim.clone()), self.now)
                && self.controller.expectations.claim_read(&claim, found.as_deref()) == ClaimReading::Lost
            {
                self.controller.list_anew(&self.cluster, self.now);
            }
            self.controller.inner.wake_at(time);
        }
        any
    }

    /// Reads capacity reservations from Azure, as often as the controller refreshes its facts.
    fn refresh_reservations(&mut self) {
        if self.reservations_due().is_none_or(|at| at > self.now) {
            return;
        }
        let reservations = Some(Fact { as_of: self.now, value: self.cloud.reserved() });
        let surroundings = InfrastructureFacts { reservations, ..InfrastructureFacts::default() };
        let SimulatedController { inner: controller, options, .. } = &mut self.controller;
        controller.set_infrastructure(Arc::new(surroundings));
        controller.refresh_instance_types(&self.catalog, options);
        let time = self.controller_time();
        self.controller.inner.wake_at(time);
    }

    /// When capacity reservations are read next; never where there are none.
    pub(in crate::world) fn reservations_due(&self) -> Option<Timestamp> {
        let known = self.controller.inner.snapshot().infrastructure.reservations.as_ref();
        let next = known.map(|fact| fact.as_of + FactKind::Reservations.period());
        next.or_else(|| self.cloud.reserves().then_some(self.now))
    }

    /// Runs the deciders, if something has changed or they are due; those of disruption see what the others have decided.
    pub(in crate::world) fn decide(&mut self, changed: bool) -> bool {
        let now = self.controller_time();
        self.controller.inner.tell_time(now);
        if changed {
            self.controller.inner.wake_at(now);
        }
        let is_due = |kind| self.controller.inner.next_decision(kind).is_some_and(|at| at <= now);
        let due: Vec<DecisionKind> = DecisionKind::ALL.into_iter().filter(|kind| is_due(*kind)).collect();
        if !self.controller.is_up() || due.is_empty() {
            return false;
        }
        if !self.controller.clock.is_tolerable() {
            self.controller.inner.wake_at(now);
            return false;
        }
        let mut any = false;
        for kind in due {
            any |= self.decide_kind(kind, now);
        }
        self.log_waiting();
        any
    }

    fn decide_kind(&mut self, kind: DecisionKind, now: Timestamp) -> bool {
        let unconfirmed = self.controller.expectations.unconfirmed();
        let request = self.controller.inner.begin_decision(kind, unconfirmed, &self.settings, now);
        let Some(request) = request else { return false };
        let mut answer = request.decide(&self.settings, now, self.seed);
        if let Some(provisioner) = &self.provisioner {
            let choose = |refused: &UnavailableOfferings| provisioner.choose(&self.cluster, refused, now);
            answer.replace_launches(choose, self.seed, now);
        }
        let Self { controller, settings, catalog, seed, .. } = self;
        let config = ControllerConfig { settings, catalog, options: controller.options, seed: *seed };
        let started = controller.inner.apply_decision(answer, config, now);
        let any = !started.is_empty();
        for planned in started {
            self.log_start(&planned);
        }
        any
    }

    /// Passes the results of ended commands to the controller.
    pub(in crate::world) fn end_commands(&mut self, ended: Vec<(CommandKey, CommandReport)>) {
        let time = self.controller_time();
        for (key, report) in ended {
            self.log_end(&key, &report);
            let controller = &mut self.controller;
            let command = controller.inner.running(&key).map(|planned| &planned.command);
            controller.expectations.expect_deletion(command, &report, controller.inner.snapshot(), elapsed(self.now));
            controller.expectations.command_ended(&key, &report, elapsed(self.now));
            let Self { controller, settings, catalog, seed, .. } = self;
            let config = ControllerConfig { settings, catalog, options: controller.options, seed: *seed };
            controller.inner.command_ended(&key, report, config, time);
        }
    }
}
