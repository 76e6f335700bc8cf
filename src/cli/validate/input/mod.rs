//! The manifests to validate, from the file system, kustomize, Git or the standard input.

mod command;
mod git;
mod kustomize;
mod revision;

use super::args::{Kustomize, SourceArgs};
use crate::output::path_list;
use crate::repository::{kustomization_in, patches};
use anyhow::bail;
use git::Repository;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, OtherFile, Problem, STDIN, Source};
use revision::Revision;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Where a source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceOrigin {
    /// A file.
    File(PathBuf),
    /// The output of kustomize.
    Render {
        /// The directory.
        folder: PathBuf,
        /// The file of the kustomization.
        file: String,
    },
    /// The standard input.
    Stdin,
}

impl SourceOrigin {
    /// The path in the file system, without symbolic links.
    pub(super) fn real_path(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) | Self::Render { folder: path, .. } => {
                Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
            }
            Self::Stdin => None,
        }
    }
}

/// What to read.
pub(super) struct ReadArgs {
    /// Files, directories, and `-`.
    pub(super) paths: Vec<PathBuf>,
    /// The paths are those of the command line.
    pub(super) explicit: bool,
    /// Files that are not manifests.
    pub(super) excluded: Vec<PathBuf>,
    /// Finding no file is not an error.
    pub(super) allow_empty: bool,
}

/// The manifests to validate.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The files.
    pub(super) sources: Vec<Source>,
    /// Where each of them comes from.
    pub(super) origins: Vec<SourceOrigin>,
    /// What could not be read.
    pub(super) unreadable: Vec<Problem>,
    /// The paths that were read.
    pub(super) paths: Vec<PathBuf>,
    /// How many files were left out as patches of kustomizations.
    pub(super) patches: usize,
    /// How many files were left out since they are no manifests.
    pub(super) others: BTreeMap<OtherFile, usize>,
    /// The Git revision that was read, for people.
    pub(super) revision: Option<String>,
}

impl Input {
    pub(super) fn push(&mut self, source: Source, origin: SourceOrigin) {
        self.sources.push(source);
        self.origins.push(origin);
    }

    /// Leaves out files.
    fn exclude(&mut self, files: &[PathBuf]) {
        let files: Vec<PathBuf> = files.iter().filter_map(|file| std::fs::canonicalize(file).ok()).collect();
        if files.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.sources).into_iter().zip(std::mem::take(&mut self.origins));
        (self.sources, self.origins) =
            all.filter(|(_, origin)| !origin.real_path().is_some_and(|real| files.contains(&real))).unzip();
    }

    fn push_unreadable(&mut self, path: &Path, message: impl ToString) {
        let file = Arc::from(path.to_string_lossy().as_ref());
        self.unreadable.push(Problem { file, position: None, message: message.to_string() });
    }
}

/// Where files are read from.
#[derive(Debug)]
pub(super) enum Store {
    /// The file system.
    Folders(Kustomize),
    /// A Git revision.
    Revision(Revision),
}

impl Store {
    /// The store that the flags select, looked for from the paths.
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

    /// The nearest `napkeeper.yaml` in the directory of the first path or above it, and its directory.
    pub(super) fn config(&self, paths: &[PathBuf]) -> Option<(Source, PathBuf)> {
        let folder = folder_of(paths);
        match self {
            Self::Folders(_) => {
                let file = config::find(&folder)?;
                let source = manifests::load(&[relative(&file)]).files.pop()?;
                Some((source, file.parent()?.to_owned()))
            }
            Self::Revision(revision) => revision.config(&folder),
        }
    }

    /// Reads all manifests.
    pub(super) fn read(&self, args: &ReadArgs) -> anyhow::Result<Input> {
        let mut input = match self {
            Self::Folders(kustomize) => read_folders(*kustomize, args),
            Self::Revision(revision) => Input { revision: Some(revision.description()), ..revision.read(&args.paths)? },
        };
        let is_empty = input.sources.is_empty() && input.unreadable.is_empty() && input.others.is_empty();
        if is_empty && !args.allow_empty {
            bail!("no .yaml, .yml or .json files in {}", path_list(&args.paths));
        }
        input.exclude(&args.excluded);
        let patches = patches(&input.sources);
        input.exclude(&patches);
        Ok(Input { patches: patches.len(), paths: args.paths.clone(), ..input })
    }

    /// The files that changed since a revision.
    pub(super) fn changed(&self, since: &str, paths: &[PathBuf]) -> anyhow::Result<ChangedFiles> {
        let near = folder_of(paths);
        let repository = Repository::of(&near)?;
        let now = match self {
            Self::Folders(_) => None,
            Self::Revision(revision) => Some(revision.commit.as_str()),
        };
        let (base, files) = repository.changed(since, now)?;
        Ok(ChangedFiles { near, base, root: repository.root, files })
    }
}

fn read_folders(kustomize: Kustomize, args: &ReadArgs) -> Input {
    let is_built = |path: &&PathBuf| match kustomize {
        Kustomize::Always => path.as_os_str() != STDIN,
        Kustomize::Auto => args.explicit && kustomization_in(path).is_some(),
        Kustomize::Never => false,
    };
    let (built, plain): (Vec<_>, Vec<_>) = args.paths.iter().partition(is_built);
    let loaded = manifests::load(&plain.into_iter().cloned().collect::<Vec<_>>());
    let mut input = Input { unreadable: loaded.unreadable, others: loaded.others, ..Input::default() };
    for source in loaded.files {
        let is_stdin = &*source.file == "<stdin>";
        let origin = if is_stdin { SourceOrigin::Stdin } else { SourceOrigin::File(PathBuf::from(&*source.file)) };
        input.push(source, origin);
    }
    for folder in built {
        match kustomize::build(folder) {
            Ok(text) => {
                let file = folder.join(kustomization_in(folder).unwrap_or_default());
                let source = manifests::load_text(&format!("<kustomize {}>", folder.display()), text);
                let file = file.to_string_lossy().into_owned();
                input.push(source, SourceOrigin::Render { folder: folder.clone(), file });
            }
            Err(message) => input.push_unreadable(folder, message),
        }
    }
    input
}

/// The files that changed since the merge base with a revision.
#[derive(Debug)]
pub(super) struct ChangedFiles {
    near: PathBuf,
    /// The commit of the merge base.
    base: String,
    /// The root of the repository.
    root: PathBuf,
    /// Paths from the root.
    files: BTreeSet<String>,
}

impl ChangedFiles {
    /// True when a source changed. Built manifests, the standard input, and files outside of the repository count as
    /// changed.
    pub(super) fn contains(&self, origin: &SourceOrigin) -> bool {
        match origin {
            SourceOrigin::File(_) => self.path_of(origin).is_none_or(|path| self.files.contains(&path)),
            SourceOrigin::Render { .. } | SourceOrigin::Stdin => true,
        }
    }

    /// The path of a file from the root of the repository.
    pub(super) fn path_of(&self, origin: &SourceOrigin) -> Option<String> {
        Some(origin.real_path()?.strip_prefix(&self.root).ok()?.to_string_lossy().into_owned())
    }

    /// What the paths held at the merge base.
    pub(super) fn read_base(&self, paths: &[PathBuf]) -> anyhow::Result<Input> {
        Revision::open(&self.near, &self.base)?.read(paths)
    }
}

/// The directory of the first path that is not the standard input.
fn folder_of(paths: &[PathBuf]) -> PathBuf {
    let current = || PathBuf::from(".");
    match paths.iter().find(|path| path.as_os_str() != STDIN) {
        Some(path) if path.is_dir() => path.clone(),
        Some(path) => {
            let above = path.ancestors().skip(1).find(|above| above.is_dir() && !above.as_os_str().is_empty());
            above.map_or_else(current, Path::to_path_buf)
        }
        None => current(),
    }
}

/// A path relative to the current directory, if it is below it.
pub(super) fn relative(path: &Path) -> PathBuf {
    let current = std::env::current_dir().and_then(std::fs::canonicalize).ok();
    match current.and_then(|current| path.strip_prefix(current).ok().map(Path::to_path_buf)) {
        Some(near) if near.as_os_str().is_empty() => PathBuf::from("."),
        Some(near) => near,
        None => path.to_owned(),
    }
}

/// An absolute path without `.` and `..`, whether or not there is such a file.
pub(super) fn absolute(path: &Path) -> PathBuf {
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
