//! Findings: what is wrong, where, and what would be right?

use crate::rules::Rule;
use napkeeper_api::path::Path;
use napkeeper_api::yaml::{Document, Position};
use serde::Serialize;
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
    /// What is wrong.
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
pub(crate) enum Spot {
    Key,
    Value,
}

/// A finding before its place in the file is looked up.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) rule: &'static Rule,
    pub(crate) path: Path,
    pub(crate) spot: Spot,
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
}

impl Issue {
    pub(crate) fn new(rule: &'static Rule, path: &Path, message: impl Into<String>) -> Self {
        Self { rule, path: path.clone(), spot: Spot::Value, message: message.into(), fix: None }
    }

    pub(crate) fn at_key(self) -> Self {
        Self { spot: Spot::Key, ..self }
    }

    pub(crate) fn fix(self, fix: impl Into<Option<String>>) -> Self {
        Self { fix: fix.into(), ..self }
    }

    /// The finding in a document whose object begins at `root`.
    pub(crate) fn locate(self, document: &Document, root: &Path) -> Finding {
        let full = self.path.segments().iter().fold(root.clone(), |p, s| p.with(s.clone()));
        let Position { line, column } = match self.spot {
            Spot::Key => document.key_position(&full),
            Spot::Value => document.position(&full),
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
