//! The allowance: how many more resources may be deleted in these 24 hours? (clause 7)

use super::law::Clause;
use crate::cluster::cloud::CloudResource;
use crate::cluster::record::Records;
use crate::cluster::sweep::Sweep;
use crate::names::ArmId;
use crate::settings::Settings;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Deletions are counted over this time.
pub(super) const CAP_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// No more deletions than this, however great the cluster.
const MOST: u32 = 20;
/// No more of a hundred owned resources than this.
const MOST_PERCENT: u32 = 5;

/// Deletions of the cluster over a rolling 24 h, all sweeps together.
#[derive(Debug, Clone)]
pub struct Allowance {
    used: BTreeSet<(ArmId, Arc<str>)>,
    owned: u32,
}

impl Allowance {
    /// What the records leave, in a cluster that owns so many resources of all kinds.
    #[must_use]
    pub fn left_by(records: &Records, owned: u32, now: Timestamp) -> Self {
        let recent = records.deletions.iter().filter(|d| d.at > now - CAP_WINDOW);
        let used = recent.map(|d| (d.id.clone(), Arc::clone(&d.incarnation)));
        Self { used: used.collect(), owned }
    }

    /// Takes leave for one deletion. One incarnation of a resource counts once, so trying again is free.
    pub fn take(&mut self, resource: &CloudResource, sweep: &Sweep, settings: &Settings) -> bool {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        if settings.law.holds(Clause::Cap) && !self.used.contains(&key) {
            let room = usize::try_from(self.cap(sweep)).unwrap_or(usize::MAX);
            if self.used.len() >= room {
                return false;
            }
        }
        self.used.insert(key);
        true
    }

    /// Counts a deletion that is under way and not recorded yet.
    pub(super) fn charge(&mut self, resource: &CloudResource) {
        let key = (resource.id.clone(), Arc::clone(&resource.incarnation));
        self.used.insert(key);
    }

    /// The lesser of 20 and 5 % of what is owned, at least 1; a sweep's own cap can only be stricter.
    fn cap(&self, sweep: &Sweep) -> u32 {
        let default = (self.owned.saturating_mul(MOST_PERCENT) / 100).clamp(1, MOST);
        sweep.cap.map_or(default, |cap| cap.min(default))
    }
}
