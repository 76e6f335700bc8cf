//! Edits of entries in flow style, which are in braces or brackets.
//!
//! Comments in braces stay where they are: an entry goes without them, and none is put between an entry and its comma.

use super::render::{self, reindent};
use super::sheet::{Change, Piece, Sheet, Spot, Target, comments};
use super::{Place, Refusal};
use crate::yaml::spans::{Entry, Kind};
use std::ops::Range;

/// An entry, to be put elsewhere under a key.
pub(super) fn extract(sheet: &Sheet<'_>, spot: Spot<'_>, key: &str) -> Piece {
    let Range { start, end } = spot.entry.key_range;
    let written = &sheet.text[start..end];
    let quoted = render::text_like(key, written, sheet.style.json);
    let value = &spot.entry.value;
    let source = match &sheet.text[value.range.clone()] {
        "" => "null",
        source => source,
    };
    let key = render::text(key, sheet.style.json);
    let line_start = sheet.line_start(start);
    let indent = sheet.text[line_start..].len() - sheet.text[line_start..].trim_start_matches(' ').len();
    let pad = " ".repeat(indent);
    Piece {
        inline: format!("{quoted}: {source}"),
        lines: format!("{pad}{key}: {source}{}", sheet.style.newline),
        column: indent,
    }
}

/// The comma in what stands between two parts of a map: blanks and comments.
fn comma(text: &str, gap: Range<usize>) -> Option<usize> {
    let mut in_comment = false;
    for (i, b) in text.bytes().enumerate().take(gap.end).skip(gap.start) {
        match b {
            b'#' => in_comment = true,
            b'\n' => in_comment = false,
            b',' if !in_comment => return Some(i),
            _ => {}
        }
    }
    None
}

/// The entry goes with its comma, and with the line that it had for itself.
pub(super) fn remove(sheet: &Sheet<'_>, spot: Spot<'_>) -> Vec<Change> {
    let (entries, text) = (spot.entries(), sheet.text);
    let entry = spot.entry;
    let next = entries.get(spot.index + 1).map_or(spot.map.range.end, |e| e.key_range.start);
    let own = entry.key_range.start..entry.end();
    if let Some(after) = comma(text, own.end..next) {
        let blanks = &text[own.end..after];
        if blanks.trim().is_empty() {
            return vec![Change::remove(with_line(sheet, own.start..after + 1))];
        }
        return vec![Change::remove(own), Change::remove(after..after + 1)];
    }
    // The last one: the comma before it goes.
    let before = spot.index.checked_sub(1).and_then(|i| comma(text, entries[i].end()..own.start));
    match before {
        Some(before) if text[before + 1..own.start].trim().is_empty() => vec![Change::remove(before..own.end)],
        Some(before) => vec![Change::remove(before..before + 1), Change::remove(with_line(sheet, own))],
        None => vec![Change::remove(own)],
    }
}

/// The entry goes, the comments within it stay.
pub(super) fn remove_keeping_comments(sheet: &Sheet<'_>, spot: Spot<'_>) -> Vec<Change> {
    let own = spot.entry.key_range.start..spot.entry.end();
    let comments = comments(sheet, spot.entry, own.clone());
    let mut changes = remove(sheet, spot);
    let goes = changes.iter_mut().find(|c| c.range.contains(&own.start));
    if let Some(change) = goes.filter(|_| !comments.is_empty()) {
        let start = sheet.line_start(own.start);
        let line = &sheet.text[start..own.start];
        let pad = &line[..line.len() - line.trim_start_matches(' ').len()];
        let newline = sheet.style.newline;
        let kept: Vec<String> = comments.iter().map(|c| format!("{c}{newline}{pad}")).collect();
        // Where the whole line goes, the comments need the blanks at its start and no line after them.
        change.text = match change.range.start == start && sheet.text[..change.range.end].ends_with('\n') {
            true => comments.iter().map(|c| format!("{pad}{c}{newline}")).collect(),
            false => format!(" {}", kept.concat()),
        };
    }
    changes
}

/// With the whole line where nothing else stands on it, else with the blanks after it.
fn with_line(sheet: &Sheet<'_>, range: Range<usize>) -> Range<usize> {
    let start = sheet.line_start(range.start);
    let end = sheet.line_end(range.end);
    let rest = &sheet.text[range.end..end];
    if sheet.text[start..range.start].trim().is_empty() && rest.trim().is_empty() {
        start..end
    } else {
        range.start..range.end + (rest.len() - rest.trim_start_matches(' ').len())
    }
}

/// Puts an entry between braces.
pub(super) fn insert(
    sheet: &Sheet<'_>,
    target: &Target<'_>,
    place: &Place,
    piece: &Piece,
) -> Result<Vec<Change>, Refusal> {
    let Kind::Map { entries, .. } = &target.node.kind else {
        if !target.node.is_empty() {
            return Err(Refusal::new(target.node.range.start, "this is not a map"));
        }
        let text = format!("{{{}}}", piece.inline);
        let written = !target.node.range.is_empty();
        let text = if written { text } else { format!(" {text}") };
        return Ok(vec![Change { range: target.node.range.clone(), text }]);
    };
    let find = |key: &str| entries.iter().position(|e| e.key.as_deref() == Some(key));
    let (before, behind) = match place {
        Place::Before(key) => (find(key), None),
        // Behind the last one there may be no comma.
        Place::After(key) => (None, find(key).filter(|i| i + 1 < entries.len())),
        Place::End => (None, None),
    };
    if let Some(entry) = before.map(|i| &entries[i]) {
        let separator =
            own_line(sheet, entry).map_or_else(|| " ".to_owned(), |pad| sheet.style.newline.to_owned() + &pad);
        let text = format!("{},{separator}", at_line(sheet, entry, piece));
        return Ok(vec![Change::insert(entry.key_range.start, text)]);
    }
    let between = behind.and_then(|i| between(sheet, &entries[i], entries[i + 1].key_range.start, piece));
    Ok(match (between, entries.last()) {
        (Some(change), _) => vec![change],
        (None, Some(last)) => after(sheet, last, target.node.range.end, piece),
        (None, None) => vec![Change::insert(target.node.range.start + 1, piece.inline.clone())],
    })
}

/// Behind an entry that is not the last one: on the next line when the entry has one for itself.
fn between(sheet: &Sheet<'_>, entry: &Entry, next: usize, piece: &Piece) -> Option<Change> {
    let comma = comma(sheet.text, entry.end()..next)? + 1;
    let text = at_line(sheet, entry, piece);
    let line = sheet.line_end(comma);
    let rest = sheet.text[comma..line].trim();
    let pad = own_line(sheet, entry).filter(|_| line <= next && (rest.is_empty() || rest.starts_with('#')));
    Some(match pad {
        Some(pad) => Change::insert(line, format!("{pad}{text},{}", sheet.style.newline)),
        None => Change::insert(comma, format!(" {text},")),
    })
}

fn after(sheet: &Sheet<'_>, last: &Entry, map_end: usize, piece: &Piece) -> Vec<Change> {
    let text = at_line(sheet, last, piece);
    let trailing = comma(sheet.text, last.end()..map_end);
    let Some(pad) = own_line(sheet, last) else {
        let at = trailing.map_or_else(|| last.end(), |at| at + 1);
        let lead = if trailing.is_some() { " " } else { ", " };
        return vec![Change::insert(at, format!("{lead}{text}"))];
    };
    let end = last.end();
    let line = sheet.line_end(end);
    let rest = sheet.text[end..line].trim();
    let newline = sheet.style.newline;
    if rest.is_empty() || rest.starts_with(['#', ',']) {
        let mut changes = Vec::new();
        if trailing.is_none() {
            changes.push(Change::insert(end, ","));
        }
        let close = if trailing.is_some() { "," } else { "" };
        changes.push(Change::insert(line, format!("{pad}{text}{close}{newline}")));
        return changes;
    }
    vec![Change::insert(end, format!(",{newline}{pad}{text}"))]
}

/// The blanks before an entry that begins its line.
fn own_line(sheet: &Sheet<'_>, entry: &Entry) -> Option<String> {
    let start = sheet.line_start(entry.key_range.start);
    let before = &sheet.text[start..entry.key_range.start];
    before.trim().is_empty().then(|| before.to_owned())
}

/// The entry with further lines moved as far as its first one.
fn at_line(sheet: &Sheet<'_>, beside: &Entry, piece: &Piece) -> String {
    let pad = own_line(sheet, beside).map_or(piece.column, |pad| pad.len());
    let by = isize::try_from(pad).unwrap_or(0) - isize::try_from(piece.column).unwrap_or(0);
    let first = piece.inline.find('\n').map_or(piece.inline.len(), |i| i + 1);
    format!("{}{}", &piece.inline[..first], reindent(&piece.inline[first..], by))
}
