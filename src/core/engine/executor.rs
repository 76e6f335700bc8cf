//! The executor's state: which command is at which step?
//!
//! Pure, like everything here: it hands out the effects that are due and takes the replies. The embedded world performs
//! them on its virtual clock, the controller over HTTP; which commands run, in which order and how they end is the same.

use super::concurrency::{Lane, Lanes};
use crate::lifecycle::{BillScript, ConfirmGoneScript, LaunchScript, MachineScript, Sizes, TerminateScript};
use crate::model::azure::naming::machine_id;
use crate::model::errors::PortError;
use crate::model::names::NodeClassName;
use crate::model::settings::Settings;
use crate::orphans::{CollectScript, MarkScript};
use crate::plan::{Command, Effect, OneEffect, Planned, Reply, Report, Script, Step};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Commands that are under way.
#[derive(Debug, Default)]
pub struct Executor {
    running: BTreeMap<CommandKey, Running>,
    lanes: Lanes,
}

#[derive(Debug)]
struct Running {
    script: Box<dyn Script>,
    /// Of what it asks of Azure.
    lane: Lane,
    ready: Ready,
}

/// What a running command waits for.
#[derive(Debug)]
enum Ready {
    /// Its next step, at this time.
    At(Timestamp),
    /// This effect is to be performed.
    Effect(Box<Effect>),
    /// The reply to the effect that was handed out in this lane.
    Reply(Lane),
}

impl Executor {
    /// Starts a command; `false` when one with the same key is still running, in which case the decider will ask again.
    pub fn start(&mut self, planned: Planned, snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> bool {
        let key = planned.command.key();
        if self.running.contains_key(&key) {
            return false;
        }
        let lane = Lane::of(&planned.command);
        let script = script(planned.command, snapshot, settings);
        self.running.insert(key, Running { script, lane, ready: Ready::At(now) });
        true
    }

    /// The next effect that is due and has room, with its command; reports of commands that ended on the way are added
    /// to `ended`.
    pub fn next_effect(
        &mut self,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, Report)>,
    ) -> Option<(CommandKey, Effect)> {
        while let Some(key) = self.next_due(now) {
            let running = self.running.get_mut(&key)?;
            let waits = Ready::Reply(running.lane_now());
            match std::mem::replace(&mut running.ready, waits) {
                Ready::Effect(effect) => {
                    self.lanes.begin(running.lane_now());
                    return Some((key, *effect));
                }
                Ready::At(_) => {
                    let step = running.script.step(None, now);
                    self.follow(&key, step, now, ended);
                }
                Ready::Reply(_) => return None,
            }
        }
        None
    }

    /// The first command whose next step is due.
    fn next_due(&self, now: Timestamp) -> Option<CommandKey> {
        let due = |r: &Running| r.due(&self.lanes).is_some_and(|at| at <= now);
        self.running.iter().find(|(_, running)| due(running)).map(|(key, _)| key.clone())
    }

    /// Hands a command the reply to its effect.
    pub fn reply(
        &mut self,
        key: &CommandKey,
        reply: Result<Reply, PortError>,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, Report)>,
    ) {
        if let Some(running) = self.running.get_mut(key) {
            if let Ready::Reply(lane) = running.ready {
                self.lanes.end(lane);
            }
            let step = running.script.step(Some(reply), now);
            self.follow(key, step, now, ended);
        }
    }

    fn follow(&mut self, key: &CommandKey, step: Step, now: Timestamp, ended: &mut Vec<(CommandKey, Report)>) {
        let ready = match step {
            Step::Do(effect) => Ready::Effect(effect),
            Step::Wait(time) => Ready::At(now.saturating_add(time).unwrap_or(Timestamp::MAX)),
            Step::End(report) => {
                self.running.remove(key);
                ended.push((key.clone(), report));
                return;
            }
        };
        if let Some(running) = self.running.get_mut(key) {
            running.ready = ready;
        }
    }

    /// When the next step is due; `None` when nothing runs, or all wait for a reply or for room.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.running.values().filter_map(|running| running.due(&self.lanes)).min()
    }

    /// Commands that are under way.
    #[must_use]
    pub fn in_progress(&self) -> BTreeSet<CommandKey> {
        self.running.keys().cloned().collect()
    }
}

impl Running {
    /// When its next step is due; `None` while it waits for a reply, or for room.
    fn due(&self, lanes: &Lanes) -> Option<Timestamp> {
        match &self.ready {
            Ready::At(at) => Some(*at),
            Ready::Effect(_) => lanes.have_room(self.lane_now()).then_some(Timestamp::MIN),
            Ready::Reply(_) => None,
        }
    }

    /// The lane of the effect that it is at.
    fn lane_now(&self) -> Lane {
        match &self.ready {
            Ready::Effect(effect) if effect.is_to_azure() => self.lane,
            Ready::Reply(lane) => *lane,
            _ => Lane::Cluster,
        }
    }
}

/// The script of a command.
fn script(command: Command, snapshot: &Snapshot, settings: &Settings) -> Box<dyn Script> {
    let law = settings.law;
    let one = |effect| Box::new(OneEffect::new(effect)) as Box<dyn Script>;
    match command {
        Command::CreateClaim(draft) => one(Effect::CreateClaim(draft)),
        Command::Launch(launch) => {
            let class = snapshot.claims().get(&launch.claim.name).map(|c| c.spec.class.clone());
            let sizes = sizes(snapshot, class.as_ref());
            // What an intent names was perhaps made before the settings were changed.
            let machine = match &launch.intent {
                Some(intent) => intent.machine.clone(),
                None => settings.machines.as_ref().map(|pool| machine_id(pool, &launch.claim.name)),
            };
            match machine {
                Some(machine) => Box::new(MachineScript::new(*launch, sizes, machine)),
                None => Box::new(LaunchScript::new(*launch, sizes, law)),
            }
        }
        Command::Bill { claim, vm } => Box::new(BillScript::new(claim, vm)),
        Command::AdvanceClaim { claim, step } => one(Effect::AdvanceClaim(claim, step)),
        Command::AdvanceNode { node, uid, step } => one(Effect::AdvanceNode(node, uid, step)),
        Command::DeleteClaim { claim, .. } => one(Effect::DeleteClaim(claim)),
        Command::ConfirmGone { claim, vm } => Box::new(ConfirmGoneScript::new(claim, vm)),
        Command::Evict { pod, uid } => one(Effect::Evict(pod, uid)),
        Command::Terminate(terminate) => Box::new(TerminateScript::new(*terminate, law)),
        Command::ReleaseClaim { claim } => one(Effect::ReleaseClaim(claim)),
        Command::Observe { .. } => one(Effect::TakeInventory),
        Command::Record(change) => one(Effect::Record(change)),
        Command::SweepDelete(delete) => Box::new(CollectScript::new(*delete, settings)),
        Command::Mark { resource, first_seen } => Box::new(MarkScript::mark(&resource, first_seen)),
        Command::Unmark { resource } => Box::new(MarkScript::unmark(&resource)),
        Command::ReportSweep(report) => one(Effect::ReportSweep(report)),
    }
}

/// The instance types of a class.
fn sizes(snapshot: &Snapshot, class: Option<&NodeClassName>) -> Sizes {
    class.and_then(|c| snapshot.instance_types.get(c)).cloned().unwrap_or_default()
}
