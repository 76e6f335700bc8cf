//! The sweep decider: requests inventories, writes records, and deletes in a later pass.
//!
//! An inventory goes through two passes. The first writes its observations to the durable records; only once the
//! records contain this very inventory does a later pass collect, by the records. So a crash at any point costs time,
//! never evidence.

pub(in crate::orphans) mod approvals;
pub(in crate::orphans) mod delete;
pub(in crate::orphans) mod deletion_order;
pub(in crate::orphans) mod denial_backoff;
pub(in crate::orphans) mod mark;
pub(in crate::orphans) mod pass;
pub(in crate::orphans) mod rate_limiter;

use crate::model::azure::inventory::Inventory;
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::attempt::SweepAction;
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::sweep::Sweep;
use crate::model::settings::{ControllerMode, PauseSwitch, Settings};
use crate::orphans::assessment::SweepContext;
use crate::orphans::references::items;
use crate::orphans::references::string_index::Index;
use crate::orphans::sweep::denial_backoff::Denials;
use crate::orphans::sweep::pass::SweepPass;
use crate::orphans::sweep::rate_limiter::RateLimiter;
use crate::orphans::{breaker, records};
use crate::plan::{Command, CommandReport, Plan, RecordChange, SweepReport};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum delay before a failed inventory is requested again.
const INVENTORY_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// Records that could not be written are written again after this.
const RECORD_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// After this time of failed record writes the status reports the sweeps as halted.
const RECORD_FAILURE_GRACE: SignedDuration = SignedDuration::from_mins(5);
/// After a listing that was not whole the next one comes at the latest after this.
const INCOMPLETE_INVENTORY_RETRY: SignedDuration = SignedDuration::from_mins(10);

/// How long an aborted deletion is remembered.
const ABORT_MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// Memory of the sweep decider. All of it is disposable: evidence is in the durable records.
#[derive(Debug, Clone, Default)]
pub struct SweepMemory {
    /// When an inventory was last requested. If lost, it is requested once more, which only costs listings.
    inventory_requested_at: Option<Timestamp>,
    /// Attempts from the inventory of this time. If lost, they are repeated with all checks right before the DELETE;
    /// those whose deletion was recorded wait for the next inventory anyway.
    attempted: (Option<Timestamp>, BTreeSet<(ArmId, SweepAction)>),
    /// The last report of each sweep. If lost, the same status is written again.
    pub(in crate::orphans) reported: BTreeMap<ObjectName, SweepReport>,
    /// Actions that Azure currently denies.
    pub(in crate::orphans) denials: Denials,
    /// Deletions aborted right before the DELETE, when and why. If lost, they are tried before the others once more.
    pub(in crate::orphans) aborted: BTreeMap<ArmId, (Timestamp, DeletionRefusal)>,
    /// Recently started commands.
    pub(in crate::orphans) rate_limiter: RateLimiter,
    /// Since when inventories wait to be recorded. If lost, the status reports it a few minutes later.
    records_failing_since: Option<Timestamp>,
    /// NodeClaims that were seen being deleted, with the time. Lost: the breaker may trip on a scale-down that a
    /// crash falls into, which keeps too much and never deletes too much.
    deleting_claims: breaker::DeletingClaims,
}

/// Decides what to observe, record, report, mark and collect now. To be called whenever NodeClaims, records, sweeps or
/// the inventory change, and at the plan's `next`.
pub fn sweep(snapshot: &Snapshot, memory: &mut SweepMemory, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    memory.deleting_claims.observe(snapshot, now);
    memory.denials.expire(now);
    memory.aborted.retain(|_, (at, _)| now.duration_since(*at) <= ABORT_MEMORY);
    let sweeps = effective_sweeps(snapshot, settings);
    if sweeps.is_empty() {
        // Volumes must be recorded while they exist, even without a sweep.
        write_records(snapshot, RecordChange::default(), now, &mut plan);
        return plan;
    }
    let mut change = RecordChange::default();
    if let Some(inventory) = &snapshot.inventory {
        let case = SweepContext {
            inventory,
            records: &snapshot.records,
            settings,
            prices: snapshot,
            infrastructure: &snapshot.infrastructure,
            cleared_at: breaker::cleared_at(&sweeps, &snapshot.records, now),
            unreadable_sweeps: &snapshot.unreadable_sweeps,
            paused: snapshot.pause.blocks(PauseSwitch::Delete, now),
            now,
        };
        let mut pass =
            SweepPass { snapshot, case, assessed: case.assess_terse(), sweeps: &sweeps, records_failing_since: None };
        if pass.is_new() && case.is_complete() {
            change = records::changes_from_inventory(&case, &pass.assessed, &memory.deleting_claims, &sweeps);
            pass.records_failing_since = memory.wait_for_records(now, &mut plan);
        } else {
            memory.records_failing_since = None;
        }
        if pass.is_recorded() || !case.is_complete() || pass.records_failing_since.is_some() {
            pass.act(memory, &mut plan);
        }
    }
    accept(snapshot, &sweeps, memory, &mut plan);
    write_records(snapshot, change, now, &mut plan);
    request_inventory(snapshot, &sweeps, memory, now, &mut plan);
    plan
}

/// The effective sweeps: beside managed NAP they are slower, and exclusions of one apply to all.
fn effective_sweeps(snapshot: &Snapshot, settings: &Settings) -> Vec<Sweep> {
    let beside_nap = settings.mode == ControllerMode::Companion;
    let all = snapshot.sweeps().values();
    let mut sweeps: Vec<Sweep> =
        all.map(|sweep| if beside_nap { sweep.for_companion_mode() } else { Sweep::clone(sweep) }).collect();
    let excluded: Vec<_> = sweeps.iter().flat_map(|s| s.exclusions.clone()).collect();
    sweeps.iter_mut().for_each(|sweep| sweep.exclusions.clone_from(&excluded));
    sweeps
}

/// Reports sweeps as accepted whose current version no pass has reported: what waits for them need not wait for an observation.
fn accept(snapshot: &Snapshot, sweeps: &[Sweep], memory: &mut SweepMemory, plan: &mut Plan) {
    memory.reported.retain(|name, _| snapshot.sweeps().get(name).is_some());
    for sweep in sweeps {
        let is_of_this = |report: &SweepReport| (&report.uid, report.generation) == (&sweep.uid, sweep.generation);
        if memory.reported.get(&sweep.name).is_some_and(is_of_this)
            || snapshot.in_progress.contains(&CommandKey::Sweep(sweep.name.clone()))
        {
            continue;
        }
        let report = SweepReport::accepted(sweep);
        memory.reported.insert(sweep.name.clone(), report.clone());
        plan.push(Command::ReportSweep(Box::new(report)), "accepted");
    }
}

/// When the inventory after this one is due: as often as the most eager sweep wants it.
pub(in crate::orphans) fn next_inventory(sweeps: &[Sweep], inventory: &Inventory) -> Timestamp {
    let every = sweeps.iter().map(|s| s.inventory_interval).min();
    let every = every.unwrap_or(INCOMPLETE_INVENTORY_RETRY).max(INVENTORY_RETRY);
    let failed = inventory.failure().is_some();
    let wait = if failed { every.min(INCOMPLETE_INVENTORY_RETRY) } else { every };
    inventory.finished_at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Requests an inventory: at once when there is none, then at the shortest interval of any sweep.
fn request_inventory(snapshot: &Snapshot, sweeps: &[Sweep], memory: &mut SweepMemory, now: Timestamp, plan: &mut Plan) {
    let due = snapshot.inventory.as_deref().map(|inventory| next_inventory(sweeps, inventory));
    let retry = memory.inventory_requested_at.map(|at| at + INVENTORY_RETRY);
    let at = due.max(retry).unwrap_or(now);
    if at > now {
        plan.wake_at(at);
    } else if snapshot.in_progress.contains(&CommandKey::Inventory) {
        plan.wake_at(now + INVENTORY_RETRY);
    } else {
        memory.inventory_requested_at = Some(now);
        plan.wake_at(now + INVENTORY_RETRY);
        let (category, reason) = match &snapshot.inventory {
            None => ("first", "nothing has been observed since the start"),
            Some(_) => ("scheduled", "the observation interval has elapsed"),
        };
        plan.push(Command::TakeInventory { category }, reason);
    }
}

/// Writes durable records: the change of an inventory, and every volume that has appeared since.
fn write_records(snapshot: &Snapshot, mut change: RecordChange, now: Timestamp, plan: &mut Plan) {
    let listed = snapshot.inventory.iter().flat_map(|i| items(&i.volumes));
    let watched = snapshot.volumes().values().chain(snapshot.unrecorded_retained_volumes());
    let seen: Vec<_> = listed.chain(watched).collect();
    // A volume that exists now keeps its record, whatever the last listing shows.
    let named = Index::of(seen.iter().filter_map(|v| Some((v.handle.as_ref()?.folded(), ()))));
    change.volumes.retain(|(disk, _)| named.find(disk.folded()).is_none());
    change.removed_volumes.retain(|disk| named.find(disk.folded()).is_none());
    // Only with the inventory that it records: a later volume may be of another disk.
    let new_inventory = snapshot.inventory.as_deref().filter(|_| change.inventory_at.is_some());
    let unique_ids = new_inventory.map_or_else(|| Index::of(std::iter::empty()), records::unique_ids);
    change.volumes.extend(records::volume_record_changes(&seen, &unique_ids, snapshot, now));
    if change == RecordChange::default() || snapshot.in_progress.contains(&CommandKey::Records) {
        return;
    }
    let reason = match change.trips.first() {
        Some(trip) => breaker::describe_trip(trip),
        None => format!(
            "{} suspects seen, {} cleared, {} volumes seen",
            change.sightings.len(),
            change.removed_sightings.len(),
            change.volumes.len()
        ),
    };
    // If the write fails, it is requested again.
    plan.wake_at(now + RECORD_RETRY);
    plan.push(Command::WriteRecords(Box::new(change)), reason);
}

impl SweepMemory {
    /// Waits for an inventory to be recorded; returns since when, if that takes too long.
    fn wait_for_records(&mut self, now: Timestamp, plan: &mut Plan) -> Option<Timestamp> {
        let since = *self.records_failing_since.get_or_insert(now);
        let overdue = since.saturating_add(RECORD_FAILURE_GRACE).unwrap_or(Timestamp::MAX);
        if overdue > now {
            plan.wake_at(overdue);
            return None;
        }
        Some(since)
    }

    /// True when this has been tried from this inventory.
    pub(in crate::orphans) fn was_attempted(&self, inventory: &Inventory, id: &ArmId, action: SweepAction) -> bool {
        self.attempted.0 == Some(inventory.finished_at) && self.attempted.1.contains(&(id.clone(), action))
    }

    /// Notes that this is being tried from this inventory.
    pub(in crate::orphans) fn mark_attempted(&mut self, inventory: &Inventory, id: &ArmId, action: SweepAction) {
        if self.attempted.0 != Some(inventory.finished_at) {
            self.attempted = (Some(inventory.finished_at), BTreeSet::new());
        }
        self.attempted.1.insert((id.clone(), action));
    }

    /// True when anything has been tried from the last inventory.
    #[cfg(test)]
    pub(in crate::orphans) fn has_attempts(&self) -> bool {
        !self.attempted.1.is_empty()
    }

    /// Records the report of a command.
    pub fn record(&mut self, report: &CommandReport) {
        if let Some(sweep) = &report.unreported_sweep {
            self.reported.remove(sweep);
        }
        let Some(attempt) = &report.attempt else { return };
        self.denials.record(attempt);
        if attempt.action == SweepAction::Delete {
            match report.abort_reason {
                Some(refusal) => self.aborted.insert(attempt.id.clone(), (attempt.at, refusal)),
                None => self.aborted.remove(&attempt.id),
            };
        }
    }
}
