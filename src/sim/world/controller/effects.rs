//! Performs the controller's effects on the cluster and Azure, and logs what its commands do.

use crate::cluster::Cluster;
use crate::world::controller::WriteSide;
use crate::world::orphan_summary::refusal_text;
use crate::world::timeline::{EventKind, WaitingReason};
use crate::world::{Violation, World};
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::azure::inventory::Inventory;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_core::plan::{
    CloudRequest, Command, CommandReport, Effect, PlannedCommand, Reply, SweepReport, kind_label,
};
use napkeeper_core::snapshot::CommandKey;
use std::sync::Arc;

impl World {
    /// Performs every effect that is due; true when there was one.
    pub(in crate::world) fn perform_effects(&mut self) -> Result<bool, Violation> {
        let mut acted = self.end_freezes()?;
        while self.controller.is_up() {
            let mut ended = Vec::new();
            let next = self.controller.inner.next_effect(self.controller_time(), &mut ended);
            acted |= !ended.is_empty() || next.is_some();
            self.end_commands(ended);
            let Some((key, effect)) = next else { break };
            let write = effect.is_write();
            let sweeps = matches!((&key, &effect), (CommandKey::Resource(_), Effect::Cloud(CloudRequest::Delete(..))));
            if write && self.crashes(WriteSide::Before, sweeps) {
                return Ok(true);
            }
            self.controller.effect_started(&key);
            if write && self.freezes(&key, &effect, sweeps)? {
                return Ok(true);
            }
            let reply = self.perform(&key, &effect)?;
            if write && self.crashes(WriteSide::After, sweeps) {
                return Ok(true);
            }
            self.controller.writes += u64::from(write);
            let reply = self.injected.answers.heard(&effect, reply);
            self.take_reply(&key, reply);
        }
        Ok(acted)
    }

    /// Hands the controller the reply to an effect.
    pub(super) fn take_reply(&mut self, key: &CommandKey, reply: Result<Reply, EffectError>) {
        self.controller.effect_replied(key, &reply, self.now);
        let mut ended = Vec::new();
        let time = self.controller_time();
        self.controller.inner.reply(key, reply, time, &mut ended);
        self.end_commands(ended);
    }

    /// Crashes here, if that is planned.
    fn crashes(&mut self, side: WriteSide, sweeps: bool) -> bool {
        let Some(crash) = self.controller.crash_due(side, sweeps) else { return false };
        self.controller.writes += 1;
        let until = self.now + crash.down_for;
        self.controller.crash(until);
        let word = if side == WriteSide::Before { "before" } else { "after" };
        self.log(EventKind::Controller, "controller", format!("crashed {word} a write; back in {:#}", crash.down_for));
        true
    }

    /// One effect: the controller's own checks first, then Kubernetes or Azure, then the ground truth.
    pub(super) fn perform(
        &mut self,
        key: &CommandKey,
        effect: &Effect,
    ) -> Result<Result<Reply, EffectError>, Violation> {
        if let Err(blocked) = self.may_perform(key, effect) {
            return Ok(Err(blocked));
        }
        if let Some(refusal) = self.injected.answers.refusal(effect) {
            return Ok(Err(refusal));
        }
        self.judge(key, effect)?;
        self.carry_out(key, effect)
    }

    /// Checks an effect by the ground truth of this instant.
    pub(super) fn judge(&mut self, key: &CommandKey, effect: &Effect) -> Result<(), Violation> {
        self.truth.record_creators(self.cluster.state(), self.cloud.ledger());
        self.check_effect(key, effect)
    }

    /// Performs an effect that has been checked.
    pub(super) fn carry_out(
        &mut self,
        key: &CommandKey,
        effect: &Effect,
    ) -> Result<Result<Reply, EffectError>, Violation> {
        let reply = match effect {
            Effect::Cluster(write) => self.write_within_budgets(write)?,
            Effect::Read(read) => self.cluster.read(read, self.now),
            Effect::Cloud(request) => self.azure.perform(&mut self.cloud, request, self.now),
            Effect::TakeInventory => return self.inventory_reply(),
        };
        // Every answer of the API server has its time.
        if !matches!(effect, Effect::Cloud(_)) {
            self.controller.clock.compare();
        }
        if matches!(&reply, Ok(reply) if *reply != Reply::Absent) {
            self.controller.watches.write_performed(effect);
            self.record_effect(key, effect);
        }
        Ok(reply)
    }

    /// The cloud first, Kubernetes after it.
    fn take_inventory(&mut self) -> Inventory {
        let (now, time) = (self.now, self.controller_time());
        let group_managed_by = self.azure.group_managed_by(&mut self.cloud, now);
        self.truth.listed_as_foreign = self.truth.group_is_foreign;
        self.truth.listed_in_second_cluster = self.truth.second_cluster_since.is_some();
        let cloud = self.azure.list(&mut self.cloud, now);
        let related = self.azure.list_related(&mut self.cloud, now);
        let related = self.with_injected_related(related);
        let cluster: &Cluster = &self.cluster;
        Inventory {
            started_at: time,
            finished_at: time,
            group_managed_by,
            resources: cloud,
            related,
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
        self.controller.knows_inventory = true;
        self.truth.record_inventory(&inventory, self.cluster.state(), self.now);
        self.check_in_time()?;
        for action in std::mem::take(&mut self.injected.after_inventory) {
            self.apply_action(action);
        }
        Ok(Ok(Reply::Inventory(Arc::new(inventory))))
    }

    /// Records what an effect has done.
    fn record_effect(&mut self, key: &CommandKey, effect: &Effect) {
        if let Effect::Cloud(CloudRequest::PutVm(vm)) = effect
            && self.truth.kubelets_broken_since.is_some()
        {
            let pool = self.cluster.state().claims().get(&vm.claim).and_then(|claim| claim.spec.pool.clone());
            self.truth.broken_launches.extend(pool.map(|pool| (vm.claim.clone(), (self.now, pool.text()))));
        }
        if let Effect::Cloud(CloudRequest::Delete(id, kind)) = effect
            && let CommandKey::Resource(_) = key
        {
            self.accounting.collected += 1;
            self.truth.record_sweep(id, *kind, self.now);
        }
        if let Effect::Cloud(CloudRequest::Delete(id, ResourceKind::Nic)) = effect
            && let CommandKey::Claim(claim) = key
            && self.cluster.state().claims().get(claim).is_some_and(|c| c.status.registered.is_none())
        {
            self.log(EventKind::Gone, id.name(), format!("deleting the NIC of the failed launch of {claim}"));
        }
    }

    /// Logs a command that starts.
    pub(in crate::world) fn log_start(&mut self, planned: &PlannedCommand) {
        match &planned.command {
            Command::CreateClaim(draft) => {
                let best = draft.spec.planned.first();
                let price = best.map(|o| format!("{}/h", o.price)).unwrap_or_default();
                let text =
                    format!("{} at {price}: {}", best.map(|o| o.key.to_string()).unwrap_or_default(), planned.reason);
                self.log(EventKind::Provision, &draft.name, text);
                self.record_launch_reason(draft);
                self.truth.moves.plan(draft, self.now);
            }
            Command::DeleteClaim { claim, category, .. } => {
                self.log(EventKind::Disrupt, &claim.name, format!("{category}: {}", planned.reason));
                let claim = self.cluster.state().claims().get(&claim.name);
                if let Some(node) = claim.and_then(|claim| claim.status.node_name.clone()) {
                    self.cluster.set_disruption_reason(&node, category);
                }
            }
            Command::WriteRecords(change) => {
                for (id, sighting) in change.sightings.iter().filter(|(_, s)| s.times == 1) {
                    self.log(
                        EventKind::Suspect,
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
                    self.log(EventKind::Breaker, "sweeps", text);
                }
            }
            Command::SweepDelete(delete) => {
                let evidence: Vec<&str> = delete.deletion.evidence.iter().map(|e| &**e).collect();
                let text = format!("{}: {}", kind_label(delete.deletion.kind), evidence.join("; "));
                self.log(EventKind::Collected, delete.resource.id.name(), text);
            }
            Command::ReportSweep(report) => {
                self.log_sweep_report(report);
                self.log_unattached_in_use();
            }
            _ => {}
        }
    }

    /// Logs why orphans and suspects are retained, once per reason.
    fn log_sweep_report(&mut self, report: &SweepReport) {
        for finding in &report.findings {
            if finding.refusals.iter().any(|r| excuses_delay(*r, self.settings.mode)) {
                self.truth.excuse(&finding.incarnation, self.now);
            }
            if finding.is_reportable() && !finding.refusals.is_empty() {
                let reasons: Vec<&str> = finding.refusals.iter().map(|r| refusal_text(*r)).collect();
                self.log_retained(&finding.id, format!("{}: {}", kind_label(finding.kind), reasons.join("; ")));
            }
        }
    }

    /// Logs why pods cannot be scheduled and pools lack nodes, once per reason for as long as it lasts.
    pub(in crate::world) fn log_waiting(&mut self) {
        let memory = self.controller.inner.memory();
        let unplaced = memory.provision.unplaced.iter().filter_map(|group| {
            let (pod, others) = (group.pods.first()?, group.pods.len() - 1);
            let subject = if others == 0 { pod.key.to_string() } else { format!("{} and {others} more", pod.key) };
            let (key, kind) = (group.reason(), EventKind::Waiting);
            Some(WaitingReason { text: format!("cannot be scheduled: {key}"), key, kind, subject })
        });
        let other = |kind, subject: String, text: String| {
            let key = format!("{subject}: {text}");
            WaitingReason { key, kind, subject, text }
        };
        let shortages = memory.static_capacity.shortages.iter();
        let shortages = shortages.map(|s| other(EventKind::Waiting, s.pool.to_string(), s.to_string()));
        let conflicts = memory.overlays.conflicts.iter();
        let conflicts = conflicts.map(|c| other(EventKind::Kept, c.overlay.to_string(), c.to_string()));
        let outage = memory.lifecycle.outage.iter().map(|outage| WaitingReason {
            key: "node outage".to_owned(),
            kind: EventKind::Kept,
            subject: "nodes".to_owned(),
            text: format!("{outage}: nothing is terminated, disrupted or expired"),
        });
        let reasons: Vec<WaitingReason> = unplaced.chain(shortages).chain(conflicts).chain(outage).collect();
        self.log_new(reasons);
    }

    /// Logs the result of a command.
    pub(in crate::world) fn log_end(&mut self, key: &CommandKey, report: &CommandReport) {
        for refusal in &report.launch_refusals {
            self.accounting.refusals += 1;
            let text = format!("{}: {}", refusal.error.code.category(), refusal.error.message);
            let subject = format!("{} ({key})", refusal.offering);
            self.log(EventKind::Refused, subject, text);
        }
        if let Some(refusal) = report.abort_reason {
            self.log(EventKind::Kept, key, format!("deletion aborted by the final check: {}", refusal_text(refusal)));
        }
    }
}

/// Reasons that need manual action, and the cap, which passes with time.
pub(crate) fn excuses_delay(refusal: DeletionRefusal, mode: ControllerMode) -> bool {
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
