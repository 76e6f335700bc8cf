//! The sweep decider: observe, record, report, mark or collect now?
//!
//! An inventory goes through two passes. The first writes what it shows to the durable records; only once the records
//! say that this very inventory was judged does a later pass collect, and then by what the records say. So a crash at
//! any point costs time and never proof.

use super::denial::Denials;
use super::index::Index;
use super::links::rows;
use super::pace::Pace;
use super::pass::Pass;
use super::verdict::Case;
use super::{breaker, recording};
use crate::model::azure::inventory::Inventory;
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::attempt::Deed;
use crate::model::orphans::finding::Refusal;
use crate::model::orphans::sweep::Sweep;
use crate::model::settings::{Mode, Settings, Switch};
use crate::plan::{Command, Plan, RecordChange, Report, SweepReport};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// An inventory that could not be taken is asked for again no sooner than this.
const OBSERVE_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// Records that could not be written are written again after this.
const RECORD_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// Records that could not be written for so long, after some tries, halt the sweeps in their status too.
const UNWRITTEN_FOR: SignedDuration = SignedDuration::from_mins(5);
/// After a listing that was not whole the next one comes at the latest after this.
const FAILED_RETRY: SignedDuration = SignedDuration::from_mins(10);

/// So long it is remembered that a deletion was called off.
const CALLED_OFF_FOR: SignedDuration = SignedDuration::from_hours(24);

/// What the sweep decider remembers. All of it is disposable: what proves anything is in the durable records.
#[derive(Debug, Clone, Default)]
pub struct SweepMemory {
    /// When an inventory was last asked for. Lost: it is asked for once more, which only costs listings.
    asked_at: Option<Timestamp>,
    /// What was tried from the inventory of this time. Lost: once more, with all of the checks right before the
    /// DELETE; those whose deletion was recorded wait for the next inventory anyway.
    tried: (Option<Timestamp>, BTreeSet<(ArmId, Deed)>),
    /// The last report of each sweep. Lost: the same status is written once more.
    pub(super) reported: BTreeMap<ObjectName, SweepReport>,
    /// What Azure does not let us do for now.
    pub(super) denials: Denials,
    /// What was called off right before its DELETE, when and why. Lost: it is tried before the others once more.
    pub(super) called_off: BTreeMap<ArmId, (Timestamp, Refusal)>,
    /// How many commands have begun lately.
    pub(super) pace: Pace,
    /// Since when inventories wait to be recorded. Lost: the status says so a few minutes later.
    unwritten_since: Option<Timestamp>,
    /// NodeClaims that were seen being deleted, with the time. Lost: the breaker may trip on a scale-down that a
    /// crash falls into, which keeps too much and never deletes too much.
    leaving: breaker::Leaving,
}

/// Decides what to observe, record, report, mark and collect now. To be called whenever NodeClaims, records, sweeps or
/// the inventory change, and at the plan's `next`.
pub fn sweep(snapshot: &Snapshot, memory: &mut SweepMemory, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    memory.leaving.watch(snapshot, now);
    memory.denials.forget(now);
    memory.called_off.retain(|_, (at, _)| now.duration_since(*at) <= CALLED_OFF_FOR);
    let sweeps = sweeps(snapshot, settings);
    if sweeps.is_empty() {
        // What a volume's record proves later is seen only now, whether anybody sweeps or not.
        record(snapshot, RecordChange::default(), now, &mut plan);
        return plan;
    }
    let mut change = RecordChange::default();
    if let Some(inventory) = &snapshot.inventory {
        let case = Case {
            inventory,
            records: &snapshot.records,
            settings,
            prices: snapshot,
            surroundings: &snapshot.surroundings,
            cleared_at: breaker::cleared_at(&sweeps, &snapshot.records, now),
            paused: snapshot.pause.holds(Switch::Delete),
            now,
        };
        let mut pass =
            Pass { snapshot, case, assessed: case.assess_in_brief(), sweeps: &sweeps, unwritten_since: None };
        if pass.is_new() && case.is_whole() {
            change = recording::of_inventory(&case, &pass.assessed, &memory.leaving, &sweeps);
            pass.unwritten_since = memory.wait_for_records(now, &mut plan);
        } else {
            memory.unwritten_since = None;
        }
        if pass.is_recorded() || !case.is_whole() || pass.unwritten_since.is_some() {
            pass.act(memory, &mut plan);
        }
    }
    record(snapshot, change, now, &mut plan);
    observe(snapshot, &sweeps, memory, now, &mut plan);
    plan
}

/// The sweeps as they hold here: beside managed NAP they are slower, and what one excludes none of them touches.
fn sweeps(snapshot: &Snapshot, settings: &Settings) -> Vec<Sweep> {
    let beside_nap = settings.mode == Mode::Companion;
    let all = snapshot.sweeps().values();
    let mut sweeps: Vec<Sweep> =
        all.map(|sweep| if beside_nap { sweep.beside_nap() } else { Sweep::clone(sweep) }).collect();
    let excluded: Vec<_> = sweeps.iter().flat_map(|s| s.exclusions.clone()).collect();
    sweeps.iter_mut().for_each(|sweep| sweep.exclusions.clone_from(&excluded));
    sweeps
}

/// When the inventory after this one is due: as often as the most eager sweep wants it.
pub(super) fn next_inventory(sweeps: &[Sweep], inventory: &Inventory) -> Timestamp {
    let every = sweeps.iter().map(|s| s.observe_every).min();
    let every = every.unwrap_or(FAILED_RETRY).max(OBSERVE_RETRY);
    let failed = inventory.failure().is_some();
    let wait = if failed { every.min(FAILED_RETRY) } else { every };
    inventory.finished_at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Asks for an inventory: at once when there is none, then as often as the most eager sweep wants it.
fn observe(snapshot: &Snapshot, sweeps: &[Sweep], memory: &mut SweepMemory, now: Timestamp, plan: &mut Plan) {
    let due = snapshot.inventory.as_deref().map(|inventory| next_inventory(sweeps, inventory));
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
    let seen: Vec<_> = listed.chain(snapshot.volumes().values()).collect();
    // Whatever the last listing shows, a volume that is there now keeps its record.
    let named = Index::of(seen.iter().filter_map(|v| Some((v.handle.as_ref()?.folded(), ()))));
    change.volumes.retain(|(disk, _)| named.find(disk.folded()).is_none());
    change.forgotten.retain(|disk| named.find(disk.folded()).is_none());
    change.volumes.extend(recording::volumes(&seen, snapshot, now));
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
    /// An inventory is not recorded yet. Since when that goes on, where it has gone on for too long.
    fn wait_for_records(&mut self, now: Timestamp, plan: &mut Plan) -> Option<Timestamp> {
        let since = *self.unwritten_since.get_or_insert(now);
        let overdue = since.saturating_add(UNWRITTEN_FOR).unwrap_or(Timestamp::MAX);
        if overdue > now {
            plan.wake_at(overdue);
            return None;
        }
        Some(since)
    }

    /// True when this has been tried from this inventory.
    pub(super) fn has_tried(&self, inventory: &Inventory, id: &ArmId, deed: Deed) -> bool {
        self.tried.0 == Some(inventory.finished_at) && self.tried.1.contains(&(id.clone(), deed))
    }

    /// Notes that this is being tried from this inventory.
    pub(super) fn try_once(&mut self, inventory: &Inventory, id: &ArmId, deed: Deed) {
        if self.tried.0 != Some(inventory.finished_at) {
            self.tried = (Some(inventory.finished_at), BTreeSet::new());
        }
        self.tried.1.insert((id.clone(), deed));
    }

    /// True when anything has been tried from the last inventory.
    #[cfg(test)]
    pub(super) fn has_begun(&self) -> bool {
        !self.tried.1.is_empty()
    }

    /// Learns from what came of a command.
    pub fn note(&mut self, report: &Report) {
        let Some(attempt) = &report.attempt else { return };
        self.denials.note(attempt);
        if attempt.deed == Deed::Delete {
            match report.called_off {
                Some(refusal) => self.called_off.insert(attempt.id.clone(), (attempt.at, refusal)),
                None => self.called_off.remove(&attempt.id),
            };
        }
    }
}
