//! The calendar against a walk of every minute, and against the hits of a schedule.

use super::roll::{RollNodes, roll_end};
use super::*;
use crate::model::cluster::pool::BudgetNodes;
use crate::model::cron::Schedule;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::sync::Arc;

fn budget(nodes: u32, reasons: Option<Vec<DisruptionReason>>, window: Option<(&str, i64)>) -> Budget {
    let window = window.map(|(schedule, minutes)| (Arc::from(schedule), SignedDuration::from_mins(minutes)));
    Budget { nodes: BudgetNodes::Count(nodes), reasons, window }
}

fn share(blocked: u32, limited: u32, open: u32) -> ReasonMinutes {
    ReasonMinutes { blocked, limited, unlimited: open }
}

/// Every minute of a week, by the schedules themselves.
fn walk(budgets: &[Budget], reason: DisruptionReason) -> ReasonMinutes {
    let schedule = |b: &Budget| b.window.as_ref().map(|(s, d)| (Schedule::parse(s).unwrap(), *d));
    let windows: Vec<_> = budgets.iter().map(schedule).collect();
    let start = MONDAY.to_zoned(TimeZone::UTC).unwrap().timestamp();
    let mut sum = share(0, 0, 0);
    for minute in 0..WEEK {
        let now = start + SignedDuration::from_mins(i64::from(minute));
        let holds = |window: &Option<(Schedule, SignedDuration)>| {
            window.as_ref().is_none_or(|(schedule, time)| {
                schedule.at_or_before(now).is_some_and(|fired| now.duration_since(fired) < *time)
            })
        };
        let holding: Vec<&Budget> =
            budgets.iter().zip(&windows).filter(|(b, w)| b.covers(reason) && holds(w)).map(|(b, _)| b).collect();
        match (holding.iter().any(|b| b.nodes.is_none()), holding.is_empty()) {
            (true, _) => sum.blocked += 1,
            (_, false) => sum.limited += 1,
            _ => sum.unlimited += 1,
        }
    }
    sum
}

/// The minutes of four years that lie in windows, by the schedule's own hits.
fn hits(schedule: &str, length: i64) -> u32 {
    let schedule = Schedule::parse(schedule).unwrap();
    let start = FOUR_YEARS.0.to_zoned(TimeZone::UTC).unwrap().timestamp();
    let end = start + SignedDuration::from_mins(i64::from(FOUR_YEARS.1));
    let time = SignedDuration::from_mins(length);
    let (mut sum, mut filled) = (0, start);
    let mut at = start - time - SignedDuration::from_mins(1);
    while let Some(fired) = schedule.after(at).filter(|t| *t < end) {
        let (from, upto) = (fired.max(filled), (fired + time).min(end));
        sum += upto.duration_since(from).as_mins().max(0);
        filled = filled.max(upto);
        at = fired;
    }
    u32::try_from(sum).unwrap()
}

fn window() -> impl Strategy<Value = (String, i64)> {
    let minute = prop_oneof![Just("0"), Just("17"), Just("*/10"), Just("5,50"), Just("*")];
    let hour = prop_oneof![Just("*"), Just("3"), Just("22"), Just("9-17"), Just("*/6"), Just("23")];
    let day = prop_oneof![Just("*"), Just("SAT"), Just("1-5"), Just("0"), Just("0,3"), Just("*/2")];
    let length = prop_oneof![0..200_i64, 200..2000_i64, 9000..13_000_i64];
    (minute, hour, day, length).prop_map(|(m, h, d, length)| (format!("{m} {h} * * {d}"), length))
}

fn budgets() -> impl Strategy<Value = Vec<Budget>> {
    let reasons = prop::option::of(prop::sample::subsequence(REASONS.to_vec(), 1..=2));
    let one = (0..3_u32, reasons, prop::option::weighted(0.8, window()));
    let one = one.prop_map(|(nodes, reasons, window)| {
        budget(nodes, reasons, window.as_ref().map(|(schedule, length)| (schedule.as_str(), *length)))
    });
    prop::collection::vec(one, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_week_is_divided_as_a_walk_of_its_minutes_says(budgets in budgets()) {
        let calendar = Calendar::from_budgets(&budgets).unwrap();
        prop_assert_eq!(calendar.cycle_minutes(), WEEK);
        for reason in REASONS {
            prop_assert_eq!(calendar.share(reason), walk(&budgets, reason), "{:?} {:?}", reason, budgets);
        }
    }
}

proptest! {
    #[test]
    fn budgets_that_fill_the_open_spans_leave_none_and_change_nothing_else(mut budgets in budgets()) {
        let reason = DisruptionReason::Drifted;
        let before = Calendar::from_budgets(&budgets).unwrap();
        let windows = budget_windows(&before.unlimited_intervals(reason).unwrap());
        let closing = windows.iter().map(|w| budget(0, None, Some((w.schedule.as_str(), i64::from(w.length)))));
        // A week that is open as a whole has no window: a budget without a schedule closes it.
        prop_assume!(before.share(reason).unlimited < WEEK);
        budgets.extend(closing);
        let (before, after) = (before.share(reason), Calendar::from_budgets(&budgets).unwrap().share(reason));
        prop_assert_eq!(after, share(before.blocked + before.unlimited, before.limited, 0));
    }
}

#[test]
fn a_single_window_leaves_the_rest_of_the_week_open() {
    let drifted = || Some(vec![DisruptionReason::Drifted]);
    let budgets = [budget(1, drifted(), Some(("0 3 * * 6", 120)))];
    let calendar = Calendar::from_budgets(&budgets).unwrap();
    assert_eq!(calendar.share(DisruptionReason::Drifted), share(0, 120, WEEK - 120));
    assert_eq!(calendar.share(DisruptionReason::Empty), share(0, 0, WEEK));
    assert_eq!(calendar.active_minutes(0), 120);
    assert_eq!(calendar.hours_per_week(WEEK - 120), 166);
    let spans = calendar.unlimited_intervals(DisruptionReason::Drifted).unwrap();
    assert_eq!(spans, [WeekInterval { start: 5 * DAY + 5 * 60, length: 166 * 60 }]);
    assert_eq!(budget_windows(&spans), [BudgetWindow { schedule: "0 5 * * 6".to_owned(), length: 166 * 60 }]);
}

#[test]
fn windows_of_a_working_week_are_filled_by_two_schedules() {
    let budgets = [budget(2, None, Some(("0 22 * * 1-5", 360)))];
    let spans = Calendar::from_budgets(&budgets).unwrap().unlimited_intervals(DisruptionReason::Empty).unwrap();
    let filled: Vec<(String, u32)> = budget_windows(&spans).into_iter().map(|f| (f.schedule, f.length / 60)).collect();
    assert_eq!(filled, [("0 4 * * 2,3,4,5".to_owned(), 18), ("0 4 * * 6".to_owned(), 66)]);
}

#[test]
fn schedules_that_are_not_weekly_are_counted_over_four_years() {
    for (schedule, length) in [
        ("0 0 1 * *", 24 * 60),
        ("0 0 29 2 *", 60),
        ("30 4 1,15 * MON", 600),
        ("*/5 * 1-7 6 *", 3),
        ("0 0 1 1 *", 400 * 24 * 60),
        ("0 12 * 7 *", 48 * 60),
        ("@yearly", 14 * 24 * 60),
    ] {
        let calendar = Calendar::from_budgets(&[budget(0, None, Some((schedule, length)))]).unwrap();
        assert_eq!(calendar.cycle_minutes(), FOUR_YEARS.1, "{schedule}");
        assert_eq!(calendar.active_minutes(0), hits(schedule, length), "{schedule}");
        assert_eq!(calendar.unlimited_intervals(DisruptionReason::Empty), None);
    }
}

#[test]
fn edges() {
    let active = |schedule, length| {
        Calendar::from_budgets(&[budget(0, None, Some((schedule, length)))]).unwrap().active_minutes(0)
    };
    assert_eq!(active("0 0 30 2 *", 60), 0, "no such day");
    assert_eq!(active("@hourly", 0), 0);
    assert_eq!(active("@hourly", 59), 59 * 168);
    assert_eq!(active("@hourly", 60), WEEK);
    assert_eq!(active("@daily", i64::MAX / 60), WEEK);
    // A day of the month beside a star holds back; beside a named weekday either will do.
    assert_eq!(active("0 0 13 * *", 60), 48 * 60);
    assert!(active("0 0 13 * FRI", 60) > 200 * 60);
    assert!(Calendar::from_budgets(&[budget(0, None, Some(("99 * * * *", 60)))]).is_err());
    let none = Calendar::from_budgets(&[]).unwrap();
    assert_eq!(none.share(DisruptionReason::Drifted), share(0, 0, WEEK));
    assert_eq!(
        none.unlimited_intervals(DisruptionReason::Drifted),
        Some(vec![WeekInterval { start: 0, length: WEEK }])
    );
}

#[test]
fn schedules_know_their_days_and_minutes() {
    let fires = |schedule: &str, date: Date| CronFields::parse(schedule).unwrap().fires_on(date);
    let start: Timestamp = "2025-01-01T00:00:00Z".parse().unwrap();
    for schedule in ["0 5 * * *", "0 5 */2 * *", "0 5 13 * FRI", "0 5 * 2,3 MON", "0 5 31 * *", "0 5 */3 * */2"] {
        let parsed = Schedule::parse(schedule).unwrap();
        for day in 0..800 {
            let midnight = start + SignedDuration::from_hours(24 * day);
            let next = parsed.after(midnight).unwrap();
            let expected = next.duration_since(midnight) < SignedDuration::from_hours(24);
            assert_eq!(fires(schedule, midnight.to_zoned(TimeZone::UTC).date()), expected, "{schedule} {midnight}");
        }
    }
    let minutes: Vec<u32> = CronFields::parse("*/30 1,23 * * *").unwrap().minutes_of_day().collect();
    assert_eq!(minutes, [60, 90, 1380, 1410]);
}

/// The minutes of two days by asking the budgets at each.
#[test]
fn spans_are_what_the_budgets_allow_at_every_minute() {
    let budgets = [
        budget(0, None, Some(("0 8 * * 1-5", 600))),
        budget(2, Some(vec![DisruptionReason::Drifted]), Some(("*/15 * * * *", 5))),
        budget(5, None, Some(("30 23 31 * *", 3_000))),
    ];
    let start: Timestamp = "2026-08-30T07:59:00Z".parse().unwrap();
    let at = |minute: i64| start + SignedDuration::from_mins(minute);
    for reason in REASONS {
        let spans = allowed_spans(&budgets, 10, reason, (start, at(2_880)));
        assert_eq!((spans[0].from, spans.last().unwrap().until), (start, at(2_880)));
        assert!(spans.windows(2).all(|two| two[0].until == two[1].from && two[0].allowed != two[1].allowed));
        let mut left = spans.iter().peekable();
        for minute in 0..2_880 {
            while left.peek().is_some_and(|span| span.until <= at(minute)) {
                left.next();
            }
            let expected = crate::disruption::allowed_disruptions(&budgets, 10, reason, at(minute));
            assert_eq!(left.peek().unwrap().allowed, expected, "{reason:?} at {}", at(minute));
        }
    }
}

#[test]
fn budgets_that_change_every_minute_or_cannot_be_read_end_the_search() {
    let start: Timestamp = "2026-08-03T00:00:00Z".parse().unwrap();
    let until = start + CALENDAR;
    let short =
        Budget { window: Some((Arc::from("* * * * *"), SignedDuration::from_secs(30))), ..budget(0, None, None) };
    let spans = allowed_spans(&[short], 10, DisruptionReason::Empty, (start, until));
    assert_eq!(spans.len(), 30 * 24 * 60);
    let unreadable = budget(3, None, Some(("every day", 60)));
    let spans = allowed_spans(&[unreadable], 10, DisruptionReason::Empty, (start, until));
    assert_eq!(spans, [AllowedSpan { from: start, until, allowed: 0 }]);
}

/// Every node takes a time of its own; one begins as soon as fewer are on their way than are allowed.
fn replay(spans: &[AllowedSpan], times: &[SignedDuration]) -> Option<Timestamp> {
    let (mut ends, mut waiting): (Vec<Timestamp>, _) = (Vec::new(), times.iter());
    for span in spans {
        let mut at = span.from;
        while at < span.until {
            let running = ends.iter().filter(|end| **end > at).count();
            match waiting.as_slice() {
                [] => return ends.into_iter().max(),
                _ if running < span.allowed as usize => ends.push(at + *waiting.next()?),
                _ => at += SignedDuration::from_mins(1),
            }
        }
    }
    waiting.as_slice().is_empty().then(|| ends.into_iter().max())?
}

proptest! {
    #[test]
    fn a_roll_ends_between_its_bounds(
        hour in 0..24_i64,
        length in 1..20_i64,
        allowed in 1..4_u32,
        times in prop::collection::vec(3..40_i64, 1..30),
    ) {
        let start: Timestamp = "2026-08-03T00:00:00Z".parse().unwrap();
        let schedule = format!("0 {hour} * * *");
        let budgets = [budget(0, None, Some((&schedule, length * 60))), budget(allowed, None, None)];
        let until = start + SignedDuration::from_hours(14 * 24);
        let spans = allowed_spans(&budgets, 30, DisruptionReason::Drifted, (start, until));
        let minutes: Vec<SignedDuration> = times.iter().map(|time| SignedDuration::from_mins(*time)).collect();
        let end = replay(&spans, &minutes);
        let nodes = u32::try_from(times.len()).unwrap();
        let bound = |minutes| roll_end(&spans, RollNodes { nodes, going: 0 }, SignedDuration::from_mins(minutes));
        let (earliest, latest) = (bound(3), bound(40));
        prop_assert!(earliest.is_some() && earliest <= end, "{earliest:?} {end:?}");
        prop_assert!(latest.is_none() || end <= latest, "{end:?} {latest:?}");
    }
}

#[test]
fn a_roll_that_no_budget_allows_never_ends() {
    let start: Timestamp = "2026-08-03T00:00:00Z".parse().unwrap();
    let spans = allowed_spans(&[budget(0, None, None)], 9, DisruptionReason::Drifted, (start, start + CALENDAR));
    let each = SignedDuration::from_mins(3);
    assert_eq!(roll_end(&spans, RollNodes { nodes: 1, going: 0 }, each), None);
    let free = allowed_spans(&[], 9, DisruptionReason::Drifted, (start, start + CALENDAR));
    assert_eq!(roll_end(&free, RollNodes { nodes: 9, going: 2 }, each), Some(start + each));
    let single = allowed_spans(&[budget(1, None, None)], 9, DisruptionReason::Drifted, (start, start + CALENDAR));
    assert_eq!(
        roll_end(&single, RollNodes { nodes: 2, going: 1 }, each),
        Some(start + each * 3),
        "one after the other"
    );
}
