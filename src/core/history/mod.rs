//! Records which nodes were removed, why, and by what they were replaced.
//!
//! An entry begins when the deletion of a NodeClaim is first seen, and ends when the NodeClaim is gone. It is written at once,
//! and again at its end; each NodeRecord at most every [`WRITE_INTERVAL`]. A NodeClaim has one entry, by its UID: what a
//! restart begins again is the entry that is there already. Nothing is decided by NodeRecords, and nothing waits for them. In
//! companion mode nodes are Karpenter's to remove, and nothing is written.

mod own_deletions;
mod removal;
#[cfg(test)]
mod tests;

use crate::model::cluster::claim::Claim;
use crate::model::cluster::node_record::{MAX_ENTRIES, NodeRecordShard, NodeRemoval};
use crate::model::names::Uid;
use crate::model::settings::{ControllerMode, Settings};
use crate::plan::{Command, CommandReport, NodeRecordChange, Plan};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
pub use own_deletions::OwnDeletions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A NodeRecord is written at most this often; after failures less often each time.
pub const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// Doublings of the interval after failures: 5 min 20 s.
const MAX_DOUBLINGS: u32 = 5;

/// What is to be recorded. Disposable: what was not written yet begins again, unless the NodeClaim is gone meanwhile.
#[derive(Debug, Clone, Default)]
pub struct HistoryMemory {
    /// The deletions that were ours, as known when the decision began.
    pub own_deletions: OwnDeletions,
    /// NodeClaims that the last decision has seen, and that were not being deleted.
    alive: BTreeSet<Uid>,
    /// Removals that have begun, and are not recorded with their ends yet.
    removals: BTreeMap<Uid, Tracked>,
    writes: BTreeMap<NodeRecordShard, LastWrite>,
}

/// A removal that is not recorded with its end yet.
#[derive(Debug, Clone)]
struct Tracked {
    entry: NodeRemoval,
    state: WriteState,
}

/// Whether an entry is in its NodeRecord as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    Unwritten,
    Requested,
    Written,
}

/// The last write of a NodeRecord.
#[derive(Debug, Clone, Copy)]
struct LastWrite {
    at: Timestamp,
    /// How many have failed, one after the other.
    failures: u32,
}

impl HistoryMemory {
    /// Learns from a command that has ended.
    pub(crate) fn record(&mut self, report: &CommandReport) {
        let Some(shard) = report.recorded else { return };
        for tracked in self.removals.values_mut().filter(|tracked| tracked.entry.shard() == shard) {
            if tracked.state == WriteState::Requested {
                tracked.state = WriteState::Written;
            }
        }
        self.removals.retain(|_, one| one.state != WriteState::Written || one.entry.ended.is_none());
        if let Some(last) = self.writes.get_mut(&shard) {
            last.failures = 0;
        }
    }

    /// Begins the entries of NodeClaims that are being deleted. Those without a VM were no nodes.
    fn begin(&mut self, snapshot: &Snapshot) {
        let mut alive = BTreeSet::new();
        for claim in snapshot.claims().values().filter(|claim| claim.is_ours()) {
            match claim.deleting_at {
                None => drop(alive.insert(claim.uid.clone())),
                Some(at) if claim.status.launched.is_some() && !self.removals.contains_key(&claim.uid) => {
                    let entry = removal::removal(snapshot, self, claim, at);
                    self.removals.insert(claim.uid.clone(), Tracked { entry, state: WriteState::Unwritten });
                }
                Some(_) => {}
            }
        }
        self.alive = alive;
    }

    /// Ends the entries of NodeClaims that are gone.
    fn end(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let is_gone = |entry: &NodeRemoval| {
            let known: Option<&Arc<Claim>> = snapshot.claims().get(&entry.removed.claim);
            known.is_none_or(|claim| claim.uid != entry.uid)
        };
        for tracked in self.removals.values_mut() {
            if tracked.entry.ended.is_none() && is_gone(&tracked.entry) {
                // A clock that was set back must not end it before it began.
                tracked.entry.ended = Some(now.max(tracked.entry.started));
                tracked.state = WriteState::Unwritten;
            }
        }
    }

    /// Forgets the oldest removals that a NodeRecord would drop, if it cannot be written for long.
    fn forget(&mut self, shard: NodeRecordShard) {
        let ended = self.removals.iter().filter(|(_, one)| one.entry.shard() == shard && one.entry.ended.is_some());
        let mut ended: Vec<(Timestamp, Uid)> = ended.map(|(uid, one)| (one.entry.started, uid.clone())).collect();
        ended.sort();
        let excess = ended.len().saturating_sub(MAX_ENTRIES);
        for (_, uid) in ended.into_iter().take(excess) {
            self.removals.remove(&uid);
        }
    }

    /// Has a NodeRecord written, if it is to change, and may be.
    fn write(&mut self, shard: NodeRecordShard, snapshot: &Snapshot, now: Timestamp, plan: &mut Plan) {
        if snapshot.in_progress.contains(&CommandKey::NodeRecord(shard)) {
            return;
        }
        self.forget(shard);
        let mut of_shard: Vec<&mut Tracked> =
            self.removals.values_mut().filter(|one| one.entry.shard() == shard).collect();
        let has_failed = of_shard.iter().any(|one| one.state == WriteState::Requested);
        of_shard.retain(|one| one.state != WriteState::Written);
        if of_shard.is_empty() {
            return;
        }
        let last = self.writes.get_mut(&shard);
        let failures = last.as_ref().map_or(0, |last| last.failures) + u32::from(has_failed);
        if let Some(last) = last {
            // The clock may have been set back since.
            let due = last.at.min(now).saturating_add(WRITE_INTERVAL * (1 << failures.min(MAX_DOUBLINGS)));
            if let Some(due) = due.ok().filter(|due| *due > now) {
                last.failures = failures;
                of_shard.iter_mut().for_each(|one| one.state = WriteState::Unwritten);
                return plan.wake_at(due);
            }
        }
        self.writes.insert(shard, LastWrite { at: now, failures });
        of_shard.iter_mut().for_each(|one| one.state = WriteState::Requested);
        let removals: Vec<NodeRemoval> = of_shard.iter().map(|one| one.entry.clone()).collect();
        let reason = format!("{} removals of nodes to record", removals.len());
        plan.push(Command::RecordRemovals(Box::new(NodeRecordChange { shard, removals })), reason);
    }
}

/// Has the nodes recorded that are being removed, or are gone.
pub fn record_removals(snapshot: &Snapshot, memory: &mut HistoryMemory, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Provisioner {
        memory.begin(snapshot);
        memory.end(snapshot, now);
        NodeRecordShard::all().for_each(|shard| memory.write(shard, snapshot, now, &mut plan));
    }
    plan
}
