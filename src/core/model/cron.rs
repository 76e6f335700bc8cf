//! Cron schedules with Karpenter's grammar, in UTC.
//!
//! The grammar is Karpenter's (`robfig/cron` v3, `ParseStandard`, with the pattern of its CRD): five fields or one of
//! seven aliases, always UTC. croner alone would accept more (seconds, years, `L`, `W`, `#`, Sunday as 7), so each
//! field is read here into its values first. An expression that works for one of us works for both.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A schedule, in UTC.
#[derive(Debug, Clone)]
pub struct Schedule(Cron);

/// The fields of a schedule, for callers that check many days at once: bit `n` is set where the value `n` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CronFields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not five fields and not an alias.
    #[error(
        "schedule {0:?}: must have five fields (minute hour day month weekday) or be one of @hourly, @daily, \
         @midnight, @weekly, @monthly, @yearly, @annually"
    )]
    Shape(String),
    /// A field has a value that it must not have.
    #[error("schedule {text:?}: {field} {value:?} must be values, ranges or steps from {min} to {max}")]
    Field {
        /// The whole text.
        text: String,
        /// Which field.
        field: &'static str,
        /// The field as given.
        value: String,
        /// Least value.
        min: u8,
        /// Greatest value.
        max: u8,
    },
    /// The fields fit, yet there is no such time.
    #[error("schedule {0:?}: never matches a time")]
    Never(String),
}

struct CronField {
    name: &'static str,
    min: u8,
    max: u8,
    words: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [CronField; 5] = [
    CronField { name: "minute", min: 0, max: 59, words: &[] },
    CronField { name: "hour", min: 0, max: 23, words: &[] },
    CronField { name: "day of month", min: 1, max: 31, words: &[] },
    CronField { name: "month", min: 1, max: 12, words: &MONTHS },
    CronField { name: "weekday", min: 0, max: 6, words: &DAYS },
];

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// [`ScheduleError`] names the field that does not fit.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let canonical = fields(text)?.map(|field| field.canonical());
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed = parser.parse(&canonical.join(" "));
        parsed.map(Self).map_err(|_| ScheduleError::Never(text.to_owned()))
    }

    /// The last time at or before `at`.
    #[must_use]
    pub fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let at = at.to_zoned(TimeZone::UTC);
        let found = self.0.find_previous_occurrence(&at, true).ok()?;
        Some(found.timestamp())
    }

    /// The first time after `at`.
    #[must_use]
    pub fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let at = at.to_zoned(TimeZone::UTC);
        let found = self.0.find_next_occurrence(&at, false).ok()?;
        Some(found.timestamp())
    }
}

impl CronFields {
    /// Reads a schedule, by the rules of [`Schedule::parse`].
    ///
    /// # Errors
    /// [`ScheduleError`] names the field that does not fit. A date that never comes is none.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let [minutes, hours, days, months, weekdays] = fields(text)?;
        Ok(Self {
            minutes: minutes.values,
            hours: hours.values,
            days: days.values,
            months: months.values,
            weekdays: weekdays.values,
            any_day: days.star,
            any_weekday: weekdays.star,
        })
    }

    /// True when every week is like any other: neither days of the month nor months are named.
    #[must_use]
    pub fn is_weekly(&self) -> bool {
        const ALL_MONTHS: u64 = 0b1_1111_1111_1110;
        // A named day of the month that stands beside a star for the weekday, or the other way about, holds back.
        self.any_day && self.months == ALL_MONTHS
    }

    /// True when it fires on a date at all. Day of the month and weekday must both fit where one of them is `*`; else
    /// either will do.
    #[must_use]
    pub fn fires_on(&self, date: Date) -> bool {
        let CronFields { days, months, weekdays, any_day, any_weekday, .. } = *self;
        let day = has(days, date.day());
        let weekday = has(weekdays, date.weekday().to_sunday_zero_offset());
        let fits = if any_day || any_weekday { day && weekday } else { day || weekday };
        fits && has(months, date.month())
    }

    /// Minutes after midnight at which it fires, on the days that it fires on, in order.
    pub fn minutes_of_day(&self) -> impl Iterator<Item = u32> + '_ {
        let hours = (0..24).filter(|h| has(self.hours, *h));
        hours.flat_map(|hour| {
            let minutes = (0..60).filter(|minute| has(self.minutes, *minute));
            minutes.map(move |minute| u32::from(hour.unsigned_abs()) * 60 + u32::from(minute.unsigned_abs()))
        })
    }
}

/// The fields of a schedule, in order.
fn fields(text: &str) -> Result<[FieldValues; 5], ScheduleError> {
    let plain = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    let parts: Vec<&str> = plain.split_whitespace().collect();
    let shape = || ScheduleError::Shape(text.to_owned());
    let parts: [&str; 5] = parts.try_into().map_err(|_| shape())?;
    let mut read = Vec::with_capacity(FIELDS.len());
    for (part, field) in parts.into_iter().zip(&FIELDS) {
        read.push(field.read(part).ok_or_else(|| ScheduleError::Field {
            text: text.to_owned(),
            field: field.name,
            value: part.to_owned(),
            min: field.min,
            max: field.max,
        })?);
    }
    read.try_into().map_err(|_| shape())
}

/// True when a set of values has this one.
fn has(values: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| values >> value & 1 == 1)
}

/// The values that a field allows.
struct FieldValues {
    /// Bit `n` for the value `n`.
    values: u64,
    /// It is unrestricted: a star in a day field decides whether day and weekday must both match, or either.
    star: bool,
}

impl FieldValues {
    /// A plain list of numbers, or `*`.
    fn canonical(&self) -> String {
        if self.star {
            return "*".to_owned();
        }
        let listed: Vec<String> = (0..64).filter(|n| self.values >> n & 1 == 1).map(|n| n.to_string()).collect();
        listed.join(",")
    }
}

impl CronField {
    fn read(&self, text: &str) -> Option<FieldValues> {
        let mut values = 0;
        let mut star = false;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(number(step).filter(|s| *s > 0)?)),
                None => (item, None),
            };
            let (low, high) = match range.split_once('-') {
                Some((low, high)) => (self.value(low)?, self.value(high)?),
                None if range == "*" || range == "?" => {
                    star |= step.is_none_or(|s| s == 1);
                    (self.min, self.max)
                }
                None => {
                    let low = self.value(range)?;
                    (low, if step.is_some() { self.max } else { low })
                }
            };
            if low > high || low < self.min || high > self.max {
                return None;
            }
            values = (low..=high).step_by(usize::from(step.unwrap_or(1))).fold(values, |all, n| all | 1 << n);
        }
        Some(FieldValues { values, star })
    }

    fn value(&self, text: &str) -> Option<u8> {
        let word = self.words.iter().position(|w| text.eq_ignore_ascii_case(w));
        match word {
            Some(at) => u8::try_from(at).ok().map(|at| at + self.min),
            None => number(text),
        }
    }
}

/// Digits only: `parse` alone would take `+5`.
fn number(text: &str) -> Option<u8> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn schedules_that_karpenter_rejects_are_rejected() {
        for bad in [
            "",
            "* * * *",
            "* * * * * *",
            "@every 1h",
            "@reboot",
            "@Daily",
            "0 0 * * 7",
            "0 0 L * *",
            "0 0 15W * *",
            "0 0 * * 1#2",
            "60 * * * *",
            "0 24 * * *",
            "0 0 0 * *",
            "0 0 * 13 *",
            "5-1 * * * *",
            "*/0 * * * *",
            "+5 * * * *",
            "0 0 * * FRI-MON",
            "1,,2 * * * *",
            "a * * * *",
            "TZ=UTC 0 0 * *",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_are_found_on_both_sides() {
        for (text, before, after) in [
            ("@daily", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"),
            ("0 2 * * MON-FRI", "2026-03-04T02:00:00Z", "2026-03-05T02:00:00Z"),
            ("5/20 * * * ?", "2026-03-04T10:25:00Z", "2026-03-04T10:45:00Z"),
            ("@weekly", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"),
            // Day and weekday both given: either will do, as cron has it since Vixie.
            ("0 0 13 * FRI", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z"),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            let now = at("2026-03-04T10:30:00Z");
            assert_eq!(schedule.at_or_before(now), Some(at(before)), "{text}");
            assert_eq!(schedule.after(now), Some(at(after)), "{text}");
        }
    }

    #[test]
    fn a_schedule_fires_at_its_own_time_and_then_later() {
        let schedule = Schedule::parse("30 10 * * *").unwrap();
        let now = at("2026-03-04T10:30:00Z");
        assert_eq!(schedule.at_or_before(now), Some(now));
        assert_eq!(schedule.after(now), Some(at("2026-03-05T10:30:00Z")));
    }

    #[test]
    fn a_day_that_never_comes_gives_no_time() {
        let schedule = Schedule::parse("0 0 31 2 *").unwrap();
        assert_eq!(schedule.after(at("2026-03-04T10:30:00Z")), None);
    }
}
