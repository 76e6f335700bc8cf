//! The timeline of a simulation.

use crate::output::first_names;
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
                line(out, first, (&subject, &folded(group)), start)?;
            }
            _ => group.iter().try_for_each(|entry| line(out, entry, (&entry.subject, &entry.text), start))?,
        }
    }
    Ok(())
}

/// What many entries of one kind say: of launches and nodes how many of each size and zone, of others how many of each reason.
fn folded(group: &[TimelineEntry]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for entry in group {
        let what = subject_matter(entry);
        match counts.iter_mut().find(|(known, _)| *known == what) {
            Some((_, count)) => *count += 1,
            None => counts.push((what, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let first = group.first().map_or("", |entry| &*entry.text);
    let of_nodes = group.iter().all(|entry| matches!(entry.kind, EventKind::Provision | EventKind::Ready));
    let counted =
        || first_names(counts.iter().map(|(what, count)| format!("{count} {what}")), counts.len(), MAX_REPEATED);
    match &counts[..] {
        _ if group.iter().all(|entry| entry.text == first) => first.to_owned(),
        _ if of_nodes => counted(),
        [_] => first.to_owned(),
        _ => format!("{}; first: {first}", counted()),
    }
}

/// The offering of a launch, the size and zone of a node, else the beginning of a text up to its details.
fn subject_matter(entry: &TimelineEntry) -> &str {
    let end = match entry.kind {
        EventKind::Provision => entry.text.find(" at $"),
        EventKind::Ready => None,
        _ => entry.text.find(": "),
    };
    end.and_then(|end| entry.text.get(..end)).unwrap_or(&entry.text)
}

fn line(out: &mut dyn Write, entry: &TimelineEntry, (subject, text): (&str, &str), start: Timestamp) -> io::Result<()> {
    let at = offset(entry.at.duration_since(start));
    let style = style(entry.kind);
    let kind = entry.kind;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(kind: EventKind, texts: &[(&str, usize)]) -> Vec<TimelineEntry> {
        let repeated = texts.iter().flat_map(|(text, count)| std::iter::repeat_n(*text, *count));
        let entry = |text: &str| TimelineEntry {
            at: Timestamp::UNIX_EPOCH,
            kind,
            subject: "first".to_owned(),
            text: text.to_owned(),
        };
        repeated.map(entry).collect()
    }

    #[test]
    fn a_folded_line_says_what_all_of_its_entries_are() {
        let mut out = Vec::new();
        let launch = |zone: u8| format!("Standard_D8s_v5 westeurope-{zone} spot at $0.1/h: {zone} pending pods");
        let launches = entries(EventKind::Provision, &[(&launch(1), 2), (&launch(2), 5)]);
        let ready = entries(EventKind::Ready, &[("Standard_D8s_v5 westeurope-1", 7)]);
        let gone =
            [("empty: node a is empty", 1), ("empty: node b is empty", 5), ("underutilized: its pods can move", 2)];
        let gone = entries(EventKind::Disrupt, &gone);
        let all: Vec<TimelineEntry> = [launches, ready, gone].concat();
        write(&mut out, &all, Timestamp::UNIX_EPOCH).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        let lines: Vec<&str> = text.lines().map(|line| line.get(58..).unwrap_or_default().trim_start()).collect();
        assert_eq!(
            lines,
            [
                "5 Standard_D8s_v5 westeurope-2 spot, 2 Standard_D8s_v5 westeurope-1 spot",
                "Standard_D8s_v5 westeurope-1",
                "6 empty, 2 underutilized; first: empty: node a is empty",
            ],
            "{text}"
        );
    }
}
