//! Timestamps and durations: how Go reads and writes them, and their parts.

use super::{Entry, Style::Method, floats};
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::machine::Machine;
use crate::cel::value::Val;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

type Result<T> = std::result::Result<T, EvalError>;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry("getFullYear", Method, [1, 2], |_, args| part(args, |at| i64::from(at.year()))),
    Entry("getMonth", Method, [1, 2], |_, args| part(args, |at| i64::from(at.month()) - 1)),
    Entry("getDayOfYear", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day_of_year()) - 1)),
    Entry("getDayOfMonth", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day()) - 1)),
    Entry("getDate", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day()))),
    Entry("getDayOfWeek", Method, [1, 2], |_, args| part(args, |at| i64::from(at.weekday().to_sunday_zero_offset()))),
    Entry("getHours", Method, [1, 2], hours),
    Entry("getMinutes", Method, [1, 2], minutes),
    Entry("getSeconds", Method, [1, 2], seconds),
    Entry("getMilliseconds", Method, [1, 2], milliseconds),
];

const SECOND: i64 = 1_000_000_000;

/// The first second of the year 1 and the last of 9999: what a timestamp may be.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

fn part(args: &[Val], of: impl Fn(&DateTime) -> i64) -> Result<Val> {
    match args {
        [Val::Timestamp(at)] => Ok(Val::Int(of(&at.to_zoned(TimeZone::UTC).datetime()))),
        [Val::Timestamp(at), Val::Text(zone)] => Ok(Val::Int(of(&in_zone(*at, zone)?))),
        _ => no_overload(),
    }
}

fn hours(_: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / (3600 * SECOND))),
        _ => part(args, |at| i64::from(at.hour())),
    }
}

fn minutes(_: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / (60 * SECOND))),
        _ => part(args, |at| i64::from(at.minute())),
    }
}

fn seconds(_: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / SECOND)),
        _ => part(args, |at| i64::from(at.second())),
    }
}

fn milliseconds(_: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / 1_000_000)),
        _ => part(args, |at| i64::from(at.millisecond())),
    }
}

/// The clock and calendar of a zone: an offset such as `-02:30`, or a name.
fn in_zone(at: Timestamp, zone: &str) -> Result<DateTime> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let parsed = hours.parse::<i32>().ok().zip(minutes.parse::<i32>().ok());
        let seconds = parsed.and_then(|(h, m)| {
            let m = if zone.starts_with('-') { m.checked_neg()? } else { m };
            h.checked_mul(60)?.checked_add(m)?.checked_mul(60)
        });
        return match seconds.and_then(|s| Offset::from_seconds(s).ok()) {
            Some(offset) => Ok(offset.to_datetime(at)),
            None => failed(format!("{zone:?} is no offset of a time zone")),
        };
    }
    if matches!(zone, "UTC" | "" | "Etc/UTC" | "GMT") {
        return Ok(at.to_zoned(TimeZone::UTC).datetime());
    }
    named_zone(at, zone)
}

/// The crate `cel` carries the database of time zones: it is asked for the parts of the clock there.
fn named_zone(at: Timestamp, zone: &str) -> Result<DateTime> {
    let unknown = || EvalError::Failed(format!("unknown time zone {zone}"));
    let parts = "[t.getFullYear(z), t.getMonth(z), t.getDate(z), t.getHours(z), t.getMinutes(z), t.getSeconds(z)]";
    let program = cel::Program::compile(&parts.replace("t.", "timestamp(t).")).map_err(|_| unknown())?;
    let mut context = cel::Context::default();
    context.add_variable_from_value("t", at.to_string());
    context.add_variable_from_value("z", zone.to_owned());
    let Ok(cel::Value::List(values)) = program.execute(&context) else { return Err(unknown()) };
    let numbers: Vec<i64> =
        values.iter().filter_map(|v| if let cel::Value::Int(i) = v { Some(*i) } else { None }).collect();
    let [year, month, day, hour, minute, second] = numbers.as_slice() else { return Err(unknown()) };
    let small = |n: i64| i8::try_from(n).map_err(|_| unknown());
    let year = i16::try_from(*year).map_err(|_| unknown())?;
    DateTime::new(
        year,
        small(month + 1)?,
        small(*day)?,
        small(*hour)?,
        small(*minute)?,
        small(*second)?,
        at.subsec_nanosecond().rem_euclid(1_000_000_000),
    )
    .map_err(|_| unknown())
}

/// A time so many nanoseconds later.
pub(crate) fn later(at: Timestamp, nanos: i64) -> Result<Val> {
    match at.checked_add(jiff::SignedDuration::from_nanos(nanos)) {
        Ok(at) if SECONDS.contains(&floor_second(at)) => Ok(Val::Timestamp(at)),
        _ => failed("timestamp overflow"),
    }
}

/// From one time to another.
pub(crate) fn between(a: Timestamp, b: Timestamp) -> Result<Val> {
    i64::try_from(a.as_nanosecond() - b.as_nanosecond())
        .map_or_else(|_| failed("integer overflow"), |d| Ok(Val::Duration(d)))
}

/// Whole seconds since 1970, rounded down.
pub(crate) fn floor_second(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond().div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
}

/// The timestamp so many seconds after 1970.
pub(crate) fn from_seconds(seconds: i64) -> Result<Val> {
    match Timestamp::from_second(seconds) {
        Ok(at) if SECONDS.contains(&seconds) => Ok(Val::Timestamp(at)),
        _ => failed("timestamp overflow"),
    }
}

/// Reads a time as Go reads RFC 3339: an hour of one digit and a comma before the fraction pass.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once('T')?;
    let date = parse_date(date)?;
    let zone = clock.find(['Z', '+', '-'])?;
    let (clock, zone) = clock.split_at(zone);
    let (clock, fraction) = match clock.split_once(['.', ',']) {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let mut parts = clock.split(':');
    let hour = number(parts.next()?, 1..=2)?;
    let minute = number(parts.next()?, 2..=2)?;
    let second = number(parts.next()?, 2..=2)?;
    let nanos = match fraction {
        Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => return None,
        Some(digits) => format!("{digits:0<9}").get(..9)?.parse::<i32>().ok()?,
        None => 0,
    };
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let clock = jiff::civil::Time::new(hour, minute, second, nanos).ok()?;
    let offset = parse_offset(zone)?;
    let local = date.to_datetime(clock).to_zoned(TimeZone::UTC).ok()?;
    let at = local.timestamp().checked_sub(jiff::SignedDuration::from_secs(offset)).ok()?;
    SECONDS.contains(&floor_second(at)).then_some(at)
}

/// Reads a date such as 2026-01-31.
pub(crate) fn parse_date(text: &str) -> Option<jiff::civil::Date> {
    if text.len() != 10 || !text.is_ascii() {
        return None;
    }
    let mut parts = text.split('-');
    let year = parts.next().filter(|y| y.len() == 4 && y.bytes().all(|b| b.is_ascii_digit()))?.parse::<i16>().ok()?;
    let (month, day) = (number(parts.next()?, 2..=2)?, number(parts.next()?, 2..=2)?);
    parts.next().is_none().then(|| jiff::civil::Date::new(year, month, day).ok())?
}

fn number(text: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i8> {
    (lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn parse_offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    (hours <= 24 && minutes < 60).then_some(if zone.starts_with('-') { -seconds } else { seconds })
}

/// Writes a time in UTC with the fraction that it has.
pub(crate) fn print_timestamp(at: Timestamp) -> String {
    at.to_string()
}

/// Writes a duration in seconds.
#[expect(clippy::cast_precision_loss, reason = "Go has the seconds of a duration as a double as well")]
pub(crate) fn print_duration(nanos: i64) -> String {
    let seconds = (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9;
    format!("{seconds}s")
}

/// Reads a duration as Go does: `1h30m`, `-1.5s`, `0`, with units from `ns` to `h`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (amount, after) = one_duration(rest)?;
        total = total.checked_add(amount)?;
        rest = after;
    }
    let total = i128::try_from(total).ok()?;
    i64::try_from(if negative { -total } else { total }).ok()
}

/// One number with its unit, in nanoseconds, and what follows.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of an hour at most")]
#[expect(clippy::cast_precision_loss, reason = "units are small")]
fn one_duration(text: &str) -> Option<(u128, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    let fraction = floats::parse(&format!("0.{fraction}0")).unwrap_or(0.0);
    let amount = whole * u128::from(unit) + (fraction * unit as f64 + 1e-7) as u128;
    (amount <= 1 << 63).then_some((amount, rest))
}

/// Reads a duration as the API server reads a field of that format: as above, else any numbers with units up to weeks.
pub(crate) fn parse_lenient_duration(text: &str) -> Option<i64> {
    parse_duration(text).or_else(|| words_of_duration(text))
}

const UNITS: &[(&[&str], i64)] = &[
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], SECOND),
    (&["m", "min"], 60 * SECOND),
    (&["h", "hr", "hour"], 3600 * SECOND),
    (&["d", "day"], 24 * 3600 * SECOND),
    (&["w", "wk", "week"], 7 * 24 * 3600 * SECOND),
];

fn words_of_duration(text: &str) -> Option<i64> {
    let mut total = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let after = after.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let end = after.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let factor: i64 = digits.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, nanos) in UNITS {
            let last = names.last().is_some_and(|name| unit.starts_with(name));
            if last || names.iter().any(|name| *name == unit) {
                total = Some(total.unwrap_or(0_i64).wrapping_add(factor.wrapping_mul(*nanos)));
            }
        }
    }
    total
}

/// Reads a time as the API server reads a field of the format `date-time`.
pub(crate) fn parse_field_time(text: &str) -> Option<Timestamp> {
    parse_timestamp(text).or_else(|| {
        let local: DateTime = text.parse().ok().filter(|_| text.len() == 19)?;
        local.to_zoned(TimeZone::UTC).ok().map(|z: Zoned| z.timestamp())
    })
}
