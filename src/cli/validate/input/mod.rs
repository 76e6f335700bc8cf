//! The manifests to validate, from the file system, kustomize, Git or the standard input.

mod git;
mod revision;

use super::args::SourceArgs;
use crate::output::path_list;
use crate::repository::{Contents, Render, STDIN_NAME, Selection, Synced, absolute, read_disk, relative};
use anyhow::bail;
use git::Repository;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, OtherFile, Problem, STDIN, Source};
use revision::Revision;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where a source comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SourceOrigin {
    /// A file.
    File(PathBuf),
    /// What a kustomization builds.
    Render {
        /// Its folder.
        folder: PathBuf,
        /// Its file, for people.
        file: String,
        /// All files that it is built from.
        files: BTreeSet<PathBuf>,
        /// The manifests among them.
        parts: Vec<Source>,
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
    /// Files and folders, and which kustomizations are built.
    pub(super) selection: Selection,
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
    /// What was to be read.
    pub(super) selection: Selection,
    /// How many files were left out as patches of kustomizations that are not built.
    pub(super) patches: usize,
    /// Why kustomizations were not built.
    pub(super) not_built: Vec<String>,
    /// Why what is synced is not read, or not as it is synced.
    pub(super) not_followed: Vec<String>,
    /// How many files were left out since they are no manifests.
    pub(super) others: BTreeMap<OtherFile, usize>,
    /// What the objects in the repository sync from it.
    pub(super) synced: Vec<Synced>,
    /// The Git revision that was read, for people.
    pub(super) revision: Option<String>,
}

impl Input {
    fn of(contents: Contents) -> Self {
        let Contents { files, renders, unreadable, others, patches, not_built, not_followed, synced } = contents;
        let mut input = Self { unreadable, others, patches, not_built, not_followed, synced, ..Self::default() };
        for source in files {
            let path = Path::new(&*source.file);
            let origin =
                if &*source.file == STDIN_NAME { SourceOrigin::Stdin } else { SourceOrigin::File(absolute(path)) };
            input.push(source, origin);
        }
        for Render { folder, file, source, files, parts } in renders {
            let file = file.to_string_lossy().into_owned();
            input.push(source, SourceOrigin::Render { folder, file, files, parts });
        }
        input
    }

    /// How many files the objects come from: of a kustomization its manifests, each once.
    pub(super) fn files(&self) -> usize {
        let mut files = BTreeSet::new();
        for (source, origin) in self.sources.iter().zip(&self.origins) {
            match origin {
                SourceOrigin::Render { parts, .. } if !parts.is_empty() => {
                    files.extend(parts.iter().map(|part| &*part.file));
                }
                SourceOrigin::File(_) | SourceOrigin::Render { .. } | SourceOrigin::Stdin => {
                    files.insert(&*source.file);
                }
            }
        }
        files.len()
    }

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
}

/// Where files are read from.
#[derive(Debug)]
pub(super) enum Store {
    /// The file system.
    Folders,
    /// A Git revision.
    Revision(Revision),
}

impl Store {
    /// The store that the flags select, looked for from the paths.
    pub(super) fn open(args: &SourceArgs, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let Some(name) = &args.rev else { return Ok(Self::Folders) };
        if paths.iter().any(|path| path.as_os_str() == STDIN) {
            bail!("--rev cannot be combined with - (stdin)");
        }
        Ok(Self::Revision(Revision::open(&folder_of(paths), name)?))
    }

    /// The nearest `napkeeper.yaml` in the directory of the first path or above it, and its directory.
    pub(super) fn config(&self, paths: &[PathBuf]) -> Option<(Source, PathBuf)> {
        let folder = folder_of(paths);
        match self {
            Self::Folders => {
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
            Self::Folders => Input::of(read_disk(&args.selection)?),
            Self::Revision(revision) => {
                let input = Input::of(revision.read(&args.selection)?);
                Input { revision: Some(revision.description()), ..input }
            }
        };
        let is_empty = input.sources.is_empty() && input.unreadable.is_empty() && input.others.is_empty();
        if is_empty && !args.allow_empty {
            bail!("no .yaml, .yml or .json files in {}", path_list(&args.selection.paths));
        }
        input.exclude(&args.excluded);
        Ok(Input { selection: args.selection.clone(), ..input })
    }

    /// The files that changed since a revision.
    pub(super) fn changed(&self, since: &str, paths: &[PathBuf]) -> anyhow::Result<ChangedFiles> {
        let near = folder_of(paths);
        let repository = Repository::of(&near)?;
        let now = match self {
            Self::Folders => None,
            Self::Revision(revision) => Some(revision.commit.as_str()),
        };
        let (base, files) = repository.changed(since, now)?;
        Ok(ChangedFiles { near, base, root: repository.root, files })
    }
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
    /// True when a source changed; what is built, when one of the files did that it is built from. The standard input, and files
    /// outside of the repository, count as changed.
    pub(super) fn contains(&self, origin: &SourceOrigin) -> bool {
        match origin {
            SourceOrigin::File(_) => self.path_of(origin).is_none_or(|path| self.files.contains(&path)),
            SourceOrigin::Render { files, .. } => {
                files.iter().any(|file| self.in_repository(file).is_none_or(|path| self.files.contains(&path)))
            }
            SourceOrigin::Stdin => true,
        }
    }

    /// The path of a file from the root of the repository.
    pub(super) fn path_of(&self, origin: &SourceOrigin) -> Option<String> {
        self.in_repository(&origin.real_path()?)
    }

    fn in_repository(&self, real: &Path) -> Option<String> {
        Some(real.strip_prefix(&self.root).ok()?.to_string_lossy().into_owned())
    }

    /// What was to be read at the merge base.
    pub(super) fn read_base(&self, selection: &Selection) -> anyhow::Result<Input> {
        Ok(Input::of(Revision::open(&self.near, &self.base)?.read(selection)?))
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
