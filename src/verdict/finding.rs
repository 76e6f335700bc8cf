//! Findings: the problem, its position, and a fix.

use crate::rules::Rule;
use napkeeper_api::field_path::Path;
use napkeeper_api::yaml::{Document, Position};
use serde::Serialize;
use serde_json::{Number, Value};
use std::fmt;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It would be refused, or could not work.
    Error,
    /// It works, and is worth a look.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Something that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id of the rule, for example `NK1010`.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Where in the object; empty for the file as a whole.
    pub path: String,
    /// The message.
    pub message: String,
    /// What would be right, where that is known.
    pub fix: Option<String>,
}

/// Longest text of a finding, in characters: some quote a value, and a value may be a whole file.
const LONGEST: usize = 2000;

fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Which end of a field a finding points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldPart {
    Key,
    Value,
}

/// A finding before its position in the file is looked up.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) rule: &'static Rule,
    pub(crate) path: Path,
    pub(crate) points_at: FieldPart,
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
    /// The value, where the issue is that it is no string.
    pub(crate) not_a_string: Option<NotAString>,
}

/// Fields of NodePools and NodeClaims that hold a time with its unit.
const DURATIONS: [&str; 4] = ["consolidateAfter", "duration", "expireAfter", "terminationGracePeriod"];

/// A boolean or a number where a string is required: YAML may have read it from a word without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAString {
    Boolean(bool),
    Number(Number),
}

impl NotAString {
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Boolean(*value)),
            Value::Number(number) => Some(Self::Number(number.clone())),
            _ => None,
        }
    }

    /// The message. `written` is the text of the file, if it looks like a string.
    pub(crate) fn message(&self, written: Option<&str>) -> String {
        let (kind, read) = match self {
            Self::Boolean(value) => ("boolean", value.to_string()),
            Self::Number(number) => ("number", number.to_string()),
        };
        let message = format!("must be a string, got a {kind} ({read})");
        match written {
            None => message,
            Some(written) if written == read => format!("{message}: YAML 1.1 reads {written} as a {kind}"),
            Some(written) => format!("{message}: YAML 1.1 reads {written} as the {kind} {read}"),
        }
    }

    /// What to write instead.
    fn remedy(&self, path: &Path) -> String {
        let is_duration = path.last_key().is_some_and(|field| DURATIONS.contains(&field));
        match self {
            Self::Number(number) if is_duration => format!("add a unit, such as {number}s"),
            Self::Number(_) | Self::Boolean(_) => "quote it".to_owned(),
        }
    }

    /// True if the file has the value as printed.
    pub(crate) fn is_written_as(&self, text: &str) -> bool {
        match self {
            Self::Boolean(value) => value.to_string() == text,
            Self::Number(number) => number.to_string() == text,
        }
    }
}

impl Issue {
    pub(crate) fn new(rule: &'static Rule, path: &Path, message: impl Into<String>) -> Self {
        Self {
            rule,
            path: path.clone(),
            points_at: FieldPart::Value,
            message: message.into(),
            fix: None,
            not_a_string: None,
        }
    }

    /// The issue that a value must be a string.
    pub(crate) fn not_a_string(rule: &'static Rule, path: &Path, value: NotAString) -> Self {
        let issue = Self::new(rule, path, value.message(None)).fix(value.remedy(path));
        Self { not_a_string: Some(value), ..issue }
    }

    pub(crate) fn at_key(self) -> Self {
        Self { points_at: FieldPart::Key, ..self }
    }

    pub(crate) fn fix(self, fix: impl Into<Option<String>>) -> Self {
        Self { fix: fix.into(), ..self }
    }

    /// The finding in a document whose object begins at `root`.
    pub(crate) fn locate(self, document: &Document, root: &Path) -> Finding {
        let full = root.join(self.path.segments());
        let Position { line, column } = match self.points_at {
            FieldPart::Key => document.key_position(&full),
            FieldPart::Value => document.position(&full),
        };
        Finding {
            rule: self.rule.id,
            severity: self.rule.severity,
            file: document.file.to_string(),
            line,
            column,
            path: shorten(full.to_string()),
            message: shorten(self.message),
            fix: self.fix.map(shorten),
        }
    }
}
