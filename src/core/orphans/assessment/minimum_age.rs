//! How long a resource must have been an orphan before it may be deleted.

use crate::model::azure::cloud::{CloudResource, ResourceDetail};
use crate::model::orphans::sweep::Sweep;
use crate::orphans::assessment::SweepContext;
use jiff::Timestamp;

impl SweepContext<'_> {
    /// When a suspect will have been an orphan for long enough; `None` before its first durable sighting. A disk's time
    /// restarts when it is attached or detached.
    #[must_use]
    pub fn eligible_at(&self, resource: &CloudResource, sweep: &Sweep) -> Option<Timestamp> {
        let first_seen = self.sighting(resource)?.first_seen;
        let since = match &resource.detail {
            ResourceDetail::Disk(disk) => disk.last_ownership_update.map_or(first_seen, |at| at.max(first_seen)),
            ResourceDetail::Vm(_) | ResourceDetail::Nic(_) => first_seen,
        };
        since.checked_add(sweep.minimum_age(resource.kind())).ok()
    }
}
