//! All violations of an object.

use crate::field_path::Path;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub path: Path,
    /// What, and what would be right.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// All that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Violations(pub Vec<Violation>);

impl Violations {
    /// Notes that something is wrong.
    pub(super) fn add(&mut self, path: &Path, message: impl fmt::Display) {
        self.0.push(Violation { path: path.clone(), message: message.to_string() });
    }

    /// The value; an error is noted as a violation.
    pub(super) fn take<T, E: fmt::Display>(&mut self, path: &Path, result: Result<T, E>) -> Option<T> {
        result.map_err(|e| self.add(path, e)).ok()
    }

    /// As [`Violations::take`] for a field that may be absent.
    pub(super) fn take_some<S: ?Sized, T, E: fmt::Display>(
        &mut self,
        path: &Path,
        field: Option<&S>,
        parse: impl FnOnce(&S) -> Result<T, E>,
    ) -> Option<T> {
        self.take(path, parse(field?))
    }

    /// The result, if nothing was wrong. `built` is `None` only when something was.
    pub(super) fn finish<T>(self, built: Option<T>) -> Result<T, Self> {
        match built {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}
