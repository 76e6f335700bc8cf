//! Adds unhealthy nodes and notices of Azure to a history.

use super::{FAULTS, History};
use crate::random::Random;
use crate::world::Action;
use jiff::SignedDuration;
use napkeeper_core::model::cluster::node::ConditionStatus;
use std::sync::Arc;

/// Most nodes that a history has at once, so that all of them are well again when the faults end.
const MOST_NODES: usize = 60;

/// The history with unhealthy nodes and announced evictions, which are drawn apart from all else.
pub(super) fn with_node_health(mut history: History) -> History {
    let mut random = Random::of(history.setup.seed, "node health");
    let actions = &mut history.setup.actions;
    let at = |random: &mut Random| {
        let most = FAULTS.as_secs().unsigned_abs() - 1;
        SignedDuration::from_secs(i64::try_from(random.between(1_200, most)).unwrap_or(1_200))
    };
    let index = |random: &mut Random, most| usize::try_from(random.between(0, most)).unwrap_or_default();
    for _ in 0..12 {
        actions.push((at(&mut random), Action::EvictSpotAnnounced { count: 1 + index(&mut random, 3) }));
    }
    for _ in 0..12 {
        let message =
            *random.pick(&["Redeploy Scheduled: .", "Terminate Scheduled: .", "Freeze Scheduled: ."]).unwrap_or(&"");
        let nth = index(&mut random, 20);
        let mut announced = condition(nth, "VMEventScheduled", ConditionStatus::True, message);
        if let Action::SetNodeCondition { begins_in, .. } = &mut announced {
            *begins_in = random.pick(&[None, Some(10), Some(60)]).copied().flatten().map(SignedDuration::from_mins);
        }
        actions.push((at(&mut random), announced));
    }
    // From one node to more than may be repaired.
    for _ in 0..10 {
        let (begin, first, count) = (at(&mut random), index(&mut random, 20), 1 + index(&mut random, 5));
        for nth in first..first + count {
            actions.push((begin, condition(nth, NODE_HEALTHY, ConditionStatus::False, "")));
        }
        let end = begin + SignedDuration::from_mins(5);
        for nth in (first..first + count).filter(|_| random.one_in(2)) {
            actions.push((end.min(FAULTS), condition(nth, NODE_HEALTHY, ConditionStatus::True, "")));
        }
    }
    for nth in 0..MOST_NODES {
        for (kind, status) in [(NODE_HEALTHY, ConditionStatus::True), ("VMEventScheduled", ConditionStatus::False)] {
            actions.push((FAULTS, condition(nth, kind, status, "")));
        }
    }
    history
}

/// AKS's own verdict on a node.
const NODE_HEALTHY: &str = "kubernetes.azure.com/NodeHealthy";

fn condition(nth: usize, kind: &str, status: ConditionStatus, message: &str) -> Action {
    Action::SetNodeCondition { nth, kind: Arc::from(kind), status, message: Arc::from(message), begins_in: None }
}
