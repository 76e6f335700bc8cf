//! The wall clock: what time is it, and is our time ahead of the real one?
//!
//! A file may hold a [`TimeShift`], so that a test can let hours pass in a moment. Every process that is given the same
//! file has the same time.

use jiff::Timestamp;
use napkeeper_core::engine::clock::{Clock, TimeShift};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The file is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Real time, shifted by a file where there is one.
#[derive(Debug)]
pub struct WallClock {
    file: Option<PathBuf>,
    seen: Mutex<Seen>,
}

/// What was last read of the file.
#[derive(Debug, Default)]
struct Seen {
    looked: Option<Instant>,
    text: String,
    shift: TimeShift,
}

impl WallClock {
    /// Real time, shifted by what the file says. No file, or one that is not there, is no shift.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, seen: Mutex::default() }
    }

    /// Our instant for a real one, by the file as it is now, or was at most [`LOOK_EVERY`] ago.
    fn shifted(&self, real: Timestamp) -> Timestamp {
        let Some(file) = &self.file else { return real };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            seen.looked = Some(Instant::now());
            match std::fs::read_to_string(file) {
                Ok(text) => seen.take(text, file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => seen.take(String::new(), file),
                Err(error) => tracing::warn!(file = %file.display(), %error, "cannot read the time offset"),
            }
        }
        seen.shift.shifted(real)
    }
}

impl Seen {
    /// Takes a new text; one that makes no sense changes nothing but is named once.
    fn take(&mut self, text: String, file: &std::path::Path) {
        if text == self.text {
            return;
        }
        match TimeShift::parse(&text) {
            Ok(shift) => self.shift = shift,
            Err(error) => tracing::warn!(file = %file.display(), %error, "the time offset is ignored"),
        }
        self.text = text;
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.shifted(Timestamp::now())
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        self.shifted(real)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use std::fs;

    /// Lets the next look at the file happen at once.
    fn look_again(clock: &WallClock) {
        clock.seen.lock().unwrap().looked = None;
    }

    #[test]
    fn a_file_that_appears_moves_the_time_a_bad_one_does_not_and_a_missing_one_is_real_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("offset");
        let clock = WallClock::new(Some(file.clone()));
        let real: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        assert_eq!(clock.shifted(real), real);

        fs::write(&file, "2026-01-01T00:00:00Z 90m\n").unwrap();
        assert_eq!(clock.shifted(real), real, "no look so soon after the last");
        look_again(&clock);
        let shifted = real + SignedDuration::from_mins(90);
        assert_eq!(clock.shifted(real), shifted);

        fs::write(&file, "soon").unwrap();
        look_again(&clock);
        assert_eq!(clock.shifted(real), shifted);

        fs::remove_file(&file).unwrap();
        look_again(&clock);
        assert_eq!(clock.shifted(real), real);
    }

    #[test]
    fn without_a_file_it_is_real_time() {
        let clock = WallClock::new(None);
        let (before, now, after) = (Timestamp::now(), clock.now(), Timestamp::now());
        assert!((before..=after).contains(&now));
        assert_eq!(clock.shifted(before), before);
    }
}
