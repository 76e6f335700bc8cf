//! Edits of entries in flow style, which are in braces or brackets.
//!
//! Comments in braces are not moved with an entry, and none is inserted between an entry and its comma.

use super::editable_text::{Change, EditableText, EntryRef, NewEntryText, Target, comments};
use super::render::{self, reindent};
use super::{InsertPosition, Refusal};
use crate::yaml::spans::{SpannedEntry, SpannedKind};
use std::ops::Range;

/// An entry, rendered for another map.
pub(super) fn extract(document: &EditableText<'_>, entry_ref: EntryRef<'_>, key: &str) -> NewEntryText {
    let Range { start, end } = entry_ref.entry.key_range;
    let written = &document.text[start..end];
    let quoted = render::text_like(key, written, document.style.json);
    let value = &entry_ref.entry.value;
    let source = match &document.text[value.range.clone()] {
        "" => "null",
        source => source,
    };
    let key = render::text(key, document.style.json);
    let line_start = document.line_start(start);
    let indent = document.text[line_start..].len() - document.text[line_start..].trim_start_matches(' ').len();
    let pad = " ".repeat(indent);
    NewEntryText {
        inline: format!("{quoted}: {source}"),
        lines: format!("{pad}{key}: {source}{}", document.style.newline),
        column: indent,
    }
}

/// The comma between two entries of a map, among blanks and comments.
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

/// Removes an entry with its comma, and with the line that it had for itself.
pub(super) fn remove(document: &EditableText<'_>, entry_ref: EntryRef<'_>) -> Vec<Change> {
    let (entries, text) = (entry_ref.entries(), document.text);
    let entry = entry_ref.entry;
    let next = entries.get(entry_ref.index + 1).map_or(entry_ref.map.range.end, |e| e.key_range.start);
    let own = entry.key_range.start..entry.end();
    if let Some(after) = comma(text, own.end..next) {
        let blanks = &text[own.end..after];
        if blanks.trim().is_empty() {
            return vec![Change::remove(with_line(document, own.start..after + 1))];
        }
        return vec![Change::remove(own), Change::remove(after..after + 1)];
    }
    // The last entry: the comma before it is removed.
    let before = entry_ref.index.checked_sub(1).and_then(|i| comma(text, entries[i].end()..own.start));
    match before {
        Some(before) if text[before + 1..own.start].trim().is_empty() => vec![Change::remove(before..own.end)],
        Some(before) => vec![Change::remove(before..before + 1), Change::remove(with_line(document, own))],
        None => vec![Change::remove(own)],
    }
}

/// Removes an entry, and keeps the comments within it.
pub(super) fn remove_keeping_comments(document: &EditableText<'_>, entry_ref: EntryRef<'_>) -> Vec<Change> {
    let own = entry_ref.entry.key_range.start..entry_ref.entry.end();
    let comments = comments(document, entry_ref.entry, own.clone());
    let mut changes = remove(document, entry_ref);
    let goes = changes.iter_mut().find(|c| c.range.contains(&own.start));
    if let Some(change) = goes.filter(|_| !comments.is_empty()) {
        let start = document.line_start(own.start);
        let line = &document.text[start..own.start];
        let pad = &line[..line.len() - line.trim_start_matches(' ').len()];
        let newline = document.style.newline;
        let lines: Vec<String> = comments.iter().map(|c| format!("{c}{newline}{pad}")).collect();
        // If the whole line is removed, the comments need its indentation and no line break after them.
        change.text = match change.range.start == start && document.text[..change.range.end].ends_with('\n') {
            true => comments.iter().map(|c| format!("{pad}{c}{newline}")).collect(),
            false => format!(" {}", lines.concat()),
        };
    }
    changes
}

/// Extended to the whole line if nothing else is on it, else to the blanks after it.
fn with_line(document: &EditableText<'_>, range: Range<usize>) -> Range<usize> {
    let start = document.line_start(range.start);
    let end = document.line_end(range.end);
    let rest = &document.text[range.end..end];
    if document.text[start..range.start].trim().is_empty() && rest.trim().is_empty() {
        start..end
    } else {
        range.start..range.end + (rest.len() - rest.trim_start_matches(' ').len())
    }
}

/// Inserts an entry in flow style.
pub(super) fn insert(
    document: &EditableText<'_>,
    target: &Target<'_>,
    position: &InsertPosition,
    new_entry: &NewEntryText,
) -> Result<Vec<Change>, Refusal> {
    let SpannedKind::Map { entries, .. } = &target.node.kind else {
        if !target.node.is_empty() {
            return Err(Refusal::new(target.node.range.start, "this is not a map"));
        }
        let text = format!("{{{}}}", new_entry.inline);
        let written = !target.node.range.is_empty();
        let text = if written { text } else { format!(" {text}") };
        return Ok(vec![Change { range: target.node.range.clone(), text }]);
    };
    let find = |key: &str| entries.iter().position(|e| e.key.as_deref() == Some(key));
    let (before, behind) = match position {
        InsertPosition::Before(key) => (find(key), None),
        // Behind the last one there may be no comma.
        InsertPosition::After(key) => (None, find(key).filter(|i| i + 1 < entries.len())),
        InsertPosition::End => (None, None),
    };
    if let Some(entry) = before.map(|i| &entries[i]) {
        let separator =
            own_line(document, entry).map_or_else(|| " ".to_owned(), |pad| document.style.newline.to_owned() + &pad);
        let text = format!("{},{separator}", at_line(document, entry, new_entry));
        return Ok(vec![Change::insert(entry.key_range.start, text)]);
    }
    let between = behind.and_then(|i| between(document, &entries[i], entries[i + 1].key_range.start, new_entry));
    Ok(match (between, entries.last()) {
        (Some(change), _) => vec![change],
        (None, Some(last)) => after(document, last, target.node.range.end, new_entry),
        (None, None) => vec![Change::insert(target.node.range.start + 1, new_entry.inline.clone())],
    })
}

/// Behind an entry that is not the last one: on the next line when the entry has one for itself.
fn between(document: &EditableText<'_>, entry: &SpannedEntry, next: usize, new_entry: &NewEntryText) -> Option<Change> {
    let comma = comma(document.text, entry.end()..next)? + 1;
    let text = at_line(document, entry, new_entry);
    let line = document.line_end(comma);
    let rest = document.text[comma..line].trim();
    let pad = own_line(document, entry).filter(|_| line <= next && (rest.is_empty() || rest.starts_with('#')));
    Some(match pad {
        Some(pad) => Change::insert(line, format!("{pad}{text},{}", document.style.newline)),
        None => Change::insert(comma, format!(" {text},")),
    })
}

fn after(document: &EditableText<'_>, last: &SpannedEntry, map_end: usize, new_entry: &NewEntryText) -> Vec<Change> {
    let text = at_line(document, last, new_entry);
    let trailing = comma(document.text, last.end()..map_end);
    let Some(pad) = own_line(document, last) else {
        let at = trailing.map_or_else(|| last.end(), |at| at + 1);
        let lead = if trailing.is_some() { " " } else { ", " };
        return vec![Change::insert(at, format!("{lead}{text}"))];
    };
    let end = last.end();
    let line = document.line_end(end);
    let rest = document.text[end..line].trim();
    let newline = document.style.newline;
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
fn own_line(document: &EditableText<'_>, entry: &SpannedEntry) -> Option<String> {
    let start = document.line_start(entry.key_range.start);
    let before = &document.text[start..entry.key_range.start];
    before.trim().is_empty().then(|| before.to_owned())
}

/// The entry with further lines moved as far as its first one.
fn at_line(document: &EditableText<'_>, beside: &SpannedEntry, new_entry: &NewEntryText) -> String {
    let pad = own_line(document, beside).map_or(new_entry.column, |pad| pad.len());
    let by = isize::try_from(pad).unwrap_or(0) - isize::try_from(new_entry.column).unwrap_or(0);
    let first = new_entry.inline.find('\n').map_or(new_entry.inline.len(), |i| i + 1);
    format!("{}{}", &new_entry.inline[..first], reindent(&new_entry.inline[first..], by))
}
