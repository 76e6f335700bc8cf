//! Turns changes of the cluster, replies to effects and the passing of time into decisions and effects.
//!
//! One task owns the state. Decisions run on threads, those of disruption beside the others, and effects as tasks; both
//! come back as messages.

mod terms;
mod updates;

use super::StartWatch;
use super::capacity_buffers::{BufferPlacements, Buffers};
use super::effects::EffectRunner;
use super::facts::CurrentFacts;
use super::reporting::Reporter;
use jiff::Timestamp;
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::engine::control_loop::{Controller, ControllerConfig};
use napkeeper_core::engine::decision::{DecisionKind, DecisionResult};
use napkeeper_core::engine::expectations::{ClaimReading, Expectations};
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::model::settings::{ControllerMode, DisruptionScope, Settings};
use napkeeper_core::plan::{ClusterRead, CommandReport, Effect, Reply};
use napkeeper_core::snapshot::CommandKey;
use napkeeper_kube::WriteHolds;
use napkeeper_kube::watch::{WatchEvent, WatchedKind};
use napkeeper_serve::{Check, Lifecycle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

/// Changes that are applied before the next decision.
const MAX_CHANGES_AT_ONCE: usize = 4_096;
/// Changes that may be queued; then the watches wait.
const CHANGE_QUEUE: usize = 10_000;
/// Pause after a decision has panicked or the watches have ended, neither of which should happen.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(30);
/// Decisions that may panic in a row before the process gives up.
const MAX_PANICS: u32 = 3;
/// Longest sleep: our clock may be moved ahead by a test while it lasts.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// What the control loop works with; only the catalogue changes, between decisions.
#[derive(Debug)]
pub(super) struct LoopContext {
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Arc<RegionCatalog>,
    pub(super) options: InstanceTypeOptions,
    pub(super) seed: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runner: Arc<dyn EffectRunner>,
    /// Passes on what holds writes back to the check of writes.
    pub(super) holds: watch::Sender<WriteHolds>,
    /// Passes on which nodes reserve capacity for the chunks of CapacityBuffers.
    pub(super) placements: watch::Sender<Arc<BufferPlacements>>,
}

impl LoopContext {
    fn controller_config(&self) -> ControllerConfig<'_> {
        ControllerConfig { settings: &self.settings, catalog: &self.catalog, options: self.options, seed: self.seed }
    }
}

/// What the control loop receives from other tasks.
pub(super) struct LoopInputs {
    /// Starts to watch the cluster.
    pub(super) start_watch: StartWatch,
    /// True while this replica leads.
    pub(super) leading: watch::Receiver<bool>,
    /// The current Azure facts.
    pub(super) facts: watch::Receiver<Arc<CurrentFacts>>,
    /// What nodes are made from beside their NodePool and AKSNodeClass.
    pub(super) node_base: watch::Receiver<Arc<NodeBase>>,
    /// The current CapacityBuffers.
    pub(super) buffers: watch::Receiver<Option<Arc<Buffers>>>,
}

/// A term of leadership: it begins with a fresh listing of everything, after all effects of the term before have ended.
/// So nothing that an earlier term made is made again.
#[derive(Debug)]
struct Term {
    watch: JoinHandle<()>,
    changes: mpsc::Receiver<WatchEvent>,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// A reply to an effect of a command.
type EffectResult = (CommandKey, Result<Reply, EffectError>);

/// The state of the live controller.
#[derive(Debug)]
pub(super) struct ControlLoop {
    context: LoopContext,
    controller: Controller,
    /// Expectations count time from here.
    started: Instant,
    expectations: Expectations,
    reporter: Reporter,
    watches: Check,
    /// Kinds whose watch fails, with the error.
    failed_watches: BTreeMap<WatchedKind, String>,
    term: Option<Term>,
    synced: bool,
    leads: bool,
    changed: bool,
    last_decisions: BTreeMap<DecisionKind, Instant>,
    decisions: JoinSet<DecisionResult>,
    effects: JoinSet<EffectResult>,
    /// Effects of earlier terms: their replies are dropped, but a new term waits for their end.
    previous_effects: JoinSet<()>,
    /// Decisions that panicked in a row.
    panics: u32,
    /// No term begins before this time.
    paused_until: Option<Instant>,
    /// Direct reads of NodeClaims that were created and that the watch has not delivered.
    claim_reads: JoinSet<(ClaimName, Result<Reply, EffectError>)>,
}

impl ControlLoop {
    pub(super) fn new(context: LoopContext, reporter: Reporter, watches: Check) -> Self {
        // A replica that stands by is ready to take over.
        watches.pass();
        let mut controller = Controller::default();
        if context.settings.mode == ControllerMode::Provisioner {
            controller.mark_buffers_unsynced();
        }
        Self {
            context,
            controller,
            started: Instant::now(),
            expectations: Expectations::default(),
            reporter,
            watches,
            failed_watches: BTreeMap::new(),
            term: None,
            synced: false,
            leads: false,
            changed: false,
            last_decisions: BTreeMap::new(),
            decisions: JoinSet::new(),
            effects: JoinSet::new(),
            previous_effects: JoinSet::new(),
            panics: 0,
            paused_until: None,
            claim_reads: JoinSet::new(),
        }
    }

    /// Runs until the process drains, and then until running effects have ended.
    pub(super) async fn run(mut self, mut inputs: LoopInputs, lifecycle: Lifecycle) {
        while self.panics < MAX_PANICS {
            self.begin_term(&inputs);
            self.check_overdue_claim();
            self.changed |= self.expectations.expire(self.started.elapsed());
            self.reporter.report_clock();
            self.start_decisions();
            self.start_effects();
            let sleep = tokio::time::sleep(self.sleep());
            tokio::select! {
                biased;
                () = lifecycle.draining() => break,
                Ok(()) = inputs.leading.changed() => {
                    let leads = *inputs.leading.borrow_and_update();
                    self.set_leading(leads);
                }
                Ok(()) = inputs.buffers.changed() => self.set_buffers(inputs.buffers.borrow_and_update().clone().as_deref()),
                Ok(()) = inputs.node_base.changed() => self.set_node_base(inputs.node_base.borrow_and_update().clone()),
                Ok(()) = inputs.facts.changed() => self.set_facts(&inputs.facts.borrow_and_update().clone()),
                Some(Ok((key, reply))) = self.effects.join_next() => self.handle_reply(&key, reply),
                Some(_) = self.previous_effects.join_next() => {}
                Some(result) = self.decisions.join_next() => match result {
                    Ok(decision) => self.apply_decision(decision),
                    Err(error) => self.decision_panicked(&error),
                },
                Some(Ok((claim, reply))) = self.claim_reads.join_next() => self.handle_claim_read(&claim, &reply),
                event = next_event(&mut self.term) => self.apply_events(event),
                () = sleep => {}
            }
        }
        tracing::info!(running = self.effects.len(), "draining: no new commands are started");
        while self.effects.join_next().await.is_some() || self.previous_effects.join_next().await.is_some() {}
    }

    /// Starts the decisions that are due. A decision on incomplete data would be wrong: a NodeClaim that is missing from it
    /// would be created again.
    fn start_decisions(&mut self) {
        let now = self.context.clock.now();
        self.controller.tell_time(now);
        let sees = self.synced && self.failed_watches.is_empty() && self.reporter.clock_is_right();
        if !self.leads || !sees {
            return;
        }
        if std::mem::take(&mut self.changed) {
            self.controller.refresh_instance_types(&self.context.catalog, &self.context.options);
            self.controller.wake_at(now);
        }
        // Disruption first: it copies a part of the memory that the other decision takes away.
        for kind in DecisionKind::ALL.into_iter().rev() {
            if self.until_decision(kind, now) == Some(Duration::ZERO) {
                self.start_decision(kind, now);
            }
        }
    }

    /// Starts a decision on a thread of its own.
    fn start_decision(&mut self, kind: DecisionKind, now: Timestamp) {
        let (settings, seed) = (Arc::clone(&self.context.settings), self.context.seed);
        let settling = self.expectations.unconfirmed();
        let Some(request) = self.controller.begin_decision(kind, settling, &settings, now) else { return };
        self.last_decisions.insert(kind, Instant::now());
        self.decisions.spawn_blocking(move || request.decide(&settings, now, seed));
    }

    /// Time until a decision is due; `None` while it is not possible or not needed.
    fn until_decision(&self, kind: DecisionKind, now: Timestamp) -> Option<Duration> {
        let due = self.controller.next_decision(kind).map(|at| until(at, now))?;
        let last = self.last_decisions.get(&kind);
        let pause = last.map_or(Duration::ZERO, |at| min_interval(kind).saturating_sub(at.elapsed()));
        Some(due.max(pause))
    }

    /// Reads a NodeClaim whose creation or deletion the watch should have delivered by now.
    fn check_overdue_claim(&mut self) {
        let Some(claim) = self.expectations.overdue_claim(self.started.elapsed()) else { return };
        let runner = Arc::clone(&self.context.runner);
        self.claim_reads.spawn(async move {
            let read = Effect::Read(ClusterRead::Claim(claim.clone()));
            let reply = runner.perform(&CommandKey::Claim(claim.clone()), &read, &DisruptionScope::default()).await;
            (claim, reply)
        });
    }

    fn apply_decision(&mut self, decision: DecisionResult) {
        self.panics = 0;
        let begun = self.last_decisions.get(&decision.kind());
        self.reporter.decision_made(decision.kind(), begun.map(Instant::elapsed).unwrap_or_default());
        let started =
            self.controller.apply_decision(decision, self.context.controller_config(), self.context.clock.now());
        self.reporter.report_problems(self.controller.snapshot(), self.controller.memory(), self.context.clock.now());
        self.reporter.report_eligible(self.controller.eligible_nodes());
        self.pass_on_launch_hold();
        let placements = &self.controller.memory().provision.buffer_statuses;
        if **self.context.placements.borrow() != *placements {
            self.context.placements.send_replace(Arc::new(placements.clone()));
        }
        for planned in &started {
            self.reporter.command_started(planned, self.controller.snapshot());
        }
        self.reporter.report_kept_nodes(self.controller.snapshot(), self.context.clock.now());
    }

    /// Has the check of writes know why nothing may be launched.
    fn pass_on_launch_hold(&self) {
        let hold = &self.controller.memory().launch_check.hold;
        self.context.holds.send_if_modified(|holds| {
            let has_changed = holds.launch_hold != *hold;
            holds.launch_hold.clone_from(hold);
            has_changed
        });
    }

    /// After a panic in a decision everything starts again, after a pause. After several in a row the process exits and
    /// gives up the Lease.
    fn decision_panicked(&mut self, error: &JoinError) {
        tracing::error!(%error, "a decision panicked, which is a bug; listing the cluster anew");
        self.panics += 1;
        self.end_term();
        self.paused_until = Some(Instant::now() + PAUSE_AFTER_PANIC);
    }

    /// Starts all effects that are due, as far as their limits allow.
    fn start_effects(&mut self) {
        while self.leads {
            let mut ended = Vec::new();
            let next = self.controller.next_effect(self.context.clock.now(), &mut ended);
            self.finish_commands(ended);
            let Some((key, effect)) = next else { break };
            let runner = Arc::clone(&self.context.runner);
            let disrupted = self.controller.disruption_scope(&key);
            self.reporter.effect_started(&effect, self.controller.snapshot());
            self.expectations.effect_started(&key);
            self.effects.spawn(async move {
                // On a task of its own, so that a panic is a failed effect, and the command does not wait forever.
                let of = key.clone();
                let reply = tokio::spawn(async move { runner.perform(&of, &effect, &disrupted).await }).await;
                (key, reply.unwrap_or(Err(EffectError::Cluster(ClusterError::Unavailable))))
            });
        }
    }

    fn handle_reply(&mut self, key: &CommandKey, reply: Result<Reply, EffectError>) {
        if let Err(error) = &reply {
            self.reporter.effect_failed(key, error);
        }
        let command = self.controller.running(key).map(|planned| &planned.command);
        self.expectations.effect_replied(command, &reply, self.controller.snapshot(), self.started.elapsed());
        let mut ended = Vec::new();
        self.controller.reply(key, reply, self.context.clock.now(), &mut ended);
        self.finish_commands(ended);
    }

    /// The result of [`Self::check_overdue_claim`].
    fn handle_claim_read(&mut self, claim: &ClaimName, reply: &Result<Reply, EffectError>) {
        match reply {
            Ok(Reply::Claim(found)) => match self.expectations.claim_read(claim, found.as_deref()) {
                ClaimReading::Unchanged => {}
                ClaimReading::Late => tracing::warn!(%claim, "the watch has not delivered a change of the NodeClaim"),
                ClaimReading::Lost => {
                    tracing::error!(%claim, "the watch has lost a change of the NodeClaim: listing the cluster anew");
                    return self.end_term();
                }
            },
            Ok(_) => {}
            Err(error) => tracing::warn!(%claim, %error, "cannot read the NodeClaim"),
        }
        self.changed = true;
    }

    fn finish_commands(&mut self, ended: Vec<(CommandKey, CommandReport)>) {
        for (key, report) in ended {
            self.reporter.command_ended(&key, self.controller.running(&key), &report, self.controller.snapshot());
            let (command, now) =
                (self.controller.running(&key).map(|planned| &planned.command), self.started.elapsed());
            self.expectations.expect_deletion(command, &report, self.controller.snapshot(), now);
            self.expectations.command_ended(&key, &report, now);
            self.controller.command_ended(&key, report, self.context.controller_config(), self.context.clock.now());
        }
    }

    /// How long to sleep unless something happens.
    fn sleep(&self) -> Duration {
        let now = self.context.clock.now();
        let step = self.controller.next_step();
        let confirmed = self.expectations.next_deadline().map(|at| at.saturating_sub(self.started.elapsed()));
        let decisions = DecisionKind::ALL.into_iter().filter_map(|kind| self.until_decision(kind, now));
        let due = decisions.chain(step.map(|at| until(at, now))).chain(confirmed).min().unwrap_or(MAX_SLEEP);
        due.clamp(Duration::from_millis(1), MAX_SLEEP)
    }
}

/// Decisions are made at most this often, however fast changes come.
fn min_interval(kind: DecisionKind) -> Duration {
    match kind {
        DecisionKind::Reconciliation => Duration::from_millis(20),
        DecisionKind::Disruption => Duration::from_millis(200),
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// The next event of the term; waits forever between terms.
async fn next_event(term: &mut Option<Term>) -> Option<WatchEvent> {
    match term {
        Some(term) => term.changes.recv().await,
        None => std::future::pending().await,
    }
}
