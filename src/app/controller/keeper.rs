//! The keeper: what turns changes, replies and the passing of time into decisions and effects?
//!
//! One task owns the state. Decisions run on a thread of their own, effects as tasks; both come back as messages.

use super::ports::Ports;
use super::settling::Settling;
use super::telling::Teller;
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog};
use napkeeper_core::clock::Clock;
use napkeeper_core::cluster::delta::Delta;
use napkeeper_core::controller::{Answer, Controller, Rules};
use napkeeper_core::names::ClaimName;
use napkeeper_core::plan::{Command, CommandKey, Effect, Pause, Reply, Report};
use napkeeper_core::ports::{ClusterError, PortError};
use napkeeper_core::settings::Settings;
use napkeeper_kube::watch::{Kind, WatchEvent};
use napkeeper_serve::{Check, Lifecycle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Most effects under way at once.
const MOST_AT_ONCE: usize = 64;
/// Changes that are taken in before the next decision.
const MOST_CHANGES: usize = 4_096;
/// Decisions are made at most this often, however fast changes come.
const BETWEEN_DECISIONS: Duration = Duration::from_millis(20);
/// Longest sleep: our clock may be moved ahead by a test while it lasts.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What the keeper works with, and does not change.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: RegionCatalog,
    pub(super) options: InstanceTypeOptions,
    pub(super) seed: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ports: Arc<dyn Ports>,
    /// Where the pause switch is told to those who write.
    pub(super) pause: watch::Sender<Pause>,
}

impl Fixed {
    fn rules(&self) -> Rules<'_> {
        Rules { settings: &self.settings, catalog: &self.catalog, options: self.options, seed: self.seed }
    }
}

/// What reaches the keeper from outside.
#[derive(Debug)]
pub(super) struct Inlets {
    /// Changes in the cluster.
    pub(super) changes: mpsc::Receiver<WatchEvent>,
    /// This replica leads.
    pub(super) leading: watch::Receiver<bool>,
}

/// A reply with the term of leadership that its effect belongs to.
type Replied = (u64, CommandKey, Result<Reply, PortError>);

/// The state of the controller.
#[derive(Debug)]
pub(super) struct Keeper {
    fixed: Fixed,
    controller: Controller,
    settling: Settling,
    teller: Teller,
    watches: Check,
    /// Kinds whose watch fails, with the reason.
    troubled: BTreeMap<Kind, String>,
    synced: bool,
    leads: bool,
    term: u64,
    changed: bool,
    decided: Option<Instant>,
    answers: JoinSet<Answer>,
    effects: JoinSet<Replied>,
    /// Looks for NodeClaims that were created and have not been seen.
    looks: JoinSet<(ClaimName, Result<Reply, PortError>)>,
}

impl Keeper {
    pub(super) fn new(fixed: Fixed, teller: Teller, watches: Check) -> Self {
        watches.fail("the cluster has not been listed yet");
        Self {
            fixed,
            controller: Controller::default(),
            settling: Settling::default(),
            teller,
            watches,
            troubled: BTreeMap::new(),
            synced: false,
            leads: false,
            term: 0,
            changed: false,
            decided: None,
            answers: JoinSet::new(),
            effects: JoinSet::new(),
            looks: JoinSet::new(),
        }
    }

    /// Runs until the process drains; effects under way are then waited for.
    pub(super) async fn run(mut self, mut inlets: Inlets, lifecycle: Lifecycle) {
        loop {
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
                Some(reply) = self.effects.join_next() => match reply {
                    Ok(reply) => self.replied(reply),
                    Err(error) => tracing::error!(%error, "an effect broke off; its command is given up at its next timeout"),
                },
                Some(answer) = self.answers.join_next() => match answer {
                    Ok(answer) => self.answered(answer),
                    Err(error) => self.broke_off(&error),
                },
                Some(Ok((claim, reply))) = self.looks.join_next() => self.looked(&claim, &reply),
                event = inlets.changes.recv() => {
                    let Some(event) = event else { break };
                    self.learn(event);
                    for _ in 0..MOST_CHANGES {
                        let Ok(event) = inlets.changes.try_recv() else { break };
                        self.learn(event);
                    }
                }
                () = sleep => {}
            }
        }
        tracing::info!(under_way = self.effects.len(), "draining: no new work is begun");
        while self.effects.join_next().await.is_some() {}
    }

    /// Takes in an event of the watches.
    fn learn(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Synced => {
                self.synced = true;
                tracing::info!("the cluster has been listed");
            }
            WatchEvent::Changed(delta) => {
                self.settling.seen(&delta);
                if let Delta::Pause(pause) = &delta {
                    let before = self.fixed.pause.send_replace(pause.clone());
                    if before != *pause {
                        tracing::warn!(held_back = %pause, "the pause switch has changed");
                    }
                }
                self.controller.apply(&delta);
                self.changed = true;
            }
            WatchEvent::Trouble { kind, error } => {
                tracing::warn!(
                    kind = kind.resource(),
                    error,
                    "watching fails: nothing is decided until it works again"
                );
                self.troubled.insert(kind, error);
            }
            WatchEvent::Recovered { kind } => {
                tracing::info!(kind = kind.resource(), "watching works again");
                self.troubled.remove(&kind);
                self.changed = true;
            }
            WatchEvent::Unreadable { kind, name, why } => self.teller.unreadable(kind.resource(), &name, &why),
        }
        match self.troubled.iter().next() {
            Some((kind, why)) => self.watches.fail(format!("watching {} fails: {why}", kind.resource())),
            None if self.synced => self.watches.pass(),
            None => {}
        }
    }

    /// Leadership was won or lost. What a lost term had under way is forgotten, as in a crash.
    fn lead(&mut self, leads: bool) {
        if self.leads == leads {
            return;
        }
        tracing::info!(leads, "leadership has changed");
        self.leads = leads;
        self.term += 1;
        let snapshot = self.controller.snapshot().clone();
        self.controller.restart(snapshot);
        self.answers.abort_all();
        self.answers = JoinSet::new();
        self.changed = true;
    }

    /// Asks for a decision on a thread of its own, if there is reason to. A decision on half of the objects would be a
    /// wrong one: a NodeClaim that is not seen is made again.
    fn ask(&mut self) {
        let now = self.fixed.clock.now();
        let due = self.changed || self.controller.next_decision().is_some_and(|at| at <= now);
        let rested = self.decided.is_none_or(|at| at.elapsed() >= BETWEEN_DECISIONS);
        if !(self.leads && self.synced && self.troubled.is_empty() && due && rested) {
            return;
        }
        if let Some(claim) = self.settling.overdue(Instant::now()) {
            let ports = Arc::clone(&self.fixed.ports);
            self.looks.spawn(async move {
                let reply = ports.perform(&Effect::ReadClaim(claim.clone())).await;
                (claim, reply)
            });
        }
        if self.changed {
            self.controller.refresh_types(&self.fixed.catalog, &self.fixed.options);
        }
        let Some(question) = self.controller.ask(self.settling.keys(Instant::now())) else { return };
        self.changed = false;
        self.decided = Some(Instant::now());
        let (settings, seed) = (Arc::clone(&self.fixed.settings), self.fixed.seed);
        self.answers.spawn_blocking(move || question.answer(&settings, now, seed));
    }

    fn answered(&mut self, answer: Answer) {
        self.teller.decided(self.decided.map(|at| at.elapsed()).unwrap_or_default());
        let started = self.controller.follow(answer, self.fixed.rules(), self.fixed.clock.now());
        self.teller.waiting(self.controller.snapshot(), &self.controller.memory().provision.unplaced);
        for planned in &started {
            self.teller.started(planned, self.controller.snapshot());
        }
    }

    /// A decision panicked: it begins anew from what is durable.
    fn broke_off(&mut self, error: &tokio::task::JoinError) {
        tracing::error!(%error, "a decision broke off, which is a bug; starting anew from the cluster");
        let snapshot = self.controller.snapshot().clone();
        self.controller.restart(snapshot);
        self.term += 1;
        let now = self.fixed.clock.now();
        self.controller.wake_at(now + jiff::SignedDuration::from_secs(30));
    }

    /// Hands out all effects that are due.
    fn act(&mut self) {
        while self.effects.len() < MOST_AT_ONCE && self.leads {
            let mut ended = Vec::new();
            let next = self.controller.next_effect(self.fixed.clock.now(), &mut ended);
            self.ended(ended);
            let Some((key, effect)) = next else { break };
            let (ports, term) = (Arc::clone(&self.fixed.ports), self.term);
            self.teller.performing(&effect);
            self.settling.began(&key);
            self.effects.spawn(async move {
                let reply = ports.perform(&effect).await;
                (term, key, reply)
            });
        }
    }

    fn replied(&mut self, (term, key, reply): Replied) {
        if let Err(error) = &reply {
            self.teller.refused(&key, error);
        }
        if term != self.term {
            return;
        }
        if let Some(Command::CreateClaim(draft)) = self.controller.running(&key).map(|p| &p.command)
            && self.controller.snapshot().claims().get(&draft.name).is_none()
            && matches!(reply, Ok(_) | Err(PortError::Cluster(ClusterError::Unavailable)))
        {
            self.settling.created(draft.name.clone(), Instant::now());
        }
        let mut ended = Vec::new();
        self.controller.reply(&key, reply, self.fixed.clock.now(), &mut ended);
        self.ended(ended);
    }

    /// A NodeClaim that was created has not been seen for long: is it there?
    fn looked(&mut self, claim: &ClaimName, reply: &Result<Reply, PortError>) {
        match reply {
            Ok(Reply::Claim(None)) => self.settling.forget(claim),
            Ok(_) => tracing::warn!(%claim, "the NodeClaim is there, but the watch does not show it"),
            Err(error) => tracing::warn!(%claim, %error, "whether the NodeClaim is there cannot be told"),
        }
        self.changed = true;
    }

    fn ended(&mut self, ended: Vec<(CommandKey, Report)>) {
        for (key, report) in ended {
            self.teller.ended(&key, self.controller.running(&key), &report, self.controller.snapshot());
            self.settling.ended(&key, Instant::now());
            self.controller.learn(&key, report, self.fixed.rules(), self.fixed.clock.now());
        }
    }

    /// How long nothing is to be done unless something happens.
    fn sleep(&self) -> Duration {
        let now = self.fixed.clock.now();
        let wake = if self.effects.len() < MOST_AT_ONCE { self.controller.next_wake() } else { None };
        let until = |at: jiff::Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let settled = self.settling.next().map(|at| at.saturating_duration_since(Instant::now()));
        let due = [wake.map(until), settled].into_iter().flatten().min().unwrap_or(LONGEST_SLEEP);
        due.clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }
}
