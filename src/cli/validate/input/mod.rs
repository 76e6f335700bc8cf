//! Which manifests are to be judged, and where do they come from?

mod command;
mod git;
mod kustomize;
mod patches;
mod revision;

use super::args::{Kustomize, SourceArgs};
use anyhow::bail;
use git::Repository;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Problem, STDIN, Source};
pub(super) use patches::patches;
use revision::Revision;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Where a source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file.
    File(PathBuf),
    /// What a kustomization builds.
    Render {
        /// The folder.
        folder: PathBuf,
        /// The file of the kustomization, to point at where only files of the repository are known.
        file: String,
    },
    /// The standard input.
    Stdin,
}

impl Place {
    /// Where it lies in the file system, without links.
    pub(super) fn real(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) | Self::Render { folder: path, .. } => {
                Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
            }
            Self::Stdin => None,
        }
    }
}

/// What is to be judged.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The files.
    pub(super) sources: Vec<Source>,
    /// Where each of them comes from.
    pub(super) places: Vec<Place>,
    /// What could not be read.
    pub(super) unreadable: Vec<Problem>,
}

impl Input {
    pub(super) fn push(&mut self, source: Source, place: Place) {
        self.sources.push(source);
        self.places.push(place);
    }

    /// Leaves out files that are known not to be manifests.
    pub(super) fn leave_out(&mut self, files: &[PathBuf]) {
        let files: Vec<PathBuf> = files.iter().filter_map(|file| std::fs::canonicalize(file).ok()).collect();
        if files.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.sources).into_iter().zip(std::mem::take(&mut self.places));
        (self.sources, self.places) =
            all.filter(|(_, place)| !place.real().is_some_and(|real| files.contains(&real))).unzip();
    }

    fn refuse(&mut self, path: &Path, message: impl ToString) {
        let file = Arc::from(path.to_string_lossy().as_ref());
        self.unreadable.push(Problem { file, position: None, message: message.to_string() });
    }
}

/// Where files are read from.
#[derive(Debug)]
pub(super) enum Store {
    /// The work tree, or any folder.
    Folders(Kustomize),
    /// A Git revision.
    Revision(Revision),
}

impl Store {
    /// Opens what the flags ask for. `near` is a path of the repository.
    pub(super) fn open(args: &SourceArgs, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let Some(name) = &args.rev else { return Ok(Self::Folders(args.kustomize)) };
        if args.kustomize == Kustomize::Always {
            bail!("--kustomize cannot be combined with --rev: check out the revision to build it");
        }
        if paths.iter().any(|path| path.as_os_str() == STDIN) {
            bail!("--rev cannot be combined with - (stdin)");
        }
        Ok(Self::Revision(Revision::open(&folder_of(paths), name)?))
    }

    /// The nearest `napkeeper.yaml` in the folder of the first path or above it, and its folder.
    pub(super) fn config(&self, paths: &[PathBuf]) -> Option<(Source, PathBuf)> {
        let folder = folder_of(paths);
        match self {
            Self::Folders(_) => {
                let file = config::find(&folder)?;
                let source = manifests::load(&[shown(&file)]).files.pop()?;
                Some((source, file.parent()?.to_owned()))
            }
            Self::Revision(revision) => revision.config(&folder),
        }
    }

    /// Reads all manifests of some paths. `explicit` paths were named by a person.
    pub(super) fn read(&self, paths: &[PathBuf], explicit: bool) -> anyhow::Result<Input> {
        let kustomize = match self {
            Self::Folders(kustomize) => *kustomize,
            Self::Revision(revision) => return revision.read(paths),
        };
        let builds = |path: &&PathBuf| match kustomize {
            Kustomize::Always => path.as_os_str() != STDIN,
            Kustomize::Auto => explicit && kustomize::file_in(path).is_some(),
            Kustomize::Never => false,
        };
        let (built, plain): (Vec<_>, Vec<_>) = paths.iter().partition(builds);
        let loaded = manifests::load(&plain.into_iter().cloned().collect::<Vec<_>>());
        let mut input = Input { unreadable: loaded.unreadable, ..Input::default() };
        for source in loaded.files {
            let place =
                if &*source.file == "<stdin>" { Place::Stdin } else { Place::File(PathBuf::from(&*source.file)) };
            input.push(source, place);
        }
        for folder in built {
            match kustomize::build(folder) {
                Ok(text) => {
                    let file = folder.join(kustomize::file_in(folder).unwrap_or_default());
                    let source = manifests::load_text(&format!("<kustomize {}>", folder.display()), text);
                    let file = file.to_string_lossy().into_owned();
                    input.push(source, Place::Render { folder: folder.clone(), file });
                }
                Err(message) => input.refuse(folder, message),
            }
        }
        Ok(input)
    }

    /// How the revision is shown, if it is one.
    pub(super) fn revision(&self) -> Option<String> {
        match self {
            Self::Folders(_) => None,
            Self::Revision(revision) => Some(revision.shown()),
        }
    }

    /// The files that changed since a revision.
    pub(super) fn changed(&self, since: &str, paths: &[PathBuf]) -> anyhow::Result<Changed> {
        let near = folder_of(paths);
        let repository = Repository::of(&near)?;
        let now = match self {
            Self::Folders(_) => None,
            Self::Revision(revision) => Some(revision.commit.as_str()),
        };
        let (base, files) = repository.changed(since, now)?;
        Ok(Changed { near, base, top: repository.top, files })
    }
}

/// What changed.
#[derive(Debug)]
pub(super) struct Changed {
    near: PathBuf,
    /// The commit where the histories part.
    base: String,
    top: PathBuf,
    /// Paths from the top folder.
    files: BTreeSet<String>,
}

impl Changed {
    /// True when a source changed, or when nobody can tell: of what is built, comes on the standard input, or lies
    /// outside of the repository.
    pub(super) fn holds(&self, place: &Place) -> bool {
        match place {
            Place::File(_) => self.inside(place).is_none_or(|path| self.files.contains(&path)),
            Place::Render { .. } | Place::Stdin => true,
        }
    }

    /// The path of a file from the top folder of the repository.
    pub(super) fn inside(&self, place: &Place) -> Option<String> {
        Some(place.real()?.strip_prefix(&self.top).ok()?.to_string_lossy().into_owned())
    }

    /// What the paths held where the histories part.
    pub(super) fn before(&self, paths: &[PathBuf]) -> anyhow::Result<Input> {
        Revision::open(&self.near, &self.base)?.read(paths)
    }
}

/// The folder to look from: that of the first path which is one.
fn folder_of(paths: &[PathBuf]) -> PathBuf {
    let here = || PathBuf::from(".");
    match paths.iter().find(|path| path.as_os_str() != STDIN) {
        Some(path) if path.is_dir() => path.clone(),
        Some(path) => {
            let above = path.ancestors().skip(1).find(|above| above.is_dir() && !above.as_os_str().is_empty());
            above.map_or_else(here, Path::to_path_buf)
        }
        None => here(),
    }
}

/// A path as a person would write it here.
pub(super) fn shown(path: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
    match here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf)) {
        Some(near) if near.as_os_str().is_empty() => PathBuf::from("."),
        Some(near) => near,
        None => path.to_owned(),
    }
}

/// An absolute path without `.` and `..`, whether or not there is such a file.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let mut whole = PathBuf::new();
    for component in here.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
    }
    whole
}
