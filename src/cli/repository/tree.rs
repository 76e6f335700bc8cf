//! Where the files of a repository are: on disk, or elsewhere.

use super::build::BuildError;
use super::paths::relative;
use napkeeper_api::manifests::{self, Source};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Files and folders.
pub(crate) trait Tree: Sync {
    /// The one path of a file or folder, whatever path it is named by; `None` if it does not exist.
    fn real(&self, path: &Path) -> Option<PathBuf>;
    /// True for a folder, by its real path.
    fn is_folder(&self, real: &Path) -> bool;
    /// The root of the repository that a file is in, by its real path; `None` if it is in none.
    fn root(&self, file: &Path) -> Option<PathBuf>;
    /// The files in a folder and below it, by their real paths, in order; hidden ones too, but not what is passed over.
    fn files(&self, real: &Path) -> Vec<PathBuf>;
    /// A file by its real path; `None` if it cannot be read.
    fn read(&self, real: &Path) -> Option<Source>;
    /// Files at once by their real paths; those that cannot be read are left out.
    fn read_all(&self, real: &[PathBuf]) -> Vec<(PathBuf, Source)>;
    /// A folder on disk that holds what a folder does, with these files; all by their real paths.
    fn on_disk(&self, folder: &Path, files: &BTreeSet<PathBuf>) -> io::Result<OnDisk>;
}

/// True for the name of a file or folder that is passed over even where hidden ones are listed.
pub(crate) fn is_unlisted(name: &Path) -> bool {
    let is_hidden = name.to_string_lossy().starts_with('.');
    name == Path::new(".git") || !is_hidden && manifests::is_skipped(name)
}

/// A folder on disk.
pub(crate) struct OnDisk {
    pub(crate) folder: PathBuf,
    /// The copy of the repository that it is in; removed once the folder is no longer needed.
    pub(crate) copy: Option<tempfile::TempDir>,
}

impl OnDisk {
    /// An error without the paths of the copy.
    pub(super) fn as_in_repository(&self, error: BuildError) -> BuildError {
        match (error, &self.copy) {
            (BuildError::Failed(message), Some(copy)) => {
                BuildError::Failed(message.replace(&format!("{}/", copy.path().display()), ""))
            }
            (error, _) => error,
        }
    }
}

/// The file system.
pub(crate) struct Disk;

impl Tree for Disk {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        std::fs::canonicalize(path).ok()
    }

    fn is_folder(&self, real: &Path) -> bool {
        real.is_dir()
    }

    fn root(&self, file: &Path) -> Option<PathBuf> {
        file.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf)
    }

    fn files(&self, real: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(real).into_iter().flatten().filter_map(Result::ok);
        let mut found = Vec::new();
        for entry in entries.filter(|entry| !is_unlisted(Path::new(&entry.file_name()))) {
            // Links are not followed: they may be cyclic.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => found.extend(self.files(&entry.path())),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
        found.sort();
        found
    }

    fn read(&self, real: &Path) -> Option<Source> {
        manifests::load(&[relative(real)]).files.pop()
    }

    fn read_all(&self, real: &[PathBuf]) -> Vec<(PathBuf, Source)> {
        real.iter().filter_map(|file| Some((file.clone(), self.read(file)?))).collect()
    }

    fn on_disk(&self, folder: &Path, _: &BTreeSet<PathBuf>) -> io::Result<OnDisk> {
        Ok(OnDisk { folder: folder.to_owned(), copy: None })
    }
}
