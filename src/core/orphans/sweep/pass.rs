//! One sweep pass over a recorded inventory: delete, mark, unmark, report.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cron::Schedule;
use crate::model::labels;
use crate::model::names::ArmId;
use crate::model::orphans::attempt::SweepAction;
use crate::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use crate::model::orphans::record::DeletionRecord;
use crate::model::orphans::report::{Discrepancy, IpUsage, ReportOnlyFinding, SweepStatusSummary};
use crate::model::orphans::sweep::{Sweep, SweepMode, UnreadableSweeps};
use crate::model::settings::ControllerMode;
use crate::orphans::assessment::ownership::GroupState;
use crate::orphans::assessment::{Assessment, SweepContext, findings_for, is_excluded_by};
use crate::orphans::breaker;
use crate::orphans::deletion_cap::{DeletionCap, counts_against_budget};
use crate::orphans::references::back_references::referenced_claim;
use crate::orphans::references::string_index::Index;
use crate::orphans::report::discrepancies::find_discrepancies;
use crate::orphans::report::ip_addresses::report_only_findings;
use crate::orphans::report::refused_orphans::count_refused_orphans;
use crate::orphans::sweep::approvals;
use crate::orphans::sweep::mark::mark_of;
use crate::orphans::sweep::{SweepMemory, next_inventory};
use crate::plan::{Command, Plan, ResourceTotal, SweepDelete, SweepReport, kind_label};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most findings in a report: a status must fit into etcd.
pub const MAX_REPORTED_FINDINGS: usize = 50;

/// One pass over one inventory.
pub(in crate::orphans) struct SweepPass<'a> {
    pub(in crate::orphans) snapshot: &'a Snapshot,
    pub(in crate::orphans) case: SweepContext<'a>,
    pub(in crate::orphans) assessed: Vec<Assessment<'a>>,
    pub(in crate::orphans) sweeps: &'a [Sweep],
    /// Since when inventories cannot be recorded: then nothing is confirmed, and this pass only reports.
    pub(in crate::orphans) records_failing_since: Option<Timestamp>,
}

/// The mutable state of a pass.
struct PassState<'p> {
    memory: &'p mut SweepMemory,
    plan: &'p mut Plan,
    /// Commands on cloud resources that run, or begin in this pass.
    in_progress: usize,
    /// Resources that keep their mark, or are being deleted.
    keep_mark: BTreeSet<ArmId>,
}

impl SweepPass<'_> {
    /// True when this inventory is not recorded yet.
    pub(in crate::orphans) fn is_new(&self) -> bool {
        self.case.records.last_inventory_at < Some(self.case.inventory.finished_at)
    }

    /// True when this inventory is the last one recorded.
    pub(in crate::orphans) fn is_recorded(&self) -> bool {
        self.case.records.last_inventory_at == Some(self.case.inventory.finished_at)
    }

    /// Assesses for each sweep, collects or marks as it allows, and reports.
    pub(in crate::orphans) fn act(&self, memory: &mut SweepMemory, plan: &mut Plan) {
        let mut allowance = self.deletion_cap(memory);
        if let Some(at) = allowance.next_retry_at() {
            plan.wake_at(at);
        }
        let collected = allowance.used();
        let suspects = self.assessed.iter().filter(|a| a.is_suspect());
        let suspects = Index::of(suspects.map(|a| (a.resource.id.folded(), a)));
        let running = self.snapshot.in_progress.iter().filter(|key| matches!(key, CommandKey::Resource(_)));
        let mut state = PassState { in_progress: running.count(), memory, plan, keep_mark: BTreeSet::new() };
        for sweep in self.sweeps {
            let mut findings = findings_for(&self.case, &self.assessed, sweep, &mut allowance);
            for finding in &mut findings {
                let Some(assessed) = suspects.find(finding.id.folded()) else {
                    continue;
                };
                if self.records_failing_since.is_none() {
                    self.collect(sweep, finding, assessed, &mut state);
                    self.mark(sweep, finding, assessed.resource, &mut state);
                }
                // It may be tried again from the next inventory; until then the report has the refusal.
                let aborted =
                    state.memory.aborted.get(&finding.id).filter(|_| finding.classification == Classification::Orphan);
                finding.refusals.extend(aborted.map(|(_, refusal)| *refusal));
                finding.refusals.sort_unstable();
                finding.refusals.dedup();
            }
            let usage = CapUsage { deletions: collected, cap: allowance.cap(sweep) };
            let summary = self.status_summary(sweep, &findings, usage, state.memory);
            self.report(sweep, findings, summary, &mut state);
        }
        if self.records_failing_since.is_none() {
            self.unmark(&mut state);
        }
    }

    /// How many more may be deleted, and which not now.
    fn deletion_cap(&self, memory: &SweepMemory) -> DeletionCap {
        let SweepContext { records, inventory, now, .. } = self.case;
        let mut allowance = DeletionCap::from_records(records, breaker::count_owned(&self.assessed), now);
        allowance.block_kinds(memory.denials.undeletable_kinds(now));
        allowance.deprioritize(memory.aborted.iter().map(|(id, (at, _))| (id.clone(), *at)));
        // A deletion that is under way, or has just ended, may not be in our copy of the records yet.
        let unknown = |r: &&Arc<CloudResource>| {
            let is_recorded = || records.deletions.iter().any(|d| d.is_of(r) && d.at >= inventory.finished_at);
            self.is_in_progress(r) || memory.was_attempted(inventory, &r.id, SweepAction::Delete) && !is_recorded()
        };
        self.assessed.iter().map(|a| a.resource).filter(unknown).for_each(|r| allowance.count_in_progress(r));
        allowance
    }

    fn is_in_progress(&self, resource: &CloudResource) -> bool {
        let key = CommandKey::Resource(resource.id.clone());
        self.snapshot.in_progress.contains(&key)
    }

    /// Starts an action on a resource, if it has not been tried from this inventory, Azure has not denied it recently,
    /// and the rate limit allows it.
    fn try_start(&self, action: SweepAction, resource: &CloudResource, state: &mut PassState<'_>) -> bool {
        let (inventory, now, kind) = (self.case.inventory, self.case.now, resource.kind());
        if self.is_in_progress(resource) || state.memory.was_attempted(inventory, &resource.id, action) {
            return false;
        }
        let held = state.memory.denials.blocked_until(action, kind, now);
        let free = held.map_or_else(|| state.memory.rate_limiter.try_start(action, state.in_progress, now), Err);
        if let Err(later) = free {
            state.plan.wake_at(later);
            return false;
        }
        state.memory.denials.mark_retrying(action, kind, now);
        state.memory.mark_attempted(inventory, &resource.id, action);
        state.in_progress += 1;
        true
    }

    /// Deletes a resource that no clause protects, unless it is being deleted, was deleted since the listing, or was
    /// tried.
    fn collect(&self, sweep: &Sweep, finding: &Finding, assessed: &Assessment<'_>, state: &mut PassState<'_>) {
        let resource = assessed.resource;
        if finding.classification != Classification::Orphan || !finding.refusals.is_empty() {
            return;
        }
        state.keep_mark.insert(resource.id.clone());
        let records = self.case.records;
        let known = records.deletions.iter().filter(|d| d.is_of(resource));
        if known.clone().any(|d| d.at >= self.case.inventory.started_at)
            || !self.try_start(SweepAction::Delete, resource, state)
        {
            return;
        }
        let reason = format!(
            "{} {} is an orphan: {}",
            kind_label(finding.kind),
            resource.id.name(),
            finding.evidence.join("; ")
        );
        let delete = SweepDelete {
            sweep: sweep.name.clone(),
            resource: Arc::clone(resource),
            attached: assessed.attached.iter().flat_map(|parts| parts.listed.iter().copied().cloned()).collect(),
            claim: referenced_claim(resource),
            volume: records.volumes.get(&resource.id).map(|v| v.name.clone()),
            deletion: DeletionRecord {
                id: resource.id.clone(),
                incarnation: Arc::clone(&resource.incarnation),
                kind: finding.kind,
                at: self.case.now,
                evidence: finding.evidence.clone(),
                failures: known.clone().map(|d| d.failures).max().unwrap_or_default(),
                refused: None,
            },
            tried_before: known.clone().any(|d| counts_against_budget(d, self.case.now)),
        };
        state.plan.push(Command::SweepDelete(Box::new(delete)), reason);
    }

    /// True when sweeps may add our mark to a resource, or remove it: beside managed NAP its VMs are not tagged.
    fn may_mark(&self, resource: &CloudResource) -> bool {
        let beside_nap = self.case.settings.mode == ControllerMode::Companion;
        self.case.is_complete() && !(beside_nap && resource.kind() == ResourceKind::Vm)
    }

    /// Tags a suspect with the time of its first durable sighting, once.
    fn mark(&self, sweep: &Sweep, finding: &Finding, resource: &Arc<CloudResource>, state: &mut PassState<'_>) {
        let Some(first_seen) = finding.first_seen.filter(|_| sweep.mode == SweepMode::Mark) else { return };
        if !self.may_mark(resource) || finding.refusals.contains(&DeletionRefusal::Excluded) {
            return;
        }
        state.keep_mark.insert(resource.id.clone());
        // Refusals by the inventory or by a person prevent marking as they prevent deleting.
        let held = [
            DeletionRefusal::OtherCluster,
            DeletionRefusal::PartialListing,
            DeletionRefusal::Breaker,
            DeletionRefusal::UnreadableSweep,
            DeletionRefusal::Paused,
        ];
        if finding.refusals.iter().any(|refusal| held.contains(refusal)) {
            return;
        }
        let marked = resource.tag(labels::TAG_SUSPECT_SINCE) == Some(&*first_seen.to_string());
        if marked || !self.try_start(SweepAction::Tag, resource, state) {
            return;
        }
        let command = Command::Mark { resource: Arc::clone(resource), first_seen };
        state.plan.push(command, format!("no references found since {first_seen}"));
    }

    /// Removes our mark where no sweep marks any more: something alive refers to it, or no mode is `Mark`.
    fn unmark(&self, state: &mut PassState<'_>) {
        if self.case.group_state() != GroupState::Ours || self.case.paused || self.case.has_unreadable_sweep() {
            return;
        }
        let excluded = |r: &CloudResource| self.sweeps.iter().flat_map(|s| &s.exclusions).any(|e| is_excluded_by(e, r));
        for Assessment { resource, ownership, .. } in &self.assessed {
            let Some(since) = mark_of(resource) else { continue };
            let may_unmark = ownership.is_ok() && self.may_mark(resource) && !excluded(resource);
            if !may_unmark
                || state.keep_mark.contains(&resource.id)
                || !self.try_start(SweepAction::Tag, resource, state)
            {
                continue;
            }
            let reason = format!("marked as suspect since {since}, no longer suspect");
            state.plan.push(Command::Unmark { resource: Arc::clone(resource) }, reason);
        }
    }

    fn status_summary(
        &self,
        sweep: &Sweep,
        findings: &[Finding],
        usage: CapUsage,
        memory: &SweepMemory,
    ) -> SweepStatusSummary {
        let SweepContext { inventory, records, .. } = self.case;
        let next = next_inventory(self.sweeps, inventory);
        let scheduled = |text: &Arc<str>| Schedule::parse(text).ok()?.after(inventory.finished_at);
        let collection = match &sweep.schedule {
            None => Some(next),
            Some(text) => scheduled(text),
        };
        SweepStatusSummary {
            last_complete_inventory_at: if self.case.is_complete() {
                Some(inventory.finished_at)
            } else {
                records.last_inventory_at
            },
            next_inventory: Some(next),
            next_collection: collection.filter(|_| sweep.mode == SweepMode::Collect),
            deletions_in_window: usage.deletions,
            cap: usage.cap,
            orphans_by_refusal: count_refused_orphans(findings),
            approvals: approvals::approval_statuses(&self.case, sweep),
            denials: self.denials(sweep, memory),
        }
    }

    /// Actions that Azure denies to this sweep.
    fn denials(&self, sweep: &Sweep, memory: &SweepMemory) -> Vec<crate::model::orphans::report::Denial> {
        let wanted = match sweep.mode {
            SweepMode::Report => None,
            SweepMode::Mark => Some(SweepAction::Tag),
            SweepMode::Collect => Some(SweepAction::Delete),
        };
        let of_this =
            |d: &&crate::model::orphans::report::Denial| Some(d.action) == wanted && sweep.kinds.contains(&d.kind);
        memory.denials.all().filter(of_this).cloned().collect()
    }

    /// Writes a sweep's status when it has changed.
    fn report(&self, sweep: &Sweep, findings: Vec<Finding>, summary: SweepStatusSummary, state: &mut PassState<'_>) {
        let report = SweepReport {
            sweep: sweep.name.clone(),
            uid: sweep.uid.clone(),
            generation: sweep.generation,
            observed_at: Some(self.case.inventory.finished_at),
            totals: totals(&findings),
            findings: most_expensive(findings),
            report_only: unused_ips_and_frontends(self.case.inventory),
            discrepancies: self.discrepancies(),
            halted: self.halted_reason(sweep),
            summary,
        };
        let busy = CommandKey::Sweep(sweep.name.clone());
        let reported = &mut state.memory.reported;
        if reported.get(&sweep.name) == Some(&report) || self.snapshot.in_progress.contains(&busy) {
            return;
        }
        reported.insert(sweep.name.clone(), report.clone());
        let found = report.findings.len();
        let reason = report.halted.clone();
        let reason = reason.unwrap_or_else(|| Arc::from(format!("{found} findings")));
        state.plan.push(Command::ReportSweep(Box::new(report)), reason);
    }

    fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = find_discrepancies(self.case.inventory, Some(self.snapshot), self.case.settings);
        found.truncate(MAX_REPORTED_FINDINGS);
        found
    }

    /// Why the sweep is halted, if it is.
    fn halted_reason(&self, sweep: &Sweep) -> Option<Arc<str>> {
        let failed = self.case.inventory.failure().map(ToString::to_string);
        let refused = || {
            let at = sweep.breaker_cleared_at?;
            let void = breaker::is_void(self.case.records, at);
            let later =
                (at > self.case.now).then(|| format!("breaker.clearedAt {at} is in the future and is rejected"));
            later.or_else(|| {
                void.then(|| format!("breaker.clearedAt {at} was set before the breaker tripped and has no effect"))
            })
        };
        let unwritten = || {
            let since = self.records_failing_since?;
            Some(format!(
                "OrphanRecords could not be written since {since}, so no orphan can be confirmed: check the \
                 controller log, and grant it create and update on orphanrecords.napkeeper.io"
            ))
        };
        let tripped = || {
            let trip = breaker::open_trip(self.case.records, self.case.cleared_at)?;
            let refused = refused().map(|reason| format!("; {reason}")).unwrap_or_default();
            Some(format!("{}{refused}", breaker::describe_trip(trip)))
        };
        let another = || self.case.cluster_mismatch();
        let unreadable = || unreadable_reason(self.case.unreadable_sweeps);
        let unscheduled = || {
            let error = Schedule::parse(sweep.schedule.as_ref()?).err()?;
            Some(error.to_string())
        };
        let reason = failed
            .or_else(unwritten)
            .or_else(unreadable)
            .or_else(tripped)
            .or_else(another)
            .or_else(refused)
            .or_else(unscheduled)?;
        Some(Arc::from(reason))
    }
}

/// Which OrphanSweep cannot be read, why, and what to do.
fn unreadable_reason(sweeps: &UnreadableSweeps) -> Option<String> {
    let (name, reason) = sweeps.iter().next()?;
    let others = match sweeps.len() - 1 {
        0 => String::new(),
        n => format!(", nor can {n} more"),
    };
    Some(format!(
        "OrphanSweep {name} cannot be read ({reason}){others}; it may exclude what another sweep would delete, so \
         nothing is swept until it is corrected in Git"
    ))
}

/// How much of its cap a sweep has used.
#[derive(Clone, Copy)]
struct CapUsage {
    /// Deletions in the last 24 hours.
    deletions: u32,
    /// Most deletions in 24 hours.
    cap: u32,
}

/// The most expensive findings that are reportable.
fn most_expensive(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(Finding::is_reportable);
    findings.sort_by(|a, b| (b.price, &a.id).cmp(&(a.price, &b.id)));
    findings.truncate(MAX_REPORTED_FINDINGS);
    findings
}

/// Public IPs and frontends that nothing uses.
fn unused_ips_and_frontends(inventory: &Inventory) -> Vec<ReportOnlyFinding> {
    let unused = report_only_findings(inventory).into_iter().filter(|found| found.usage == IpUsage::Unused);
    unused.take(MAX_REPORTED_FINDINGS).collect()
}

fn totals(findings: &[Finding]) -> BTreeMap<(ResourceKind, Classification), ResourceTotal> {
    let mut totals: BTreeMap<_, ResourceTotal> = BTreeMap::new();
    for finding in findings {
        let total = totals.entry((finding.kind, finding.classification)).or_default();
        total.resources += 1;
        total.price = total.price + finding.price;
        total.addresses += finding.addresses;
    }
    totals
}
