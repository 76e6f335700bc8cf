//! The keeper: what turns changes, replies and the passing of time into decisions and effects?
//!
//! One task owns the state. Decisions run on a thread of their own, effects as tasks; both come back as messages.

mod learning;

use super::Watch;
use super::buffers::{Buffers, Cushions};
use super::facts::Live;
use super::ports::{Ports, patience};
use super::settling::Settling;
use super::telling::Teller;
use jiff::Timestamp;
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::engine::controller::{Controller, ControllerConfig, DecisionResult};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::model::settings::{ControllerMode, Pause, Settings};
use napkeeper_core::plan::{ClusterRead, Command, CommandReport, Effect, Reply};
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use napkeeper_kube::watch::{WatchEvent, WatchedKind};
use napkeeper_serve::{Check, Lifecycle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

/// Changes that are taken in before the next decision.
const MOST_CHANGES: usize = 4_096;
/// Decisions are made at most this often, however fast changes come.
const BETWEEN_DECISIONS: Duration = Duration::from_millis(20);
/// Changes that may wait to be taken in; then the watches wait.
const CHANGES: usize = 10_000;
/// After something broke off that never should.
const AFTER_BREAKING: Duration = Duration::from_secs(30);
/// Decisions that may break off in a row.
const MOST_BROKEN: u32 = 3;
/// Longest sleep: our clock may be moved ahead by a test while it lasts.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What the keeper works with; only the catalogue changes, between decisions.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Arc<RegionCatalog>,
    pub(super) options: InstanceTypeOptions,
    pub(super) seed: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ports: Arc<dyn Ports>,
    /// Where the pause switch is told to those who write.
    pub(super) pause: watch::Sender<Pause>,
    /// Where it is told where the chunks of CapacityBuffers have their room.
    pub(super) cushions: watch::Sender<Arc<Cushions>>,
}

impl Fixed {
    fn rules(&self) -> ControllerConfig<'_> {
        ControllerConfig { settings: &self.settings, catalog: &self.catalog, options: self.options, seed: self.seed }
    }
}

/// What reaches the keeper from outside.
pub(super) struct Inlets {
    /// Starts to watch the cluster.
    pub(super) watch: Watch,
    /// This replica leads.
    pub(super) leading: watch::Receiver<bool>,
    /// What Azure offers.
    pub(super) facts: watch::Receiver<Arc<Live>>,
    /// The CapacityBuffers there are.
    pub(super) buffers: watch::Receiver<Option<Arc<Buffers>>>,
}

/// A term of leadership: it begins with a fresh listing of everything, after all effects of the term before have ended.
/// So nothing that an earlier term made is made again.
#[derive(Debug)]
struct Term {
    watching: JoinHandle<()>,
    changes: mpsc::Receiver<WatchEvent>,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// A reply to an effect of a command.
type Replied = (CommandKey, Result<Reply, EffectError>);

/// The state of the controller.
#[derive(Debug)]
pub(super) struct Keeper {
    fixed: Fixed,
    controller: Controller,
    settling: Settling,
    teller: Teller,
    watches: Check,
    /// Kinds whose watch fails, with the reason.
    troubled: BTreeMap<WatchedKind, String>,
    term: Option<Term>,
    synced: bool,
    leads: bool,
    changed: bool,
    decided: Option<Instant>,
    answers: JoinSet<DecisionResult>,
    effects: JoinSet<Replied>,
    /// All effects of each term that is over: their replies do not matter any more, but that they end does.
    stale: JoinSet<()>,
    /// Decisions that broke off in a row, and until when none is made.
    broken: u32,
    hold: Option<Instant>,
    /// Looks for NodeClaims that were created and have not been seen.
    looks: JoinSet<(ClaimName, Result<Reply, EffectError>)>,
}

impl Keeper {
    pub(super) fn new(fixed: Fixed, teller: Teller, watches: Check) -> Self {
        // A replica that stands by is ready to take over.
        watches.pass();
        let mut controller = Controller::default();
        if fixed.settings.mode == ControllerMode::Provisioner {
            controller.mark_buffers_unsynced();
        }
        Self {
            fixed,
            controller,
            settling: Settling::default(),
            teller,
            watches,
            troubled: BTreeMap::new(),
            term: None,
            synced: false,
            leads: false,
            changed: false,
            decided: None,
            answers: JoinSet::new(),
            effects: JoinSet::new(),
            stale: JoinSet::new(),
            broken: 0,
            hold: None,
            looks: JoinSet::new(),
        }
    }

    /// Runs until the process drains; effects under way are then waited for.
    pub(super) async fn run(mut self, mut inlets: Inlets, lifecycle: Lifecycle) {
        while self.broken < MOST_BROKEN {
            self.begin_term(&inlets);
            self.ask();
            self.act();
            let sleep = tokio::time::sleep(self.sleep());
            tokio::select! {
                biased;
                () = lifecycle.draining() => break,
                Ok(()) = inlets.leading.changed() => {
                    let leads = *inlets.leading.borrow_and_update();
                    self.lead(leads);
                }
                Ok(()) = inlets.buffers.changed() => self.learn_buffers(inlets.buffers.borrow_and_update().clone().as_deref()),
                Ok(()) = inlets.facts.changed() => self.learn_facts(&inlets.facts.borrow_and_update().clone()),
                Some(Ok((key, reply))) = self.effects.join_next() => self.replied(&key, reply),
                Some(_) = self.stale.join_next() => {}
                Some(answer) = self.answers.join_next() => match answer {
                    Ok(answer) => self.answered(answer),
                    Err(error) => self.broke_off(&error),
                },
                Some(Ok((claim, reply))) = self.looks.join_next() => self.looked(&claim, &reply),
                event = next_event(&mut self.term) => self.take_in(event),
                () = sleep => {}
            }
        }
        tracing::info!(under_way = self.effects.len(), "draining: no new commands are started");
        while self.effects.join_next().await.is_some() || self.stale.join_next().await.is_some() {}
    }

    /// Begins a term, if we lead and nothing of an earlier term is under way.
    fn begin_term(&mut self, inlets: &Inlets) {
        let held = self.hold.is_some_and(|until| Instant::now() < until);
        if !self.leads || self.term.is_some() || !self.stale.is_empty() || held {
            return;
        }
        self.watches.fail("the cluster is not listed yet");
        let (sender, changes) = mpsc::channel(CHANGES);
        self.term = Some(Term { watching: (inlets.watch)(sender), changes });
    }

    /// Ends the term. What it had under way is forgotten, as in a crash.
    fn end_term(&mut self) {
        self.term = None;
        self.synced = false;
        self.troubled.clear();
        self.settling = Settling::default();
        self.controller.restart(Snapshot::default());
        self.answers.abort_all();
        self.answers = JoinSet::new();
        let mut effects = std::mem::take(&mut self.effects);
        self.stale.spawn(async move { while effects.join_next().await.is_some() {} });
        self.watches.pass();
    }

    /// Leadership was won or lost.
    fn lead(&mut self, leads: bool) {
        if self.leads == leads {
            return;
        }
        tracing::info!(leads, "leadership changed");
        self.leads = leads;
        self.end_term();
    }

    /// Asks for a decision on a thread of its own, if there is reason to. A decision on half of the objects would be a
    /// wrong one: a NodeClaim that is not seen is made again.
    fn ask(&mut self) {
        self.look();
        let now = self.fixed.clock.now();
        if self.until_decision(now) != Some(Duration::ZERO) {
            return;
        }
        if self.changed {
            self.controller.refresh_instance_types(&self.fixed.catalog, &self.fixed.options);
        }
        let Some(question) = self.controller.begin_decision(self.settling.keys(Instant::now())) else { return };
        self.changed = false;
        self.decided = Some(Instant::now());
        let (settings, seed) = (Arc::clone(&self.fixed.settings), self.fixed.seed);
        self.answers.spawn_blocking(move || question.decide(&settings, now, seed));
    }

    /// How long until a decision is due; `None` while none may be made, is under way, or is wanted.
    fn until_decision(&self, now: Timestamp) -> Option<Duration> {
        let may = self.leads && self.synced && self.troubled.is_empty() && self.answers.is_empty();
        let wanted = if self.changed { Some(now) } else { self.controller.next_decision() };
        let due = wanted.filter(|_| may).map(|at| until(at, now))?;
        let rest = self.decided.map_or(Duration::ZERO, |at| BETWEEN_DECISIONS.saturating_sub(at.elapsed()));
        Some(due.max(rest))
    }

    /// Looks for a NodeClaim that was created and should have been seen long ago.
    fn look(&mut self) {
        let Some(claim) = self.settling.overdue(Instant::now()) else { return };
        let ports = Arc::clone(&self.fixed.ports);
        self.looks.spawn(async move {
            let reply = ports.perform(&Effect::Read(ClusterRead::Claim(claim.clone())), None).await;
            (claim, reply)
        });
    }

    fn answered(&mut self, answer: DecisionResult) {
        self.broken = 0;
        self.teller.decided(self.decided.map(|at| at.elapsed()).unwrap_or_default());
        let started = self.controller.apply_decision(answer, self.fixed.rules(), self.fixed.clock.now());
        self.teller.waiting(self.controller.snapshot(), self.controller.memory());
        let cushions = &self.controller.memory().provision.buffer_statuses;
        if **self.fixed.cushions.borrow() != *cushions {
            self.fixed.cushions.send_replace(Arc::new(cushions.clone()));
        }
        for planned in &started {
            self.teller.started(planned, self.controller.snapshot());
        }
    }

    /// A decision panicked: all begins anew, after a while; several times in a row, this process gives up, and with it
    /// the Lease.
    fn broke_off(&mut self, error: &JoinError) {
        tracing::error!(%error, "a decision panicked, which is a bug; restarting from the cluster state");
        self.broken += 1;
        self.end_term();
        self.hold = Some(Instant::now() + AFTER_BREAKING);
    }

    /// Hands out all effects that are due and have room.
    fn act(&mut self) {
        while self.leads {
            let mut ended = Vec::new();
            let next = self.controller.next_effect(self.fixed.clock.now(), &mut ended);
            self.ended(ended);
            let Some((key, effect)) = next else { break };
            let ports = Arc::clone(&self.fixed.ports);
            self.teller.performing(&effect);
            self.settling.began(&key);
            let patience = patience(&key, &effect);
            self.effects.spawn(async move {
                // On a task of its own, so that a panic is an answer too, and the command does not wait for ever.
                let reply = tokio::spawn(async move { ports.perform(&effect, patience).await }).await;
                (key, reply.unwrap_or(Err(EffectError::Cluster(ClusterError::Unavailable))))
            });
        }
    }

    fn replied(&mut self, key: &CommandKey, reply: Result<Reply, EffectError>) {
        if let Err(error) = &reply {
            self.teller.refused(key, error);
        }
        if let Some(Command::CreateClaim(draft)) = self.controller.running(key).map(|p| &p.command)
            && self.controller.snapshot().claims().get(&draft.name).is_none()
            && matches!(reply, Ok(_) | Err(EffectError::Cluster(ClusterError::Unavailable)))
        {
            self.settling.created(draft.name.clone(), Instant::now());
        }
        let mut ended = Vec::new();
        self.controller.reply(key, reply, self.fixed.clock.now(), &mut ended);
        self.ended(ended);
    }

    /// A NodeClaim that was created has not been seen for long: is it there?
    fn looked(&mut self, claim: &ClaimName, reply: &Result<Reply, EffectError>) {
        match reply {
            Ok(Reply::Claim(None)) => self.settling.forget(claim),
            Ok(_) => tracing::warn!(%claim, "the NodeClaim exists, but the watch has not delivered it"),
            Err(error) => tracing::warn!(%claim, %error, "cannot determine whether the NodeClaim exists"),
        }
        self.changed = true;
    }

    fn ended(&mut self, ended: Vec<(CommandKey, CommandReport)>) {
        for (key, report) in ended {
            self.teller.ended(&key, self.controller.running(&key), &report, self.controller.snapshot());
            self.settling.ended(&key, Instant::now());
            self.controller.command_ended(&key, report, self.fixed.rules(), self.fixed.clock.now());
        }
    }

    /// How long nothing is to be done unless something happens.
    fn sleep(&self) -> Duration {
        let now = self.fixed.clock.now();
        let step = self.controller.next_step();
        let settled = self.settling.next().map(|at| at.saturating_duration_since(Instant::now()));
        let all = [self.until_decision(now), step.map(|at| until(at, now)), settled];
        let due = all.into_iter().flatten().min().unwrap_or(LONGEST_SLEEP);
        due.clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// The next event of the term; never, between terms.
async fn next_event(term: &mut Option<Term>) -> Option<WatchEvent> {
    match term {
        Some(term) => term.changes.recv().await,
        None => std::future::pending().await,
    }
}
