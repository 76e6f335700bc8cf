//! The conditions of a NodePool that can be used.

use super::usage::PoolUsage;
use super::{Reporter, class, deletion, rollout};
use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::status::{ConditionType, StatusCondition};
use std::collections::BTreeMap;

impl Reporter<'_> {
    /// All but [`ConditionType::Ready`].
    pub(super) fn pool_conditions(
        &self,
        pool: &NodePool,
        usage: &PoolUsage,
    ) -> BTreeMap<ConditionType, StatusCondition> {
        let valid = StatusCondition::holding(ConditionType::ValidationSucceeded.as_str());
        let rollout = rollout::nodes_up_to_date(pool, usage, self);
        let always = [
            (ConditionType::ValidationSucceeded, valid),
            (ConditionType::NodeClassReady, class::readiness(&pool.class, self.snapshot)),
            (ConditionType::NodesUpToDate, rollout),
        ];
        let sometimes = [
            (ConditionType::LaunchesAllowed, self.launches_allowed(pool)),
            (ConditionType::NodeRegistrationHealthy, self.registration_healthy(pool)),
            (ConditionType::ReplacementsEffective, self.replacements_effective(pool)),
            (ConditionType::NodesRemoved, deletion::nodes_removed(pool, usage, self)),
        ];
        let sometimes = sometimes.into_iter().filter_map(|(kind, condition)| Some((kind, condition?)));
        always.into_iter().chain(sometimes).collect()
    }

    /// The generation of its AKSNodeClass that its conditions are about.
    pub(super) fn class_generation(&self, pool: &NodePool) -> Option<i64> {
        let invalid = self.snapshot.invalid_classes().get(&pool.class).map(|class| class.generation);
        invalid.or_else(|| self.snapshot.classes().get(&pool.class).map(|class| class.generation))
    }

    fn launches_allowed(&self, pool: &NodePool) -> Option<StatusCondition> {
        let known = pool.status.conditions.get(ConditionType::LaunchesAllowed).cloned();
        match &self.snapshot.launch_hold {
            // It is answered within a second after the start.
            Some(LaunchHold::GroupUnread { .. }) => known,
            Some(hold) => Some(StatusCondition::failing(hold.category(), &hold.to_string())),
            None => recovered(known, "Allowed"),
        }
    }

    fn registration_healthy(&self, pool: &NodePool) -> Option<StatusCondition> {
        match self.failures.message(&pool.name) {
            Some(message) => Some(StatusCondition::failing("NodesDidNotComeUp", &message)),
            None => {
                recovered(pool.status.conditions.get(ConditionType::NodeRegistrationHealthy).cloned(), "NodeCameUp")
            }
        }
    }

    fn replacements_effective(&self, pool: &NodePool) -> Option<StatusCondition> {
        let mut loops = self.loops.iter().filter(|(name, _)| **name == pool.name).map(|(_, found)| found);
        match loops.next() {
            Some(first) => {
                let all: Vec<String> = std::iter::once(first).chain(loops).map(ToString::to_string).collect();
                Some(StatusCondition::failing("ReplacementLoop", &all.join("; ")))
            }
            None => recovered(pool.status.conditions.get(ConditionType::ReplacementsEffective).cloned(), "LoopEnded"),
        }
    }
}

/// A condition that was False is True now; one that never was is not written.
fn recovered(known: Option<StatusCondition>, reason: &str) -> Option<StatusCondition> {
    let known = known?;
    Some(if known.holds { known } else { StatusCondition::holding(reason) })
}
