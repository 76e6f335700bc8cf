//! Decides the conditions of NodePools that tell why nothing is launched.

use crate::lifecycle::LifecycleMemory;
use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::cluster::pool::{NodePool, PoolCondition, PoolConditions};
use crate::plan::{Command, Plan, PoolReport};
use crate::snapshot::{CommandKey, Snapshot};
use std::sync::Arc;

/// Has the conditions of NodePools written that have changed.
pub(in crate::lifecycle) fn report_pools(snapshot: &Snapshot, memory: &LifecycleMemory, plan: &mut Plan) {
    for pool in snapshot.pools().values() {
        let conditions = PoolConditions {
            launches_allowed: launches_allowed(pool, snapshot.launch_hold.as_ref()),
            registration_healthy: registration_healthy(pool, memory.pool_failures.message(&pool.name)),
        };
        if conditions != pool.conditions && !snapshot.in_progress.contains(&CommandKey::Pool(pool.name.clone())) {
            let report = PoolReport { pool: pool.name.clone(), uid: pool.uid.clone(), conditions };
            plan.push(Command::ReportPool(Box::new(report)), "its conditions have changed");
        }
    }
}

fn launches_allowed(pool: &NodePool, hold: Option<&LaunchHold>) -> Option<PoolCondition> {
    let known = pool.conditions.launches_allowed.clone();
    match hold {
        // It is answered within a second after the start.
        Some(LaunchHold::GroupUnread { .. }) => known,
        Some(hold) => Some(failing(hold.category(), &hold.to_string())),
        None => recovered(known, "Allowed"),
    }
}

fn registration_healthy(pool: &NodePool, message: Option<String>) -> Option<PoolCondition> {
    match message {
        Some(message) => Some(failing("NodesDidNotComeUp", &message)),
        None => recovered(pool.conditions.registration_healthy.clone(), "NodeCameUp"),
    }
}

fn failing(reason: &str, message: &str) -> PoolCondition {
    PoolCondition { holds: false, reason: Arc::from(reason), message: Arc::from(message) }
}

/// A condition that was False is True now; one that never was is not written.
fn recovered(known: Option<PoolCondition>, reason: &str) -> Option<PoolCondition> {
    let known = known?;
    Some(if known.holds {
        known
    } else {
        PoolCondition { holds: true, reason: Arc::from(reason), message: Arc::from("") }
    })
}
