//! The timeline of a simulation.

use crate::output::style::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use anstyle::Style;
use jiff::{SignedDuration, Timestamp};
use napkeeper_sim::world::{EventKind, TimelineEntry};
use std::io::{self, Write};

/// More entries of one kind than this within a minute become one line.
const MAX_REPEATED: usize = 6;
/// Width of the column of names.
const SUBJECT: usize = 34;

/// Writes a timeline, one line for each entry, or for many of a kind.
pub(super) fn write(out: &mut dyn Write, entries: &[TimelineEntry], start: Timestamp) -> io::Result<()> {
    let minute = |e: &TimelineEntry| e.at.duration_since(start).as_mins();
    for group in entries.chunk_by(|a, b| a.kind == b.kind && minute(a) == minute(b)) {
        match group {
            [first, ..] if group.len() > MAX_REPEATED => {
                let subject = format!("{} and {} more", first.subject, group.len() - 1);
                line(out, first, &subject, start)?;
            }
            _ => group.iter().try_for_each(|entry| line(out, entry, &entry.subject, start))?,
        }
    }
    Ok(())
}

fn line(out: &mut dyn Write, entry: &TimelineEntry, subject: &str, start: Timestamp) -> io::Result<()> {
    let at = offset(entry.at.duration_since(start));
    let style = style(entry.kind);
    let TimelineEntry { kind, text, .. } = entry;
    writeln!(out, "{DIM}{at}{DIM:#} {style}{kind:<10}{style:#} {subject:<SUBJECT$} {text}")
}

/// Time since the start: `1d 06:15:01`.
pub(super) fn offset(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}d {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn style(kind: EventKind) -> Style {
    match kind {
        EventKind::Scenario => BOLD,
        EventKind::Provision | EventKind::Ready => GREEN,
        EventKind::Refused | EventKind::Waiting | EventKind::Evicted | EventKind::Breaker | EventKind::Controller => {
            RED
        }
        EventKind::Disrupt | EventKind::Gone => CYAN,
        EventKind::Suspect | EventKind::Collected | EventKind::Kept => YELLOW,
    }
}
