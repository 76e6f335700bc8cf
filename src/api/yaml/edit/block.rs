//! Edits of entries in block style, which have lines of their own.

use super::editable_text::{Change, EditableText, EntryRef, NewEntryText, Target, comments};
use super::render::{self, reindent};
use super::{InsertPosition, Refusal};
use crate::yaml::spans::{SpannedEntry, SpannedKind, SpannedValue};
use std::ops::Range;

/// The lines of an entry.
struct Lines {
    /// Where its own comments above it begin.
    comments_start: usize,
    /// Where the line of its key begins.
    start: usize,
    /// After the line where its value ends.
    end: usize,
    /// After the comments below it that are indented more than its key.
    comments_end: usize,
    /// The column of its key.
    column: usize,
}

/// A comment with a line of its own: its column, in bytes.
fn comment(line: &str) -> Option<usize> {
    let text = line.trim_start();
    text.starts_with('#').then(|| line.len() - text.len())
}

fn entry_lines(
    document: &EditableText<'_>,
    map: &SpannedValue,
    index: usize,
    above: Option<&SpannedEntry>,
) -> Result<Lines, Refusal> {
    let SpannedKind::Map { entries, .. } = &map.kind else {
        return Err(Refusal::new(map.range.start, "this is not a map"));
    };
    let entry = &entries[index];
    let start = document.line_start(entry.key_range.start);
    let column = entry.key_range.start - start;
    let before = &document.text[start..entry.key_range.start];
    if !before.bytes().all(|b| b == b' ') {
        let message = "this entry shares its line with something else: move it to its own line, then migrate";
        return Err(Refusal::new(entry.key_range.start, message));
    }
    let floor = match index.checked_sub(1) {
        Some(previous) => document.line_end(entries[previous].end()),
        None => above.map_or(0, |e| document.line_end(e.colon_end)),
    };
    let mut lead = start;
    while lead > floor {
        let previous = document.line_start(lead - 1);
        if comment(&document.text[previous..lead]) != Some(column) || previous < floor {
            break;
        }
        lead = previous;
    }
    let end = document.line_end(entry.end());
    let mut tail = end;
    while tail < document.text.len() {
        let next = document.line_end(tail);
        if comment(&document.text[tail..next]).is_none_or(|c| c <= column) {
            break;
        }
        tail = next;
    }
    Ok(Lines { comments_start: lead, start, end, comments_end: tail, column })
}

fn lines_of(document: &EditableText<'_>, entry_ref: EntryRef<'_>) -> Result<Lines, Refusal> {
    entry_lines(document, entry_ref.map, entry_ref.index, entry_ref.parent)
}

/// An entry with its comments, rendered for another map.
pub(super) fn extract(
    document: &EditableText<'_>,
    entry_ref: EntryRef<'_>,
    key: &str,
) -> Result<NewEntryText, Refusal> {
    let own = lines_of(document, entry_ref)?;
    let Range { start, end } = entry_ref.entry.key_range;
    let written = &document.text[start..end];
    let key = if entry_ref.entry.key.as_deref() == Some(key) {
        written.to_owned()
    } else {
        render::text_like(key, written, document.style.json)
    };
    let value = &entry_ref.entry.value;
    let source = &document.text[value.range.clone()];
    let is_one_word = matches!(value.kind, SpannedKind::Scalar(_))
        && !source.is_empty()
        && !source.contains(['\n', ',', '[', ']', '{', '}', '|', '>']);
    let inline = if is_one_word { source.to_owned() } else { render::flow(&value.value(), document.style.json) };
    Ok(NewEntryText {
        lines: format!("{}{key}{}", &document.text[own.comments_start..start], &document.text[end..own.comments_end]),
        column: own.column,
        inline: format!("{key}: {inline}"),
    })
}

/// A map without other entries becomes `{}`.
fn left_empty(entry_ref: EntryRef<'_>) -> Result<Option<Change>, Refusal> {
    if entry_ref.entries().len() > 1 {
        return Ok(None);
    }
    match entry_ref.parent {
        Some(above) => Ok(Some(Change::insert(above.colon_end, " {}"))),
        None => Err(Refusal::new(entry_ref.entry.key_range.start, "the parent of this entry would become empty")),
    }
}

/// Removes an entry with its comments, which have been moved.
pub(super) fn remove_with_comments(
    document: &EditableText<'_>,
    entry_ref: EntryRef<'_>,
) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(document, entry_ref)?;
    let mut changes = vec![Change::remove(own.comments_start..own.comments_end)];
    changes.extend(left_empty(entry_ref)?);
    Ok(changes)
}

/// Removes an entry, and keeps each of its comments on a line of its own.
pub(super) fn remove_keeping_comments(
    document: &EditableText<'_>,
    entry_ref: EntryRef<'_>,
) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(document, entry_ref)?;
    let pad = " ".repeat(own.column);
    let comments = comments(document, entry_ref.entry, own.start..own.end);
    let text = comments.iter().map(|c| format!("{pad}{c}{}", document.style.newline)).collect();
    let mut changes = vec![Change { range: own.start..own.end, text }];
    changes.extend(left_empty(entry_ref)?);
    Ok(changes)
}

/// Turns an entry into a comment, below a line with the reason.
pub(super) fn comment_out(
    document: &EditableText<'_>,
    entry_ref: EntryRef<'_>,
    comment: &str,
) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(document, entry_ref)?;
    let newline = document.style.newline;
    let pad = " ".repeat(own.column);
    let mut text = format!("{pad}# {comment}{newline}");
    for line in document.text[own.start..own.end].lines() {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let rest = line[spaces.min(own.column)..].trim_end();
        text += &format!("{pad}#{}{rest}{newline}", if rest.is_empty() { "" } else { " " });
    }
    let mut changes = vec![Change { range: own.start..own.end, text }];
    changes.extend(left_empty(entry_ref)?);
    Ok(changes)
}

/// Inserts an entry in block style.
pub(super) fn insert(
    document: &EditableText<'_>,
    target: &Target<'_>,
    position: &InsertPosition,
    new_entry: &NewEntryText,
) -> Result<Vec<Change>, Refusal> {
    if let SpannedKind::Map { entries, .. } = &target.node.kind
        && let Some(first) = entries.first()
    {
        let column = first.key_range.start - document.line_start(first.key_range.start);
        let text = at_column(new_entry, column);
        let own = |key: &str| {
            let index = entries.iter().position(|e| e.key.as_deref() == Some(key));
            index.map(|index| entry_lines(document, target.node, index, target.entry)).transpose()
        };
        let at = match position {
            InsertPosition::Before(key) => own(key)?.map(|lines| lines.comments_start),
            InsertPosition::After(key) => own(key)?.map(|lines| lines.comments_end),
            InsertPosition::End => None,
        };
        let at = at.unwrap_or_else(|| end_of_map(document, target.node, column));
        return Ok(vec![Change::insert(at, text)]);
    }
    let Some(above) = target.entry else {
        return Err(Refusal::new(target.node.range.start, "there is no map here to add to"));
    };
    let start = document.line_start(above.key_range.start);
    // In a list the first key follows a dash.
    let column = above.key_range.start - start + document.style.indent;
    let braces = above.colon_end..above.end();
    let after = document.line_end(braces.end);
    Ok(vec![Change::remove(braces), Change::insert(after, at_column(new_entry, column))])
}

/// After the last entry of a map and its comments.
fn end_of_map(document: &EditableText<'_>, map: &SpannedValue, column: usize) -> usize {
    let mut tail = document.line_end(map.range.end);
    while tail < document.text.len() {
        let next = document.line_end(tail);
        if comment(&document.text[tail..next]).is_none_or(|c| c <= column) {
            break;
        }
        tail = next;
    }
    tail
}

fn at_column(new_entry: &NewEntryText, column: usize) -> String {
    let by = isize::try_from(column).unwrap_or(0) - isize::try_from(new_entry.column).unwrap_or(0);
    reindent(&new_entry.lines, by)
}
