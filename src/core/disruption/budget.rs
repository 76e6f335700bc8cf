//! Budgets: how many nodes of a pool may be disrupted now?
//!
//! As Karpenter's (`nodepool.go`, `disruption/helpers.go`): the least of all active budgets that cover the reason;
//! percentages round up; nodes that are not ready or being deleted already count against them; a budget that cannot
//! be read allows nothing. Unlike Karpenter's, a budget with an empty list of reasons covers all reasons.

use crate::cluster::Snapshot;
use crate::cluster::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Why a budget's schedule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schedule {schedule:?}: {why}; use five fields (minute hour day month weekday), in UTC, or an alias such as @daily")]
pub struct BudgetError {
    /// The schedule as written.
    pub schedule: String,
    /// What is wrong with it.
    pub why: String,
}

/// How many nodes out of `total` the budgets allow to be disrupted for a reason; `u32::MAX` where none applies.
#[must_use]
pub fn allowed(budgets: &[Budget], total: u32, reason: DisruptionReason, now: Timestamp) -> u32 {
    let mut least = u32::MAX;
    for budget in budgets {
        let covers = budget.reasons.as_ref().is_none_or(|r| r.is_empty() || r.contains(&reason));
        match active(budget, now) {
            Err(_) => return 0,
            Ok(true) if covers => least = least.min(size(budget.nodes, total)),
            Ok(_) => {}
        }
    }
    least
}

/// True when a budget holds at this time: it has no window, or its schedule fired within the last `duration`.
///
/// # Errors
/// [`BudgetError`] when the schedule cannot be read.
pub fn active(budget: &Budget, now: Timestamp) -> Result<bool, BudgetError> {
    let Some((schedule, duration)) = &budget.window else { return Ok(true) };
    Ok(fired_within(&parse(schedule)?, *duration, now))
}

fn size(nodes: BudgetNodes, total: u32) -> u32 {
    match nodes {
        BudgetNodes::Count(n) => n,
        BudgetNodes::Percent(p) => {
            let scaled = (u64::from(total) * u64::from(p)).div_ceil(100);
            u32::try_from(scaled).unwrap_or(u32::MAX)
        }
    }
}

/// Five fields or an alias: what Karpenter's pattern and its cron library both take.
fn parse(schedule: &str) -> Result<Cron, BudgetError> {
    let refused = |why: String| BudgetError { schedule: schedule.to_owned(), why };
    let alias = matches!(schedule, "@annually" | "@yearly" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly");
    if !alias && schedule.split_whitespace().count() != 5 {
        return Err(refused("it does not have five fields".into()));
    }
    let schedule = if schedule == "@midnight" { "@daily" } else { schedule };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(schedule).map_err(|e| refused(e.to_string()))
}

fn fired_within(cron: &Cron, duration: SignedDuration, now: Timestamp) -> bool {
    let Ok(start) = now.checked_sub(duration) else { return true };
    let start = start.to_zoned(TimeZone::UTC);
    cron.find_next_occurrence(&start, false).is_ok_and(|next| next.timestamp() <= now)
}

/// What the pool's budgets still allow for a reason.
pub(super) fn left(snapshot: &Snapshot, pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> u32 {
    let (mut total, mut consumed) = (0, 0);
    for claim in snapshot.claims().values().filter(|c| c.spec.pool.as_ref() == Some(&pool.name)) {
        if claim.status.initialized.is_none() {
            continue;
        }
        total += 1;
        let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_of(id));
        let ready = node.is_some_and(|n| n.ready);
        consumed += u32::from(!ready || claim.deleting_at.is_some());
    }
    allowed(&pool.disruption.budgets, total, reason, now).saturating_sub(consumed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(nodes: BudgetNodes, window: Option<(&str, i64)>) -> Budget {
        let window = window.map(|(s, hours)| (Arc::from(s), SignedDuration::from_hours(hours)));
        Budget { nodes, reasons: None, window }
    }

    #[test]
    fn percentages_round_up() {
        for (total, allowed_nodes) in [(0, 0), (1, 1), (10, 1), (11, 2), (100, 10)] {
            let budgets = [budget(BudgetNodes::Percent(10), None)];
            assert_eq!(allowed(&budgets, total, DisruptionReason::Empty, Timestamp::UNIX_EPOCH), allowed_nodes, "{total}");
        }
    }

    #[test]
    fn a_window_holds_from_its_start_for_its_duration() {
        let nights = [budget(BudgetNodes::Count(0), Some(("0 22 * * *", 8)))];
        for (time, n) in [("2026-08-03T21:59:00Z", u32::MAX), ("2026-08-03T22:00:00Z", 0), ("2026-08-04T05:59:00Z", 0), ("2026-08-04T06:01:00Z", u32::MAX)] {
            assert_eq!(allowed(&nights, 10, DisruptionReason::Empty, at(time)), n, "{time}");
        }
    }

    #[test]
    fn an_unreadable_schedule_allows_nothing() {
        for bad in ["every day", "0 22 * * * *", "61 * * * *"] {
            let budgets = [budget(BudgetNodes::Count(5), Some((bad, 1)))];
            assert_eq!(allowed(&budgets, 10, DisruptionReason::Empty, at("2026-08-03T12:00:00Z")), 0, "{bad}");
        }
    }

    #[test]
    fn the_strictest_budget_for_the_reason_holds() {
        let mut drift = budget(BudgetNodes::Count(0), None);
        drift.reasons = Some(vec![DisruptionReason::Drifted]);
        let budgets = [budget(BudgetNodes::Count(3), None), drift];
        assert_eq!(allowed(&budgets, 10, DisruptionReason::Empty, Timestamp::UNIX_EPOCH), 3);
        assert_eq!(allowed(&budgets, 10, DisruptionReason::Drifted, Timestamp::UNIX_EPOCH), 0);
    }
}
