//! Minutes per week in which budgets block or limit each reason.
//!
//! Counted by the minute, the resolution of schedules and durations. If all schedules are weekly, one week suffices;
//! otherwise four years are counted, so that a 29 February is included.

mod forecast;
mod roll;
mod spans;

use crate::model::cluster::pool::{Budget, DisruptionReason};
use crate::model::cron::{CronFields, ScheduleError};
pub use forecast::{NodeExpiry, PoolForecast, RollForecast, forecast};
use jiff::civil::Date;
use jiff::{SignedDuration, ToSpan};
pub use spans::{AllowedSpan, CALENDAR, allowed_spans};

/// Minutes of a day.
const DAY: u32 = 24 * 60;
/// Minutes of a week.
pub const WEEK: u32 = 7 * DAY;
/// A Monday: where a week begins.
const MONDAY: Date = Date::constant(2025, 1, 6);
/// Four years, one of them a leap year.
const FOUR_YEARS: (Date, u32) = (Date::constant(2025, 1, 1), 1461 * DAY);

/// Reasons in the order of a calendar.
pub const REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Underutilized, DisruptionReason::Empty, DisruptionReason::Drifted];

/// Minutes in which the budgets of a pool allow disruptions, over one cycle of their schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    cycle: u32,
    reasons: [BudgetCoverage; 3],
    active: Vec<u32>,
}

/// How a cycle is divided for one reason, in minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasonMinutes {
    /// Some budget of no nodes holds.
    pub blocked: u32,
    /// Budgets apply, and none of them is zero.
    pub limited: u32,
    /// No budget applies: all nodes may be disrupted at once.
    pub unlimited: u32,
}

/// A span of the week in which no budget holds, in minutes from Monday 00:00 UTC. It may end in the next week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeekInterval {
    /// First minute, below [`WEEK`].
    pub start: u32,
    /// How many minutes.
    pub length: u32,
}

/// A schedule and its duration in minutes, for a budget that fills spans of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetWindow {
    /// Five fields, UTC.
    pub schedule: String,
    /// Minutes.
    pub length: u32,
}

/// The minutes at which budgets hold for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BudgetCoverage {
    blocked: MinuteSet,
    any: MinuteSet,
}

impl Calendar {
    /// The calendar of some budgets.
    ///
    /// # Errors
    /// [`ScheduleError`] when a schedule cannot be read; the pool then allows no disruption at all.
    pub fn from_budgets(budgets: &[Budget]) -> Result<Self, ScheduleError> {
        let mut windows = Vec::with_capacity(budgets.len());
        for budget in budgets {
            let window = budget.window.as_ref();
            windows.push(window.map(|(text, time)| Ok((CronFields::parse(text)?, minutes(*time)))).transpose()?);
        }
        let weekly = windows.iter().flatten().all(|(schedule, _)| schedule.is_weekly());
        let (first, cycle) = if weekly { (MONDAY, WEEK) } else { FOUR_YEARS };
        let empty = || BudgetCoverage { blocked: MinuteSet::none(cycle), any: MinuteSet::none(cycle) };
        let mut reasons = [empty(), empty(), empty()];
        let mut active = Vec::with_capacity(budgets.len());
        for (budget, window) in budgets.iter().zip(windows) {
            let mut holds = MinuteSet::none(cycle);
            match window {
                Some((schedule, length)) => holds.add_firings(&schedule, length, first),
                None => holds.fill(0, cycle),
            }
            active.push(holds.count());
            for (reason, cover) in REASONS.iter().zip(&mut reasons) {
                if budget.covers(*reason) {
                    cover.any.add(&holds);
                    if budget.nodes.is_none() {
                        cover.blocked.add(&holds);
                    }
                }
            }
        }
        Ok(Self { cycle, reasons, active })
    }

    /// How the cycle is divided for a reason.
    #[must_use]
    pub fn share(&self, reason: DisruptionReason) -> ReasonMinutes {
        let (blocked, any) = self.coverage(reason).map_or((0, 0), |c| (c.blocked.count(), c.any.count()));
        ReasonMinutes { blocked, limited: any - blocked, unlimited: self.cycle - any }
    }

    /// Minutes of the cycle.
    #[must_use]
    pub fn cycle_minutes(&self) -> u32 {
        self.cycle
    }

    /// Minutes of the cycle at which a budget, by its index, holds.
    #[must_use]
    pub fn active_minutes(&self, budget: usize) -> u32 {
        self.active.get(budget).copied().unwrap_or(0)
    }

    /// Minutes of the cycle as hours a week, rounded to the nearest.
    #[must_use]
    pub fn hours_per_week(&self, minutes: u32) -> u32 {
        let scaled = u64::from(minutes) * u64::from(WEEK) * 2 + u64::from(self.cycle) * 60;
        u32::try_from(scaled / (u64::from(self.cycle) * 120)).unwrap_or(u32::MAX)
    }

    /// The spans of the week in which no budget holds for a reason, in order; `None` where weeks differ.
    #[must_use]
    pub fn unlimited_intervals(&self, reason: DisruptionReason) -> Option<Vec<WeekInterval>> {
        (self.cycle == WEEK).then(|| self.coverage(reason).map(|c| c.any.gaps()).unwrap_or_default())
    }

    fn coverage(&self, reason: DisruptionReason) -> Option<&BudgetCoverage> {
        REASONS.iter().zip(&self.reasons).find_map(|(r, cover)| (*r == reason).then_some(cover))
    }
}

/// Windows that hold just in these spans of the week: one for all that begin at the same time of the day and are
/// equally long.
#[must_use]
pub fn budget_windows(spans: &[WeekInterval]) -> Vec<BudgetWindow> {
    let mut groups: Vec<(u32, u32, Vec<u32>)> = Vec::new();
    for span in spans {
        let (day, minute) = (span.start / DAY, span.start % DAY);
        match groups.iter_mut().find(|(at, length, _)| (*at, *length) == (minute, span.length)) {
            Some((_, _, days)) => days.push(day),
            None => groups.push((minute, span.length, vec![day])),
        }
    }
    let schedule = |(minute, length, days): (u32, u32, Vec<u32>)| {
        // Cron counts from Sunday.
        let mut days: Vec<u32> = days.into_iter().map(|d| (d + 1) % 7).collect();
        days.sort_unstable();
        let listed: Vec<String> = days.iter().map(u32::to_string).collect();
        let days = if days.len() == 7 { "*".to_owned() } else { listed.join(",") };
        BudgetWindow { schedule: format!("{} {} * * {days}", minute % 60, minute / 60), length }
    };
    groups.into_iter().map(schedule).collect()
}

fn minutes(time: SignedDuration) -> u32 {
    let seconds = u64::try_from(time.as_secs()).unwrap_or(0);
    u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX)
}

/// A set of the minutes of a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MinuteSet {
    words: Vec<u64>,
    cycle: u32,
}

impl MinuteSet {
    fn none(cycle: u32) -> Self {
        Self { words: vec![0; cycle.div_ceil(64) as usize], cycle }
    }

    /// Adds the minutes from `start` up to, not including, `end`.
    fn fill(&mut self, start: u32, end: u32) {
        let (mut at, end) = (start, end.min(self.cycle));
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let upto = (end - word * 64).min(64);
            let mask = (u64::MAX << bit) & (u64::MAX >> (64 - upto));
            if let Some(word) = self.words.get_mut(word as usize) {
                *word |= mask;
            }
            at = word * 64 + upto;
        }
    }

    /// Adds all minutes in which a window is open, including one that opened before the cycle.
    fn add_firings(&mut self, schedule: &CronFields, length: u32, first: Date) {
        let length = length.min(self.cycle);
        let lead = length.div_ceil(DAY);
        // A schedule that fires every few minutes would fill the same minutes repeatedly: merge adjacent spans of each
        // day.
        let mut spans: Vec<(u32, u32)> = Vec::new();
        for minute in schedule.minutes_of_day() {
            match spans.last_mut() {
                Some((_, end)) if minute <= *end => *end = minute + length,
                _ if length > 0 => spans.push((minute, minute + length)),
                _ => {}
            }
        }
        let Ok(mut date) = first.checked_sub(i64::from(lead).days()) else { return };
        for day in 0..lead + self.cycle / DAY {
            if day > 0 {
                let Ok(next) = date.tomorrow() else { return };
                date = next;
            }
            if schedule.fires_on(date) {
                for (start, end) in &spans {
                    let (start, end) = (day * DAY + start, day * DAY + end);
                    let lead = lead * DAY;
                    self.fill(start.saturating_sub(lead), end.saturating_sub(lead));
                }
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    fn has(&self, minute: u32) -> bool {
        self.words.get((minute / 64) as usize).is_some_and(|w| w >> (minute % 64) & 1 == 1)
    }

    /// The spans that are not in the set, where the end of the cycle joins its beginning.
    fn gaps(&self) -> Vec<WeekInterval> {
        let mut found: Vec<WeekInterval> = Vec::new();
        for minute in (0..self.cycle).filter(|m| !self.has(*m)) {
            match found.last_mut() {
                Some(span) if span.start + span.length == minute => span.length += 1,
                _ => found.push(WeekInterval { start: minute, length: 1 }),
            }
        }
        let joined = found.len() > 1
            && found.first().is_some_and(|s| s.start == 0)
            && found.last().is_some_and(|s| s.start + s.length == self.cycle);
        if joined {
            let first = found.remove(0);
            if let Some(last) = found.last_mut() {
                last.length += first.length;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
