//! Freezes of the controller, as of a process whose machine is suspended, and requests that arrive late.
//!
//! A short freeze ends before another replica may lead: the controller continues with what it was about to do. A long one
//! ends when another replica leads, which has listed everything. What the frozen replica has sent by then is performed
//! all the same; what it was about to send is not, for it no longer has the Lease.

use super::CrashPoint;
use crate::world::timeline::EventKind;
use crate::world::{Violation, World};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::leader_election::{LEASE_DURATION, RENEW_DEADLINE};
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::model::settings::DeletionRule;
use napkeeper_core::plan::{ClusterWrite, Effect};
use napkeeper_core::snapshot::CommandKey;
use std::collections::BTreeMap;

/// A freeze of the controller at one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze {
    /// At which write.
    pub at: CrashPoint,
    /// How long it lasts.
    pub lasts: SignedDuration,
    /// The request has been sent, and is performed only when the freeze ends.
    pub is_sent: bool,
}

/// A write that was interrupted by a freeze.
#[derive(Debug, Clone)]
struct InterruptedWrite {
    key: CommandKey,
    effect: Effect,
    is_sent: bool,
}

/// Scheduled freezes, and what they have interrupted.
#[derive(Debug, Default)]
pub(in crate::world) struct Freezes {
    /// Scheduled ones.
    pub(in crate::world) planned: Vec<Freeze>,
    /// The controller is frozen until this time, at this write.
    frozen: Option<(Timestamp, InterruptedWrite)>,
    /// Writes of replicas that no longer lead, by the time at which they continue.
    of_old_leaders: BTreeMap<(Timestamp, u64), InterruptedWrite>,
    /// How many of them there have been.
    interrupted: u64,
}

impl Freezes {
    /// The controller is frozen, and will continue.
    pub(in crate::world) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// When a freeze ends next.
    pub(in crate::world) fn next_end(&self) -> Option<Timestamp> {
        let frozen = self.frozen.as_ref().map(|(until, _)| *until);
        let old = self.of_old_leaders.keys().next().map(|(at, _)| *at);
        frozen.into_iter().chain(old).min()
    }

    /// The frozen controller crashes. What it has sent is performed all the same.
    pub(super) fn crash(&mut self) {
        if let Some((until, write)) = self.frozen.take() {
            self.add_of_old_leader(until, write);
        }
    }

    fn add_of_old_leader(&mut self, at: Timestamp, write: InterruptedWrite) {
        self.interrupted += 1;
        self.of_old_leaders.insert((at, self.interrupted), write);
    }

    /// Takes the write of the freeze that is over.
    fn take_frozen(&mut self, now: Timestamp) -> Option<InterruptedWrite> {
        self.frozen.take_if(|(until, _)| *until <= now).map(|(_, write)| write)
    }

    /// Takes the next write of an old leader that continues.
    fn take_of_old_leader(&mut self, now: Timestamp) -> Option<InterruptedWrite> {
        let first = self.of_old_leaders.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}

impl World {
    /// Freezes the controller at this write, if that is planned.
    pub(super) fn freezes(&mut self, key: &CommandKey, effect: &Effect, sweeps: bool) -> Result<bool, Violation> {
        let due = |freeze: &Freeze| freeze.at.is_due(self.controller.writes, sweeps);
        let Some(position) = self.controller.freezes.planned.iter().position(due) else { return Ok(false) };
        let freeze = self.controller.freezes.planned.swap_remove(position);
        self.controller.writes += 1;
        // A request that is blocked is not sent, and one that is sent is judged by what is known then.
        let is_sent = freeze.is_sent && self.may_perform(key, effect).is_ok();
        if is_sent {
            self.judge(key, effect)?;
        }
        let write = InterruptedWrite { key: key.clone(), effect: effect.clone(), is_sent };
        let (until, length) = (self.now + freeze.lasts, format!("{:#}", freeze.lasts));
        let word = if is_sent { "waits for the answer to" } else { "is about to send" };
        self.log(EventKind::Controller, "controller", format!("frozen for {length}, while it {word} a write"));
        if freeze.lasts < RENEW_DEADLINE {
            self.controller.freezes.frozen = Some((until, write));
        } else {
            self.controller.crash(self.now + LEASE_DURATION);
            self.controller.freezes.add_of_old_leader(until, write);
        }
        Ok(true)
    }

    /// Ends freezes that are over; true when there was one.
    pub(super) fn end_freezes(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        while let Some(write) = self.controller.freezes.take_of_old_leader(self.now) {
            any = true;
            self.continue_as_old_leader(&write)?;
        }
        if let Some(InterruptedWrite { key, effect, is_sent }) = self.controller.freezes.take_frozen(self.now) {
            any = true;
            let reply = if is_sent { self.carry_out(&key, &effect)? } else { self.perform(&key, &effect)? };
            self.take_reply(&key, reply);
        }
        Ok(any)
    }

    fn is_being_deleted(&self, claim: &ClaimName) -> bool {
        self.cluster.state().claims().get(claim).is_some_and(|claim| claim.deleting_at.is_some())
    }

    /// A replica that no longer leads continues: what it has sent is performed, and it sends nothing more.
    fn continue_as_old_leader(&mut self, write: &InterruptedWrite) -> Result<(), Violation> {
        let InterruptedWrite { key, effect, is_sent } = write;
        if !is_sent {
            let has_no_lease = self.settings.deletion_rules.enforces(DeletionRule::LeaseHeld);
            if has_no_lease || self.may_perform(key, effect).is_err() {
                return Ok(());
            }
            self.judge(key, effect)?;
        }
        let deleted = match effect {
            Effect::Cluster(ClusterWrite::DeleteClaim(claim)) if !self.is_being_deleted(&claim.name) => {
                Some(&claim.name)
            }
            _ => None,
        };
        // Nobody waits for the reply.
        drop(self.carry_out(key, effect)?);
        // The replica that leads learns of it by its watch.
        let deleted = deleted.filter(|claim| self.is_being_deleted(claim));
        self.truth.deleted_by_others.extend(deleted.cloned());
        Ok(())
    }
}
