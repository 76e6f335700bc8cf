//! The text of a document, and where its entries are.

use super::render::{self, Style};
use super::{Edit, InsertPosition, Refusal, block, flow};
use crate::field_path::{Path, Segment};
use crate::yaml::Problem;
use crate::yaml::spans::{self, DocumentSpans, SpannedEntry, SpannedKind, SpannedValue};
use serde_json::Value;
use std::ops::Range;

/// A replacement of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The bytes that go.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

impl Change {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    pub(super) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }
}

/// Makes changes to a text.
///
/// # Errors
/// [`Refusal`] when two of them concern the same bytes.
pub fn apply_changes(text: &str, mut changes: Vec<Change>) -> Result<String, Refusal> {
    changes.sort_by_key(|c| (c.range.start, c.range.end));
    let mut result = String::with_capacity(text.len() + 256);
    let mut done = 0;
    for change in &changes {
        let unchanged = text.get(done..change.range.start);
        let overlap = || Refusal::new(change.range.start, "two changes overlap in this text: make one of them by hand");
        result.push_str(unchanged.ok_or_else(overlap)?);
        result.push_str(&change.text);
        done = change.range.end;
    }
    result.push_str(text.get(done..).unwrap_or_default());
    Ok(result)
}

/// A text of one document, ready to be edited. It ends with a line break.
#[derive(Debug)]
pub struct EditableText<'t> {
    pub(super) text: &'t str,
    pub(super) style: Style,
    tree: DocumentSpans,
    /// The ends of its lines, for thousands of edits; a text may be one long line.
    line_breaks: Vec<usize>,
}

/// An entry of a map.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryRef<'a> {
    /// The map.
    pub(super) map: &'a SpannedValue,
    /// Which of its entries.
    pub(super) index: usize,
    pub(super) entry: &'a SpannedEntry,
    /// The entry whose value the map is; none for the root and for items of lists.
    pub(super) parent: Option<&'a SpannedEntry>,
}

/// The target map of an insertion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) node: &'a SpannedValue,
    /// The entry whose value the map is.
    pub(super) entry: Option<&'a SpannedEntry>,
    /// The map is in flow style, itself or by a parent.
    pub(super) in_flow: bool,
}

/// A new entry of a map, rendered in three ways, of which one is used.
#[derive(Debug)]
pub(super) struct NewEntryText {
    /// `key: value` for between braces.
    pub(super) inline: String,
    /// Lines in block style, at `column`.
    pub(super) lines: String,
    /// The column of `lines`.
    pub(super) column: usize,
}

impl<'t> EditableText<'t> {
    /// Reads a text of one document.
    ///
    /// # Errors
    /// The [`Problem`] of its syntax.
    pub fn read(text: &'t str) -> Result<Self, Problem> {
        let tree = spans::tree(text)?;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let json = tree.root.as_ref().is_some_and(|root| is_json(root, text));
        let step = tree.root.as_ref().and_then(|root| indent_width(root, text)).unwrap_or(2);
        let breaks = text.match_indices('\n').map(|(at, _)| at).collect();
        Ok(Self { text, style: Style { json, indent: step, newline }, tree, line_breaks: breaks })
    }

    /// The comments of the text.
    #[must_use]
    pub fn comments(&self) -> &[String] {
        &self.tree.comments
    }

    /// The changes for an edit of the object at `root`.
    ///
    /// # Errors
    /// [`Refusal`] if the layout forbids it: the value is shared by an anchor, or cannot get a line of its own.
    pub fn changes(&self, edit: &Edit, root: &Path) -> Result<Vec<Change>, Refusal> {
        let full = |path: &Path| root.join(path.segments());
        match edit {
            Edit::Set { path, value } => self.set(&full(path), value),
            Edit::Rename { path, to } => {
                let entry_ref = self.entry_at(&full(path))?;
                let range = entry_ref.entry.key_range.clone();
                let text = render::text_like(to, &self.text[range.clone()], self.style.json);
                Ok(vec![Change { range, text }])
            }
            Edit::Insert { parent, position, key, value } => {
                let new_entry = NewEntryText {
                    inline: self.inline(key, &render::flow(value, self.style.json)),
                    lines: render::block(key, value, 0, self.style),
                    column: 0,
                };
                self.insert(&self.map_at(&full(parent))?, position, &new_entry)
            }
            Edit::Move { from, parent, key } => {
                let entry_ref = self.entry_at(&full(from))?;
                check_unshared(entry_ref)?;
                let target = self.map_at(&full(parent))?;
                let new_entry = if entry_ref.is_flow() {
                    flow::extract(self, entry_ref, key)
                } else {
                    block::extract(self, entry_ref, key)?
                };
                let mut changes = self.insert(&target, &InsertPosition::End, &new_entry)?;
                changes.extend(match (entry_ref.is_flow(), target.in_flow) {
                    (true, _) => flow::remove(self, entry_ref),
                    (false, true) => block::remove_keeping_comments(self, entry_ref)?,
                    (false, false) => block::remove_with_comments(self, entry_ref)?,
                });
                Ok(changes)
            }
            Edit::CommentOut { path, comment } => {
                let entry_ref = self.entry_at(&full(path))?;
                check_unshared(entry_ref)?;
                if entry_ref.is_flow() {
                    Ok(flow::remove_keeping_comments(self, entry_ref))
                } else {
                    block::comment_out(self, entry_ref, comment)
                }
            }
            Edit::RemoveEmpty { path } => {
                let entry_ref = self.entry_at(&full(path))?;
                check_unshared(entry_ref)?;
                if entry_ref.is_flow() {
                    Ok(flow::remove_keeping_comments(self, entry_ref))
                } else {
                    block::remove_keeping_comments(self, entry_ref)
                }
            }
        }
    }

    pub(super) fn inline(&self, key: &str, value: &str) -> String {
        format!("{}: {value}", render::text(key, self.style.json))
    }

    fn insert(
        &self,
        target: &Target<'_>,
        position: &InsertPosition,
        new_entry: &NewEntryText,
    ) -> Result<Vec<Change>, Refusal> {
        if target.in_flow {
            flow::insert(self, target, position, new_entry)
        } else {
            block::insert(self, target, position, new_entry)
        }
    }

    fn set(&self, path: &Path, value: &Value) -> Result<Vec<Change>, Refusal> {
        let node = self.map_at(path)?.node;
        if node.is_shared() {
            return Err(shared_error(node));
        }
        let range = node.range.clone();
        let old = &self.text[range.clone()];
        let text = match value.as_str() {
            Some(text) => render::text_like(text, old, self.style.json),
            None => render::flow(value, self.style.json),
        };
        // An implicit null is directly after its colon.
        let text = if old.is_empty() { format!(" {text}") } else { text };
        Ok(vec![Change { range, text }])
    }

    /// The entry at a path.
    fn entry_at(&self, path: &Path) -> Result<EntryRef<'_>, Refusal> {
        let Some((Segment::Key(key), rest)) = path.segments().split_last() else {
            return Err(Refusal::new(0, format!("{path} is not an entry of a map")));
        };
        let parent = Path::root().join(rest);
        let Target { node, entry: above, .. } = self.map_at(&parent)?;
        let SpannedKind::Map { entries, .. } = &node.kind else {
            return Err(Refusal::new(node.range.start, format!("{parent} is not a map")));
        };
        let (index, entry) = find(entries, key, node)?;
        Ok(EntryRef { map: node, index, entry, parent: above })
    }

    /// The value at a path, and its context.
    fn map_at(&self, path: &Path) -> Result<Target<'_>, Refusal> {
        let root = self.tree.root.as_ref().ok_or_else(|| Refusal::new(0, "the document is empty"))?;
        let mut target = Target { node: root, entry: None, in_flow: is_flow(root) };
        for segment in path.segments() {
            check_not_alias(target.node)?;
            match (&target.node.kind, segment) {
                (SpannedKind::Map { entries, flow }, Segment::Key(key)) => {
                    let (_, entry) = find(entries, key, target.node)?;
                    let node = &entry.value;
                    let in_flow = *flow || (is_flow(node) && !node.is_empty()) || self.contains_comment(node);
                    target = Target { node, entry: Some(entry), in_flow };
                }
                (SpannedKind::List { items, flow }, Segment::Index(index)) => {
                    let missing = || Refusal::new(target.node.range.start, format!("{path} does not exist"));
                    let node = items.get(*index).ok_or_else(missing)?;
                    target = Target { node, entry: None, in_flow: *flow || is_flow(node) };
                }
                _ => return Err(Refusal::new(target.node.range.start, format!("{path} does not exist"))),
            }
        }
        check_not_alias(target.node)?;
        Ok(target)
    }

    /// Empty braces with a comment between them.
    fn contains_comment(&self, node: &SpannedValue) -> bool {
        is_flow(node) && node.is_empty() && self.text[node.range.clone()].contains('#')
    }

    /// The first byte of a line.
    pub(super) fn line_start(&self, at: usize) -> usize {
        self.line_breaks[..self.line_breaks.partition_point(|b| *b < at)].last().map_or(0, |b| b + 1)
    }

    /// The byte after a line's break.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.line_breaks.get(self.line_breaks.partition_point(|b| *b < at)).map_or(self.text.len(), |b| b + 1)
    }
}

impl EntryRef<'_> {
    fn is_flow(&self) -> bool {
        is_flow(self.map)
    }

    pub(super) fn entries(&self) -> &[SpannedEntry] {
        match &self.map.kind {
            SpannedKind::Map { entries, .. } => entries,
            SpannedKind::Scalar(_) | SpannedKind::Alias | SpannedKind::List { .. } => &[],
        }
    }
}

/// The comments in a part of the text that an entry fills.
pub(super) fn comments<'t>(document: &EditableText<'t>, entry: &SpannedEntry, part: Range<usize>) -> Vec<&'t str> {
    let text: &'t str = document.text;
    let mut found = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let next = document.line_end(at).min(part.end);
        if let Some(start) = comment_start(text, entry, at..next) {
            found.push(text[start..next].trim_end());
        }
        at = next;
    }
    found
}

/// Where the comment of a line begins: after a blank, and in no scalar of the entry.
fn comment_start(text: &str, entry: &SpannedEntry, line: Range<usize>) -> Option<usize> {
    let begins = |at: &usize| *at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace();
    let mut candidates = text[line.clone()].match_indices('#').map(|(i, _)| line.start + i).filter(begins);
    candidates.find(|at| !entry.key_range.contains(at) && !in_scalar(&entry.value, *at))
}

fn in_scalar(node: &SpannedValue, at: usize) -> bool {
    match &node.kind {
        SpannedKind::Scalar(_) | SpannedKind::Alias => node.range.contains(&at),
        SpannedKind::List { items, .. } => items.iter().any(|i| in_scalar(i, at)),
        SpannedKind::Map { entries, .. } => {
            entries.iter().any(|e| e.key_range.contains(&at) || in_scalar(&e.value, at))
        }
    }
}

fn is_flow(node: &SpannedValue) -> bool {
    matches!(node.kind, SpannedKind::Map { flow: true, .. } | SpannedKind::List { flow: true, .. })
}

fn is_json(root: &SpannedValue, text: &str) -> bool {
    match &root.kind {
        SpannedKind::Map { flow: true, entries } => entries.iter().all(|e| text[e.key_range.clone()].starts_with('"')),
        _ => false,
    }
}

/// The columns of the first level below the root.
fn indent_width(root: &SpannedValue, text: &str) -> Option<usize> {
    let SpannedKind::Map { flow: false, entries } = &root.kind else {
        return None;
    };
    let column = |at: usize| at - text[..at].rfind('\n').map_or(0, |i| i + 1);
    entries.iter().find_map(|entry| match &entry.value.kind {
        SpannedKind::Map { flow: false, entries: inner } => {
            let inner = inner.first()?;
            column(inner.key_range.start).checked_sub(column(entry.key_range.start)).filter(|n| *n > 0)
        }
        _ => None,
    })
}

fn find<'a>(entries: &'a [SpannedEntry], key: &str, map: &SpannedValue) -> Result<(usize, &'a SpannedEntry), Refusal> {
    let mut found = entries.iter().enumerate().filter(|(_, e)| e.key.as_deref() == Some(key) && !e.is_merge_key);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some((_, second))) => {
            let message = format!("duplicate key {key:?}: delete one of them first");
            Err(Refusal::new(second.key_range.start, message))
        }
        (None, _) => {
            let merge = entries.iter().find(|e| e.is_merge_key);
            let at = merge.map_or(map.range.start, |e| e.key_range.start);
            let message = format!("{key} comes from a merge key: write it out, then migrate");
            Err(Refusal::new(at, if merge.is_some() { message } else { format!("{key} does not exist") }))
        }
    }
}

fn check_not_alias(node: &SpannedValue) -> Result<(), Refusal> {
    if node.is_anchored || node.kind == SpannedKind::Alias { Err(shared_error(node)) } else { Ok(()) }
}

fn check_unshared(entry_ref: EntryRef<'_>) -> Result<(), Refusal> {
    if entry_ref.entry.value.is_shared() { Err(shared_error(&entry_ref.entry.value)) } else { Ok(()) }
}

fn shared_error(node: &SpannedValue) -> Refusal {
    let message = "this must change, but is shared through an anchor or alias: write it out, then migrate";
    Refusal::new(node.range.start, message)
}
