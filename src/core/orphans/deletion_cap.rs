//! The rolling 24 h limit on deletions, with backoff after failures (rule 7).
//!
//! A deletion counts from the moment that it is recorded, which is before its DELETE is sent. It ceases to count when
//! Azure has certainly deleted nothing: it refused, or a GET after a failed operation still finds the resource. A
//! listing is no evidence, since it may lag. A resource that Azure never deletes is tried less and less often.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::names::ArmId;
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::record::{DeletionRecord, OrphanRecords};
use crate::model::orphans::sweep::Sweep;
use crate::model::settings::{DeletionRule, Settings};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deletions are counted over this time.
pub(in crate::orphans) const CAP_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// No more deletions than this, however great the cluster.
const MAX_DELETIONS: u32 = 20;
/// No more of a hundred owned resources than this.
const MAX_DELETIONS_PERCENT: u32 = 5;
/// Wait after the first refusal of a DELETE. It doubles with each further one.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_mins(10);
/// Longest wait after a refusal.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(40);
/// Wait after a DELETE whose answer was lost: longer than Azure's listings are known to lag.
const UNKNOWN_OUTCOME_BACKOFF: SignedDuration = SignedDuration::from_mins(50);

/// One incarnation of a resource.
type IncarnationKey = (ArmId, Arc<str>);

/// Deletions of the cluster over a rolling 24 h, all sweeps together.
#[derive(Debug, Clone)]
pub struct DeletionCap {
    used: BTreeSet<IncarnationKey>,
    owned: u32,
    /// Until when a resource is not tried again.
    retry_after: BTreeMap<IncarnationKey, Timestamp>,
    /// Kinds that Azure currently does not let us delete.
    blocked_kinds: BTreeSet<ResourceKind>,
    /// Deletions that were recently aborted right before the DELETE, and when.
    aborted: BTreeMap<ArmId, Timestamp>,
    now: Timestamp,
}

impl DeletionCap {
    /// The cap by the records, in a cluster that owns this many resources of all kinds.
    #[must_use]
    pub fn from_records(records: &OrphanRecords, owned: u32, now: Timestamp) -> Self {
        let key = |d: &DeletionRecord| (d.id.clone(), Arc::clone(&d.incarnation));
        let used = records.deletions.iter().filter(|d| counts_against_budget(d, now)).map(key).collect();
        let waiting = records.deletions.iter().filter_map(|d| Some((key(d), retry_at(d)?))).collect();
        Self { used, owned, retry_after: waiting, blocked_kinds: BTreeSet::new(), aborted: BTreeMap::new(), now }
    }

    /// Blocks kinds that Azure currently does not let us delete.
    pub(in crate::orphans) fn block_kinds(&mut self, kinds: impl Iterator<Item = ResourceKind>) {
        self.blocked_kinds.extend(kinds);
    }

    /// Moves aborted deletions behind all others, which they would otherwise block.
    pub(in crate::orphans) fn deprioritize(&mut self, aborted: impl Iterator<Item = (ArmId, Timestamp)>) {
        self.aborted.extend(aborted);
    }

    /// When this was last called off.
    pub(in crate::orphans) fn aborted_at(&self, resource: &CloudResource) -> Option<Timestamp> {
        self.aborted.get(&resource.id).copied()
    }

    /// Reserves one deletion. One incarnation of a resource counts once, so retries are free.
    ///
    /// # Errors
    /// [`DeletionRefusal::Denied`], [`DeletionRefusal::BackOff`] or [`DeletionRefusal::Cap`].
    pub fn reserve(
        &mut self,
        resource: &CloudResource,
        sweep: &Sweep,
        settings: &Settings,
    ) -> Result<(), DeletionRefusal> {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        if self.blocked_kinds.contains(&resource.kind()) {
            return Err(DeletionRefusal::Denied);
        }
        if self.retry_after.get(&key).is_some_and(|until| *until > self.now) {
            return Err(DeletionRefusal::BackOff);
        }
        if settings.deletion_rules.enforces(DeletionRule::Cap) && !self.used.contains(&key) {
            let cap = usize::try_from(self.cap(sweep)).unwrap_or(usize::MAX);
            if self.used.len() >= cap {
                return Err(DeletionRefusal::Cap);
            }
        }
        self.used.insert(key);
        Ok(())
    }

    /// Counts a deletion that is under way and not recorded yet.
    pub(in crate::orphans) fn count_in_progress(&mut self, resource: &CloudResource) {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        self.used.insert(key);
    }

    /// How many count now.
    pub(in crate::orphans) fn used(&self) -> u32 {
        u32::try_from(self.used.len()).unwrap_or(u32::MAX)
    }

    /// When the next resource may be tried again.
    pub(in crate::orphans) fn next_retry_at(&self) -> Option<Timestamp> {
        self.retry_after.values().copied().filter(|at| *at > self.now).min()
    }

    /// The lesser of 20 and 5 % of the owned resources, at least 1; a sweep's own cap can only be stricter.
    pub(in crate::orphans) fn cap(&self, sweep: &Sweep) -> u32 {
        let default = (self.owned.saturating_mul(MAX_DELETIONS_PERCENT) / 100).clamp(1, MAX_DELETIONS);
        sweep.cap.map_or(default, |cap| cap.min(default))
    }
}

/// True for a deletion of the last 24 h that Azure has done, or may have.
pub(in crate::orphans) fn counts_against_budget(deletion: &DeletionRecord, now: Timestamp) -> bool {
    deletion.refused.is_none() && deletion.at > now - CAP_WINDOW
}

/// When a failed deletion may be tried again.
fn retry_at(deletion: &DeletionRecord) -> Option<Timestamp> {
    let doublings = deletion.failures.checked_sub(1)?;
    let wait = match &deletion.refused {
        Some(_) => INITIAL_BACKOFF.saturating_mul(2_i32.saturating_pow(doublings.min(16))).min(MAX_BACKOFF),
        None => UNKNOWN_OUTCOME_BACKOFF,
    };
    deletion.at.checked_add(wait).ok()
}
