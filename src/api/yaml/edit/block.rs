//! Edits of entries in block style, which have lines of their own.

use super::render::{self, reindent};
use super::sheet::{Change, Piece, Sheet, Spot, Target, comments};
use super::{Place, Refusal};
use crate::yaml::spans::{Entry, Kind, Node};
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

fn entry_lines(sheet: &Sheet<'_>, map: &Node, index: usize, above: Option<&Entry>) -> Result<Lines, Refusal> {
    let Kind::Map { entries, .. } = &map.kind else {
        return Err(Refusal::new(map.range.start, "this is not a map"));
    };
    let entry = &entries[index];
    let start = sheet.line_start(entry.key_range.start);
    let column = entry.key_range.start - start;
    let before = &sheet.text[start..entry.key_range.start];
    if !before.bytes().all(|b| b == b' ') {
        let message = "this entry shares its line with something else: move it to its own line, then migrate";
        return Err(Refusal::new(entry.key_range.start, message));
    }
    let floor = match index.checked_sub(1) {
        Some(previous) => sheet.line_end(entries[previous].end()),
        None => above.map_or(0, |e| sheet.line_end(e.colon_end)),
    };
    let mut lead = start;
    while lead > floor {
        let previous = sheet.line_start(lead - 1);
        if comment(&sheet.text[previous..lead]) != Some(column) || previous < floor {
            break;
        }
        lead = previous;
    }
    let end = sheet.line_end(entry.end());
    let mut tail = end;
    while tail < sheet.text.len() {
        let next = sheet.line_end(tail);
        if comment(&sheet.text[tail..next]).is_none_or(|c| c <= column) {
            break;
        }
        tail = next;
    }
    Ok(Lines { comments_start: lead, start, end, comments_end: tail, column })
}

fn lines_of(sheet: &Sheet<'_>, spot: Spot<'_>) -> Result<Lines, Refusal> {
    entry_lines(sheet, spot.map, spot.index, spot.parent)
}

/// An entry with its comments, to be put elsewhere under a key.
pub(super) fn extract(sheet: &Sheet<'_>, spot: Spot<'_>, key: &str) -> Result<Piece, Refusal> {
    let own = lines_of(sheet, spot)?;
    let Range { start, end } = spot.entry.key_range;
    let written = &sheet.text[start..end];
    let key = if spot.entry.key.as_deref() == Some(key) {
        written.to_owned()
    } else {
        render::text_like(key, written, sheet.style.json)
    };
    let value = &spot.entry.value;
    let source = &sheet.text[value.range.clone()];
    let is_one_word = matches!(value.kind, Kind::Scalar(_))
        && !source.is_empty()
        && !source.contains(['\n', ',', '[', ']', '{', '}', '|', '>']);
    let inline = if is_one_word { source.to_owned() } else { render::flow(&value.value(), sheet.style.json) };
    Ok(Piece {
        lines: format!("{}{key}{}", &sheet.text[own.comments_start..start], &sheet.text[end..own.comments_end]),
        column: own.column,
        inline: format!("{key}: {inline}"),
    })
}

/// Where a map has no other entry, braces have to say that it is a map.
fn left_empty(spot: Spot<'_>) -> Result<Option<Change>, Refusal> {
    if spot.entries().len() > 1 {
        return Ok(None);
    }
    match spot.parent {
        Some(above) => Ok(Some(Change::insert(above.colon_end, " {}"))),
        None => Err(Refusal::new(spot.entry.key_range.start, "the parent of this entry would become empty")),
    }
}

/// The entry goes with its comments: they have been put elsewhere.
pub(super) fn remove_with_comments(sheet: &Sheet<'_>, spot: Spot<'_>) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(sheet, spot)?;
    let mut changes = vec![Change::remove(own.comments_start..own.comments_end)];
    changes.extend(left_empty(spot)?);
    Ok(changes)
}

/// The entry goes, each of its comments stays on a line of its own.
pub(super) fn remove_keeping_comments(sheet: &Sheet<'_>, spot: Spot<'_>) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(sheet, spot)?;
    let pad = " ".repeat(own.column);
    let comments = comments(sheet, spot.entry, own.start..own.end);
    let kept = comments.iter().map(|c| format!("{pad}{c}{}", sheet.style.newline)).collect();
    let mut changes = vec![Change { range: own.start..own.end, text: kept }];
    changes.extend(left_empty(spot)?);
    Ok(changes)
}

/// The entry becomes a comment, with a line above that says why.
pub(super) fn comment_out(sheet: &Sheet<'_>, spot: Spot<'_>, why: &str) -> Result<Vec<Change>, Refusal> {
    let own = lines_of(sheet, spot)?;
    let newline = sheet.style.newline;
    let pad = " ".repeat(own.column);
    let mut text = format!("{pad}# {why}{newline}");
    for line in sheet.text[own.start..own.end].lines() {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let rest = line[spaces.min(own.column)..].trim_end();
        text += &format!("{pad}#{}{rest}{newline}", if rest.is_empty() { "" } else { " " });
    }
    let mut changes = vec![Change { range: own.start..own.end, text }];
    changes.extend(left_empty(spot)?);
    Ok(changes)
}

/// Puts an entry on lines of its own.
pub(super) fn insert(
    sheet: &Sheet<'_>,
    target: &Target<'_>,
    place: &Place,
    piece: &Piece,
) -> Result<Vec<Change>, Refusal> {
    if let Kind::Map { entries, .. } = &target.node.kind
        && let Some(first) = entries.first()
    {
        let column = first.key_range.start - sheet.line_start(first.key_range.start);
        let text = at_column(piece, column);
        let own = |key: &str| {
            let index = entries.iter().position(|e| e.key.as_deref() == Some(key));
            index.map(|index| entry_lines(sheet, target.node, index, target.entry)).transpose()
        };
        let at = match place {
            Place::Before(key) => own(key)?.map(|lines| lines.comments_start),
            Place::After(key) => own(key)?.map(|lines| lines.comments_end),
            Place::End => None,
        };
        let at = at.unwrap_or_else(|| end_of_map(sheet, target.node, column));
        return Ok(vec![Change::insert(at, text)]);
    }
    let Some(above) = target.entry else {
        return Err(Refusal::new(target.node.range.start, "there is no map here to add to"));
    };
    let start = sheet.line_start(above.key_range.start);
    // In a list the first key stands after a dash.
    let column = above.key_range.start - start + sheet.style.indent;
    let braces = above.colon_end..above.end();
    let after = sheet.line_end(braces.end);
    Ok(vec![Change::remove(braces), Change::insert(after, at_column(piece, column))])
}

/// After the last entry of a map and its comments.
fn end_of_map(sheet: &Sheet<'_>, map: &Node, column: usize) -> usize {
    let mut tail = sheet.line_end(map.range.end);
    while tail < sheet.text.len() {
        let next = sheet.line_end(tail);
        if comment(&sheet.text[tail..next]).is_none_or(|c| c <= column) {
            break;
        }
        tail = next;
    }
    tail
}

fn at_column(piece: &Piece, column: usize) -> String {
    let by = isize::try_from(column).unwrap_or(0) - isize::try_from(piece.column).unwrap_or(0);
    reindent(&piece.lines, by)
}
