//! YAML and JSON files with the positions of their values.
//!
//! Plain scalars are resolved as kubectl does (YAML 1.1). Duplicate keys are reported, though kubectl silently uses the
//! last one. Aliases and merge keys work, up to [`MAX_NODES`] values in a document.
//!
//! Positions of values are computed on demand: most documents have no problems, and positions take more time and memory
//! than the document itself.

mod chunk;
mod comments;
pub mod edit;
mod parser;
mod scalar;
pub mod spans;

use crate::field_path::{Path, Segment};
pub use chunk::{Chunk, chunks};
pub use comments::{Comment, comments};
pub use parser::{MAX_DEPTH, MAX_NODES};
use parser::{PositionedValue, ValueKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A position in a file, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What sort of problem a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// It is not YAML, or not valid in a manifest.
    Syntax,
    /// A key is given twice.
    DuplicateKey,
}

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What sort.
    pub kind: ProblemKind,
    /// Where.
    pub position: Position,
    /// What, and what would be right.
    pub message: String,
}

/// One document of a file.
#[derive(Debug, Clone)]
pub struct Document {
    /// Name of the file.
    pub file: Arc<str>,
    /// The value of the document, with the last of duplicate keys.
    pub value: Value,
    source: Option<Origin>,
    locations: OnceLock<BTreeMap<Path, ValuePosition>>,
}

/// The text that a document was read from.
#[derive(Debug, Clone)]
struct Origin {
    text: Arc<str>,
    chunk: Chunk,
    /// Which document of the chunk.
    document_index: usize,
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.value == other.value
    }
}

/// The positions of a value and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValuePosition {
    key: Position,
    value: Position,
}

impl Document {
    /// An object without a file, under a display name: all of it is at line 1, column 1.
    #[must_use]
    pub fn without_text(name: &str, value: Value) -> Self {
        Self { file: Arc::from(name), value, source: None, locations: OnceLock::new() }
    }

    /// The position of the value at a path; if it is absent, of the nearest object around it.
    #[must_use]
    pub fn position(&self, path: &Path) -> Position {
        self.location(path).value
    }

    /// The position of the key of a path; for an item of a list, of the item.
    #[must_use]
    pub fn key_position(&self, path: &Path) -> Position {
        self.location(path).key
    }

    /// Parses the text again, for the positions.
    fn locations(&self) -> &BTreeMap<Path, ValuePosition> {
        self.locations.get_or_init(|| {
            let mut locations = BTreeMap::new();
            if let Some(Origin { text, chunk, document_index: nth }) = &self.source {
                let root = parser::parse(text, chunk).0.into_iter().nth(*nth);
                if let Some(root) = root {
                    record_locations(&root, root.at, &Path::root(), &mut locations);
                }
            }
            locations
        })
    }

    fn location(&self, path: &Path) -> ValuePosition {
        let locations = self.locations();
        let mut segments = path.segments();
        loop {
            let prefix = Path::root().join(segments);
            if let Some(found) = locations.get(&prefix) {
                return if segments.len() == path.segments().len() {
                    *found
                } else {
                    // The value is absent: point at the key of its parent, not at the parent's first line.
                    ValuePosition { value: found.key, ..*found }
                };
            }
            let Some((_, rest)) = segments.split_last() else {
                let start = Position { line: 1, column: 1 };
                return ValuePosition { key: start, value: start };
            };
            segments = rest;
        }
    }
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Its documents; empty ones are left out, and those with a syntax error.
    pub documents: Vec<Document>,
    /// The problems of the file.
    pub problems: Vec<Problem>,
}

/// Reads all documents of a text. `file` is the name to show.
#[must_use]
pub fn read(file: &str, text: &str) -> Reading {
    let (file, text) = (Arc::from(file), Arc::from(text));
    let mut all = Reading::default();
    for chunk in chunks(&text) {
        let Reading { documents, problems } = read_chunk(&file, &text, chunk);
        all.documents.extend(documents);
        all.problems.extend(problems);
    }
    all
}

/// Parses a part of a text, from [`chunks`].
#[must_use]
pub fn read_chunk(file: &Arc<str>, text: &Arc<str>, chunk: Chunk) -> Reading {
    let (roots, problems) = parser::parse(text, &chunk);
    let document = |(nth, root): (usize, PositionedValue)| Document {
        file: Arc::clone(file),
        value: value(root),
        source: Some(Origin { text: Arc::clone(text), chunk: chunk.clone(), document_index: nth }),
        locations: OnceLock::new(),
    };
    Reading { documents: roots.into_iter().enumerate().map(document).collect(), problems }
}

fn value(node: PositionedValue) -> Value {
    match node.kind {
        ValueKind::Scalar(value) => value,
        ValueKind::List(items) => items.into_iter().map(value).collect(),
        ValueKind::Map(entries) => {
            let mut map = Map::with_capacity(entries.len());
            for entry in entries {
                map.insert(entry.key, value(entry.value));
            }
            Value::Object(map)
        }
    }
}

/// Records the positions of a value, its key and its descendants.
fn record_locations(node: &PositionedValue, key: Position, path: &Path, locations: &mut BTreeMap<Path, ValuePosition>) {
    let value = if matches!(node.kind, ValueKind::Scalar(Value::Null)) { key } else { node.at };
    locations.insert(path.clone(), ValuePosition { key, value });
    match &node.kind {
        ValueKind::Scalar(_) => {}
        ValueKind::List(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, item)| record_locations(item, item.at, &path.index(i), locations));
        }
        ValueKind::Map(entries) => {
            entries.iter().for_each(|e| {
                record_locations(&e.value, e.at, &path.with(Segment::Key(Arc::from(&*e.key))), locations)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        let reading = read("t.yaml", text);
        assert_eq!(reading.problems, [], "{text}");
        reading.documents[0].value.clone()
    }

    fn problem(text: &str) -> String {
        let reading = read("t.yaml", text);
        assert_eq!(reading.problems.len(), 1, "{text}: {reading:?}");
        format!("{} {}", reading.problems[0].position, reading.problems[0].message)
    }

    #[test]
    fn every_value_has_a_position() {
        let reading = read("t.yaml", "# x\na:\n  b: [1, {c: 2}]\n---\nd: |\n  text\n");
        let [first, second] = reading.documents.as_slice() else { panic!("{reading:?}") };
        let at = |d: &Document, p: &Path| d.position(p).to_string();
        let b = Path::from_dotted("a.b");
        assert_eq!(at(first, &b), "3:6");
        assert_eq!(first.key_position(&b).to_string(), "3:3");
        assert_eq!(at(first, &b.index(1).key("c")), "3:14");
        assert_eq!(at(first, &Path::from_dotted("a.missing.deep")), "2:1");
        assert_eq!(second.key_position(&Path::from_dotted("d")).to_string(), "5:1");
    }

    #[test]
    fn a_syntax_error_has_a_position_and_later_documents_are_read() {
        let reading = read("t.yaml", "a: 1\n---\nb: [1\nc: 2\n---\nd: 4\n");
        let values: Vec<_> = reading.documents.iter().map(|d| d.value.clone()).collect();
        assert_eq!(values, [json!({"a": 1}), json!({"d": 4})]);
        assert_eq!(reading.problems.len(), 1);
        assert_eq!(reading.problems[0].position.line, 4);
    }

    #[test]
    fn duplicate_keys_are_reported_and_the_last_one_wins() {
        let reading = read("t.yaml", "a: 1\nb: 2\na: 3\n");
        assert_eq!(reading.documents[0].value, json!({"b": 2, "a": 3}));
        assert_eq!(problem("a: 1\nb: 2\na: 3\n"), "3:1 duplicate key \"a\", first used at 1:1");
    }

    #[test]
    fn merge_keys_work_as_in_kubectl() {
        let base = "base: &b {x: 1, y: 2}\n";
        assert_eq!(value(&format!("{base}m: {{<<: *b, x: 3}}"))["m"], json!({"x": 3, "true": 2}));
        assert_eq!(value(&format!("{base}m: {{x: 3, <<: *b}}"))["m"]["x"], json!(1));
        assert_eq!(value(&format!("{base}m: {{<<: [{{x: 9}}, *b]}}"))["m"]["x"], json!(9));
    }

    #[test]
    fn alias_bombs_and_loops_end_in_an_error() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let list = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb += &format!("a{i}: &a{i} [{list}]\n");
        }
        assert!(problem(&bomb).contains("more than"), "{}", problem(&bomb));
        assert!(problem("a: &a [*a]\n").contains("contains it"));
    }

    #[test]
    fn json_is_read_as_well() {
        assert_eq!(
            value("{\n\t\"a\": [1, true, null, \"\\u00e9\\/\"],\n\t\"b\": 1.5\n}"),
            json!({"a": [1, true, null, "é/"], "b": 1.5})
        );
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read("t.yaml", &String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn reading_yaml_like_text_never_panics(text in "[-a-c0-9:&*<>|{}\\[\\],!?'\"%#. \n\t]{0,120}") {
            let reading = read("t.yaml", &text);
            for document in &reading.documents {
                prop_assert!(document.position(&Path::root()).line >= 1);
            }
        }
    }
}
