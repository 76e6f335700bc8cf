//! A point in time, from the year 1 to the end of 9999, and how Go reads and writes it.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use std::cmp::Ordering;
use std::fmt;

/// The first second of the year 1 and the last of 9999, counted from 1970.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Seconds of 400 years, after which the calendar repeats.
const CYCLE: i64 = 400 * 31_556_952;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// A point in time. The offset that it was written with shows only in its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CelTimestamp {
    /// Since 1970.
    seconds: i64,
    nanos: u32,
    /// Minutes east of UTC.
    offset: i16,
}

impl PartialEq for CelTimestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for CelTimestamp {}

impl PartialOrd for CelTimestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CelTimestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl CelTimestamp {
    fn new(seconds: i64, nanos: u32, offset: i16) -> Option<Self> {
        SECONDS.contains(&seconds).then_some(Self { seconds, nanos, offset })
    }

    /// This many seconds after 1970.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        Self::new(seconds, 0, 0)
    }

    /// Midnight of a date.
    pub(crate) fn midnight(date: Date) -> Option<Self> {
        Self::from_civil(date.to_datetime(Time::midnight()), 0)
    }

    /// Whole seconds since 1970, rounded down.
    pub(crate) fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds of the second.
    pub(crate) fn nanos(&self) -> u32 {
        self.nanos
    }

    /// The same time without an offset.
    pub(crate) fn in_utc(&self) -> Self {
        Self { offset: 0, ..*self }
    }

    /// This many nanoseconds later.
    pub(crate) fn checked_add_nanos(&self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * SECOND + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(SECOND)).ok()?;
        Self::new(seconds, u32::try_from(total.rem_euclid(SECOND)).ok()?, self.offset)
    }

    /// Nanoseconds since another time, if 64 bits hold them.
    pub(crate) fn nanos_since(&self, other: &Self) -> Option<i64> {
        let seconds = i128::from(self.seconds) - i128::from(other.seconds);
        i64::try_from(seconds * SECOND + i128::from(self.nanos) - i128::from(other.nanos)).ok()
    }

    fn from_civil(local: DateTime, offset: i16) -> Option<Self> {
        // The crate for time knows no timestamp of the last day of 9999: go by a calendar that is a cycle earlier.
        let earlier = local.with().year(local.year().checked_sub(400)?).build().ok()?;
        let seconds = earlier.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond().div_euclid(SECOND);
        let seconds = i64::try_from(seconds).ok()? + CYCLE - i64::from(offset) * 60;
        Self::new(seconds, u32::try_from(local.subsec_nanosecond()).ok()?, offset)
    }

    /// The clock and calendar this many seconds east of UTC.
    pub(crate) fn civil(&self, east: i64) -> Option<DateTime> {
        let earlier = self.seconds.checked_add(east)?.checked_sub(CYCLE)?;
        let earlier = Timestamp::from_second(earlier).ok()?.to_zoned(TimeZone::UTC).datetime();
        let nanos = i16::try_from(self.nanos / 1_000_000).ok()?;
        earlier.with().year(earlier.year().checked_add(400)?).millisecond(nanos).build().ok()
    }

    /// Reads a time as Go reads RFC 3339: an hour of one digit and a comma before the fraction pass.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (date, clock) = text.split_once('T')?;
        let (clock, zone) = clock.split_at(clock.find(['Z', '+', '-'])?);
        Self::from_civil(parse_date(date)?.to_datetime(parse_clock(clock)?), parse_offset(zone)?)
    }

    /// Reads a field of the format `date-time`, in which a zone may be missing.
    pub(crate) fn parse_field(text: &str) -> Option<Self> {
        Self::parse(text).or_else(|| {
            let (date, clock) = text.split_once('T')?;
            Self::from_civil(parse_date(date)?.to_datetime(parse_clock(clock)?), 0)
        })
    }
}

fn parse_clock(text: &str) -> Option<Time> {
    let (clock, nanos) = match text.split_once(['.', ',']) {
        Some((_, digits)) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => return None,
        Some((clock, digits)) => (clock, format!("{digits:0<9}").get(..9)?.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let mut parts = clock.split(':');
    let hour = number(parts.next()?, 1..=2)?;
    let minute = number(parts.next()?, 2..=2)?;
    let second = number(parts.next()?, 2..=2)?;
    let valid = parts.next().is_none() && hour < 24 && minute < 60 && second < 60;
    valid.then(|| Time::new(hour, minute, second, nanos).ok())?
}

/// Reads a date such as 2026-01-31.
pub(crate) fn parse_date(text: &str) -> Option<Date> {
    if text.len() != 10 || !text.is_ascii() {
        return None;
    }
    let mut parts = text.split('-');
    let year = parts.next().filter(|y| y.len() == 4 && y.bytes().all(|b| b.is_ascii_digit()))?.parse::<i16>().ok()?;
    let (month, day) = (number(parts.next()?, 2..=2)?, number(parts.next()?, 2..=2)?);
    parts.next().is_none().then(|| Date::new(year, month, day).ok())?
}

fn number(text: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i8> {
    (lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Minutes east of UTC.
fn parse_offset(zone: &str) -> Option<i16> {
    if zone == "Z" {
        return Some(0);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    let total = i16::from(hours) * 60 + i16::from(minutes);
    (hours <= 24 && minutes < 60).then_some(if zone.starts_with('-') { -total } else { total })
}

impl fmt::Display for CelTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = self.civil(i64::from(self.offset) * 60) else { return write!(f, "{}", self.seconds) };
        let (year, month, day) = (at.year(), at.month(), at.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        match self.offset {
            0 => f.write_str("Z"),
            east => {
                let sign = if east < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", east.abs() / 60, east.abs() % 60)
            }
        }
    }
}
