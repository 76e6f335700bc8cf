//! Timestamps and durations: how Go reads and writes them, and their parts.

pub(crate) mod timestamp;

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::convert::floats;
use crate::cel::library::function::CallStyle::Method;
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;
use jiff::civil::{Date, DateTime, Time};
use timestamp::CelTimestamp;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("getFullYear", Method, [1, 2], |_, args| part(args, |at| i64::from(at.year()))),
    FunctionDef("getMonth", Method, [1, 2], |_, args| part(args, |at| i64::from(at.month()) - 1)),
    FunctionDef("getDayOfYear", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day_of_year()) - 1)),
    FunctionDef("getDayOfMonth", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day()) - 1)),
    FunctionDef("getDate", Method, [1, 2], |_, args| part(args, |at| i64::from(at.day()))),
    FunctionDef("getDayOfWeek", Method, [1, 2], |_, args| {
        part(args, |at| i64::from(at.weekday().to_sunday_zero_offset()))
    }),
    FunctionDef("getHours", Method, [1, 2], hours),
    FunctionDef("getMinutes", Method, [1, 2], minutes),
    FunctionDef("getSeconds", Method, [1, 2], seconds),
    FunctionDef("getMilliseconds", Method, [1, 2], milliseconds),
];

const SECOND: i64 = 1_000_000_000;

fn part(args: &[Val], of: impl Fn(&DateTime) -> i64) -> Result<Val> {
    let civil = match args {
        [Val::Timestamp(at)] => at.civil(0),
        [Val::Timestamp(at), Val::Text(zone)] => in_zone(at, zone)?,
        _ => return no_overload(),
    };
    civil.map_or_else(|| failed("timestamp overflow"), |civil| Ok(Val::Int(of(&civil))))
}

fn hours(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / (3600 * SECOND))),
        _ => part(args, |at| i64::from(at.hour())),
    }
}

fn minutes(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / (60 * SECOND))),
        _ => part(args, |at| i64::from(at.minute())),
    }
}

fn seconds(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / SECOND)),
        _ => part(args, |at| i64::from(at.second())),
    }
}

fn milliseconds(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(d)] => Ok(Val::Int(d / 1_000_000)),
        _ => part(args, |at| i64::from(at.millisecond())),
    }
}

/// The clock and calendar of a zone: an offset such as `-02:30`, or a name.
fn in_zone(at: &CelTimestamp, zone: &str) -> Result<Option<DateTime>> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let parsed = hours.parse::<i64>().ok().zip(minutes.parse::<i64>().ok());
        let seconds = parsed.and_then(|(h, m)| {
            let m = if zone.starts_with('-') { m.checked_neg()? } else { m };
            h.checked_mul(60)?.checked_add(m)?.checked_mul(60)
        });
        return match seconds {
            Some(seconds) => Ok(at.civil(seconds)),
            None => failed(format!("{zone:?} is not a time zone offset")),
        };
    }
    if matches!(zone, "UTC" | "") {
        return Ok(at.civil(0));
    }
    named_zone(at, zone).map(Some)
}

/// The crate `cel` contains the time zone database, so it computes the local time.
fn named_zone(at: &CelTimestamp, zone: &str) -> Result<DateTime> {
    let unknown = || EvalError::Failed(format!("unknown time zone {zone}"));
    let parts = ["getFullYear", "getMonth", "getDate", "getHours", "getMinutes", "getSeconds"];
    let mut context = cel::Context::default();
    context.add_variable_from_value("t", at.in_utc().to_string());
    context.add_variable_from_value("z", zone.to_owned());
    let ask = |part: &&str| {
        let program = cel::Program::compile(&format!("timestamp(t).{part}(z)")).ok()?;
        match program.execute(&context) {
            Ok(cel::Value::Int(number)) => Some(number),
            _ => None,
        }
    };
    let numbers: Vec<i64> = parts.iter().map_while(ask).collect();
    let [year, month, day, hour, minute, second] = numbers.as_slice() else { return Err(unknown()) };
    let small = |n: i64| i8::try_from(n).map_err(|_| unknown());
    let year = i16::try_from(*year).map_err(|_| unknown())?;
    let date = Date::new(year, small(month + 1)?, small(*day)?).map_err(|_| unknown())?;
    let nanos = i32::try_from(at.nanos()).unwrap_or(0);
    let clock = Time::new(small(*hour)?, small(*minute)?, small(*second)?, nanos).map_err(|_| unknown())?;
    Ok(date.to_datetime(clock))
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
    parse_duration(text).or_else(|| parse_worded_duration(text))
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

fn parse_worded_duration(text: &str) -> Option<i64> {
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
