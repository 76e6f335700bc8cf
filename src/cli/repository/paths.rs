//! Paths for people, and for comparison.

use std::path::{Component, Path, PathBuf};

/// A path relative to the current directory, if it is below it.
pub(crate) fn relative(path: &Path) -> PathBuf {
    let current = std::env::current_dir().and_then(std::fs::canonicalize).ok();
    match current.and_then(|current| path.strip_prefix(current).ok().map(Path::to_path_buf)) {
        Some(near) if near.as_os_str().is_empty() => PathBuf::from("."),
        Some(near) => near,
        None => path.to_owned(),
    }
}

/// An absolute path without `.` and `..`, whether or not there is such a file.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let current = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let mut whole = PathBuf::new();
    for component in current.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
    }
    whole
}
