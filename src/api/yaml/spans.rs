//! The span of each value in a text.
//!
//! A tree of byte ranges for edits ([`super::edit`]), of one document, with aliases and merge keys as written.

use super::parser::MAX_DEPTH;
use super::{Position, Problem, ProblemKind, scalar};
use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle, options};
use serde_json::{Map, Value};
use std::ops::Range;

/// A value and its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct SpannedValue {
    /// Its bytes, with its tag, without comments after it; for an implicit null, the position after the colon.
    pub range: Range<usize>,
    /// An anchor names it, so aliases may repeat it.
    pub is_anchored: bool,
    /// Its kind.
    pub kind: SpannedKind,
}

/// The kind of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum SpannedKind {
    /// Text, a number, a boolean or null.
    Scalar(Value),
    /// `*name`.
    Alias,
    /// A map. `flow` is true for `{…}`.
    Map {
        /// It is written in braces.
        flow: bool,
        /// Its entries as written.
        entries: Vec<SpannedEntry>,
    },
    /// A list. `flow` is true for `[…]`.
    List {
        /// It is written in brackets.
        flow: bool,
        /// Its items.
        items: Vec<SpannedValue>,
    },
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct SpannedEntry {
    /// The key; `None` when it is no text.
    pub key: Option<String>,
    /// Bytes of the key.
    pub key_range: Range<usize>,
    /// The byte after the colon.
    pub colon_end: usize,
    /// `<<`, whose value is merged.
    pub is_merge_key: bool,
    /// The value.
    pub value: SpannedValue,
}

impl SpannedEntry {
    /// The byte after the entry, comments not counted.
    #[must_use]
    pub fn end(&self) -> usize {
        self.value.range.end.max(self.colon_end)
    }
}

impl SpannedValue {
    /// The value; null for an alias.
    #[must_use]
    pub fn value(&self) -> Value {
        match &self.kind {
            SpannedKind::Scalar(value) => value.clone(),
            SpannedKind::Alias => Value::Null,
            SpannedKind::List { items, .. } => items.iter().map(Self::value).collect(),
            SpannedKind::Map { entries, .. } => {
                let pairs = entries.iter().filter_map(|e| Some((e.key.clone()?, e.value.value())));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// True if the value contains an anchor, an alias or a merge key.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_anchored
            || match &self.kind {
                SpannedKind::Scalar(_) => false,
                SpannedKind::Alias => true,
                SpannedKind::List { items, .. } => items.iter().any(Self::is_shared),
                SpannedKind::Map { entries, .. } => entries.iter().any(|e| e.is_merge_key || e.value.is_shared()),
            }
    }

    /// True for a null, and for a map or list without anything in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            SpannedKind::Scalar(value) => value.is_null(),
            SpannedKind::Alias => false,
            SpannedKind::Map { entries, .. } => entries.is_empty(),
            SpannedKind::List { items, .. } => items.is_empty(),
        }
    }
}

/// One document with its comments.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentSpans {
    /// The document; `None` if it is empty.
    pub root: Option<SpannedValue>,
    /// The text of each comment after its `#`, trimmed.
    pub comments: Vec<String>,
}

/// The bytes of each document of a text: together they are the whole text.
///
/// # Errors
/// The first [`Problem`] of syntax.
pub fn documents(text: &str) -> Result<Vec<Range<usize>>, Problem> {
    let parser = Parser::new_from_str_with_options(text, options! { emit_comments: false });
    let mut starts = Vec::new();
    for event in parser {
        let (event, span) = event.map_err(|e| syntax_problem(&e))?;
        if matches!(event, Event::DocumentStart(..)) {
            starts.push(bytes(&span).start);
        }
    }
    let mut ranges = Vec::new();
    for (i, start) in starts.iter().enumerate() {
        let start = if i == 0 { 0 } else { *start };
        ranges.push(start..starts.get(i + 1).copied().unwrap_or(text.len()));
    }
    if ranges.is_empty() {
        ranges.push(0..text.len());
    }
    Ok(ranges)
}

/// The tree of a text of one document.
///
/// # Errors
/// A [`Problem`] of syntax, or that there are several documents.
pub fn tree(text: &str) -> Result<DocumentSpans, Problem> {
    let parser = Parser::new_from_str_with_options(text, options! { emit_comments: true });
    let mut builder = Builder { text, parser, comments: Vec::new() };
    let mut root = None;
    while let Some((event, span)) = builder.next()? {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
            _ if root.is_some() => return Err(problem(&span, "a second document")),
            event => root = Some(builder.node(&event, &span, 0)?),
        }
    }
    Ok(DocumentSpans { root, comments: builder.comments })
}

struct Builder<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    comments: Vec<String>,
}

fn position(span: &Span) -> Position {
    Position { line: span.start.line().max(1), column: span.start.col() + 1 }
}

fn problem(span: &Span, message: &str) -> Problem {
    Problem { kind: ProblemKind::Syntax, position: position(span), message: message.to_owned() }
}

fn syntax_problem(error: &ScanError) -> Problem {
    let at = Position { line: error.marker().line().max(1), column: error.marker().col() + 1 };
    Problem { kind: ProblemKind::Syntax, position: at, message: error.info().to_owned() }
}

fn bytes(span: &Span) -> Range<usize> {
    span.byte_range().unwrap_or(0..0)
}

impl<'t> Builder<'t> {
    /// The next event that is no comment.
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Problem> {
        loop {
            match self.parser.next_event() {
                None => return Ok(None),
                Some(Ok((Event::Comment(text, _), _))) => self.comments.push(text.trim().to_owned()),
                Some(Ok(event)) => return Ok(Some(event)),
                Some(Err(error)) => return Err(syntax_problem(&error)),
            }
        }
    }

    fn node(&mut self, event: &Event<'t>, span: &Span, depth: usize) -> Result<SpannedValue, Problem> {
        if depth >= MAX_DEPTH {
            return Err(problem(span, "values are nested too deeply"));
        }
        let anchored = event.anchor_id().is_some_and(|id| id != 0);
        let mut range = bytes(span);
        let kind = match event {
            Event::Scalar(text, style, _, tag) => {
                let written = &self.text[range.clone()];
                range.end = range.start + written.trim_end().len();
                let plain = *style == ScalarStyle::Plain && tag.is_none();
                let value = if plain { scalar::resolve(text).ok() } else { None };
                SpannedKind::Scalar(value.unwrap_or_else(|| Value::String(text.to_string())))
            }
            Event::Alias(_) => SpannedKind::Alias,
            Event::SequenceStart(style, ..) => {
                let (items, end) = self.list(depth, range.end)?;
                range.end = end;
                SpannedKind::List { flow: *style == StructureStyle::Flow, items }
            }
            Event::MappingStart(style, ..) => {
                let (entries, end) = self.map(depth, range.end)?;
                range.end = end;
                SpannedKind::Map { flow: *style == StructureStyle::Flow, entries }
            }
            _ => return Err(problem(span, "a value is missing")),
        };
        if let Some(start) = span.tag_start.and_then(|m| m.byte_offset()) {
            range.start = range.start.min(start);
        }
        Ok(SpannedValue { range, is_anchored: anchored, kind })
    }

    /// The items, and where the list ends: after its bracket, or after its last item.
    fn list(&mut self, depth: usize, start: usize) -> Result<(Vec<SpannedValue>, usize), Problem> {
        let (mut items, mut end) = (Vec::new(), start);
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                end = self.collection_end(&span, b']', end);
                break;
            }
            let item = self.node(&event, &span, depth + 1)?;
            end = end.max(item.range.end);
            items.push(item);
        }
        Ok((items, end))
    }

    fn map(&mut self, depth: usize, start: usize) -> Result<(Vec<SpannedEntry>, usize), Problem> {
        let (mut entries, mut end) = (Vec::new(), start);
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                end = self.collection_end(&span, b'}', end);
                break;
            }
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.node(&event, &span, depth + 1)?;
            let Some((event, span)) = self.next()? else {
                break;
            };
            let mut value = self.node(&event, &span, depth + 1)?;
            let colon_end = self.after_colon(key.range.end);
            if matches!(&event, Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..)) {
                // The parser returns the start of the lines; the indicator before them belongs to the scalar.
                let sign = self.text[colon_end..].find(['|', '>']).map_or(colon_end, |i| colon_end + i);
                value.range = value.range.start.min(sign)..value.range.end.max(sign + 1);
            } else if value.range.is_empty() {
                value.range = colon_end..colon_end;
            }
            let text = match &key.kind {
                SpannedKind::Scalar(value) => scalar::key(value),
                SpannedKind::Alias | SpannedKind::Map { .. } | SpannedKind::List { .. } => None,
            };
            let entry = SpannedEntry { key: text, key_range: key.range, colon_end, is_merge_key: merge, value };
            end = end.max(entry.end());
            entries.push(entry);
        }
        Ok((entries, end))
    }

    /// A flow collection ends after its bracket; the end of one without is where its last part ends.
    fn collection_end(&self, span: &Span, bracket: u8, end: usize) -> usize {
        let range = bytes(span);
        if self.text.as_bytes().get(range.start) == Some(&bracket) && range.start >= end {
            range.start + 1
        } else {
            end
        }
    }

    fn after_colon(&self, key_end: usize) -> usize {
        let rest = &self.text[key_end..];
        let trimmed = rest.trim_start();
        if trimmed.starts_with(':') { key_end + (rest.len() - trimmed.len()) + 1 } else { key_end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(text: &str) -> Vec<String> {
        fn walk(node: &SpannedValue, text: &str, found: &mut Vec<String>) {
            found.push(text[node.range.clone()].to_owned());
            match &node.kind {
                SpannedKind::Scalar(_) | SpannedKind::Alias => {}
                SpannedKind::List { items, .. } => items.iter().for_each(|i| walk(i, text, found)),
                SpannedKind::Map { entries, .. } => entries.iter().for_each(|e| walk(&e.value, text, found)),
            }
        }
        let mut found = Vec::new();
        walk(&tree(text).unwrap().root.unwrap(), text, &mut found);
        found
    }

    #[test]
    fn each_value_reaches_from_its_first_byte_to_its_last() {
        assert_eq!(
            slices("a: é # x\nb: [1, {c: 'd'}] # y\ne:\nf: |\n  g\n  h\n\ni: !!str 5\n"),
            [
                "a: é # x\nb: [1, {c: 'd'}] # y\ne:\nf: |\n  g\n  h\n\ni: !!str 5",
                "é",
                "[1, {c: 'd'}]",
                "1",
                "{c: 'd'}",
                "'d'",
                "",
                "|\n  g\n  h",
                "!!str 5"
            ]
        );
    }

    #[test]
    fn a_block_collection_ends_with_its_last_value() {
        let text = "a:\r\n  b:\r\n  - c: 1\r\n    # end of c\r\n\r\n# of d\r\nd: {}\r\n";
        let found = slices(text);
        assert_eq!(found[1], "b:\r\n  - c: 1");
        assert_eq!(found.last().unwrap(), "{}");
        assert_eq!(tree(text).unwrap().comments, ["end of c", "of d"]);
    }

    #[test]
    fn documents_together_are_the_whole_text() {
        let text = "# first\na: 1\n--- # two\nb: 2\n...\n---\n# nothing\n---\n{c: 3}";
        let parts: Vec<_> = documents(text).unwrap().into_iter().map(|r| &text[r]).collect();
        assert_eq!(parts.concat(), text);
        assert_eq!(parts, ["# first\na: 1\n", "--- # two\nb: 2\n...\n", "---\n# nothing\n", "---\n{c: 3}"]);
        assert_eq!(documents("").unwrap().first(), Some(&(0..0)));
        assert!(documents("a: [\n").is_err());
    }
}
