//! A maintenance window as AKS has it, of which `az aks maintenanceconfiguration show` prints `maintenanceWindow`.

use jiff::SignedDuration;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::Offset;
use napkeeper_core::model::settings as domain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When rolls of nodes may begin. A kind of roll without a window begins at any time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MaintenanceWindows {
    /// For rolls of the image of nodes: the maintenanceWindow of aksManagedNodeOSUpgradeSchedule.
    pub node_image: Option<MaintenanceWindow>,
    /// For rolls of the Kubernetes version: the maintenanceWindow of aksManagedAutoUpgradeSchedule.
    pub kubernetes_version: Option<MaintenanceWindow>,
}

/// A maintenance window, with the fields of AKS.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MaintenanceWindow {
    /// On which days it opens.
    pub schedule: Schedule,
    /// When it opens on these days, for example 22:00.
    #[schemars(regex(pattern = r"^\d{2}:\d{2}$"))]
    pub start_time: String,
    /// For how many hours it is open.
    #[schemars(range(min = 4, max = 24))]
    pub duration_hours: i64,
    /// From UTC to the times and dates of this window, for example +02:00; absent is +00:00.
    #[schemars(regex(pattern = r"^[+-]\d{2}:\d{2}$"))]
    pub utc_offset: Option<String>,
    /// Before this date it does not open; needed where an interval is more than 1, which is counted from it.
    #[schemars(regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    pub start_date: Option<String>,
    /// On these dates it is closed.
    pub not_allowed_dates: Option<Vec<DateSpan>>,
}

/// On which days a window opens: exactly one of these.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schedule {
    /// Every so many days.
    pub daily: Option<Daily>,
    /// On a weekday of every so many weeks.
    pub weekly: Option<Weekly>,
    /// On a day of every so many months. Months without it have no window.
    pub absolute_monthly: Option<AbsoluteMonthly>,
    /// On a weekday of a week of every so many months.
    pub relative_monthly: Option<RelativeMonthly>,
}

/// Every so many days.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Daily {
    /// Days from one to the next.
    #[schemars(range(min = 1, max = 7))]
    pub interval_days: i32,
}

/// On a weekday of every so many weeks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weekly {
    /// Weeks from one to the next.
    #[schemars(range(min = 1, max = 4))]
    pub interval_weeks: i32,
    /// The weekday.
    pub day_of_week: DayOfWeek,
}

/// On a day of every so many months.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AbsoluteMonthly {
    /// Months from one to the next.
    #[schemars(range(min = 1, max = 6))]
    pub interval_months: i32,
    /// The day of the month.
    #[schemars(range(min = 1, max = 31))]
    pub day_of_month: i8,
}

/// On a weekday of a week of every so many months.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RelativeMonthly {
    /// Months from one to the next.
    #[schemars(range(min = 1, max = 6))]
    pub interval_months: i32,
    /// The weekday.
    pub day_of_week: DayOfWeek,
    /// Which of the month.
    pub week_index: WeekIndex,
}

/// A weekday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names of weekdays")]
pub enum DayOfWeek {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// Which weekday of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the meaning")]
pub enum WeekIndex {
    First,
    Second,
    Third,
    Fourth,
    Last,
}

/// Dates from one to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DateSpan {
    /// The first date, for example 2026-12-23.
    #[schemars(regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    pub start: String,
    /// The last date.
    #[schemars(regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    pub end: String,
}

impl MaintenanceWindows {
    /// The windows, for the deciders.
    ///
    /// # Errors
    /// The path of the first value that is not one of AKS, and what it must be.
    pub fn read(&self) -> Result<domain::MaintenanceWindows, String> {
        let read = |name: &str, window: &Option<MaintenanceWindow>| {
            let window = window.as_ref().map(MaintenanceWindow::read).transpose();
            window.map_err(|error| format!("{name}.{error}"))
        };
        Ok(domain::MaintenanceWindows {
            node_image: read("nodeImage", &self.node_image)?,
            kubernetes_version: read("kubernetesVersion", &self.kubernetes_version)?,
        })
    }
}

impl MaintenanceWindow {
    fn read(&self) -> Result<domain::MaintenanceWindow, String> {
        let (schedule, interval) = self.schedule.read()?;
        let start_date = match &self.start_date {
            Some(text) => date("startDate", text)?,
            None if interval > 1 => {
                return Err(format!("startDate: is missing: an interval of {interval} is counted from it"));
            }
            None => Date::MIN,
        };
        let spans = self.not_allowed_dates.iter().flatten().enumerate();
        let not_allowed = spans.map(|(index, span)| {
            let path = format!("notAllowedDates[{index}]");
            let (start, end) = (date(&format!("{path}.start"), &span.start)?, date(&format!("{path}.end"), &span.end)?);
            if start > end { Err(format!("{path}: start {start} is after end {end}")) } else { Ok((start, end)) }
        });
        Ok(domain::MaintenanceWindow {
            schedule,
            start_time: time("startTime", &self.start_time)?,
            duration: SignedDuration::from_hours(within("durationHours", self.duration_hours, 4, 24)?),
            offset: self.utc_offset.as_deref().map_or(Ok(Offset::UTC), offset)?,
            start_date,
            not_allowed: not_allowed.collect::<Result<_, String>>()?,
        })
    }
}

impl Schedule {
    /// The schedule, with its interval.
    fn read(&self) -> Result<(domain::MaintenanceSchedule, i32), String> {
        use domain::MaintenanceSchedule as To;
        let interval = |path: &str, value, max| within(&format!("schedule.{path}"), value, 1, max);
        let Self { daily, weekly, absolute_monthly, relative_monthly } = self;
        Ok(match (daily, weekly, absolute_monthly, relative_monthly) {
            (Some(daily), None, None, None) => {
                let interval = interval("daily.intervalDays", daily.interval_days, 7)?;
                (To::Daily { interval }, interval)
            }
            (None, Some(weekly), None, None) => {
                let interval = interval("weekly.intervalWeeks", weekly.interval_weeks, 4)?;
                (To::Weekly { interval, weekday: weekly.day_of_week.into() }, interval)
            }
            (None, None, Some(monthly), None) => {
                let interval = interval("absoluteMonthly.intervalMonths", monthly.interval_months, 6)?;
                let day = within("schedule.absoluteMonthly.dayOfMonth", monthly.day_of_month, 1, 31)?;
                (To::AbsoluteMonthly { interval, day }, interval)
            }
            (None, None, None, Some(monthly)) => {
                let interval = interval("relativeMonthly.intervalMonths", monthly.interval_months, 6)?;
                let (weekday, week) = (monthly.day_of_week.into(), monthly.week_index.into());
                (To::RelativeMonthly { interval, weekday, week }, interval)
            }
            _ => {
                return Err("schedule: must have exactly one of daily, weekly, absoluteMonthly, relativeMonthly".into());
            }
        })
    }
}

fn within<T: PartialOrd + std::fmt::Display>(path: &str, value: T, min: T, max: T) -> Result<T, String> {
    if value < min || value > max {
        Err(format!("{path}: must be from {min} to {max}, got {value}"))
    } else {
        Ok(value)
    }
}

fn date(path: &str, text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| format!("{path}: must be a date such as 2026-12-23, got {text:?}"))
}

fn time(path: &str, text: &str) -> Result<Time, String> {
    clock(text)
        .and_then(|(hours, minutes)| Time::new(hours, minutes, 0, 0).ok())
        .ok_or_else(|| format!("{path}: must be a time such as 22:00, got {text:?}"))
}

/// Two numbers of two digits each with a colon between.
fn clock(text: &str) -> Option<(i8, i8)> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |part: &str| {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    Some((number(hours)?, number(minutes)?))
}

fn offset(text: &str) -> Result<Offset, String> {
    let read = || {
        let (sign, rest) = match text.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = clock(rest).filter(|(hours, minutes)| *hours < 24 && *minutes < 60)?;
        Offset::from_seconds(sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60)).ok()
    };
    read().ok_or_else(|| format!("utcOffset: must be an offset such as +02:00, got {text:?}"))
}

impl From<DayOfWeek> for Weekday {
    fn from(day: DayOfWeek) -> Self {
        match day {
            DayOfWeek::Monday => Self::Monday,
            DayOfWeek::Tuesday => Self::Tuesday,
            DayOfWeek::Wednesday => Self::Wednesday,
            DayOfWeek::Thursday => Self::Thursday,
            DayOfWeek::Friday => Self::Friday,
            DayOfWeek::Saturday => Self::Saturday,
            DayOfWeek::Sunday => Self::Sunday,
        }
    }
}

impl From<WeekIndex> for domain::WeekIndex {
    fn from(index: WeekIndex) -> Self {
        match index {
            WeekIndex::First => Self::Nth(1),
            WeekIndex::Second => Self::Nth(2),
            WeekIndex::Third => Self::Nth(3),
            WeekIndex::Fourth => Self::Nth(4),
            WeekIndex::Last => Self::Last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// As `az aks maintenanceconfiguration show --query maintenanceWindow` prints it, without the fields for which others stand.
    fn printed(more: &Value) -> Value {
        let mut window = json!({
            "durationHours": 8,
            "notAllowedDates": [{ "end": "2027-01-03", "start": "2026-12-23" }],
            "schedule": {
                "absoluteMonthly": null, "daily": null, "relativeMonthly": null,
                "weekly": { "dayOfWeek": "Friday", "intervalWeeks": 2 },
            },
            "startDate": "2026-08-01",
            "startTime": "22:00",
            "utcOffset": "-03:30",
        });
        for (key, value) in more.as_object().unwrap() {
            window[key] = value.clone();
        }
        window
    }

    fn read(more: &Value) -> Result<domain::MaintenanceWindow, String> {
        let window: MaintenanceWindow = serde_json::from_value(printed(more)).map_err(|error| error.to_string())?;
        window.read()
    }

    #[test]
    fn what_az_prints_is_read() {
        let window = read(&json!({})).unwrap();
        assert_eq!(window.next_open("2026-08-01T00:00:00Z".parse().unwrap()), "2026-08-08T01:30:00Z".parse().ok());
        assert_eq!(window.not_allowed.len(), 1);
        for schedule in [
            json!({ "daily": { "intervalDays": 1 } }),
            json!({ "absoluteMonthly": { "intervalMonths": 1, "dayOfMonth": 31 } }),
            json!({ "relativeMonthly": { "intervalMonths": 6, "dayOfWeek": "Sunday", "weekIndex": "Last" } }),
        ] {
            assert!(read(&json!({ "schedule": schedule, "notAllowedDates": null, "utcOffset": null })).is_ok());
        }
        let daily = json!({ "schedule": { "daily": { "intervalDays": 1 } }, "startDate": null });
        assert!(read(&daily).unwrap().is_open("2020-01-01T02:00:00Z".parse().unwrap()), "from the beginning of time");
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let daily = |days: i32| json!({ "schedule": { "daily": { "intervalDays": days } } });
        for (more, expected) in [
            (json!({ "durationHours": 3 }), "durationHours: must be from 4 to 24, got 3"),
            (json!({ "startTime": "24:00" }), "startTime: must be a time such as 22:00, got \"24:00\""),
            (json!({ "startTime": "9:00" }), "startTime: "),
            (json!({ "utcOffset": "02:00" }), "utcOffset: must be an offset such as +02:00"),
            (json!({ "utcOffset": "+02:60" }), "utcOffset: "),
            (json!({ "utcOffset": "é2:00" }), "utcOffset: "),
            (json!({ "startDate": "2026-02-30" }), "startDate: must be a date"),
            (json!({ "startDate": null }), "startDate: is missing: an interval of 2"),
            (
                json!({ "notAllowedDates": [{ "start": "2026-02-02", "end": "2026-02-01" }] }),
                "notAllowedDates[0]: start",
            ),
            (json!({ "schedule": {} }), "schedule: must have exactly one"),
            (daily(0), "schedule.daily.intervalDays: must be from 1 to 7, got 0"),
            (json!({ "schedule": { "weekly": { "intervalWeeks": 1, "dayOfWeek": "friday" } } }), "unknown variant"),
            (json!({ "durationHour": 8 }), "unknown field"),
        ] {
            let error = read(&more).unwrap_err();
            assert!(error.starts_with(expected), "{more}: {error}");
        }
    }
}
