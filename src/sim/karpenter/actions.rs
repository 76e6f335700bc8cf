//! Applies those actions of a scenario that concern this peer too.

use super::Karpenter;
use crate::world::{Action, LoadTargets};
use napkeeper_core::model::cluster::pod::{PodOwner, PodPhase};
use napkeeper_core::model::names::NodeName;

impl Karpenter {
    pub(super) fn apply_action(&mut self, action: Action) {
        if let Action::EvictSpot { count } = action {
            return self.evict_spot(count);
        }
        let Self { cluster, jobs, limits, faults, .. } = self;
        LoadTargets { cluster, jobs, limits, faults }.apply(action, self.now);
    }

    /// Azure gives eviction notice to spot VMs, those with running pods first.
    fn evict_spot(&mut self, count: usize) {
        let mut spot: Vec<NodeName> =
            self.claims.iter().filter(|(_, claim)| claim.may_be_taken()).map(|(name, _)| name.clone()).collect();
        spot.sort_by_cached_key(|name| !self.is_busy(name));
        let at = self.now + self.timings.cloud.eviction_notice;
        for name in spot.iter().take(count) {
            if let Some(claim) = self.claims.get_mut(name) {
                claim.taken_at = Some(at);
            }
        }
    }

    fn is_busy(&self, node: &NodeName) -> bool {
        let mut pods = self.cluster.state().pods_on(node);
        pods.any(|p| p.phase == PodPhase::Running && !matches!(p.owner, PodOwner::DaemonSet | PodOwner::Static))
    }
}
