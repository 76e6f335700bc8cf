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
    let root = current.ancestors().find(|folder| folder.join(".git").exists());
    if root.is_some_and(|root| path.starts_with(root)) { between(&current, path) } else { path.to_owned() }
}

/// The path from one folder to another path, both absolute.
pub(crate) fn between(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_goes_up_to_what_is_common() {
        for (from, to, path) in [
            ("/a/b/napkeeper-system", "/a/c/overlays/audit", "../../c/overlays/audit"),
            ("/a", "/a/b", "b"),
            ("/a/b", "/c", "../../c"),
        ] {
            assert_eq!(between(Path::new(from), Path::new(to)), Path::new(path));
        }
    }
}
