//! The executor: running commands and their due effects.
//!
//! Pure, like everything here: it hands out the effects that are due and takes the replies. The embedded world performs
//! them on its virtual clock, the controller over HTTP; which commands run, in which order and how they end is the
//! same.

use super::concurrency::{ConcurrencyLimiter, RequestClass};
use crate::lifecycle::{
    AksMachineLaunchScript, BillingExtensionScript, CheckVmScript, ClassInstanceTypes, DeleteIfUnhealthyScript,
    EvictionScript, LaunchScript, ReleaseNodeScript, TerminateScript,
};
use crate::model::azure::naming::{aks_machine_id, is_aks_machine_of};
use crate::model::cluster::pod::Taint;
use crate::model::errors::EffectError;
use crate::model::names::NodeClassName;
use crate::model::settings::Settings;
use crate::orphans::{MarkScript, SweepDeleteScript};
use crate::plan::{
    ClaimUpdate, CloudRequest, ClusterWrite, Command, CommandReport, Effect, EffectSequence, NodeUpdate,
    PlannedCommand, Reply, Script, Step,
};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Commands that are under way.
#[derive(Debug, Default)]
pub struct Executor {
    running: BTreeMap<CommandKey, RunningCommand>,
    limiter: ConcurrencyLimiter,
}

#[derive(Debug)]
struct RunningCommand {
    script: Box<dyn Script>,
    /// The class of its requests to Azure.
    class: RequestClass,
    state: CommandState,
}

/// The state of a running command.
#[derive(Debug)]
enum CommandState {
    /// Its next step, at this time.
    WakeAt(Timestamp),
    /// This effect is to be performed.
    Perform(Box<Effect>),
    /// A reply to the effect of this class.
    AwaitReply(RequestClass),
}

impl Executor {
    /// Starts a command; `false` when one with the same key is still running, in which case the decider will decide
    /// again.
    pub fn start(&mut self, planned: PlannedCommand, snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> bool {
        let key = planned.command.key();
        if self.running.contains_key(&key) {
            return false;
        }
        let class = RequestClass::of(&planned.command);
        let script = script(planned.command, snapshot, settings);
        self.running.insert(key, RunningCommand { script, class, state: CommandState::WakeAt(now) });
        true
    }

    /// The next effect that is due and within its concurrency, with its command; reports of commands that ended
    /// meanwhile are added to `ended`.
    pub fn next_effect(
        &mut self,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) -> Option<(CommandKey, Effect)> {
        while let Some(key) = self.next_due(now) {
            let running = self.running.get_mut(&key)?;
            let waits = CommandState::AwaitReply(running.current_class());
            match std::mem::replace(&mut running.state, waits) {
                CommandState::Perform(effect) => {
                    self.limiter.start(running.current_class());
                    return Some((key, *effect));
                }
                CommandState::WakeAt(_) => {
                    let step = running.script.step(None, now);
                    self.apply_step(&key, step, now, ended);
                }
                CommandState::AwaitReply(_) => return None,
            }
        }
        None
    }

    /// The first command whose next step is due.
    fn next_due(&self, now: Timestamp) -> Option<CommandKey> {
        let due = |r: &RunningCommand| r.due_at(&self.limiter).is_some_and(|at| at <= now);
        self.running.iter().find(|(_, running)| due(running)).map(|(key, _)| key.clone())
    }

    /// Hands a command the reply to its effect.
    pub fn reply(
        &mut self,
        key: &CommandKey,
        reply: Result<Reply, EffectError>,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) {
        if let Some(running) = self.running.get_mut(key) {
            if let CommandState::AwaitReply(class) = running.state {
                self.limiter.end(class);
            }
            let step = running.script.step(Some(reply), now);
            self.apply_step(key, step, now, ended);
        }
    }

    fn apply_step(
        &mut self,
        key: &CommandKey,
        step: Step,
        now: Timestamp,
        ended: &mut Vec<(CommandKey, CommandReport)>,
    ) {
        let ready = match step {
            Step::Perform(effect) => CommandState::Perform(effect),
            Step::Wait(time) => CommandState::WakeAt(now.saturating_add(time).unwrap_or(Timestamp::MAX)),
            Step::End(report) => {
                self.running.remove(key);
                ended.push((key.clone(), report));
                return;
            }
        };
        if let Some(running) = self.running.get_mut(key) {
            running.state = ready;
        }
    }

    /// When the next step is due; `None` when nothing runs, or all wait for a reply or for capacity.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.running.values().filter_map(|running| running.due_at(&self.limiter)).min()
    }

    /// The clock has been set back: what waits until a later time by the old one has waited for long enough.
    pub fn clock_set_back(&mut self, now: Timestamp) {
        for running in self.running.values_mut() {
            if let CommandState::WakeAt(at) = &mut running.state {
                *at = now.min(*at);
            }
        }
    }

    /// Commands that are under way.
    #[must_use]
    pub fn in_progress(&self) -> BTreeSet<CommandKey> {
        self.running.keys().cloned().collect()
    }
}

impl RunningCommand {
    /// When its next step is due; `None` while it waits for a reply, or for capacity.
    fn due_at(&self, limiter: &ConcurrencyLimiter) -> Option<Timestamp> {
        match &self.state {
            CommandState::WakeAt(at) => Some(*at),
            CommandState::Perform(_) => limiter.has_capacity(self.current_class()).then_some(Timestamp::MIN),
            CommandState::AwaitReply(_) => None,
        }
    }

    /// The class of its current effect.
    fn current_class(&self) -> RequestClass {
        match &self.state {
            CommandState::Perform(effect) if matches!(**effect, Effect::Cloud(_) | Effect::TakeInventory) => self.class,
            CommandState::AwaitReply(class) => *class,
            _ => RequestClass::ApiServer,
        }
    }
}

/// The script of a command.
fn script(command: Command, snapshot: &Snapshot, settings: &Settings) -> Box<dyn Script> {
    let deletion_rules = settings.deletion_rules;
    let one = |effect| Box::new(EffectSequence::new([effect])) as Box<dyn Script>;
    match command {
        Command::CreateClaim(draft) => one(Effect::Cluster(ClusterWrite::CreateClaim(draft))),
        Command::Launch(launch) => {
            let class = snapshot.claims().get(&launch.claim.name).map(|c| c.spec.class.clone());
            let sizes = instance_types(snapshot, class.as_ref());
            // An intent may have been written under other settings, and others may have changed it.
            let machine = match launch.intent.as_ref().map(|intent| &intent.machine) {
                Some(None) => None,
                Some(Some(machine)) if is_aks_machine_of(machine, &launch.claim.name) => Some(machine.clone()),
                _ => settings.aks_machine_pool.as_ref().map(|pool| aks_machine_id(pool, &launch.claim.name)),
            };
            match machine {
                Some(machine) => Box::new(AksMachineLaunchScript::new(*launch, sizes, machine)),
                None => Box::new(LaunchScript::new(*launch, sizes, deletion_rules)),
            }
        }
        Command::InstallBillingExtension { claim, vm } => Box::new(BillingExtensionScript::new(claim, vm)),
        Command::UpdateClaim { claim, update: ClaimUpdate::NotDisrupted } => {
            // A late watch may hide the taint of its node, and without the condition nobody would know whose it is.
            let node = snapshot.claims().get(&claim.name).and_then(|claim| snapshot.node_of(claim));
            let update = NodeUpdate::RemoveTaint(Taint::disrupted());
            let untaint = node.map(|node| ClusterWrite::UpdateNode(node.name.clone(), node.uid.clone(), update));
            let unmark = ClusterWrite::UpdateClaim(claim, ClaimUpdate::NotDisrupted);
            Box::new(EffectSequence::new(untaint.into_iter().chain([unmark]).map(Effect::Cluster)))
        }
        Command::UpdateClaim { claim, update: step } => one(Effect::Cluster(ClusterWrite::UpdateClaim(claim, step))),
        Command::UpdateNode { node, uid, update: step } => {
            one(Effect::Cluster(ClusterWrite::UpdateNode(node, uid, step)))
        }
        Command::DeleteClaim { claim, only_if: None, .. } => one(Effect::Cluster(ClusterWrite::DeleteClaim(claim))),
        Command::DeleteClaim { claim, only_if: Some(sign), .. } => Box::new(DeleteIfUnhealthyScript::new(claim, *sign)),
        Command::CheckVm(check) => Box::new(CheckVmScript::new(*check)),
        Command::Evict { pod, uid } => {
            Box::new(EvictionScript::new(Effect::Cluster(ClusterWrite::Evict(pod, uid.clone())), uid))
        }
        Command::DeletePod { pod, uid, grace } => {
            Box::new(EvictionScript::new(Effect::Cluster(ClusterWrite::DeletePod(pod, uid.clone(), grace)), uid))
        }
        Command::RecordDeadline { claim, deadline } => {
            one(Effect::Cluster(ClusterWrite::RecordDeadline(claim, deadline)))
        }
        Command::Terminate(terminate) => Box::new(TerminateScript::new(*terminate, deletion_rules)),
        Command::ReleaseNode(release) => Box::new(ReleaseNodeScript::new(*release)),
        Command::RemoveFinalizer { claim } => one(Effect::Cluster(ClusterWrite::RemoveFinalizer(claim))),
        Command::ReadGroupOwner => one(Effect::Cloud(CloudRequest::GetGroupOwner)),
        Command::TakeInventory { .. } => one(Effect::TakeInventory),
        Command::WriteRecords(change) => one(Effect::Cluster(ClusterWrite::WriteRecords(change))),
        Command::SweepDelete(delete) => Box::new(SweepDeleteScript::new(*delete, settings)),
        Command::Mark { resource, first_seen } => Box::new(MarkScript::mark(&resource, first_seen)),
        Command::Unmark { resource } => Box::new(MarkScript::unmark(&resource)),
        Command::ReportSweep(report) => one(Effect::Cluster(ClusterWrite::ReportSweep(report))),
        Command::HoldPool { pool, uid } => one(Effect::Cluster(ClusterWrite::HoldPool(pool, uid))),
        Command::ReleasePool(release) => one(Effect::Cluster(ClusterWrite::ReleasePool(release))),
        Command::DisownClaim { claim } => one(Effect::Cluster(ClusterWrite::DisownClaim(claim))),
        Command::ReportPool(report) => one(Effect::Cluster(ClusterWrite::ReportPool(report))),
        Command::ReportClass(report) => one(Effect::Cluster(ClusterWrite::ReportClass(report))),
        Command::ReportOverlay(report) => one(Effect::Cluster(ClusterWrite::ReportOverlay(report))),
        Command::RecordRemovals(change) => one(Effect::Cluster(ClusterWrite::RecordRemovals(change))),
    }
}

/// The instance types of a class.
fn instance_types(snapshot: &Snapshot, class: Option<&NodeClassName>) -> ClassInstanceTypes {
    class.and_then(|c| snapshot.instance_types.get(c)).cloned().unwrap_or_default()
}
