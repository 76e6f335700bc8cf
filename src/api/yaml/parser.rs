//! Trees built from the parser's events.

use super::{Chunk, Position, Problem, ProblemKind, scalar};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag, options};
use serde_json::Value;
use std::collections::BTreeMap;

/// Most values in a document, each alias counted as its whole value.
pub const MAX_NODES: usize = 500_000;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 100;

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct PositionedValue {
    pub(super) at: Position,
    pub(super) kind: ValueKind,
}

/// The kind of a value.
#[derive(Debug, Clone)]
pub(super) enum ValueKind {
    Scalar(Value),
    List(Vec<PositionedValue>),
    Map(Vec<MapEntry>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct MapEntry {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) value: PositionedValue,
    /// It is from a merge key, so an explicit key may override it.
    from_merge_key: bool,
}

impl PositionedValue {
    fn size(&self) -> usize {
        1 + match &self.kind {
            ValueKind::Scalar(_) => 0,
            ValueKind::List(items) => items.iter().map(Self::size).sum(),
            ValueKind::Map(entries) => entries.iter().map(|e| e.value.size()).sum(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.kind {
            ValueKind::Scalar(_) => 0,
            ValueKind::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            ValueKind::Map(entries) => entries.iter().map(|e| e.value.depth()).max().unwrap_or(0),
        }
    }
}

/// All complete, non-empty documents of a part of a text, and its problems.
pub(super) fn parse(text: &str, chunk: &Chunk) -> (Vec<PositionedValue>, Vec<Problem>) {
    let text = text.get(chunk.bytes.clone()).unwrap_or_default();
    let mut builder = Builder {
        lines: chunk.lines,
        parser: Parser::new_from_str_with_options(text, options! { emit_comments: false }),
        anchors: BTreeMap::new(),
        nodes: 0,
        problems: Vec::new(),
    };
    let mut roots = Vec::new();
    loop {
        match builder.document() {
            Ok(Some(root)) if matches!(root.kind, ValueKind::Scalar(Value::Null)) => {}
            Ok(Some(root)) => roots.push(root),
            Ok(None) => break,
            Err(Stop { problem, fatal }) => {
                builder.problems.push(problem);
                if fatal || !builder.skip_document() {
                    break;
                }
            }
        }
    }
    (roots, builder.problems)
}

/// Why a document cannot be read on.
struct Stop {
    problem: Problem,
    /// The documents after it cannot be read either.
    fatal: bool,
}

struct Builder<'t> {
    /// The lines before the text.
    lines: usize,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    anchors: BTreeMap<usize, PositionedValue>,
    nodes: usize,
    problems: Vec<Problem>,
}

pub(super) fn position(mark: &Marker) -> Position {
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

fn syntax(at: Position, message: impl Into<String>) -> Stop {
    Stop { problem: Problem { kind: ProblemKind::Syntax, position: at, message: message.into() }, fatal: false }
}

impl<'t> Builder<'t> {
    fn position(&self, mark: &Marker) -> Position {
        Position { line: self.lines + mark.line().max(1), column: mark.col() + 1 }
    }

    fn syntax_stop(&self, error: &ScanError) -> Stop {
        syntax(self.position(error.marker()), error.info())
    }

    /// The next document; `None` at the end of the text.
    fn document(&mut self) -> Result<Option<PositionedValue>, Stop> {
        self.anchors.clear();
        loop {
            match self.next()? {
                None | Some((Event::StreamEnd, _)) => return Ok(None),
                Some((Event::DocumentStart(..) | Event::StreamStart | Event::DocumentEnd, _)) => {}
                Some((event, at)) => return self.node(event, at, 0).map(Some),
            }
        }
    }

    /// Skips to the next document after an error; false if there is none.
    fn skip_document(&mut self) -> bool {
        match self.parser.proceed_next_document() {
            Ok(more) => more,
            Err(error) => {
                self.problems.push(self.syntax_stop(&error).problem);
                false
            }
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Position)>, Stop> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, self.position(&span.start)))),
            Some(Err(error)) => Err(self.syntax_stop(&error)),
        }
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let stop = syntax(at, format!("the document has more than {MAX_NODES} values, including aliases"));
            return Err(Stop { fatal: true, ..stop });
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'t>, at: Position, depth: usize) -> Result<PositionedValue, Stop> {
        self.count(1, at)?;
        if depth >= MAX_DEPTH {
            return Err(syntax(at, format!("values are nested deeper than {MAX_DEPTH} levels")));
        }
        let anchor = event.anchor_id();
        let kind = match event {
            Event::Scalar(text, style, _, tag) => ValueKind::Scalar(scalar_value(&text, style, tag.as_deref(), at)?),
            Event::SequenceStart(..) => ValueKind::List(self.list(depth)?),
            Event::MappingStart(..) => ValueKind::Map(self.map(depth)?),
            Event::Alias(id) => return self.alias(id, at, depth),
            _ => return Err(syntax(at, "a value is missing")),
        };
        let node = PositionedValue { at, kind };
        if let Some(id) = anchor.filter(|id| *id != 0) {
            self.anchors.insert(id, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, at: Position, depth: usize) -> Result<PositionedValue, Stop> {
        let Some(target) = self.anchors.get(&id) else {
            return Err(syntax(at, "an alias refers to a value that contains it"));
        };
        let (size, levels) = (target.size(), target.depth());
        let kind = target.kind.clone();
        self.count(size, at)?;
        if depth + levels > MAX_DEPTH {
            return Err(syntax(at, format!("values are nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(PositionedValue { at, kind })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<PositionedValue>, Stop> {
        let mut items = Vec::new();
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, at, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<MapEntry>, Stop> {
        let mut entries: Vec<MapEntry> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.node(event, at, depth + 1)?;
            let Some((event, value_at)) = self.next()? else {
                break;
            };
            let value = self.node(event, value_at, depth + 1)?;
            if merges {
                for entry in merge_key_entries(value)? {
                    insert_entry(&mut entries, &mut index, entry);
                }
                continue;
            }
            let key = match key.kind {
                ValueKind::Scalar(value) => scalar::key(&value),
                ValueKind::List(_) | ValueKind::Map(_) => None,
            };
            let key = key.ok_or_else(|| syntax(at, "a key must be a string, not null, a list or a map"))?;
            let entry = MapEntry { key, at, value, from_merge_key: false };
            if let Some(first) = insert_entry(&mut entries, &mut index, entry) {
                self.problems.push(first);
            }
        }
        Ok(entries)
    }
}

/// Inserts an entry, replacing one with the same key. Two explicit ones are a problem.
fn insert_entry(entries: &mut Vec<MapEntry>, index: &mut BTreeMap<String, usize>, entry: MapEntry) -> Option<Problem> {
    let Some(&i) = index.get(&entry.key) else {
        index.insert(entry.key.clone(), entries.len());
        entries.push(entry);
        return None;
    };
    let first = std::mem::replace(&mut entries[i], entry);
    let entry = &entries[i];
    (!first.from_merge_key && !entry.from_merge_key).then(|| Problem {
        kind: ProblemKind::DuplicateKey,
        position: entry.at,
        message: format!("duplicate key {:?}, first used at {}", entry.key, first.at),
    })
}

/// Entries of the value of a merge key. Of several maps the first wins, so it comes last.
fn merge_key_entries(value: PositionedValue) -> Result<Vec<MapEntry>, Stop> {
    let at = value.at;
    match value.kind {
        ValueKind::Map(entries) => Ok(entries.into_iter().map(|e| MapEntry { from_merge_key: true, ..e }).collect()),
        ValueKind::List(items) if items.iter().all(|i| matches!(i.kind, ValueKind::Map(_))) => {
            let parts: Result<Vec<_>, _> = items.into_iter().rev().map(merge_key_entries).collect();
            Ok(parts?.into_iter().flatten().collect())
        }
        _ => Err(syntax(at, "a merge key needs a map or a list of maps")),
    }
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Value, Stop> {
    let plain = || {
        let refused = |_| syntax(at, format!("{text} is not allowed: JSON has no such number"));
        scalar::resolve(text).map_err(refused)
    };
    let tag = tag.and_then(|t| t.suffix_in_namespace("tag:yaml.org,2002:"));
    match tag.as_deref() {
        Some("str") => Ok(Value::String(text.to_owned())),
        Some("binary") => Err(syntax(at, "the tag !!binary is not supported: use a plain string")),
        Some("int" | "float" | "bool" | "null") => plain(),
        _ if style == ScalarStyle::Plain => plain(),
        _ => Ok(Value::String(text.to_owned())),
    }
}
