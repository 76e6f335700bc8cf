//! Acting: how does an effect reach the simulated cluster or the simulated Azure, and what may come between?

use super::controller::When;
use super::orphans::words;
use super::timeline::Kind;
use super::{Violation, World};
use crate::cluster::Cluster;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::azure::inventory::Inventory;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::settings::{ControllerMode, DeletionRule};
use napkeeper_core::plan::{
    CloudRequest, Command, CommandReport, Effect, PlannedCommand, Reply, SweepReport, kind_label,
};
use napkeeper_core::snapshot::CommandKey;
use std::collections::BTreeSet;
use std::sync::Arc;

impl World {
    /// Performs every effect that is due; true when there was one.
    pub(super) fn act(&mut self) -> Result<bool, Violation> {
        let mut acted = false;
        while self.controller.down_until.is_none() {
            let mut ended = Vec::new();
            let next = self.controller.inner.next_effect(self.now, &mut ended);
            acted |= !ended.is_empty() || next.is_some();
            self.learn(ended);
            let Some((key, effect)) = next else { break };
            let write = effect.is_write();
            let sweeps = matches!((&key, &effect), (CommandKey::Resource(_), Effect::Cloud(CloudRequest::Delete(..))));
            if write && self.crashes(When::Before, sweeps) {
                return Ok(true);
            }
            let reply = self.perform(&key, &effect)?;
            if write && self.crashes(When::After, sweeps) {
                return Ok(true);
            }
            self.controller.writes += u64::from(write);
            let mut ended = Vec::new();
            self.controller.inner.reply(&key, reply, self.now, &mut ended);
            self.learn(ended);
        }
        Ok(acted)
    }

    /// Crashes here, if that is planned.
    fn crashes(&mut self, when: When, sweeps: bool) -> bool {
        let Some(crash) = self.controller.crash_due(when, sweeps) else { return false };
        self.controller.writes += 1;
        let until = self.now + crash.down_for;
        self.controller.crash(until);
        let side = if when == When::Before { "before" } else { "after" };
        self.note(Kind::Controller, "controller", format!("crashed {side} a write; back in {:#}", crash.down_for));
        true
    }

    /// One effect: the pause switch first, then Kubernetes or Azure, then the books of what is true.
    fn perform(&mut self, key: &CommandKey, effect: &Effect) -> Result<Result<Reply, EffectError>, Violation> {
        if let Some(switch) = effect.pause_switch() {
            let paused = self.cluster.state().pause.blocks(switch);
            if paused && self.settings.deletion_rules.enforces(DeletionRule::Pause) {
                return Ok(Err(EffectError::Blocked("the pause switch is set")));
            }
        }
        self.learn_makers();
        self.check_effect(key, effect)?;
        let reply = match effect {
            Effect::Cluster(write) => self.cluster.write(write, self.now),
            Effect::Read(read) => self.cluster.read(read, self.now),
            Effect::Cloud(request) => self.azure.perform(&mut self.cloud, request, self.now),
            Effect::TakeInventory => return self.inventory_reply(),
        };
        if matches!(&reply, Ok(reply) if *reply != Reply::Absent) {
            self.done(key, effect);
        }
        Ok(reply)
    }

    /// The cloud first, Kubernetes after it.
    fn take_inventory(&mut self) -> Inventory {
        let now = self.now;
        let group_managed_by = self.azure.group_managed_by(&mut self.cloud, now);
        self.listed_as_ours = self.group_is_ours;
        let cloud = self.azure.list(&mut self.cloud, now);
        let bystanders = self.azure.bystanders(&mut self.cloud, now);
        let bystanders = self.beside(bystanders);
        let cluster: &Cluster = &self.cluster;
        Inventory {
            started_at: now,
            finished_at: now,
            group_managed_by,
            resources: cloud,
            related: bystanders,
            claims: cluster.list_claims(now),
            nodes: cluster.list_nodes(now),
            volumes: cluster.list_volumes(now),
            attachments: cluster.list_attachments(now),
            disk_uses: cluster.list_disk_uses(now),
        }
    }

    /// Lists the cloud and then the cluster; what races with that happens right after it.
    fn inventory_reply(&mut self) -> Result<Result<Reply, EffectError>, Violation> {
        let inventory = self.take_inventory();
        self.truth.observed(&inventory, self.cluster.state(), self.now);
        self.check_in_time()?;
        for deed in std::mem::take(&mut self.races) {
            self.play(deed)?;
        }
        Ok(Ok(Reply::Inventory(Arc::new(inventory))))
    }

    /// Writes down what an effect has truly done.
    fn done(&mut self, key: &CommandKey, effect: &Effect) {
        if let Effect::Cloud(CloudRequest::Delete(id, kind)) = effect
            && let CommandKey::Resource(_) = key
        {
            self.books.collected += 1;
            self.truth.swept(id, *kind, self.now);
        }
        if let Effect::Cloud(CloudRequest::Delete(id, ResourceKind::Nic)) = effect
            && let CommandKey::Claim(claim) = key
            && self.cluster.state().claims().get(claim).is_some_and(|c| c.status.registered.is_none())
        {
            self.note(Kind::Gone, id.name(), format!("deleting the NIC of the failed launch of {claim}"));
        }
    }

    /// Puts a command that starts into the timeline.
    pub(super) fn tell_start(&mut self, planned: &PlannedCommand) {
        match &planned.command {
            Command::CreateClaim(draft) => {
                let best = draft.spec.planned.first();
                let price = best.map(|o| format!("{}/h", o.price)).unwrap_or_default();
                let text =
                    format!("{} at {price}: {}", best.map(|o| o.key.to_string()).unwrap_or_default(), planned.reason);
                self.note(Kind::Provision, &draft.name, text);
                self.keep_reason(draft);
            }
            Command::DeleteClaim { claim, category } => {
                self.note(Kind::Disrupt, &claim.name, format!("{category}: {}", planned.reason));
            }
            Command::WriteRecords(change) => {
                for (id, sighting) in change.sightings.iter().filter(|(_, s)| s.times == 1) {
                    self.note(
                        Kind::Suspect,
                        id.name(),
                        format!("{}: no references found, first observed", kind_label(sighting.kind)),
                    );
                }
                for trip in &change.trips {
                    let text = format!(
                        "{} of {} owned {} resources became suspect within an hour: sweeps halt until the breaker is \
                         cleared in Git",
                        trip.suspects,
                        trip.owned,
                        kind_label(trip.kind)
                    );
                    self.note(Kind::Breaker, "sweeps", text);
                }
            }
            Command::SweepDelete(delete) => {
                let evidence: Vec<&str> = delete.deletion.evidence.iter().map(|e| &**e).collect();
                let text = format!("{}: {}", kind_label(delete.deletion.kind), evidence.join("; "));
                self.note(Kind::Collected, delete.resource.id.name(), text);
            }
            Command::ReportSweep(report) => {
                self.tell_kept(report);
                self.tell_spared();
            }
            _ => {}
        }
    }

    /// Tells why orphans and suspects are kept, once per reason.
    fn tell_kept(&mut self, report: &SweepReport) {
        for finding in &report.findings {
            if finding.refusals.iter().any(|r| is_excuse(*r, self.settings.mode)) {
                self.truth.excuse(&finding.incarnation, self.now);
            }
            let reasons: Vec<&str> = finding.refusals.iter().map(|r| words(*r)).collect();
            let text = format!("{}: {}", kind_label(finding.kind), reasons.join("; "));
            let quiet = !finding.is_reportable() || reasons.is_empty();
            if !quiet && self.kept.get(&finding.id) != Some(&text) {
                self.kept.insert(finding.id.clone(), text.clone());
                self.note(Kind::Kept, finding.id.name(), text);
            }
        }
    }

    /// Tells why pods have no place, and pools not all their nodes, once per reason for as long as it lasts.
    pub(super) fn tell_waiting(&mut self) {
        let memory = self.controller.inner.memory();
        let (short, conflicts) = (memory.static_capacity.shortages.clone(), memory.overlays.conflicts.clone());
        let unplaced = self.controller.inner.memory().provision.unplaced.clone();
        let mut told = BTreeSet::new();
        for group in &unplaced {
            let why = group.reason();
            if let Some(pod) = group.pods.first().filter(|_| !self.told_waiting.contains(&why)) {
                let others = group.pods.len() - 1;
                let subject = if others == 0 { pod.key.to_string() } else { format!("{} and {others} more", pod.key) };
                self.note(Kind::Waiting, subject, format!("cannot be scheduled: {why}"));
            }
            told.insert(why);
        }
        let short = short.iter().map(|short| (Kind::Waiting, short.pool.to_string(), short.to_string()));
        let left_out = conflicts.iter().map(|c| (Kind::Kept, c.overlay.to_string(), c.to_string()));
        for (kind, subject, why) in short.chain(left_out) {
            let key = format!("{subject}: {why}");
            if !self.told_waiting.contains(&key) {
                self.note(kind, subject, why);
            }
            told.insert(key);
        }
        self.told_waiting = told;
    }

    /// Puts what came of a command into the timeline.
    pub(super) fn tell_end(&mut self, key: &CommandKey, report: &CommandReport) {
        for refusal in &report.launch_refusals {
            self.books.refusals += 1;
            let text = format!("{}: {}", refusal.error.code.category(), refusal.error.message);
            let subject = format!("{} ({key})", refusal.offering);
            self.note(Kind::Refused, subject, text);
        }
        if let Some(refusal) = report.abort_reason {
            self.note(Kind::Kept, key, format!("deletion aborted by the final check: {}", words(refusal)));
        }
    }
}

/// Reasons that a person must lift, and the cap, which time lifts.
pub(crate) fn is_excuse(refusal: DeletionRefusal, mode: ControllerMode) -> bool {
    match refusal {
        DeletionRefusal::Approval
        | DeletionRefusal::Breaker
        | DeletionRefusal::Mode
        | DeletionRefusal::Excluded
        | DeletionRefusal::NoVolumeRecord
        | DeletionRefusal::Retained
        | DeletionRefusal::TakesAlong
        | DeletionRefusal::Cap => true,
        DeletionRefusal::Companion => mode == ControllerMode::Companion,
        _ => false,
    }
}
