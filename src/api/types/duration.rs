//! Durations as Karpenter writes them: `1h30m`, `720h`, `Never`.

use jiff::SignedDuration;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("duration {0:?}: must be whole hours, minutes and seconds such as 90s, 30m or 1h30m")]
pub struct DurationError(pub String);

/// Why a text is no duration with days.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("duration {0:?}: must be whole days, hours, minutes and seconds such as 15m, 36h, 9d or 1d12h")]
pub struct DaysError(pub String);

/// Parses hours, minutes and seconds.
///
/// # Errors
/// [`DurationError`] when the text is something else or does not fit.
pub fn parse(text: &str) -> Result<SignedDuration, DurationError> {
    seconds(text).map(SignedDuration::from_secs).ok_or_else(|| DurationError(text.to_owned()))
}

/// Parses days, hours, minutes and seconds: `9d`, `36h`, `1d12h`. Karpenter has no days; our own kinds have.
///
/// # Errors
/// [`DaysError`] when the text is something else or does not fit.
pub fn parse_with_days(text: &str) -> Result<SignedDuration, DaysError> {
    let wrong = || DaysError(text.to_owned());
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days, rest),
        None => ("0", text),
    };
    let is_number = days.bytes().all(|b| b.is_ascii_digit());
    let days: i64 = days.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let rest = if rest.is_empty() && text.ends_with('d') { Some(0) } else { seconds(rest) };
    let total = days.checked_mul(24 * 3600).zip(rest).and_then(|(days, rest)| days.checked_add(rest));
    // A million days is beyond any calendar that a timestamp can hold.
    total.filter(|s| *s < 1_000_000 * 24 * 3600).map(SignedDuration::from_secs).ok_or_else(wrong)
}

/// Parses hours, minutes and seconds, or `Never`.
///
/// # Errors
/// [`DurationError`] when the text is something else or does not fit.
pub fn parse_or_never(text: &str) -> Result<Option<SignedDuration>, DurationError> {
    if text == "Never" { Ok(None) } else { parse(text).map(Some) }
}

fn seconds(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total: i64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..end].parse().ok()?;
        let unit = match rest.as_bytes()[end] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    Some(total)
}

/// Writes a duration in whole seconds; what is finer is cut off.
#[must_use]
pub fn format(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = |n: i64, unit: &str| {
        if n > 0 { format!("{n}{unit}") } else { String::new() }
    };
    let text = format!("{}{}{}", part(h, "h"), part(m, "m"), part(s, "s"));
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Writes a duration, or `Never`.
#[must_use]
pub fn format_or_never(duration: Option<SignedDuration>) -> String {
    duration.map_or_else(|| "Never".to_owned(), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("1h30m", 5400), ("30m10s1h", 5410)] {
            assert_eq!(parse(text).unwrap().as_secs(), seconds, "{text}");
        }
        assert_eq!(format(SignedDuration::from_secs(5410)), "1h30m10s");
        assert_eq!(parse_or_never("Never"), Ok(None));
        for bad in ["", "5", "1d", "-1h", "1.5h", "never", "99999999999999999999h", "5é"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn days_come_first_and_count_24_hours() {
        for (text, hours) in [("9d", 216), ("1d12h", 36), ("36h", 36), ("0d", 0)] {
            assert_eq!(parse_with_days(text).unwrap().as_hours(), hours, "{text}");
        }
        for bad in ["", "d", "1", "12h1d", "+1d", "-1d", "1d1", "1.5d", "99999999999d", "Never"] {
            assert!(parse_with_days(bad).is_err(), "{bad:?}");
        }
    }
}
