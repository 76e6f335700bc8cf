//! Conditions of NodePools.

use crate::convert::common::{self, ConditionState};
use crate::types::common::Condition;
use crate::types::karpenter::NodePool;
use jiff::Timestamp;
use napkeeper_core::model::cluster::pool::{PoolCondition, PoolConditions};
use std::sync::Arc;

/// Whether anything may be launched in this cluster.
const LAUNCHES_ALLOWED: &str = "LaunchesAllowed";
/// Upstream's: whether nodes of the pool come up.
const REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

/// The conditions of a NodePool that are ours. One that is Unknown counts as absent.
pub(super) fn read_conditions(known: &[Condition]) -> PoolConditions {
    let condition = |kind: &str| {
        let found = known.iter().find(|condition| condition.kind == kind)?;
        let holds = match &*found.status {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        let (reason, message) = (Arc::from(&*found.reason), Arc::from(&*found.message));
        Some(PoolCondition { holds, reason, message })
    };
    PoolConditions {
        launches_allowed: condition(LAUNCHES_ALLOWED),
        registration_healthy: condition(REGISTRATION_HEALTHY),
    }
}

/// Writes the conditions of a NodePool that are ours.
#[must_use]
pub fn pool_conditions(pool: &NodePool, conditions: &PoolConditions, now: Timestamp) -> Vec<Condition> {
    let known = pool.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let all =
        [(LAUNCHES_ALLOWED, &conditions.launches_allowed), (REGISTRATION_HEALTHY, &conditions.registration_healthy)];
    let written = |(name, condition): (&str, &Option<PoolCondition>)| {
        let PoolCondition { holds, reason, message } = condition.as_ref()?;
        let status = if *holds { "True" } else { "False" };
        let state = ConditionState { name, status, reason, message };
        Some(common::condition(known, &state, pool.metadata.generation, now))
    };
    all.into_iter().filter_map(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::karpenter::NodePoolStatus;

    #[test]
    fn conditions_are_read_as_they_were_written_and_keep_their_time() {
        let condition =
            |holds| PoolCondition { holds, reason: Arc::from("NodesDidNotComeUp"), message: Arc::from("no") };
        let conditions = PoolConditions { launches_allowed: None, registration_healthy: Some(condition(false)) };
        let mut pool: NodePool = serde_json::from_value(serde_json::json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "general" },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
                "requirements": [],
            } } },
        }))
        .unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let written = pool_conditions(&pool, &conditions, at(10));
        assert_eq!(read_conditions(&written), conditions);
        pool.status = Some(NodePoolStatus { conditions: Some(written.clone()), ..NodePoolStatus::default() });
        assert_eq!(pool_conditions(&pool, &conditions, at(20)), written);
        let recovered = PoolConditions { registration_healthy: Some(condition(true)), ..conditions };
        let again = pool_conditions(&pool, &recovered, at(20));
        assert_eq!(again[0].last_transition_time, at(20).to_string());
        assert_eq!(read_conditions(&again), recovered);
    }
}
