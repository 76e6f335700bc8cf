//! Planned maintenance windows of AKS: when rolls of the node image and of the Kubernetes version may begin.
//!
//! The meaning of the fields is that of AKS (`Microsoft.ContainerService/managedClusters/maintenanceConfigurations`). Where AKS
//! does not say it: an interval of more than one is counted from the first day of the schedule on or after `startDate`, and a
//! month without the day has no window.

use crate::model::cluster::node_template::{FieldChange, RollKind};
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::Offset;
use jiff::{SignedDuration, Span, Timestamp};
use std::fmt;

/// How far ahead an opening is searched: counted by up to six months, a day that only some months have comes every year.
const MAX_DAYS: u32 = 2 * 366;

/// Which week of a month a day is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeekIndex {
    /// The first to fourth such weekday, from 1.
    Nth(i8),
    /// The last one.
    Last,
}

/// The days on which a window opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceSchedule {
    /// Every so many days.
    Daily {
        /// Days from one to the next.
        interval: i32,
    },
    /// On a weekday of every so many weeks.
    Weekly {
        /// Weeks from one to the next.
        interval: i32,
        /// The weekday.
        weekday: Weekday,
    },
    /// On a day of every so many months.
    AbsoluteMonthly {
        /// Months from one to the next.
        interval: i32,
        /// The day of the month, from 1.
        day: i8,
    },
    /// On a weekday of a week of every so many months.
    RelativeMonthly {
        /// Months from one to the next.
        interval: i32,
        /// The weekday.
        weekday: Weekday,
        /// Which of the month.
        week: WeekIndex,
    },
}

impl MaintenanceSchedule {
    /// True where a date is such a day, whatever the interval.
    fn matches(self, date: Date) -> bool {
        match self {
            Self::Daily { .. } => true,
            Self::Weekly { weekday, .. } => date.weekday() == weekday,
            Self::AbsoluteMonthly { day, .. } => date.day() == day,
            Self::RelativeMonthly { weekday, week, .. } => {
                let is_week = match week {
                    WeekIndex::Nth(n) => (date.day() - 1) / 7 + 1 == n,
                    WeekIndex::Last => date.day() + 7 > date.days_in_month(),
                };
                is_week && date.weekday() == weekday
            }
        }
    }

    /// How many intervals of one lie between two such days, and how many are one step.
    fn steps(self, first: Date, date: Date) -> (i32, i32) {
        let days = || days_between(first, date);
        let months = (i32::from(date.year()) - i32::from(first.year())) * 12 + i32::from(date.month() - first.month());
        match self {
            Self::Daily { interval } => (days(), interval),
            Self::Weekly { interval, .. } => (days() / 7, interval),
            Self::AbsoluteMonthly { interval, .. } | Self::RelativeMonthly { interval, .. } => (months, interval),
        }
    }
}

fn days_between(from: Date, to: Date) -> i32 {
    i32::try_from(to.duration_since(from).as_hours() / 24).unwrap_or(i32::MAX)
}

/// A maintenance window of AKS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindow {
    /// The days on which it opens.
    pub schedule: MaintenanceSchedule,
    /// When it opens on these days.
    pub start_time: Time,
    /// For how long it is open; AKS allows 4 to 24 hours.
    pub duration: SignedDuration,
    /// In which all dates and times are meant.
    pub offset: Offset,
    /// Before this date it does not open.
    pub start_date: Date,
    /// On these dates, first and last, it is closed.
    pub not_allowed: Vec<(Date, Date)>,
}

impl MaintenanceWindow {
    /// True while it is open.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.next_open(now) == Some(now)
    }

    /// When it is open next: now, or when it opens; `None` where it does not within two years.
    #[must_use]
    pub fn next_open(&self, now: Timestamp) -> Option<Timestamp> {
        let local = self.offset.to_datetime(now);
        // One of the day before may last until today.
        let mut day = local.date().yesterday().ok()?.max(self.start_date);
        let last = day.saturating_add(Span::new().days(MAX_DAYS));
        let first = self.first_day()?;
        while day <= last {
            if self.opens_on(day, first)
                && let Some(open) = self.open_within(day, local)
            {
                return if open == local { Some(now) } else { self.offset.to_timestamp(open).ok() };
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    /// The first day of the schedule, from which intervals are counted.
    fn first_day(&self) -> Option<Date> {
        let mut day = self.start_date;
        for _ in 0..MAX_DAYS {
            if self.schedule.matches(day) {
                return Some(day);
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    fn opens_on(&self, day: Date, first: Date) -> bool {
        let (steps, interval) = self.schedule.steps(first, day);
        day >= first && self.schedule.matches(day) && steps % interval.max(1) == 0
    }

    /// When the window of this day is open next, from this time on. Of a night only one of its dates may be allowed.
    fn open_within(&self, day: Date, from: DateTime) -> Option<DateTime> {
        let opens = day.to_datetime(self.start_time);
        let closes = opens.checked_add(self.duration).ok()?;
        let midnight = day.tomorrow().ok()?.to_datetime(Time::midnight());
        let times = [opens.max(from), midnight.max(from)];
        times.into_iter().find(|time| *time < closes && self.allows(time.date()))
    }

    fn allows(&self, date: Date) -> bool {
        !self.not_allowed.iter().any(|(first, last)| (*first..=*last).contains(&date))
    }
}

/// The windows of both kinds of rolls; without one, rolls of that kind begin at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MaintenanceWindows {
    /// For rolls of the image of nodes (`aksManagedNodeOSUpgradeSchedule`).
    pub node_image: Option<MaintenanceWindow>,
    /// For rolls of the Kubernetes version (`aksManagedAutoUpgradeSchedule`).
    pub kubernetes_version: Option<MaintenanceWindow>,
}

/// What the replacement of a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaintenanceHold {
    /// When the window opens; `None` where it does not in the years ahead.
    pub until: Option<Timestamp>,
}

impl MaintenanceHold {
    /// Until when, for people.
    #[must_use]
    pub fn end(self) -> String {
        self.until
            .map_or_else(|| ", which does not open in the years ahead".to_owned(), |until| format!(" until {until}"))
    }
}

impl fmt::Display for MaintenanceHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits for the maintenance window{}", self.end())
    }
}

impl MaintenanceWindows {
    /// What the replacement of a node with these changes waits for; `None` where it may begin now. One change that waits for no
    /// window is enough.
    #[must_use]
    pub fn hold(&self, changes: &[FieldChange], now: Timestamp) -> Option<MaintenanceHold> {
        let mut until: Option<Timestamp> = None;
        for change in changes {
            let opens = match self.window_of(change)?.next_open(now) {
                Some(open) if open <= now => return None,
                opens => opens,
            };
            until = until.into_iter().chain(opens).min();
        }
        (!changes.is_empty()).then_some(MaintenanceHold { until })
    }

    /// The window for which a change waits.
    fn window_of(&self, change: &FieldChange) -> Option<&MaintenanceWindow> {
        match change.roll()? {
            RollKind::NodeImage => self.node_image.as_ref(),
            RollKind::KubernetesVersion => self.kubernetes_version.as_ref(),
        }
    }

    /// When the next window opens that is closed now.
    #[must_use]
    pub fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        let windows = self.node_image.iter().chain(&self.kubernetes_version);
        windows.filter_map(|window| window.next_open(now)).filter(|open| *open > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::node_template::TemplateObject;
    use jiff::ToSpan;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn window(schedule: MaintenanceSchedule, start: &str, hours: i64) -> MaintenanceWindow {
        MaintenanceWindow {
            schedule,
            start_time: start.parse().unwrap(),
            duration: SignedDuration::from_hours(hours),
            offset: Offset::UTC,
            start_date: date("2026-08-01"),
            not_allowed: Vec::new(),
        }
    }

    /// Openings one after the other, from a time on.
    fn openings(window: &MaintenanceWindow, from: &str, count: usize) -> Vec<String> {
        let mut now = at(from);
        let mut all = Vec::new();
        for _ in 0..count {
            let open = window.next_open(now).unwrap();
            all.push(open.to_string());
            now = open + window.duration;
        }
        all
    }

    #[test]
    fn each_schedule_opens_on_its_days() {
        let friday = MaintenanceSchedule::Weekly { interval: 2, weekday: Weekday::Friday };
        let weekly = window(friday, "22:00", 8);
        assert_eq!(openings(&weekly, "2026-08-01T00:00:00Z", 2), ["2026-08-07T22:00:00Z", "2026-08-21T22:00:00Z"]);
        let daily = window(MaintenanceSchedule::Daily { interval: 3 }, "01:30", 4);
        assert_eq!(openings(&daily, "2026-08-01T06:00:00Z", 2), ["2026-08-04T01:30:00Z", "2026-08-07T01:30:00Z"]);
        let day_31 = window(MaintenanceSchedule::AbsoluteMonthly { interval: 1, day: 31 }, "00:00", 4);
        let days = openings(&day_31, "2026-08-01T00:00:00Z", 3);
        assert_eq!(days, ["2026-08-31T00:00:00Z", "2026-10-31T00:00:00Z", "2026-12-31T00:00:00Z"]);
        let relative = |week| MaintenanceSchedule::RelativeMonthly { interval: 1, weekday: Weekday::Monday, week };
        let first = window(relative(WeekIndex::Nth(1)), "00:00", 4);
        assert_eq!(openings(&first, "2026-08-01T00:00:00Z", 2), ["2026-08-03T00:00:00Z", "2026-09-07T00:00:00Z"]);
        let last = window(relative(WeekIndex::Last), "00:00", 4);
        assert_eq!(openings(&last, "2026-08-01T00:00:00Z", 2), ["2026-08-31T00:00:00Z", "2026-09-28T00:00:00Z"]);
    }

    /// The example of AKS's documentation: from 23 December to 3 January at +02:00 nothing happens from 22 December, 22:00 UTC, to
    /// 3 January, 22:00 UTC.
    #[test]
    fn dates_are_meant_at_the_offset_and_the_last_one_is_included() {
        let mut daily = window(MaintenanceSchedule::Daily { interval: 1 }, "00:00", 24);
        daily.offset = Offset::from_hours(2).unwrap();
        daily.not_allowed = vec![(date("2026-12-23"), date("2027-01-03"))];
        assert!(daily.is_open(at("2026-12-22T21:59:59Z")));
        assert_eq!(daily.next_open(at("2026-12-22T22:00:00Z")), Some(at("2027-01-03T22:00:00Z")));
        assert!(!daily.is_open(at("2027-01-03T21:59:59Z")) && daily.is_open(at("2027-01-03T22:00:00Z")));
    }

    #[test]
    fn a_window_lasts_past_midnight_and_is_closed_on_the_date_that_is_not_allowed() {
        let friday = MaintenanceSchedule::Weekly { interval: 1, weekday: Weekday::Friday };
        let mut night = window(friday, "22:00", 8);
        assert!(night.is_open(at("2026-08-08T05:59:59Z")) && !night.is_open(at("2026-08-08T06:00:00Z")));
        night.not_allowed = vec![(date("2026-08-07"), date("2026-08-07"))];
        assert_eq!(night.next_open(at("2026-08-05T00:00:00Z")), Some(at("2026-08-08T00:00:00Z")));
        night.not_allowed = vec![(date("2026-08-08"), date("2026-08-08"))];
        assert!(night.is_open(at("2026-08-07T23:59:59Z")) && !night.is_open(at("2026-08-08T00:00:00Z")));
        night.start_date = date("2026-08-08");
        assert_eq!(night.next_open(at("2026-08-05T00:00:00Z")), Some(at("2026-08-14T22:00:00Z")), "it begins later");
        night.not_allowed = vec![(date("2026-01-01"), date("2099-01-01"))];
        assert_eq!(night.next_open(at("2026-08-05T00:00:00Z")), None);
    }

    fn change(object: TemplateObject, field: &str) -> FieldChange {
        FieldChange { object, field: field.to_owned(), from: None, to: None }
    }

    #[test]
    fn only_rolls_of_image_and_version_wait_each_for_its_own_window() {
        let friday = MaintenanceSchedule::Weekly { interval: 1, weekday: Weekday::Friday };
        let saturday = MaintenanceSchedule::Weekly { interval: 1, weekday: Weekday::Saturday };
        let windows = MaintenanceWindows {
            node_image: Some(window(friday, "22:00", 4)),
            kubernetes_version: Some(window(saturday, "22:00", 4)),
        };
        let image = || change(TemplateObject::Configuration, "nodes.image");
        let version = || change(TemplateObject::Kubelet, "version");
        let monday = at("2026-08-03T00:00:00Z");
        let held = |changes: &[FieldChange], now| windows.hold(changes, now).map(|hold| hold.to_string());
        let until = |time: &str| Some(format!("waits for the maintenance window until {time}"));
        assert_eq!(held(&[image()], monday), until("2026-08-07T22:00:00Z"));
        assert_eq!(held(&[version()], monday), until("2026-08-08T22:00:00Z"));
        assert_eq!(held(&[version(), image()], monday), until("2026-08-07T22:00:00Z"), "the new node has both");
        assert_eq!(held(&[version(), image()], at("2026-08-07T23:00:00Z")), None);
        assert_eq!(held(&[version()], at("2026-08-07T23:00:00Z")), until("2026-08-08T22:00:00Z"));
        for other in [
            change(TemplateObject::NodePool, "spec.template.metadata.labels[team]"),
            change(TemplateObject::NodeClass, "spec.osDiskSizeGB"),
            change(TemplateObject::NodeClass, "nodes.image"),
        ] {
            assert_eq!(held(&[image(), other.clone()], monday), None, "{other}");
        }
        assert_eq!(held(&[], monday), None);
        assert_eq!(MaintenanceWindows { node_image: None, ..windows.clone() }.hold(&[image()], monday), None);
        assert_eq!(windows.next_opening(at("2026-08-07T22:30:00Z")), Some(at("2026-08-08T22:00:00Z")));
    }

    fn schedules() -> impl Strategy<Value = MaintenanceSchedule> {
        let weekday = || (0..7_i8).prop_map(|n| Weekday::from_monday_zero_offset(n).unwrap());
        let week = prop_oneof![(1..5_i8).prop_map(WeekIndex::Nth), Just(WeekIndex::Last)];
        prop_oneof![
            (1..8_i32).prop_map(|interval| MaintenanceSchedule::Daily { interval }),
            (1..5_i32, weekday()).prop_map(|(interval, weekday)| MaintenanceSchedule::Weekly { interval, weekday }),
            (1..7_i32, 1..32_i8).prop_map(|(interval, day)| MaintenanceSchedule::AbsoluteMonthly { interval, day }),
            (1..7_i32, weekday(), week).prop_map(|(interval, weekday, week)| MaintenanceSchedule::RelativeMonthly {
                interval,
                weekday,
                week
            }),
        ]
    }

    fn windows() -> impl Strategy<Value = MaintenanceWindow> {
        let blocked = proptest::collection::vec((0..900_i32, 0..40_i32), 0..3);
        (schedules(), 0..24_i8, 4..25_i64, -23..24_i8, 0..400_i32, blocked).prop_map(
            |(schedule, hour, hours, offset, start, blocked)| {
                let day = |n: i32| date("2026-01-01").checked_add(n.days()).unwrap();
                MaintenanceWindow {
                    schedule,
                    start_time: Time::constant(hour, 0, 0, 0),
                    duration: SignedDuration::from_hours(hours),
                    offset: Offset::from_hours(offset).unwrap(),
                    start_date: day(start),
                    not_allowed: blocked.into_iter().map(|(from, days)| (day(from), day(from + days))).collect(),
                }
            },
        )
    }

    /// The hours in which a window is open, day by day from its start: every n-th of the days, or of the months, is taken.
    fn open_hours(window: &MaintenanceWindow, days: usize) -> Vec<Timestamp> {
        let mut hours = Vec::new();
        let (mut day, mut first_month, mut seen) = (window.start_date, None, 0);
        for _ in 0..days {
            let month = i32::from(day.year()) * 12 + i32::from(day.month());
            let nth = |weekday: Weekday| day.weekday() == weekday;
            let (is_day, interval, by_month) = match window.schedule {
                MaintenanceSchedule::Daily { interval } => (true, interval, false),
                MaintenanceSchedule::Weekly { interval, weekday } => (nth(weekday), interval, false),
                MaintenanceSchedule::AbsoluteMonthly { interval, day: wanted } => (day.day() == wanted, interval, true),
                MaintenanceSchedule::RelativeMonthly { interval, weekday, week } => {
                    let before = day.day()
                        - 7 * match week {
                            WeekIndex::Nth(n) => n - 1,
                            WeekIndex::Last => 0,
                        };
                    let is_week = match week {
                        WeekIndex::Nth(_) => (1..=7).contains(&before),
                        WeekIndex::Last => day.checked_add(7.days()).unwrap().month() != day.month(),
                    };
                    (nth(weekday) && is_week, interval, true)
                }
            };
            if is_day {
                let count = if by_month { month - *first_month.get_or_insert(month) } else { seen };
                seen += 1;
                if count % interval == 0 {
                    let opens = day.to_datetime(window.start_time);
                    let all = (0..window.duration.as_hours()).map(|hour| opens.checked_add(hour.hours()).unwrap());
                    let is_blocked = |at: &DateTime| {
                        window.not_allowed.iter().any(|(from, to)| at.date() >= *from && at.date() <= *to)
                    };
                    let allowed = all.filter(|at| !is_blocked(at));
                    hours.extend(allowed.map(|at| window.offset.to_timestamp(at).unwrap()));
                }
            }
            day = day.tomorrow().unwrap();
        }
        hours
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn it_is_open_in_the_hours_that_a_count_day_by_day_finds(window in windows(), from in 0..12_000_i64) {
            let hours = open_hours(&window, 1_200);
            let now = at("2026-01-01T00:30:00Z") + SignedDuration::from_hours(from);
            let half = SignedDuration::from_mins(30);
            let is_open = hours.contains(&(now - half));
            prop_assert_eq!(window.is_open(now), is_open);
            let next = if is_open { Some(now) } else { hours.iter().copied().filter(|hour| *hour > now).min() };
            if let Some(next) = next {
                prop_assert_eq!(window.next_open(now), Some(next));
            }
        }
    }
}
