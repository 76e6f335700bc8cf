//! Objects in files and folders.
//!
//! [`load`] reads documents, [`objects`] turns them into the domain's types, [`read`] does both. Schemas are checked by
//! the verdict crate. Errors are [`Problem`]s with a position.

mod files;
mod object;
mod other_files;

use crate::yaml::{Document, Position};
pub use files::{
    Loaded, MAX_FILE_BYTES, STDIN, Source, is_manifest, is_skipped, load, load_text, load_without, read_failure,
    text_of,
};
pub use object::{Object, items, object, objects};
pub use other_files::{CHART, OtherFile, Place, describe, is_in_templates, is_of_chart, may_be_object};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A problem of a manifest, or of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: Arc<str>,
    /// Where in it; `None` when it could not be read at all.
    pub position: Option<Position>,
    /// What, and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(at) = self.position {
            write!(f, ":{at}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Reads all objects of files and folders (see [`load`]), with all that is wrong.
#[must_use]
pub fn read(paths: &[PathBuf]) -> (Vec<Object>, Vec<Problem>) {
    let loaded = load(paths);
    let mut problems = loaded.unreadable;
    let mut documents: Vec<Document> = Vec::new();
    for source in loaded.files {
        problems.extend(source.parsed().problems.iter().map(|p| Problem {
            file: Arc::clone(&source.file),
            position: Some(p.position),
            message: p.message.clone(),
        }));
        documents.extend(source.parsed().documents.iter().cloned());
    }
    let (objects, more) = objects(&documents);
    problems.extend(more);
    (objects, problems)
}
