//! Disruption budgets of NodePools.

use crate::karpenter::view::View;
use jiff::Timestamp;
use napkeeper_core::model::cluster::pool::{Budget, BudgetNodes, DisruptionReason};
use napkeeper_core::model::cron::Schedule;
use napkeeper_core::model::names::NodePoolName;
use std::collections::BTreeMap;

/// How many more nodes of each pool may be disrupted.
pub(in crate::karpenter) type Allowed = BTreeMap<NodePoolName, u32>;

/// What the budgets allow now, less the nodes that are not ready, leaving or marked.
pub(in crate::karpenter) fn allowed(view: &View, reason: DisruptionReason) -> Allowed {
    let of_pool = |name: &NodePoolName, budgets: &[Budget]| {
        let (mut total, mut used) = (0, 0);
        for node in &view.nodes {
            let Some(claim) = node.claim.as_ref().filter(|claim| claim.pool == *name) else { continue };
            if claim.initialized_at.is_some() && !claim.terminating {
                total += 1;
                used += u32::from(!node.ready || claim.marked);
            }
        }
        limit(budgets, total, reason, view.now).saturating_sub(used)
    };
    let pools = view.pools.iter().map(|options| &options.pool);
    pools.map(|pool| (pool.name.clone(), of_pool(&pool.name, &pool.disruption.budgets))).collect()
}

/// Takes one node from what a pool allows; false when there is none left.
pub(super) fn take(allowed: &mut Allowed, pool: &NodePoolName) -> bool {
    let left = allowed.get_mut(pool).filter(|left| **left > 0);
    left.map(|left| *left -= 1).is_some()
}

/// The least of all budgets that hold now and cover the reason; a schedule that cannot be read allows nothing.
fn limit(budgets: &[Budget], total: u32, reason: DisruptionReason, now: Timestamp) -> u32 {
    let of = |budget: &Budget| match is_active(budget, now) {
        None => Some(0),
        Some(true) if budget.covers(reason) => Some(nodes(budget.nodes, total)),
        Some(_) => None,
    };
    budgets.iter().filter_map(of).min().unwrap_or(u32::MAX)
}

/// `None` when its schedule cannot be read.
fn is_active(budget: &Budget, now: Timestamp) -> Option<bool> {
    let Some((schedule, duration)) = &budget.window else { return Some(true) };
    let fired = Schedule::parse(schedule).ok()?.at_or_before(now);
    Some(fired.is_some_and(|at| now.duration_since(at) < *duration))
}

/// Percentages are rounded up.
fn nodes(size: BudgetNodes, total: u32) -> u32 {
    match size {
        BudgetNodes::Count(count) => count,
        BudgetNodes::Percent(percent) => {
            u32::try_from((u64::from(total) * u64::from(percent)).div_ceil(100)).unwrap_or(u32::MAX)
        }
    }
}
