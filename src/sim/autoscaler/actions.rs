//! Applies those actions of a scenario that concern the baseline too.

use super::Autoscaler;
use crate::world::{Action, LoadTargets};

impl Autoscaler {
    pub(super) fn apply_action(&mut self, action: Action) {
        if let Action::EvictSpot { count } | Action::EvictSpotAnnounced { count } = action {
            return self.evict_spot(count);
        }
        let Self { cluster, jobs, limits, faults, .. } = self;
        LoadTargets { cluster, jobs, limits, faults }.apply(action, self.now);
    }
}
