//! Manifests as repositories have them: what is no manifest is left out, and kustomizations are built.
//!
//! A file that a kustomization is built from is a part of what that builds, and is not judged by itself: a patch lacks fields, and a
//! base may be completed by its overlays.

mod application_sets;
mod as_written;
mod build;
pub(crate) mod command;
mod exclusions;
mod kustomizations;
mod object_identity;
mod paths;
mod synced;
mod tree;

use crate::output;
pub(crate) use as_written::{AsWritten, Changing, read_as_written};
use build::BuildError;
use clap::ValueEnum;
pub(crate) use exclusions::Exclusions;
pub(crate) use kustomizations::KUSTOMIZATION_NAMES;
pub(crate) use kustomizations::{Kustomization, Obstacle};
use kustomizations::{find, kustomization_in, patches};
use napkeeper_api::manifests::{self, Loaded, OtherFile, Problem, STDIN, Source, describe};
pub(crate) use object_identity::ObjectIdentity;
pub(crate) use paths::{absolute, between, relative};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use synced::Synced;
use synced::{Known, substituted, synced};
pub(crate) use tree::{Disk, OnDisk, Tree, is_unlisted};

/// The name of the standard input among the files.
pub(crate) const STDIN_NAME: &str = "<stdin>";

/// Which kustomizations are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Kustomize {
    /// All that are found and name nothing remote.
    #[default]
    Auto,
    /// Every PATH is one.
    Always,
    /// None.
    Never,
    /// All that are found; what they name is fetched.
    Remote,
}

/// How folders are read.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct ReadingArgs {
    /// Kustomizations to build with kustomize, or else kubectl: all that are found and name nothing remote (auto), every
    /// PATH (always, or the flag without a value), none (never: their files are read as they are), or all that are found,
    /// fetching what they name (remote).
    #[arg(long, value_enum, default_value_t = Kustomize::Auto, default_missing_value = "always", num_args = 0..=1)]
    #[arg(require_equals = true, value_name = "WHEN")]
    pub(crate) kustomize: Kustomize,
    /// Files and folders to leave out where they are found in folders, as in a .gitignore file. Adds to the
    /// .napkeeperignore in or above the first PATH.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
}

/// What to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Files, folders, and `-`.
    pub(crate) paths: Vec<PathBuf>,
    /// The paths are those of the command line: a kustomization among them is to be built.
    pub(crate) explicit: bool,
    /// How folders are read.
    pub(crate) reading: ReadingArgs,
}

impl Selection {
    fn real_paths(&self, tree: &impl Tree) -> BTreeSet<PathBuf> {
        self.paths.iter().filter_map(|path| tree.real(path)).collect()
    }
}

/// What a repository holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Files that are judged as they are.
    pub(crate) files: Vec<Source>,
    /// What kustomizations build.
    pub(crate) renders: Vec<Render>,
    /// What could not be read or built.
    pub(crate) unreadable: Vec<Problem>,
    /// Files that are no manifests, and how many.
    pub(crate) others: BTreeMap<OtherFile, usize>,
    /// How many files were left out as patches of kustomizations that are not built.
    pub(crate) patches: usize,
    /// Why kustomizations were not built, a sentence for each.
    pub(crate) not_built: Vec<String>,
    /// Why what is synced is not read, or not as it is synced, a sentence for each.
    pub(crate) not_followed: Vec<String>,
    /// What the objects in the repository sync from it.
    pub(crate) synced: Vec<Synced>,
}

/// What a kustomization builds.
#[derive(Debug)]
pub(crate) struct Render {
    /// Its folder, by its real path.
    pub(crate) folder: PathBuf,
    /// The file of the kustomization, for people.
    pub(crate) file: PathBuf,
    /// The output.
    pub(crate) source: Source,
    /// All files that it is built from, by their real paths.
    pub(crate) files: BTreeSet<PathBuf>,
    /// The manifests among them.
    pub(crate) parts: Vec<Source>,
}

/// The manifests of a file or folder on disk.
pub(crate) fn load(path: &Path, reading: &ReadingArgs) -> anyhow::Result<Loaded> {
    let selection = Selection { paths: vec![path.to_owned()], explicit: true, reading: reading.clone() };
    let contents = read_disk(&selection)?;
    for sentence in contents.not_built.iter().chain(&contents.not_followed) {
        output::warning(sentence);
    }
    let mut others = contents.others.clone();
    others.remove(&OtherFile::Excluded);
    if let Some(others) = describe(&others) {
        output::warning(&format!("{}: left out {others}: for what they render to, pass - and pipe it", path.display()));
    }
    let mut files = contents.files;
    files.extend(contents.renders.into_iter().map(|render| render.source));
    Ok(Loaded { files, unreadable: contents.unreadable, others: contents.others })
}

/// Reads and builds what is on disk.
pub(crate) fn read_disk(selection: &Selection) -> anyhow::Result<Contents> {
    let exclusions = Exclusions::read(&Disk, selection)?;
    let load =
        |paths: &[PathBuf]| Ok(manifests::load_without(paths, &|path, is_folder| exclusions.hold(path, is_folder)));
    read(&Disk, selection, load)
}

/// Reads what is selected, and what is synced by the objects in that, and builds kustomizations.
pub(crate) fn read(
    tree: &impl Tree,
    selection: &Selection,
    load: impl Fn(&[PathBuf]) -> anyhow::Result<Loaded>,
) -> anyhow::Result<Contents> {
    let is_plain = |path: &&PathBuf| selection.reading.kustomize != Kustomize::Always || path.as_os_str() == STDIN;
    let plain: Vec<PathBuf> = selection.paths.iter().filter(is_plain).cloned().collect();
    let loaded = load(&plain)?;
    let mut contents = Contents { unreadable: loaded.unreadable, others: loaded.others, ..Contents::default() };
    let mut files = ByRealPath::default();
    files.add(tree, loaded.files);
    follow(tree, selection, &mut files, &mut contents, load)?;
    let mut built_from = BTreeSet::new();
    for (kustomization, result) in build_all(tree, &files, selection, &mut contents) {
        match result {
            Ok(text) => {
                built_from.extend(kustomization.files.iter().cloned());
                let render = render(tree, &files, kustomization, text, &contents.synced);
                contents.renders.push(render);
            }
            Err(message) => contents.unreadable.push(problem(&relative(&kustomization.folder), message)),
        }
    }
    let mut rest = files.all;
    rest.retain(|(real, _)| real.as_ref().is_none_or(|real| !built_from.contains(real)));
    let sources: Vec<Source> = rest.iter().map(|(_, source)| source.clone()).collect();
    let patches = patches(tree, &sources);
    let before = rest.len();
    rest.retain(|(real, _)| real.as_ref().is_none_or(|real| !patches.contains(real)));
    contents.patches = before - rest.len();
    let synced = &contents.synced;
    let substituted = |(real, source): (Option<PathBuf>, Source)| substituted(source, real.as_deref(), synced);
    contents.files = rest.into_iter().map(substituted).collect();
    Ok(contents)
}

/// Reads the folders that objects among the files sync, and so on, each once.
fn follow(
    tree: &impl Tree,
    selection: &Selection,
    files: &mut ByRealPath,
    contents: &mut Contents,
    load: impl Fn(&[PathBuf]) -> anyhow::Result<Loaded>,
) -> anyhow::Result<()> {
    let given = selection.real_paths(tree);
    let mut read = given.clone();
    let mut next = 0;
    let mut known = Known::default();
    loop {
        let new = files.all.get(next..).unwrap_or_default();
        let new: Vec<(&Path, &Source)> =
            new.iter().filter_map(|(real, source)| Some((real.as_deref()?, source))).collect();
        let synced = synced(tree, &new, &mut known);
        next = files.all.len();
        // A file that is given by name is read alone.
        let from_folders = synced.iter().filter(|one| one.leads_on() && !given.contains(&one.by));
        let unread = from_folders.map(|one| one.path.clone()).filter(|path| !read.iter().any(|r| path.starts_with(r)));
        let unread: BTreeSet<PathBuf> = unread.collect();
        contents.synced.extend(synced);
        if unread.is_empty() {
            // Of a whole repository everything is read anyway.
            let is_read = |root: &Path| given.iter().any(|path| root.starts_with(path));
            let others = known.not_followed.into_iter().filter(|one| !given.contains(&one.by) && !is_read(&one.root));
            contents.not_followed = known.differing.into_iter().chain(others.map(|one| one.sentence)).collect();
            return Ok(());
        }
        let loaded = load(&unread.iter().map(|path| relative(path)).collect::<Vec<_>>())?;
        read.extend(unread);
        contents.unreadable.extend(loaded.unreadable);
        for (other, n) in loaded.others {
            *contents.others.entry(other).or_default() += n;
        }
        files.add(tree, loaded.files);
    }
}

/// Files in their order, each with its real path if it has one.
#[derive(Default)]
struct ByRealPath {
    all: Vec<(Option<PathBuf>, Source)>,
    /// Positions by real path.
    positions: BTreeMap<PathBuf, usize>,
}

impl ByRealPath {
    /// Adds files that are not among them.
    fn add(&mut self, tree: &impl Tree, files: Vec<Source>) {
        for source in files {
            let real = tree.real(Path::new(&*source.file)).filter(|_| &*source.file != STDIN_NAME);
            if let Some(real) = &real {
                if self.positions.contains_key(real) {
                    continue;
                }
                self.positions.insert(real.clone(), self.all.len());
            }
            self.all.push((real, source));
        }
    }

    fn get(&self, real: &Path) -> Option<&Source> {
        self.all.get(*self.positions.get(real)?).map(|(_, source)| source)
    }

    /// The folders in which files were found, not given by name.
    fn folders(&self, given: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let found = self.all.iter().filter_map(|(real, _)| real.as_ref()).filter(|real| !given.contains(*real));
        found.filter_map(|real| real.parent()).map(Path::to_path_buf).collect()
    }
}

/// Builds what is to be built. What is not is told in `contents`.
fn build_all(
    tree: &impl Tree,
    files: &ByRealPath,
    selection: &Selection,
    contents: &mut Contents,
) -> Vec<(Kustomization, Result<String, String>)> {
    let named = named(tree, selection, contents);
    let folders = match selection.reading.kustomize {
        Kustomize::Never => return Vec::new(),
        Kustomize::Always => BTreeSet::new(),
        Kustomize::Auto | Kustomize::Remote => files.folders(&selection.real_paths(tree)),
    };
    let online = selection.reading.kustomize == Kustomize::Remote;
    let (buildable, blocked): (Vec<_>, Vec<_>) =
        find(tree, &folders, &named, online).into_iter().partition(|one| one.is_built(online));
    for one in blocked {
        let Some(obstacle) = one.obstacle else { continue };
        let folder = relative(&one.folder);
        if selection.reading.kustomize == Kustomize::Always {
            contents.unreadable.push(problem(&folder, format!("is not built: {obstacle}")));
        } else {
            contents.not_built.push(format!("{}: is not built: {obstacle}", folder.display()));
        }
    }
    let results = in_parallel(&buildable, |one| {
        let on_disk = tree.on_disk(&one.folder, &one.files).map_err(|error| BuildError::Failed(error.to_string()))?;
        build::build(&on_disk.folder, online).map_err(|error| on_disk.as_in_repository(error))
    });
    let (mut built, mut without_program) = (Vec::new(), 0);
    for (one, result) in buildable.into_iter().zip(results) {
        match result {
            Ok(text) => built.push((one, Ok(text))),
            Err(BuildError::Failed(message)) => built.push((one, Err(message))),
            Err(BuildError::NoProgram) if named.contains(&one.folder) => {
                built.push((one, Err(format!("is a kustomization, but {NO_PROGRAM}"))));
            }
            Err(BuildError::NoProgram) => without_program += 1,
        }
    }
    if without_program > 0 {
        let count = output::plural(without_program, "kustomization");
        contents.not_built.push(format!("not built: {count}: {NO_PROGRAM}"));
    }
    built
}

/// The folders of the command line that are to be built.
fn named(tree: &impl Tree, selection: &Selection, contents: &mut Contents) -> BTreeSet<PathBuf> {
    let always = selection.reading.kustomize == Kustomize::Always;
    let mut named = BTreeSet::new();
    for path in selection.paths.iter().filter(|path| path.as_os_str() != STDIN) {
        let real = tree.real(path).filter(|real| kustomization_in(tree, real).is_some());
        match real {
            Some(real) if selection.explicit || always => drop(named.insert(real)),
            None if always => {
                let message =
                    format!("is not a directory with a {}, so there is nothing to build", KUSTOMIZATION_NAMES[0]);
                contents.unreadable.push(problem(path, message));
            }
            _ => {}
        }
    }
    named
}

fn render(
    tree: &impl Tree,
    files: &ByRealPath,
    kustomization: Kustomization,
    text: String,
    synced: &[Synced],
) -> Render {
    let is_part = |file: &&PathBuf| manifests::is_manifest(file) && !is_kustomization(file);
    let part = |file: &PathBuf| {
        let source = files.get(file).cloned().or_else(|| tree.read(file))?;
        Some(substituted(source, Some(&kustomization.folder), synced))
    };
    let parts = kustomization.files.iter().filter(is_part).filter_map(part).collect();
    let file = kustomization_in(tree, &kustomization.folder).unwrap_or_else(|| kustomization.folder.clone());
    let name = format!("<kustomize {}>", relative(&kustomization.folder).display());
    let Kustomization { folder, files, .. } = kustomization;
    let source = substituted(manifests::load_text(&name, text), Some(&folder), synced);
    Render { file: relative(&file), source, parts, files, folder }
}

/// True for the file of a kustomization, by its name.
pub(crate) fn is_kustomization(file: &Path) -> bool {
    file.file_name().is_some_and(|name| KUSTOMIZATION_NAMES.iter().any(|n| name == *n))
}

/// A problem of a whole file or folder.
pub(crate) fn problem(path: &Path, message: String) -> Problem {
    Problem { file: Arc::from(path.to_string_lossy().as_ref()), position: None, message }
}

const NO_PROGRAM: &str = "neither kustomize nor kubectl is in PATH: install one of them, or use --kustomize=never to read \
                          the files as they are";

/// Runs a function on each item, on as many threads as there are processors: builds are programs that are waited for.
fn in_parallel<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        indices.map_while(|i| Some((i, run(items.get(i)?)))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}
