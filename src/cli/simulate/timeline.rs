//! The timeline: how does it read?

use super::{BOLD, DIM};
use anstyle::{AnsiColor, Style};
use jiff::{SignedDuration, Timestamp};
use napkeeper_sim::world::{EventKind, TimelineEntry};
use std::io::{self, Write};

/// More entries of one kind within a minute than this become one line.
const FLOOD: usize = 6;
/// Width of the column of names.
const SUBJECT: usize = 34;

/// Writes a timeline, one line for each entry, floods as one line.
pub(super) fn write(out: &mut impl Write, entries: &[TimelineEntry], start: Timestamp) -> io::Result<()> {
    let minute = |e: &TimelineEntry| e.at.duration_since(start).as_mins();
    for group in entries.chunk_by(|a, b| a.kind == b.kind && minute(a) == minute(b)) {
        match group {
            [first, ..] if group.len() > FLOOD => {
                let subject = format!("{} and {} more", first.subject, group.len() - 1);
                line(out, first, &subject, start)?;
            }
            _ => group.iter().try_for_each(|entry| line(out, entry, &entry.subject, start))?,
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, entry: &TimelineEntry, subject: &str, start: Timestamp) -> io::Result<()> {
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
        EventKind::Provision | EventKind::Ready => AnsiColor::Green.on_default(),
        EventKind::Refused | EventKind::Waiting | EventKind::Evicted | EventKind::Breaker | EventKind::Controller => {
            AnsiColor::Red.on_default()
        }
        EventKind::Disrupt | EventKind::Gone => AnsiColor::Cyan.on_default(),
        EventKind::Suspect | EventKind::Collected | EventKind::Kept => AnsiColor::Yellow.on_default(),
    }
}
