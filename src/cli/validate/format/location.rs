//! Locations of findings for services that know only files of the repository.

use super::super::input::{Input, SourceOrigin};
use super::super::verdicts::ReportedFinding;
use crate::repository::absolute;
use std::path::{Path, PathBuf};

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileLocation {
    /// From the root of the repository, with `/`; an absolute path for a file outside of it. Absent for the standard
    /// input.
    pub(super) file: Option<String>,
    pub(super) line: usize,
    pub(super) column: usize,
    /// The position in a render or the standard input, which is not a file, as the beginning of a message; else empty.
    pub(super) prefix: String,
}

/// Finds locations.
pub(super) struct Locations<'i> {
    origins: &'i [SourceOrigin],
    root: PathBuf,
}

impl<'i> Locations<'i> {
    pub(super) fn of(input: &'i Input) -> Self {
        let current = absolute(Path::new("."));
        let root = current.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&current).to_owned();
        Self { origins: &input.origins, root }
    }

    pub(super) fn of_finding(&self, reported: &ReportedFinding) -> FileLocation {
        let finding = &reported.finding;
        let prefix = format!("{}:{}:{}: ", finding.file, finding.line, finding.column);
        match self.origins.get(reported.source) {
            Some(SourceOrigin::File(_)) => FileLocation {
                file: Some(self.file(&finding.file)),
                line: finding.line,
                column: finding.column,
                prefix: String::new(),
            },
            Some(SourceOrigin::Render { file, .. }) => {
                FileLocation { file: Some(self.file(file)), line: 1, column: 1, prefix }
            }
            Some(SourceOrigin::Stdin) | None => {
                FileLocation { file: None, line: finding.line, column: finding.column, prefix }
            }
        }
    }

    /// A file from the root of the repository.
    fn file(&self, file: &str) -> String {
        let whole = absolute(Path::new(file));
        let near = whole.strip_prefix(&self.root).unwrap_or(&whole);
        let parts: Vec<_> = near.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        parts.join("/").replacen("//", "/", 1)
    }
}
