//! Atomic replacement of a file.

use anyhow::{Context, bail};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most names that are tried for the temporary file.
const MAX_TRIES: u32 = 100;

/// Replaces the text of a file. The new file is written completely before it gets the name, in the same directory and
/// with the same permissions. The target of a symbolic link is replaced.
///
/// # Errors
/// The file cannot be read or written, or no longer has the old text. It is then unchanged.
pub(super) fn replace(path: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let path = fs::canonicalize(path).context("it no longer exists")?;
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        bail!("it is read-only");
    }
    let (file, temporary) = temporary(&path)?;
    let result = fill(file, new)
        .and_then(|()| fs::set_permissions(&temporary, permissions).context("cannot preserve its permissions"))
        .and_then(|()| unchanged(&path, old))
        .and_then(|()| fs::rename(&temporary, &path).context("cannot rename the new file"));
    if result.is_err() {
        // The first error is reported; a temporary file that is left behind does not matter temporary it.
        drop(fs::remove_file(&temporary));
    }
    result
}

/// A temporary file in the same directory.
fn temporary(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for n in 0..MAX_TRIES {
        // A leading dot, so that it is not read as a manifest.
        let temporary = path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).context("cannot create a file in its directory"),
        }
    }
    bail!("its directory has too many leftover files: delete .{name}.*.tmp");
}

fn fill(mut file: File, text: &str) -> anyhow::Result<()> {
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).context("cannot write the new text")
}

fn unchanged(path: &Path, old: &str) -> anyhow::Result<()> {
    if fs::read(path)? != old.as_bytes() {
        bail!("it changed during the migration; run migrate again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[cfg(unix)]
    #[test]
    fn a_file_keeps_its_permissions_and_its_links() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.yaml"), dir.path().join("link.yaml"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "old", "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(dir.path()), ["a.yaml", "link.yaml"]);
    }

    #[test]
    fn a_file_that_changed_or_went_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, "newer").unwrap();
        let error = replace(&file, "old", "new").unwrap_err();
        assert!(format!("{error:#}").contains("changed during"), "{error:#}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
        assert_eq!(names(dir.path()), ["a.yaml"]);
        fs::remove_file(&file).unwrap();
        assert!(replace(&file, "old", "new").is_err());
        assert!(names(dir.path()).is_empty());
    }
}
