//! The sweep decider: observe, record, report, mark or collect now?
//!
//! An inventory goes through two passes. The first writes what it shows to the durable records; only once the records
//! say that this very inventory was judged does a later pass collect, and then by what the records say. So a crash at
//! any point costs time and never proof.

use super::allowance::Allowance;
use super::breaker;
use super::finding::{Finding, Standing};
use super::links::{claim_named_by, rows};
use super::recording;
use super::report_only::{ReportOnly, Usage, report_only};
use super::reverse::{Discrepancy, reverse};
use super::verdict::{Assessed, Case, judge};
use crate::cluster::Snapshot;
use crate::cluster::cloud::{CloudResource, ResourceKind};
use crate::cluster::inventory::Inventory;
use crate::cluster::record::Deletion;
use crate::cluster::sweep::{Sweep, SweepMode};
use crate::labels;
use crate::names::{ArmId, ObjectName, Uid};
use crate::plan::{Command, CommandKey, Plan, RecordChange, SweepDelete, SweepReport, Switch, Total, kind_word};
use crate::schedule::Schedule;
use crate::settings::Settings;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most findings in a report: a status must fit into etcd.
pub const REPORTED: usize = 50;
/// An inventory that could not be taken is asked for again no sooner than this.
const OBSERVE_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// Records that could not be written are written again after this.
const RECORD_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// After a listing that was not whole the next one comes at the latest after this.
const FAILED_RETRY: SignedDuration = SignedDuration::from_mins(10);

/// What the sweep decider remembers. All of it is disposable: what proves anything is in the durable records.
#[derive(Debug, Clone, Default)]
pub struct SweepMemory {
    /// When an inventory was last asked for. Lost: it is asked for once more, which only costs listings.
    asked_at: Option<Timestamp>,
    /// Resources that were marked or tried to be collected from the inventory of this time. Lost: once more, with all of the
    /// checks right before the DELETE; those whose deletion was recorded wait for the next inventory anyway.
    tried: (Option<Timestamp>, BTreeSet<(ArmId, SweepMode)>),
    /// The last report of each sweep. Lost: the same status is written once more.
    reported: BTreeMap<ObjectName, SweepReport>,
    /// NodeClaims that were seen being deleted, with the time. Lost: the breaker may trip on a scale-down that a
    /// crash falls into, which keeps too much and never deletes too much.
    terminating: BTreeMap<Uid, Timestamp>,
}

/// Decides what to observe, record, report, mark and collect now. To be called whenever NodeClaims, records, sweeps or
/// the inventory change, and at the plan's `next`.
pub fn sweep(snapshot: &Snapshot, memory: &mut SweepMemory, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    memory.watch_claims(snapshot, now);
    if snapshot.sweeps().is_empty() {
        return plan;
    }
    let mut change = RecordChange::default();
    if let Some(inventory) = &snapshot.inventory {
        let case = Case {
            inventory,
            records: &snapshot.records,
            settings,
            prices: snapshot,
            cleared_at: breaker::cleared_at(sweeps(snapshot), now),
            paused: snapshot.pause.holds(Switch::Delete),
            now,
        };
        let pass = Pass { snapshot, case, assessed: case.assess() };
        if pass.is_new() && case.is_whole() {
            change = recording::of_inventory(&case, &pass.assessed, &memory.terminating);
        }
        if pass.is_recorded() || !case.is_whole() {
            pass.act(memory, &mut plan);
        }
    }
    record(snapshot, change, now, &mut plan);
    observe(snapshot, memory, now, &mut plan);
    plan
}

fn sweeps(snapshot: &Snapshot) -> impl Iterator<Item = &Sweep> {
    snapshot.sweeps().values().map(|sweep| &**sweep)
}

/// Asks for an inventory: at once when there is none, then as often as the most eager sweep wants it.
fn observe(snapshot: &Snapshot, memory: &mut SweepMemory, now: Timestamp, plan: &mut Plan) {
    let every = sweeps(snapshot).map(|s| s.observe_every).min();
    let every = every.unwrap_or(FAILED_RETRY).max(OBSERVE_RETRY);
    let after = |inventory: &Inventory| {
        let failed = inventory.failure().is_some();
        let wait = if failed { every.min(FAILED_RETRY) } else { every };
        inventory.finished_at + wait
    };
    let due = snapshot.inventory.as_deref().map(after);
    let retry = memory.asked_at.map(|at| at + OBSERVE_RETRY);
    let at = due.max(retry).unwrap_or(now);
    if at > now {
        plan.wake_at(at);
    } else if snapshot.in_progress.contains(&CommandKey::Inventory) {
        plan.wake_at(now + OBSERVE_RETRY);
    } else {
        memory.asked_at = Some(now);
        plan.wake_at(now + OBSERVE_RETRY);
        let (category, reason) = match &snapshot.inventory {
            None => ("first", "nothing has been observed since the start"),
            Some(_) => ("scheduled", "the last inventory is old enough"),
        };
        plan.push(Command::Observe { category }, reason);
    }
}

/// Writes what must be durable: the change of an inventory, and every volume that has shown up since.
fn record(snapshot: &Snapshot, mut change: RecordChange, now: Timestamp, plan: &mut Plan) {
    let listed = snapshot.inventory.iter().flat_map(|i| rows(&i.volumes));
    let seen = listed.chain(snapshot.volumes().values());
    change.volumes = recording::volumes(seen, &snapshot.records, now);
    if change == RecordChange::default() || snapshot.in_progress.contains(&CommandKey::Records) {
        return;
    }
    let reason = match change.trips.first() {
        Some(trip) => breaker::explain(trip),
        None => format!(
            "{} suspects seen, {} cleared, {} volumes seen",
            change.sighted.len(),
            change.cleared.len(),
            change.volumes.len()
        ),
    };
    // Should the write fail, it is asked for again.
    plan.wake_at(now + RECORD_RETRY);
    plan.push(Command::Record(Box::new(change)), reason);
}

impl SweepMemory {
    fn watch_claims(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let deleting = snapshot.claims().values().filter(|c| c.deleting_at.is_some());
        self.terminating.extend(deleting.map(|c| (c.uid.clone(), now)));
        self.terminating.retain(|_, at| now.duration_since(*at) <= breaker::WINDOW);
    }

    /// True when the resource has been tried to be collected from this inventory.
    fn has_tried(&self, inventory: &Inventory, resource: &CloudResource) -> bool {
        let key = (resource.id.clone(), SweepMode::Collect);
        self.tried.0 == Some(inventory.finished_at) && self.tried.1.contains(&key)
    }

    /// True when this has not been tried from this inventory yet; now it has.
    fn try_once(&mut self, inventory: &Inventory, id: &ArmId, mode: SweepMode) -> bool {
        if self.tried.0 != Some(inventory.finished_at) {
            self.tried = (Some(inventory.finished_at), BTreeSet::new());
        }
        self.tried.1.insert((id.clone(), mode))
    }
}

/// One pass over one inventory.
struct Pass<'a> {
    snapshot: &'a Snapshot,
    case: Case<'a>,
    assessed: Vec<Assessed<'a>>,
}

impl Pass<'_> {
    /// True when the records have not been told of this inventory.
    fn is_new(&self) -> bool {
        self.case.records.last_observed < Some(self.case.inventory.finished_at)
    }

    /// True when the records were told of this inventory and of none since.
    fn is_recorded(&self) -> bool {
        self.case.records.last_observed == Some(self.case.inventory.finished_at)
    }

    /// Judges for each sweep, collects or marks as it allows, and reports.
    fn act(&self, memory: &mut SweepMemory, plan: &mut Plan) {
        let owned = breaker::owned(&self.assessed);
        let mut allowance = Allowance::left_by(self.case.records, owned, self.case.now);
        let all = || self.assessed.iter().map(|a| a.resource);
        // A deletion that is under way, or has just ended, may not be in our copy of the records yet.
        all().filter(|r| self.is_busy(r) || memory.has_tried(self.case.inventory, r)).for_each(|r| allowance.charge(r));
        let by_id: BTreeMap<&ArmId, &Arc<CloudResource>> = all().map(|r| (&r.id, r)).collect();
        for sweep in sweeps(self.snapshot) {
            let findings = judge(&self.case, &self.assessed, sweep, &mut allowance);
            for finding in &findings {
                let Some(resource) = by_id.get(&finding.id) else {
                    continue;
                };
                let command = self
                    .collect(sweep, finding, resource, memory)
                    .or_else(|| self.mark(sweep, finding, resource, memory));
                if let Some((command, reason)) = command {
                    plan.push(command, reason);
                }
                if let Some(at) = self.case.of_age_at(resource, sweep).filter(|at| *at > self.case.now) {
                    plan.wake_at(at);
                }
            }
            self.report(sweep, findings, memory, plan);
        }
    }

    fn is_busy(&self, resource: &CloudResource) -> bool {
        let key = CommandKey::Resource(resource.id.clone());
        self.snapshot.in_progress.contains(&key)
    }

    /// Deletes what no clause keeps, unless it is being deleted, was deleted since it was listed, or was tried.
    fn collect(
        &self,
        sweep: &Sweep,
        finding: &Finding,
        resource: &Arc<CloudResource>,
        memory: &mut SweepMemory,
    ) -> Option<(Command, String)> {
        let inventory = self.case.inventory;
        let deleted = self
            .case
            .records
            .deletions
            .iter()
            .any(|d| d.id == resource.id && d.incarnation == resource.incarnation && d.at >= inventory.started_at);
        let proven = finding.standing == Standing::Orphan && finding.refusals.is_empty();
        if !proven || deleted || self.is_busy(resource) || !memory.try_once(inventory, &resource.id, SweepMode::Collect)
        {
            return None;
        }
        let reason = format!(
            "{} {} belongs to nobody: {}",
            kind_word(finding.kind),
            resource.id.name(),
            finding.evidence.join("; ")
        );
        let record = self.case.records.volumes.get(&resource.id);
        let delete = SweepDelete {
            sweep: sweep.name.clone(),
            resource: Arc::clone(resource),
            claim: claim_named_by(resource),
            volume: record.map(|v| v.name.clone()),
            deletion: Deletion {
                id: resource.id.clone(),
                incarnation: Arc::clone(&resource.incarnation),
                kind: finding.kind,
                at: self.case.now,
                evidence: finding.evidence.clone(),
            },
        };
        Some((Command::SweepDelete(Box::new(delete)), reason))
    }

    /// Tags a suspect with the time of its first durable sighting, once.
    fn mark(
        &self,
        sweep: &Sweep,
        finding: &Finding,
        resource: &Arc<CloudResource>,
        memory: &mut SweepMemory,
    ) -> Option<(Command, String)> {
        let first_seen = finding.first_seen.filter(|_| sweep.mode == SweepMode::Mark)?;
        let marked = resource.tag(labels::TAG_SUSPECT_SINCE) == Some(&*first_seen.to_string());
        if marked || !self.case.is_whole() || self.is_busy(resource) {
            return None;
        }
        if !memory.try_once(self.case.inventory, &resource.id, SweepMode::Mark) {
            return None;
        }
        let command = Command::Mark { resource: Arc::clone(resource), first_seen };
        Some((command, format!("without a sign of life since {first_seen}")))
    }

    /// Writes a sweep's status when it says something new.
    fn report(&self, sweep: &Sweep, findings: Vec<Finding>, memory: &mut SweepMemory, plan: &mut Plan) {
        let report = SweepReport {
            sweep: sweep.name.clone(),
            observed_at: self.case.inventory.finished_at,
            totals: totals(&findings),
            findings: dearest(findings),
            report_only: unused(self.case.inventory),
            discrepancies: self.discrepancies(),
            halted: self.halted(sweep),
        };
        let busy = CommandKey::Sweep(sweep.name.clone());
        if memory.reported.get(&sweep.name) == Some(&report) || self.snapshot.in_progress.contains(&busy) {
            return;
        }
        memory.reported.insert(sweep.name.clone(), report.clone());
        let found = report.findings.len();
        let reason = report.halted.clone();
        let reason = reason.unwrap_or_else(|| Arc::from(format!("{found} findings")));
        plan.push(Command::ReportSweep(Box::new(report)), reason);
    }

    fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = reverse(self.case.inventory, Some(self.snapshot), self.case.settings);
        found.truncate(REPORTED);
        found
    }

    /// Why nothing is swept at all.
    fn halted(&self, sweep: &Sweep) -> Option<Arc<str>> {
        let failed = self.case.inventory.failure().map(ToString::to_string);
        let tripped = || {
            let trip = breaker::open_trip(self.case.records, self.case.cleared_at)?;
            Some(breaker::explain(trip))
        };
        let another = || self.case.cluster_missing();
        let refused = || {
            let at = sweep.breaker_cleared_at.filter(|at| *at > self.case.now)?;
            Some(format!("breaker.clearedAt {at} lies in the future and is refused"))
        };
        let unscheduled = || {
            let error = Schedule::parse(sweep.schedule.as_ref()?).err()?;
            Some(error.to_string())
        };
        let why = failed.or_else(tripped).or_else(another).or_else(refused).or_else(unscheduled)?;
        Some(Arc::from(why))
    }
}

/// The dearest findings. What is alive is no finding for a report.
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
