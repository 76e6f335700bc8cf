//! How many nodes budgets allow to be disrupted over the time to come.

use super::super::budget::allowed_disruptions;
use crate::model::cluster::pool::{Budget, DisruptionReason};
use crate::model::cron::Schedule;
use jiff::{SignedDuration, Timestamp};

/// The longest time for which budgets are looked ahead: 90 days.
pub const CALENDAR: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Most changes that are looked at: every minute of 30 days.
const MAX_CHANGES: usize = 30 * 24 * 60;

/// A time in which budgets allow equally many nodes to be disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedSpan {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// How many nodes; `u32::MAX` is any number.
    pub allowed: u32,
}

/// How many nodes out of `total` the budgets allow to be disrupted for a reason from one time until another, in order and
/// without gaps. Where budgets change at every minute, only the first 30 days are told.
#[must_use]
pub fn allowed_spans(
    budgets: &[Budget],
    total: u32,
    reason: DisruptionReason,
    (from, until): (Timestamp, Timestamp),
) -> Vec<AllowedSpan> {
    let windows = windows(budgets);
    let mut spans: Vec<AllowedSpan> = Vec::new();
    let mut at = from;
    for _ in 0..MAX_CHANGES {
        if at >= until {
            break;
        }
        let end = windows.iter().filter_map(|window| window.next_change(at)).min().map_or(until, |end| end.min(until));
        let allowed = allowed_disruptions(budgets, total, reason, at);
        match spans.last_mut().filter(|last| last.allowed == allowed) {
            Some(last) => last.until = end,
            None => spans.push(AllowedSpan { from: at, until: end, allowed }),
        }
        at = end;
    }
    spans
}

/// When a budget holds.
struct Window {
    schedule: Schedule,
    length: SignedDuration,
}

fn windows(budgets: &[Budget]) -> Vec<Window> {
    let window = |budget: &Budget| {
        let (schedule, length) = budget.window.as_ref()?;
        // One that cannot be read allows nothing at any time.
        Some(Window { schedule: Schedule::parse(schedule).ok()?, length: *length })
    };
    budgets.iter().filter_map(window).collect()
}

impl Window {
    /// When it may begin or end next.
    fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let ends = self.schedule.at_or_before(at).and_then(|fired| fired.checked_add(self.length).ok());
        // While it is open, a further hit does not change it but at its end.
        ends.filter(|ends| *ends > at).or_else(|| self.schedule.after(at))
    }
}
