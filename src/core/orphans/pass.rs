//! Passes: what is to be done about what an inventory shows, now that the records know of it?

use super::allowance::Allowance;
use super::index::Index;
use super::mark::mark_of;
use super::outlook::kept;
use super::ownership::Group;
use super::pointers::claim_named_by;
use super::report_only::report_only;
use super::reverse::reverse;
use super::sweep::{SweepMemory, next_inventory};
use super::verdict::{Assessed, Case, excludes, judge};
use super::{approvals, breaker};
use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cron::Schedule;
use crate::model::labels;
use crate::model::names::ArmId;
use crate::model::orphans::attempt::Deed;
use crate::model::orphans::finding::{Finding, Refusal, Standing};
use crate::model::orphans::record::Deletion;
use crate::model::orphans::report::{Discrepancy, Outlook, ReportOnly, Usage};
use crate::model::orphans::sweep::{Sweep, SweepMode};
use crate::model::settings::Mode;
use crate::plan::{Command, Plan, SweepDelete, SweepReport, Total, kind_word};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most findings in a report: a status must fit into etcd.
pub const REPORTED: usize = 50;

/// One pass over one inventory.
pub(super) struct Pass<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) case: Case<'a>,
    pub(super) assessed: Vec<Assessed<'a>>,
    pub(super) sweeps: &'a [Sweep],
    /// Since when inventories cannot be recorded: then nothing is proven, and this pass only reports.
    pub(super) unwritten_since: Option<Timestamp>,
}

/// What a pass may still do.
struct Room<'p> {
    memory: &'p mut SweepMemory,
    plan: &'p mut Plan,
    /// Commands on cloud resources that run, or begin in this pass.
    under_way: usize,
    /// Resources that keep their mark, or are being deleted.
    keep_mark: BTreeSet<ArmId>,
}

impl Pass<'_> {
    /// True when the records have not been told of this inventory.
    pub(super) fn is_new(&self) -> bool {
        self.case.records.last_observed < Some(self.case.inventory.finished_at)
    }

    /// True when the records were told of this inventory and of none since.
    pub(super) fn is_recorded(&self) -> bool {
        self.case.records.last_observed == Some(self.case.inventory.finished_at)
    }

    /// Judges for each sweep, collects or marks as it allows, and reports.
    pub(super) fn act(&self, memory: &mut SweepMemory, plan: &mut Plan) {
        let mut allowance = self.allowance(memory);
        if let Some(at) = allowance.next_try() {
            plan.wake_at(at);
        }
        let collected = allowance.used();
        let suspects = self.assessed.iter().filter(|a| a.is_suspect());
        let suspects = Index::of(suspects.map(|a| (a.resource.id.folded(), a)));
        let running = self.snapshot.in_progress.iter().filter(|key| matches!(key, CommandKey::Resource(_)));
        let mut room = Room { under_way: running.count(), memory, plan, keep_mark: BTreeSet::new() };
        for sweep in self.sweeps {
            let mut findings = judge(&self.case, &self.assessed, sweep, &mut allowance);
            for finding in &mut findings {
                let Some(assessed) = suspects.find(finding.id.folded()) else {
                    continue;
                };
                if self.unwritten_since.is_none() {
                    self.collect(sweep, finding, assessed, &mut room);
                    self.mark(sweep, finding, assessed.resource, &mut room);
                }
                // It may be tried again from the next inventory; until it has gone the report says what kept it.
                let called_off =
                    room.memory.called_off.get(&finding.id).filter(|_| finding.standing == Standing::Orphan);
                finding.refusals.extend(called_off.map(|(_, refusal)| *refusal));
                finding.refusals.sort_unstable();
                finding.refusals.dedup();
            }
            let cap = (collected, allowance.cap(sweep));
            let outlook = self.outlook(sweep, &findings, cap, room.memory);
            self.report(sweep, findings, outlook, &mut room);
        }
        if self.unwritten_since.is_none() {
            self.unmark(&mut room);
        }
    }

    /// How many more may be deleted, and which not now.
    fn allowance(&self, memory: &SweepMemory) -> Allowance {
        let Case { records, inventory, now, .. } = self.case;
        let mut allowance = Allowance::left_by(records, breaker::owned(&self.assessed), now);
        allowance.deny(memory.denials.undeletable(now));
        allowance.put_last(memory.called_off.iter().map(|(id, (at, _))| (id.clone(), *at)));
        // A deletion that is under way, or has just ended, may not be in our copy of the records yet.
        let unknown = |r: &&Arc<CloudResource>| {
            let told = || records.deletions.iter().any(|d| d.is_of(r) && d.at >= inventory.finished_at);
            self.is_busy(r) || memory.has_tried(inventory, &r.id, Deed::Delete) && !told()
        };
        self.assessed.iter().map(|a| a.resource).filter(unknown).for_each(|r| allowance.charge(r));
        allowance
    }

    fn is_busy(&self, resource: &CloudResource) -> bool {
        let key = CommandKey::Resource(resource.id.clone());
        self.snapshot.in_progress.contains(&key)
    }

    /// Begins something on a resource, if it has not been tried from this inventory, Azure has not denied it lately,
    /// and the pace allows it.
    fn begin(&self, deed: Deed, resource: &CloudResource, room: &mut Room<'_>) -> bool {
        let (inventory, now, kind) = (self.case.inventory, self.case.now, resource.kind());
        if self.is_busy(resource) || room.memory.has_tried(inventory, &resource.id, deed) {
            return false;
        }
        let held = room.memory.denials.held(deed, kind, now);
        let free = held.map_or_else(|| room.memory.pace.begin(deed, room.under_way, now), Err);
        if let Err(later) = free {
            room.plan.wake_at(later);
            return false;
        }
        room.memory.denials.put_to_test(deed, kind, now);
        room.memory.try_once(inventory, &resource.id, deed);
        room.under_way += 1;
        true
    }

    /// Deletes what no clause keeps, unless it is being deleted, was deleted since it was listed, or was tried.
    fn collect(&self, sweep: &Sweep, finding: &Finding, assessed: &Assessed<'_>, room: &mut Room<'_>) {
        let resource = assessed.resource;
        if finding.standing != Standing::Orphan || !finding.refusals.is_empty() {
            return;
        }
        room.keep_mark.insert(resource.id.clone());
        let records = self.case.records;
        let known = records.deletions.iter().filter(|d| d.is_of(resource));
        if known.clone().any(|d| d.at >= self.case.inventory.started_at) || !self.begin(Deed::Delete, resource, room) {
            return;
        }
        let reason = format!(
            "{} {} belongs to nobody: {}",
            kind_word(finding.kind),
            resource.id.name(),
            finding.evidence.join("; ")
        );
        let delete = SweepDelete {
            sweep: sweep.name.clone(),
            resource: Arc::clone(resource),
            parts: assessed.parts.iter().flat_map(|parts| parts.listed.iter().copied().cloned()).collect(),
            claim: claim_named_by(resource),
            volume: records.volumes.get(&resource.id).map(|v| v.name.clone()),
            deletion: Deletion {
                id: resource.id.clone(),
                incarnation: Arc::clone(&resource.incarnation),
                kind: finding.kind,
                at: self.case.now,
                evidence: finding.evidence.clone(),
                failures: known.map(|d| d.failures).max().unwrap_or_default(),
                refused: None,
            },
        };
        room.plan.push(Command::SweepDelete(Box::new(delete)), reason);
    }

    /// True when sweeps may put our mark on a resource, or take it off: beside managed NAP its VMs are left alone.
    fn may_mark(&self, resource: &CloudResource) -> bool {
        let beside_nap = self.case.settings.mode == Mode::Companion;
        self.case.is_whole() && !(beside_nap && resource.kind() == ResourceKind::Vm)
    }

    /// Tags a suspect with the time of its first durable sighting, once.
    fn mark(&self, sweep: &Sweep, finding: &Finding, resource: &Arc<CloudResource>, room: &mut Room<'_>) {
        let Some(first_seen) = finding.first_seen.filter(|_| sweep.mode == SweepMode::Mark) else { return };
        if !self.may_mark(resource) || finding.refusals.contains(&Refusal::Excluded) {
            return;
        }
        room.keep_mark.insert(resource.id.clone());
        // What makes the inventory doubtful, or a person said to hold, keeps from marking as from deleting.
        let held = [Refusal::OtherCluster, Refusal::PartialListing, Refusal::Breaker, Refusal::Paused];
        if finding.refusals.iter().any(|refusal| held.contains(refusal)) {
            return;
        }
        let marked = resource.tag(labels::TAG_SUSPECT_SINCE) == Some(&*first_seen.to_string());
        if marked || !self.begin(Deed::Tag, resource, room) {
            return;
        }
        let command = Command::Mark { resource: Arc::clone(resource), first_seen };
        room.plan.push(command, format!("without a sign of life since {first_seen}"));
    }

    /// Takes our mark off what no sweep marks any more: something alive links to it, or no mode is `Mark`.
    fn unmark(&self, room: &mut Room<'_>) {
        if self.case.group() != Group::Ours || self.case.paused {
            return;
        }
        let excluded = |r: &CloudResource| self.sweeps.iter().flat_map(|s| &s.exclusions).any(|e| excludes(e, r));
        for Assessed { resource, ownership, .. } in &self.assessed {
            let Some(since) = mark_of(resource) else { continue };
            let ours = ownership.is_ok() && self.may_mark(resource) && !excluded(resource);
            if !ours || room.keep_mark.contains(&resource.id) || !self.begin(Deed::Tag, resource, room) {
                continue;
            }
            let reason = format!("marked as suspect since {since}, which no sweep says any more");
            room.plan.push(Command::Unmark { resource: Arc::clone(resource) }, reason);
        }
    }

    fn outlook(&self, sweep: &Sweep, findings: &[Finding], cap: (u32, u32), memory: &SweepMemory) -> Outlook {
        let Case { inventory, records, .. } = self.case;
        let next = next_inventory(self.sweeps, inventory);
        let scheduled = |text: &Arc<str>| Schedule::parse(text).ok()?.after(inventory.finished_at);
        let collection = match &sweep.schedule {
            None => Some(next),
            Some(text) => scheduled(text),
        };
        Outlook {
            whole_at: if self.case.is_whole() { Some(inventory.finished_at) } else { records.last_observed },
            next_observation: Some(next),
            next_collection: collection.filter(|_| sweep.mode == SweepMode::Collect),
            collected: cap.0,
            cap: cap.1,
            kept: kept(findings),
            approvals: approvals::look(&self.case, sweep),
            denials: self.denials(sweep, memory),
        }
    }

    /// What Azure does not let this sweep do.
    fn denials(&self, sweep: &Sweep, memory: &SweepMemory) -> Vec<crate::model::orphans::report::Denial> {
        let wanted = match sweep.mode {
            SweepMode::Report => None,
            SweepMode::Mark => Some(Deed::Tag),
            SweepMode::Collect => Some(Deed::Delete),
        };
        let of_this =
            |d: &&crate::model::orphans::report::Denial| Some(d.deed) == wanted && sweep.kinds.contains(&d.kind);
        memory.denials.all().filter(of_this).cloned().collect()
    }

    /// Writes a sweep's status when it says something new.
    fn report(&self, sweep: &Sweep, findings: Vec<Finding>, outlook: Outlook, room: &mut Room<'_>) {
        let report = SweepReport {
            sweep: sweep.name.clone(),
            observed_at: self.case.inventory.finished_at,
            totals: totals(&findings),
            findings: dearest(findings),
            report_only: unused(self.case.inventory),
            discrepancies: self.discrepancies(),
            halted: self.halted(sweep),
            outlook,
        };
        let busy = CommandKey::Sweep(sweep.name.clone());
        let reported = &mut room.memory.reported;
        if reported.get(&sweep.name) == Some(&report) || self.snapshot.in_progress.contains(&busy) {
            return;
        }
        reported.insert(sweep.name.clone(), report.clone());
        let found = report.findings.len();
        let reason = report.halted.clone();
        let reason = reason.unwrap_or_else(|| Arc::from(format!("{found} findings")));
        room.plan.push(Command::ReportSweep(Box::new(report)), reason);
    }

    fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = reverse(self.case.inventory, Some(self.snapshot), self.case.settings);
        found.truncate(REPORTED);
        found
    }

    /// Why nothing is swept at all.
    fn halted(&self, sweep: &Sweep) -> Option<Arc<str>> {
        let failed = self.case.inventory.failure().map(ToString::to_string);
        let refused = || {
            let at = sweep.breaker_cleared_at?;
            let void = breaker::is_void(self.case.records, at);
            let later =
                (at > self.case.now).then(|| format!("breaker.clearedAt {at} lies in the future and is refused"));
            later.or_else(|| {
                void.then(|| format!("breaker.clearedAt {at} was there before the trip and clears nothing"))
            })
        };
        let unwritten = || {
            let since = self.unwritten_since?;
            Some(format!(
                "OrphanRecords cannot be written since {since}, so nothing is proven: see the controller's log for why, and \
                 let it create and update orphanrecords.napkeeper.io"
            ))
        };
        let tripped = || {
            let trip = breaker::open_trip(self.case.records, self.case.cleared_at)?;
            let refused = refused().map(|why| format!("; {why}")).unwrap_or_default();
            Some(format!("{}{refused}", breaker::explain(trip)))
        };
        let another = || self.case.cluster_missing();
        let unscheduled = || {
            let error = Schedule::parse(sweep.schedule.as_ref()?).err()?;
            Some(error.to_string())
        };
        let why = failed.or_else(unwritten).or_else(tripped).or_else(another).or_else(refused).or_else(unscheduled)?;
        Some(Arc::from(why))
    }
}

/// The dearest findings. What something alive links to is no finding for a report.
fn dearest(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(Finding::is_reportable);
    findings.sort_by(|a, b| (b.price, &a.id).cmp(&(a.price, &b.id)));
    findings.truncate(REPORTED);
    findings
}

/// Public IPs and frontends that nothing uses.
fn unused(inventory: &Inventory) -> Vec<ReportOnly> {
    let unused = report_only(inventory).into_iter().filter(|found| found.usage == Usage::Unused);
    unused.take(REPORTED).collect()
}

fn totals(findings: &[Finding]) -> BTreeMap<(ResourceKind, Standing), Total> {
    let mut totals: BTreeMap<_, Total> = BTreeMap::new();
    for finding in findings {
        let total = totals.entry((finding.kind, finding.standing)).or_default();
        total.resources += 1;
        total.price = total.price + finding.price;
        total.addresses += finding.addresses;
    }
    totals
}
