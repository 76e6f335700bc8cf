//! The wall clock, which a file can set ahead of real time.
//!
//! A file may hold a [`TimeShift`], so that a test can let hours pass in a moment. Every process that is given the same
//! file has the same time.

use jiff::Timestamp;
use napkeeper_core::engine::clock::{Clock, TimeShift};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The file is read at most this often.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Real time, shifted by a file where there is one.
#[derive(Debug)]
pub struct WallClock {
    file: Option<PathBuf>,
    offset: Mutex<OffsetFile>,
}

/// The content of the file, as last read.
#[derive(Debug, Default)]
struct OffsetFile {
    read_at: Option<Instant>,
    text: String,
    shift: TimeShift,
}

impl WallClock {
    /// Real time, shifted by the offset in the file. Without a file, or if it does not exist, time is real.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, offset: Mutex::default() }
    }

    /// Our instant for a real one, by the file as it is now, or was at most [`READ_INTERVAL`] ago.
    fn shifted(&self, real: Timestamp) -> Timestamp {
        let Some(file) = &self.file else { return real };
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        if offset.read_at.is_none_or(|at| at.elapsed() >= READ_INTERVAL) {
            offset.read_at = Some(Instant::now());
            match std::fs::read_to_string(file) {
                Ok(text) => offset.set(text, file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => offset.set(String::new(), file),
                Err(error) => tracing::warn!(file = %file.display(), %error, "cannot read the time offset"),
            }
        }
        offset.shift.shifted(real)
    }
}

impl OffsetFile {
    /// Takes over a new text; an invalid one changes nothing and is logged once.
    fn set(&mut self, text: String, file: &std::path::Path) {
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

    /// Lets the file be read again at once.
    fn expire(clock: &WallClock) {
        clock.offset.lock().unwrap().read_at = None;
    }

    #[test]
    fn a_file_that_appears_moves_the_time_a_bad_one_does_not_and_a_missing_one_is_real_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("offset");
        let clock = WallClock::new(Some(file.clone()));
        let real: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        assert_eq!(clock.shifted(real), real);

        fs::write(&file, "2026-01-01T00:00:00Z 90m\n").unwrap();
        assert_eq!(clock.shifted(real), real, "the file is not read again so soon");
        expire(&clock);
        let shifted = real + SignedDuration::from_mins(90);
        assert_eq!(clock.shifted(real), shifted);

        fs::write(&file, "soon").unwrap();
        expire(&clock);
        assert_eq!(clock.shifted(real), shifted);

        fs::remove_file(&file).unwrap();
        expire(&clock);
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
