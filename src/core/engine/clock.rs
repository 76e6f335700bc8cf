//! The clock, with a time shift for tests.
//!
//! Normally they are the same. A test may move our time ahead, and with it the simulated Azure's, but never that of a
//! real API server, whose objects have real creation times. A [`TimeShift`] knows by how much our time was ahead at
//! each real instant, so that an object which was created before a jump grows older by it, and one after it does not.

use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// The time for adapters. The domain itself takes every instant as an argument.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Our present instant.
    fn now(&self) -> Timestamp;

    /// Our instant for one of the API server's, for example a creation time.
    fn shifted(&self, real: Timestamp) -> Timestamp;
}

/// The largest difference between our clock and the API server's with which something is decided, launched, disrupted or
/// deleted. The header `Date` of an answer has whole seconds, and the answer may be under way for some.
pub const MAX_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// By how much our time is ahead of the real one, since when. The default is real time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeShift(Vec<(Timestamp, SignedDuration)>);

/// A text that is no shift.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}; expected a time and an offset, for example 2026-03-01T12:00:00Z 90m")]
pub struct TimeShiftError {
    /// Line, from 1.
    pub line: usize,
    /// The problem.
    pub reason: String,
}

impl TimeShift {
    /// Reads a shift: each line is a real instant and the offset in force from then on. Offsets only grow, so that
    /// our time never goes back.
    ///
    /// # Errors
    /// [`TimeShiftError`] with the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TimeShiftError> {
        let mut steps: Vec<(Timestamp, SignedDuration)> = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let error = |reason: String| TimeShiftError { line: at + 1, reason };
            let (time, offset) = line.trim().split_once(' ').ok_or_else(|| error("only one word".to_owned()))?;
            let time: Timestamp = time.parse().map_err(|e: jiff::Error| error(e.to_string()))?;
            let offset: SignedDuration = offset.trim().parse().map_err(|e: jiff::Error| error(e.to_string()))?;
            if steps.last().is_some_and(|(t, o)| *t > time || *o > offset) || offset.is_negative() {
                return Err(error("times and offsets must not decrease".to_owned()));
            }
            steps.push((time, offset));
        }
        Ok(Self(steps))
    }

    /// Our instant for a real one.
    #[must_use]
    pub fn shifted(&self, real: Timestamp) -> Timestamp {
        let step = self.0.iter().rev().find(|(since, _)| *since <= real);
        let offset = step.map_or(SignedDuration::ZERO, |(_, offset)| *offset);
        real.saturating_add(offset).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn objects_created_before_a_jump_grow_older_by_it() {
        let shift = TimeShift::parse("2026-03-01T12:00:00Z 1h\n2026-03-01T12:01:00Z 3h\n").unwrap();
        let now = shift.shifted(at("2026-03-01T12:02:00Z"));
        let age = |created: &str| now.duration_since(shift.shifted(at(created)));
        assert_eq!(age("2026-03-01T11:59:00Z"), SignedDuration::from_mins(3 * 60 + 3));
        assert_eq!(age("2026-03-01T12:00:30Z"), SignedDuration::from_secs(2 * 3600 + 90));
        assert_eq!(age("2026-03-01T12:01:30Z"), SignedDuration::from_secs(30));
        assert_eq!(TimeShift::default().shifted(now), now);
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        for (text, line) in [
            ("2026-03-01T12:00:00Z", 1),
            ("\n2026-03-01T12:00:00Z soon", 2),
            ("2026-03-01T12:00:00Z 2h\n2026-03-01T13:00:00Z 1h", 2),
            ("2026-03-01T12:00:00Z -1h", 1),
        ] {
            assert_eq!(TimeShift::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
