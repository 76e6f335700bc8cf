//! The allowance: how many more resources may be deleted in these 24 hours, and may this one be tried now? (clause 7)
//!
//! A deletion counts from the moment that it is recorded, which is before its DELETE is sent. It ceases to count when
//! Azure has certainly deleted nothing: it refused, or a GET after a failed operation still finds the very resource. A
//! listing is no such proof, for it may lag. One that Azure never lets go is tried again less and less often.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::names::ArmId;
use crate::model::orphans::finding::Refusal;
use crate::model::orphans::record::{Deletion, Records};
use crate::model::orphans::sweep::Sweep;
use crate::model::settings::{Clause, Settings};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deletions are counted over this time.
pub(super) const CAP_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// No more deletions than this, however great the cluster.
const MOST: u32 = 20;
/// No more of a hundred owned resources than this.
const MOST_PERCENT: u32 = 5;
/// Wait after the first refusal of a DELETE. It doubles with each further one.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(10);
/// Longest wait after a refusal.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(40);
/// Wait after a DELETE whose answer was lost: longer than Azure's listings are known to lag.
const WAIT_IF_UNKNOWN: SignedDuration = SignedDuration::from_mins(50);

/// One incarnation of a resource.
type Key = (ArmId, Arc<str>);

/// Deletions of the cluster over a rolling 24 h, all sweeps together.
#[derive(Debug, Clone)]
pub struct Allowance {
    used: BTreeSet<Key>,
    owned: u32,
    /// Until when a resource is not tried again.
    waiting: BTreeMap<Key, Timestamp>,
    /// Kinds of which Azure lets us delete nothing for now.
    denied: BTreeSet<ResourceKind>,
    /// What was called off lately right before its DELETE, and when.
    called_off: BTreeMap<ArmId, Timestamp>,
    now: Timestamp,
}

impl Allowance {
    /// What the records leave, in a cluster that owns so many resources of all kinds.
    #[must_use]
    pub fn left_by(records: &Records, owned: u32, now: Timestamp) -> Self {
        let key = |d: &Deletion| (d.id.clone(), Arc::clone(&d.incarnation));
        let used = records.deletions.iter().filter(|d| counts(d, now)).map(key).collect();
        let waiting = records.deletions.iter().filter_map(|d| Some((key(d), try_again_at(d)?))).collect();
        Self { used, owned, waiting, denied: BTreeSet::new(), called_off: BTreeMap::new(), now }
    }

    /// Azure lets us delete nothing of these kinds for now.
    pub(super) fn deny(&mut self, kinds: impl Iterator<Item = ResourceKind>) {
        self.denied.extend(kinds);
    }

    /// These were called off: they come after all others, or they would keep those waiting for ever.
    pub(super) fn put_last(&mut self, called_off: impl Iterator<Item = (ArmId, Timestamp)>) {
        self.called_off.extend(called_off);
    }

    /// When this was last called off.
    pub(super) fn called_off(&self, resource: &CloudResource) -> Option<Timestamp> {
        self.called_off.get(&resource.id).copied()
    }

    /// Takes leave for one deletion. One incarnation of a resource counts once, so trying again is free.
    ///
    /// # Errors
    /// [`Refusal::Denied`], [`Refusal::BackOff`] or [`Refusal::Cap`].
    pub fn take(&mut self, resource: &CloudResource, sweep: &Sweep, settings: &Settings) -> Result<(), Refusal> {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        if self.denied.contains(&resource.kind()) {
            return Err(Refusal::Denied);
        }
        if self.waiting.get(&key).is_some_and(|until| *until > self.now) {
            return Err(Refusal::BackOff);
        }
        if settings.law.holds(Clause::Cap) && !self.used.contains(&key) {
            let room = usize::try_from(self.cap(sweep)).unwrap_or(usize::MAX);
            if self.used.len() >= room {
                return Err(Refusal::Cap);
            }
        }
        self.used.insert(key);
        Ok(())
    }

    /// Counts a deletion that is under way and not recorded yet.
    pub(super) fn charge(&mut self, resource: &CloudResource) {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        self.used.insert(key);
    }

    /// How many count now.
    pub(super) fn used(&self) -> u32 {
        u32::try_from(self.used.len()).unwrap_or(u32::MAX)
    }

    /// When the next resource may be tried again.
    pub(super) fn next_try(&self) -> Option<Timestamp> {
        self.waiting.values().copied().filter(|at| *at > self.now).min()
    }

    /// The lesser of 20 and 5 % of what is owned, at least 1; a sweep's own cap can only be stricter.
    pub(super) fn cap(&self, sweep: &Sweep) -> u32 {
        let default = (self.owned.saturating_mul(MOST_PERCENT) / 100).clamp(1, MOST);
        sweep.cap.map_or(default, |cap| cap.min(default))
    }
}

/// True for a deletion of the last 24 h that Azure has done, or may have.
fn counts(deletion: &Deletion, now: Timestamp) -> bool {
    deletion.refused.is_none() && deletion.at > now - CAP_WINDOW
}

/// When a resource may be tried again whose last try failed.
fn try_again_at(deletion: &Deletion) -> Option<Timestamp> {
    let doublings = deletion.failures.checked_sub(1)?;
    let wait = match &deletion.refused {
        Some(_) => FIRST_WAIT.saturating_mul(2_i32.saturating_pow(doublings.min(16))).min(LONGEST_WAIT),
        None => WAIT_IF_UNKNOWN,
    };
    deletion.at.checked_add(wait).ok()
}
