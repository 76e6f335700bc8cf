//! Paths for people, and for comparison.

use std::path::{Component, Path, PathBuf};

/// A path relative to the current directory, if it is below it or in the same repository.
pub(crate) fn relative(path: &Path) -> PathBuf {
    let Ok(current) = std::env::current_dir().and_then(std::fs::canonicalize) else { return path.to_owned() };
    match path.strip_prefix(&current) {
        Ok(near) if near.as_os_str().is_empty() => return PathBuf::from("."),
        Ok(near) => return near.to_owned(),
        Err(_) => {}
    }
    let root = current.ancestors().find(|folder| folder.join(".git").exists()).filter(|root| path.starts_with(root));
    let common = root.and_then(|root| {
        current.ancestors().find(|folder| path.starts_with(folder)).filter(|folder| folder.starts_with(root))
    });
    let inside = common.and_then(|common| Some((current.strip_prefix(common).ok()?, path.strip_prefix(common).ok()?)));
    let Some((up, down)) = inside else { return path.to_owned() };
    up.components().map(|_| Component::ParentDir.as_os_str()).chain(down.iter()).collect()
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
