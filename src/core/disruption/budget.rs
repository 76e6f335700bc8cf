//! Disruption budgets: how many nodes of a pool may be disrupted now.
//!
//! As Karpenter's (`nodepool.go`, `disruption/helpers.go`): the least of all active budgets that cover the reason;
//! percentages round up; nodes that are not ready, being replaced or being deleted already count against them; a budget that cannot
//! be read allows nothing. Unlike Karpenter's, a budget with an empty list of reasons covers all reasons.

use super::candidate::Candidate;
use super::is_in_progress;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};
use crate::model::cron::{Schedule, ScheduleError};
use crate::model::labels::TAINT_DISRUPTED;
use crate::model::names::NodePoolName;
use crate::model::settings::DisruptionScope;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many nodes out of `total` the budgets allow to be disrupted for a reason; `u32::MAX` where none applies.
#[must_use]
pub fn allowed_disruptions(budgets: &[Budget], total: u32, reason: DisruptionReason, now: Timestamp) -> u32 {
    let mut least = u32::MAX;
    for budget in budgets {
        let covers = budget.covers(reason);
        match is_active(budget, now) {
            Err(_) => return 0,
            Ok(true) if covers => least = least.min(node_count(budget.nodes, total)),
            Ok(_) => {}
        }
    }
    least
}

/// True when a budget holds at this time: it has no window, or its schedule fired within the last `duration`.
///
/// # Errors
/// [`ScheduleError`] when the schedule cannot be read.
pub fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, ScheduleError> {
    let Some((schedule, duration)) = &budget.window else { return Ok(true) };
    let fired = Schedule::parse(schedule)?.at_or_before(now);
    Ok(fired.is_some_and(|at| now.duration_since(at) < *duration))
}

fn node_count(nodes: BudgetNodes, total: u32) -> u32 {
    match nodes {
        BudgetNodes::Count(n) => n,
        BudgetNodes::Percent(p) => {
            let scaled = (u64::from(total) * u64::from(p)).div_ceil(100);
            u32::try_from(scaled).unwrap_or(u32::MAX)
        }
    }
}

/// How many disruptions the pool's budgets still allow for a reason; `u32::MAX` where none applies, and none while they are paused.
#[must_use]
pub fn remaining_disruptions(snapshot: &Snapshot, pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> u32 {
    remaining(snapshot, (pool, reason, now), |claim, node| is_counted(snapshot, claim, node))
}

/// How many nodes of a pool count against its budgets.
#[must_use]
pub fn counted_nodes(snapshot: &Snapshot, pool: &NodePool) -> u32 {
    let counts = |claim: &&Arc<Claim>| is_counted(snapshot, claim, snapshot.node_of(claim).map(|node| &**node));
    u32::try_from(initialized(snapshot, pool).filter(counts).count()).unwrap_or(u32::MAX)
}

/// It is going, not ready or being replaced.
fn is_counted(snapshot: &Snapshot, claim: &Claim, node: Option<&Node>) -> bool {
    is_going(snapshot, claim, node) || node.is_some_and(|node| node.is_tainted(TAINT_DISRUPTED))
}

/// How many nodes that are being replaced may be deleted now: as above, but those that still wait for their replacement
/// do not count.
pub(super) fn remaining_deletions(
    snapshot: &Snapshot,
    pool: &NodePool,
    reason: DisruptionReason,
    now: Timestamp,
) -> u32 {
    remaining(snapshot, (pool, reason, now), |claim, node| is_going(snapshot, claim, node))
}

/// How many nodes of a pool count in percentages of its budgets.
pub(crate) fn initialized_nodes(snapshot: &Snapshot, pool: &NodePool) -> u32 {
    u32::try_from(initialized(snapshot, pool).count()).unwrap_or(u32::MAX)
}

fn initialized<'a>(snapshot: &'a Snapshot, pool: &'a NodePool) -> impl Iterator<Item = &'a Arc<Claim>> {
    let of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    of_pool.filter(|claim| claim.status.initialized.is_some())
}

fn is_going(snapshot: &Snapshot, claim: &Claim, node: Option<&Node>) -> bool {
    // A command on it may be its deletion, of which the watch has not told yet.
    let is_changing = is_in_progress(snapshot, &claim.name);
    !node.is_some_and(|n| n.ready) || claim.is_leaving() || is_changing
}

fn remaining(
    snapshot: &Snapshot,
    (pool, reason, now): (&NodePool, DisruptionReason, Timestamp),
    counts: impl Fn(&Claim, Option<&Node>) -> bool,
) -> u32 {
    if snapshot.pause.blocks_disruption(&DisruptionScope::new(&pool.name, reason), now) {
        return 0;
    }
    let (mut total, mut consumed) = (0, 0);
    for claim in initialized(snapshot, pool) {
        total += 1;
        let node = snapshot.node_of(claim);
        consumed += u32::from(counts(claim, node.map(|node| &**node)));
    }
    allowed_disruptions(&pool.disruption.budgets, total, reason, now).saturating_sub(consumed)
}

/// Remaining disruptions of each pool in this pass.
#[derive(Clone)]
pub(super) struct RemainingBudgets<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) now: Timestamp,
    /// Disruptions of this pass, for any reason.
    consumed: BTreeMap<NodePoolName, u32>,
    /// Remaining disruptions by the Snapshot, computed on first use.
    remaining: BTreeMap<(NodePoolName, DisruptionReason), u32>,
}

impl<'a> RemainingBudgets<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self { snapshot, now, consumed: BTreeMap::new(), remaining: BTreeMap::new() }
    }

    /// How many more nodes of a pool may be disrupted.
    pub(super) fn left(&mut self, pool: &NodePool, reason: DisruptionReason) -> u32 {
        let (snapshot, now) = (self.snapshot, self.now);
        let left = self.remaining.entry((pool.name.clone(), reason));
        let left = *left.or_insert_with(|| remaining_disruptions(snapshot, pool, reason, now));
        left.saturating_sub(self.consumed.get(&pool.name).copied().unwrap_or_default())
    }

    /// Counts a node of a pool that is going to be disrupted, which the Snapshot does not show yet.
    pub(super) fn count(&mut self, pool: NodePoolName) {
        *self.consumed.entry(pool).or_default() += 1;
    }

    /// Takes one disruption from the pool's budget; `false` when none is left.
    pub(super) fn consume(&mut self, candidate: &Candidate<'_>, reason: DisruptionReason) -> bool {
        let allowed = self.left(candidate.pool, reason) > 0;
        if allowed {
            self.count(candidate.pool.name.clone());
        }
        allowed
    }

    /// Takes one for each of these nodes; `false`, and none taken, when the budget of one is used up.
    pub(super) fn consume_all(&mut self, sources: &[&Candidate<'_>], reason: DisruptionReason) -> bool {
        let before = self.consumed.clone();
        let allowed = sources.iter().all(|source| self.consume(source, reason));
        if !allowed {
            self.consumed = before;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(nodes: BudgetNodes, window: Option<(&str, i64)>) -> Budget {
        let window = window.map(|(s, hours)| (Arc::from(s), SignedDuration::from_hours(hours)));
        Budget { nodes, reasons: None, window }
    }

    /// Every percentage of pools of up to 120 nodes: never less than its share, and less than a node more.
    #[test]
    fn a_percentage_is_its_share_rounded_up() {
        for percent in 0..=100 {
            for total in (0..=120).chain([999, 1_000, 4_999, u32::MAX]) {
                let budgets = [budget(BudgetNodes::Percent(percent), None)];
                let nodes = allowed_disruptions(&budgets, total, DisruptionReason::Empty, at("2026-08-03T12:00:00Z"));
                let (nodes, share) = (u64::from(nodes) * 100, u64::from(total) * u64::from(percent));
                assert!((share..share + 100).contains(&nodes), "{percent}% of {total}: {}", nodes / 100);
            }
        }
    }

    /// Windows of one to 30 hours from each hour of a day, looked at every half hour of three days.
    #[test]
    fn a_window_holds_from_its_hour_for_its_length_and_no_longer() {
        let midnight = at("2026-08-03T00:00:00Z");
        for hour in 0..24_i64 {
            for length in [1, 2, 8, 23, 24, 30] {
                let window = budget(BudgetNodes::Count(0), Some((&format!("0 {hour} * * *"), length)));
                for half in 0..144_i64 {
                    let now = midnight + SignedDuration::from_mins(30 * half);
                    let since = (half * 30 - hour * 60).rem_euclid(24 * 60);
                    let open = is_active(&window, now).unwrap();
                    assert_eq!(open, since < length * 60, "{hour}:00 for {length} h, at {now}");
                }
            }
        }
    }

    #[test]
    fn percentages_round_up() {
        for (total, allowed_nodes) in [(0, 0), (1, 1), (10, 1), (11, 2), (100, 10)] {
            let budgets = [budget(BudgetNodes::Percent(10), None)];
            assert_eq!(
                allowed_disruptions(&budgets, total, DisruptionReason::Empty, Timestamp::UNIX_EPOCH),
                allowed_nodes,
                "{total}"
            );
        }
    }

    #[test]
    fn a_window_holds_from_its_start_for_its_duration() {
        let nights = [budget(BudgetNodes::Count(0), Some(("0 22 * * *", 8)))];
        for (time, n) in [
            ("2026-08-03T21:59:00Z", u32::MAX),
            ("2026-08-03T22:00:00Z", 0),
            ("2026-08-04T05:59:00Z", 0),
            ("2026-08-04T06:01:00Z", u32::MAX),
        ] {
            assert_eq!(allowed_disruptions(&nights, 10, DisruptionReason::Empty, at(time)), n, "{time}");
        }
    }

    #[test]
    fn an_unreadable_schedule_allows_nothing() {
        for bad in ["every day", "0 22 * * * *", "61 * * * *"] {
            let budgets = [budget(BudgetNodes::Count(5), Some((bad, 1)))];
            assert_eq!(
                allowed_disruptions(&budgets, 10, DisruptionReason::Empty, at("2026-08-03T12:00:00Z")),
                0,
                "{bad}"
            );
        }
    }

    #[test]
    fn the_strictest_budget_for_the_reason_holds() {
        let mut drift = budget(BudgetNodes::Count(0), None);
        drift.reasons = Some(vec![DisruptionReason::Drifted]);
        let budgets = [budget(BudgetNodes::Count(3), None), drift];
        assert_eq!(allowed_disruptions(&budgets, 10, DisruptionReason::Empty, Timestamp::UNIX_EPOCH), 3);
        assert_eq!(allowed_disruptions(&budgets, 10, DisruptionReason::Drifted, Timestamp::UNIX_EPOCH), 0);
    }
}
