//! How far the nodes of a NodePool follow its template and its AKSNodeClass.
//!
//! NodePool has no status field for it, and an API server prunes one that its definition lacks: so it is a condition, named
//! as Cluster API names its like (`MachinesUpToDate`).

use super::Reporter;
use super::deletion::what_keeps;
use super::usage::PoolUsage;
use crate::disruption::{DriftDetector, ReplacementLoop, budget_left};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::status::{ConditionType, StatusCondition};
use crate::model::settings::{DisruptionScope, MaintenanceHold, MaintenanceWindows};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most different obstacles that a message names.
const MAX_OBSTACLES: usize = 3;
/// Most waiting nodes that are examined for what keeps them, those first that drifted first.
const MAX_EXAMINED: usize = 20;

/// The condition [`ConditionType::NodesUpToDate`]: False while a node is drifted, with what holds it up.
pub(super) fn nodes_up_to_date(pool: &NodePool, usage: &PoolUsage, reporter: &Reporter<'_>) -> StatusCondition {
    if usage.drifted.is_empty() {
        return StatusCondition::holding(ConditionType::NodesUpToDate.as_str());
    }
    let (total, count) = (usage.nodes, usage.drifted.len());
    let updated = total.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX));
    let mut message = format!("{count} of {total} nodes {} drifted, {updated} up to date", is_or_are(count));
    for obstacle in obstacles(pool, &usage.drifted, reporter) {
        message.push_str("; ");
        message.push_str(&obstacle);
    }
    StatusCondition::failing("NodesDrifted", &message)
}

/// What holds up drifted nodes.
fn obstacles(pool: &NodePool, drifted: &[Arc<Claim>], reporter: &Reporter<'_>) -> Vec<String> {
    let Reporter { snapshot, now, .. } = *reporter;
    let is_leaving = |claim: &Claim| claim.is_leaving() || claim.status.disrupted.is_some();
    let (leaving, waiting): (Vec<&Claim>, Vec<&Claim>) =
        drifted.iter().map(|claim| &**claim).partition(|claim| is_leaving(claim));
    let mut blocked: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in leaving {
        let drained = claim.status.termination.drained.as_ref();
        if let Some(drained) = drained.filter(|drained| drained.holds == Some(false) && !drained.message.is_empty()) {
            *blocked.entry(&*drained.message).or_default() += 1;
        }
    }
    let mut all: Vec<String> = Vec::new();
    let count: usize = blocked.values().sum();
    if count > 0 {
        let named: Vec<&str> = blocked.keys().copied().take(MAX_OBSTACLES).collect();
        all.push(format!("the drain of {count} is blocked: {}", named.join(", ")));
    }
    let (held, waiting) = held_by_windows(pool, waiting, reporter);
    if let Some((count, hold)) = held {
        let waits = if count == 1 { "waits" } else { "wait" };
        all.push(format!("{count} {waits} for the maintenance window{}", hold.end()));
    }
    if let Some(found) = held_by_loop(pool, &waiting, reporter) {
        all.push(format!("replacements have had no effect, and the next one waits until {}", found.next_at));
    }
    if !waiting.is_empty() {
        let drifted = DisruptionScope::new(&pool.name, DisruptionReason::Drifted);
        if let Some(paused) = snapshot.pause.disruption_pause(&drifted, now) {
            all.push(format!("{} waiting: disruption is paused: {paused}", is_or_are_counted(waiting.len())));
        } else if budget_left(snapshot, pool, DisruptionReason::Drifted, now) == 0 {
            let message = "spec.disruption.budgets allow no more nodes to be disrupted now";
            all.push(format!("{} waiting: {message}", is_or_are_counted(waiting.len())));
        } else if pool.replicas.is_none() {
            all.extend(kept(waiting, reporter));
        }
    }
    all
}

/// Which of these nodes cannot be replaced although budgets allow it, until somebody does something, and why. NodePools of a fixed
/// size have other conditions.
fn kept(mut waiting: Vec<&Claim>, reporter: &Reporter<'_>) -> Option<String> {
    let Reporter { snapshot, now, irreplaceable, .. } = *reporter;
    waiting.sort_by_key(|claim| (claim.status.drifted.as_ref().map(|drifted| drifted.since), &claim.name));
    let examined = waiting.iter().take(MAX_EXAMINED);
    let kept = examined.filter_map(|claim| {
        let (_, why) = what_keeps(snapshot, claim, irreplaceable, now)?;
        Some(format!("node {}: {why}", snapshot.node_of(claim)?.name))
    });
    let mut texts: Vec<String> = kept.collect();
    let count = texts.len();
    let at_least = if waiting.len() > count { "at least " } else { "" };
    texts.truncate(MAX_OBSTACLES);
    (count > 0).then(|| format!("{at_least}{count} cannot be replaced: {}", texts.join("; ")))
}

/// How many of these nodes wait for a maintenance window, and the first that opens for one; and the others.
fn held_by_windows<'c>(
    pool: &NodePool,
    waiting: Vec<&'c Claim>,
    reporter: &Reporter<'_>,
) -> (Option<(usize, MaintenanceHold)>, Vec<&'c Claim>) {
    if *reporter.windows == MaintenanceWindows::default() {
        return (None, waiting);
    }
    let detector = DriftDetector::new(pool, reporter.snapshot, reporter.now);
    let (mut holds, mut others) = (Vec::new(), Vec::new());
    for claim in waiting {
        let drift = detector.drift_of(claim);
        match drift.and_then(|drift| drift.maintenance_hold(reporter.windows, reporter.now)) {
            Some(hold) => holds.push(hold),
            None => others.push(claim),
        }
    }
    let first = holds.iter().copied().min_by_key(|hold| hold.until.unwrap_or(Timestamp::MAX));
    (first.map(|first| (holds.len(), first)), others)
}

/// The loop for which one of these nodes waits, that which goes on first.
fn held_by_loop<'r>(pool: &NodePool, waiting: &[&Claim], reporter: &Reporter<'r>) -> Option<&'r ReplacementLoop> {
    if reporter.loops.is_empty() {
        return None;
    }
    let detector = DriftDetector::new(pool, reporter.snapshot, reporter.now);
    let drifts = waiting.iter().filter_map(|claim| detector.drift_of(claim));
    let loops = drifts.filter_map(|drift| reporter.loops.get(&drift.cause(pool).in_pool(&pool.name)));
    loops.filter(|found| found.waits).min_by_key(|found| found.next_at)
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn is_or_are_counted(count: usize) -> String {
    format!("{count} {}", is_or_are(count))
}
