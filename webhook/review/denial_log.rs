//! Logs denials, so many of them per second.
//!
//! Whoever reaches the port can have reviews denied, as any user: their lines must not fill the disk, nor hide others.

use super::RequestSummary;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most lines in a [`WINDOW`]: more than people and GitOps tools cause.
const MAX_LINES: u32 = 20;
/// The time over which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Lines of the current window.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    lines: u32,
    /// Denials without a line, in this window or an earlier one.
    omitted: u64,
}

impl DenialLog {
    /// Logs a denial in one line, unless there were too many just now; those are counted in a later line.
    pub(crate) fn log(&self, request: &RequestSummary, rules: &BTreeSet<&str>, now: Instant) {
        let Some(omitted) = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(now) else { return };
        if omitted > 0 {
            tracing::warn!(omitted, "more writes were denied than are logged; admission_denials counts all");
        }
        request.log_denial(rules);
    }
}

impl Window {
    /// The denials omitted before this one; `None` when it is omitted too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines >= MAX_LINES {
            self.omitted += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_twenty_lines_and_the_rest_is_counted() {
        let (mut window, start) = (Window::default(), Instant::now());
        let admitted = (0..1000).filter(|n| window.admit(start + Duration::from_micros(*n)).is_some()).count();
        assert_eq!(admitted, 20);
        assert_eq!(window.admit(start + WINDOW), Some(980));
        assert_eq!(window.admit(start + WINDOW), Some(0));
    }
}
