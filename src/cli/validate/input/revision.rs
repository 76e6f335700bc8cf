//! Manifests of a Git revision.

use super::git::{Blob, Repository};
use crate::repository::{
    self, Contents, Exclusions, OnDisk, Selection, Tree, absolute, is_kustomization, is_unlisted, problem, relative,
};
use napkeeper_api::config;
use napkeeper_api::manifests::{
    self, CHART, Loaded, MAX_FILE_BYTES, OtherFile, Place, Source, is_in_templates, is_of_chart,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// A revision.
#[derive(Debug)]
pub(in crate::validate) struct Revision {
    pub(super) repository: Repository,
    /// The commit.
    pub(super) commit: String,
    /// As given on the command line.
    name: String,
    files: Vec<Blob>,
    /// Positions in `files`, by the path on disk that each would have.
    by_path: BTreeMap<PathBuf, usize>,
    /// The folders that are Helm charts.
    charts: BTreeSet<PathBuf>,
    /// The kustomizations, by the path that each would have.
    kustomizations: BTreeMap<PathBuf, Source>,
}

impl Revision {
    pub(super) fn open(near: &Path, name: &str) -> anyhow::Result<Self> {
        let repository = Repository::of(near)?;
        let commit = repository.commit(name)?;
        let files = repository.files(&commit)?;
        let paths = files.iter().map(|blob| Path::new(&blob.path));
        let charts = paths.filter(|path| path.file_name().is_some_and(|name| name == CHART));
        let charts = charts.filter_map(|path| Some(path.parent()?.to_owned())).collect();
        let by_path = files.iter().enumerate().map(|(i, blob)| (repository.root.join(&blob.path), i)).collect();
        let kustomizations = BTreeMap::new();
        let mut revision = Self { repository, commit, name: name.to_owned(), files, by_path, charts, kustomizations };
        revision.kustomizations = revision.read_kustomizations()?;
        Ok(revision)
    }

    /// All at once: Git is started for each reading.
    fn read_kustomizations(&self) -> anyhow::Result<BTreeMap<PathBuf, Source>> {
        let is_wanted = |blob: &&Blob| is_kustomization(Path::new(&blob.path));
        self.read_blobs(self.files.iter().filter(is_wanted))
    }

    /// Files by the paths that they would have, without those that are no text or too large.
    fn read_blobs<'b>(&self, blobs: impl Iterator<Item = &'b Blob>) -> anyhow::Result<BTreeMap<PathBuf, Source>> {
        let blobs: Vec<Blob> = blobs.filter(|blob| blob.size <= MAX_FILE_BYTES).cloned().collect();
        let texts = self.repository.read(&blobs)?.into_iter().map(String::from_utf8);
        let read = blobs.iter().zip(texts).filter_map(|(blob, text)| {
            let path = self.repository.root.join(&blob.path);
            let source = manifests::load_text(&relative(&path).to_string_lossy(), text.ok()?);
            Some((path, source))
        });
        Ok(read.collect())
    }

    fn blob(&self, path: &Path) -> Option<&Blob> {
        self.files.get(*self.by_path.get(path)?)
    }

    pub(super) fn description(&self) -> String {
        let short: String = self.commit.chars().take(10).collect();
        if self.commit.starts_with(&self.name) { short } else { format!("{} ({short})", self.name) }
    }

    pub(super) fn config(&self, folder: &Path) -> Option<(Source, PathBuf)> {
        let inside = absolute(folder).strip_prefix(&self.repository.root).ok()?.to_owned();
        let at = |folder: &Path| {
            let blob = self.files.iter().find(|blob| Path::new(&blob.path) == folder.join(config::FILE_NAME))?;
            let text = manifests::text_of(self.repository.read(std::slice::from_ref(blob)).ok()?.pop()?).ok()?;
            let file = self.repository.root.join(&blob.path);
            let source = manifests::load_text(&relative(&file).to_string_lossy(), text);
            config::is_source(&source).then_some((source, file.parent()?.to_owned()))
        };
        inside.ancestors().find_map(at)
    }

    /// Reads and builds what was selected.
    pub(super) fn read(&self, selection: &Selection) -> anyhow::Result<Contents> {
        let exclusions = Exclusions::read(self, selection)?;
        repository::read(self, selection, |paths| self.load(paths, &exclusions))
    }

    fn load(&self, paths: &[PathBuf], exclusions: &Exclusions) -> anyhow::Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut seen = BTreeSet::new();
        let mut wanted: Vec<(PathBuf, Blob, Place)> = Vec::new();
        for path in paths {
            let whole = absolute(path);
            let Ok(inside) = whole.strip_prefix(&self.repository.root) else {
                let message = format!("is outside the repository {}", self.repository.root.display());
                loaded.unreadable.push(problem(path, message));
                continue;
            };
            let below: Vec<&Blob> =
                self.files.iter().filter(|blob| Path::new(&blob.path).starts_with(inside)).collect();
            if below.is_empty() {
                loaded.unreadable.push(problem(path, format!("is not in {}", self.description())));
            }
            for blob in below {
                let rest = Path::new(&blob.path).strip_prefix(inside).unwrap_or_else(|_| Path::new(""));
                let is_named = rest.as_os_str().is_empty();
                if !is_read(rest) || seen.contains(&blob.path) {
                    continue;
                }
                if !is_named && exclusions.hold(&self.repository.root.join(&blob.path), false) {
                    seen.insert(blob.path.clone());
                    *loaded.others.entry(OtherFile::Excluded).or_default() += 1;
                    continue;
                }
                let place = if is_named { Some(Place::Named) } else { self.place(Path::new(&blob.path), inside) };
                if let Some(place) = place {
                    seen.insert(blob.path.clone());
                    wanted.push((named(path, rest), blob.clone(), place));
                } else {
                    *loaded.others.entry(OtherFile::HelmChart).or_default() += 1;
                }
            }
        }
        self.take(wanted, &mut loaded)?;
        Ok(loaded)
    }

    /// Where a file below a folder is; `None` for what belongs to a Helm chart whatever is in it.
    fn place(&self, path: &Path, below: &Path) -> Option<Place> {
        let folders =
            path.ancestors().skip(1).filter(|folder| folder.starts_with(below) && self.charts.contains(*folder));
        let inside: Vec<&Path> = folders.filter_map(|folder| path.strip_prefix(folder).ok()).collect();
        if inside.iter().any(|inside| is_of_chart(inside)) {
            return None;
        }
        let is_template = inside.iter().any(|inside| is_in_templates(inside));
        Some(if is_template { Place::InTemplates } else { Place::InFolder })
    }

    fn take(&self, wanted: Vec<(PathBuf, Blob, Place)>, loaded: &mut Loaded) -> anyhow::Result<()> {
        let (fits, large): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, blob, _)| blob.size <= MAX_FILE_BYTES);
        for (name, ..) in large {
            loaded.unreadable.push(problem(&name, format!("is larger than {} MiB", MAX_FILE_BYTES >> 20)));
        }
        let blobs: Vec<Blob> = fits.iter().map(|(_, blob, _)| blob.clone()).collect();
        for ((name, _, place), bytes) in fits.iter().zip(self.repository.read(&blobs)?) {
            match manifests::text_of(bytes) {
                Ok(text) => {
                    let source = manifests::load_text(&name.to_string_lossy(), text);
                    match place.left_out_as(&source) {
                        Some(other) => *loaded.others.entry(other).or_default() += 1,
                        None => loaded.files.push(source),
                    }
                }
                Err(message) => loaded.unreadable.push(problem(name, message)),
            }
        }
        Ok(())
    }
}

/// The files of a revision, by the paths that they have in the working tree.
impl Tree for Revision {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let real = absolute(path);
        (self.by_path.contains_key(&real) || self.is_folder(&real)).then_some(real)
    }

    fn is_folder(&self, real: &Path) -> bool {
        // Paths are ordered by their parts, so what is below this one comes next.
        let mut after = self.by_path.range::<Path, _>((Bound::Excluded(real), Bound::Unbounded));
        after.next().is_some_and(|(path, _)| path.starts_with(real))
    }

    fn root(&self, _: &Path) -> Option<PathBuf> {
        Some(self.repository.root.clone())
    }

    fn files(&self, real: &Path) -> Vec<PathBuf> {
        let is_unlisted = |path: &Path| path.iter().any(|part| is_unlisted(Path::new(part)));
        let all = self.by_path.keys().filter(|path| path.strip_prefix(real).is_ok_and(|inside| !is_unlisted(inside)));
        all.cloned().collect()
    }

    fn read(&self, real: &Path) -> Option<Source> {
        if let Some(source) = self.kustomizations.get(real) {
            return Some(source.clone());
        }
        self.read_blobs(self.blob(real).into_iter()).ok()?.into_values().next()
    }

    fn read_all(&self, real: &[PathBuf]) -> Vec<(PathBuf, Source)> {
        let blobs = real.iter().filter_map(|file| self.blob(file));
        self.read_blobs(blobs).unwrap_or_default().into_iter().collect()
    }

    fn on_disk(&self, folder: &Path, files: &BTreeSet<PathBuf>) -> io::Result<OnDisk> {
        let copy = tempfile::tempdir()?;
        let at = |path: &Path| Some(copy.path().join(path.strip_prefix(&self.repository.root).ok()?));
        let wanted: Vec<(PathBuf, Blob)> =
            files.iter().filter_map(|file| Some((at(file)?, self.blob(file)?.clone()))).collect();
        let blobs: Vec<Blob> = wanted.iter().map(|(_, blob)| blob.clone()).collect();
        let contents = self.repository.read(&blobs).map_err(io::Error::other)?;
        for ((path, _), content) in wanted.iter().zip(contents) {
            std::fs::create_dir_all(path.parent().unwrap_or_else(|| copy.path()))?;
            std::fs::write(path, content)?;
        }
        let folder = at(folder).unwrap_or_else(|| copy.path().to_owned());
        Ok(OnDisk { folder, copy: Some(copy) })
    }
}

/// True when a file is read, by its path from a given directory; an empty one is the given file itself.
fn is_read(rest: &Path) -> bool {
    let mut parts = rest.components().map(|part| Path::new(part.as_os_str()));
    rest.as_os_str().is_empty() || (manifests::is_manifest(rest) && !parts.any(manifests::is_skipped))
}

/// The name of a file that was found in a directory.
fn named(folder: &Path, rest: &Path) -> PathBuf {
    match (folder == Path::new("."), rest.as_os_str().is_empty()) {
        (true, _) => rest.to_owned(),
        (false, true) => folder.to_owned(),
        (false, false) => folder.join(rest),
    }
}
