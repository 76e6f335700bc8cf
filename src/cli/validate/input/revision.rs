//! Manifests of a Git revision.

use super::git::{Blob, Repository};
use super::{Input, SourceOrigin, absolute, relative};
use napkeeper_api::config;
use napkeeper_api::manifests::{self, CHART, MAX_FILE_BYTES, OtherFile, Place, Source, is_in_templates, is_of_chart};
use std::collections::BTreeSet;
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
    /// The folders that are Helm charts.
    charts: BTreeSet<PathBuf>,
}

impl Revision {
    pub(super) fn open(near: &Path, name: &str) -> anyhow::Result<Self> {
        let repository = Repository::of(near)?;
        let commit = repository.commit(name)?;
        let files = repository.files(&commit)?;
        let paths = files.iter().map(|blob| Path::new(&blob.path));
        let charts = paths.filter(|path| path.file_name().is_some_and(|name| name == CHART));
        let charts = charts.filter_map(|path| Some(path.parent()?.to_owned())).collect();
        Ok(Self { repository, commit, name: name.to_owned(), files, charts })
    }

    pub(super) fn description(&self) -> String {
        let short: String = self.commit.chars().take(10).collect();
        if self.commit.starts_with(&self.name) { short } else { format!("{} ({short})", self.name) }
    }

    pub(super) fn config(&self, folder: &Path) -> Option<(Source, PathBuf)> {
        let inside = absolute(folder).strip_prefix(&self.repository.root).ok()?.to_owned();
        let at = |folder: &Path| self.files.iter().find(|blob| Path::new(&blob.path) == folder.join(config::FILE_NAME));
        let blob = inside.ancestors().find_map(at)?;
        let text = String::from_utf8(self.repository.read(std::slice::from_ref(blob)).ok()?.pop()?).ok()?;
        let file = self.repository.root.join(&blob.path);
        let source = manifests::load_text(&relative(&file).to_string_lossy(), text);
        Some((source, file.parent()?.to_owned()))
    }

    pub(super) fn read(&self, paths: &[PathBuf]) -> anyhow::Result<Input> {
        let mut input = Input::default();
        let mut seen = BTreeSet::new();
        let mut wanted: Vec<(PathBuf, Blob, Place)> = Vec::new();
        for path in paths {
            let whole = absolute(path);
            let Ok(inside) = whole.strip_prefix(&self.repository.root) else {
                input.push_unreadable(path, format!("is outside the repository {}", self.repository.root.display()));
                continue;
            };
            let below: Vec<&Blob> =
                self.files.iter().filter(|blob| Path::new(&blob.path).starts_with(inside)).collect();
            if below.is_empty() {
                input.push_unreadable(path, format!("is not in {}", self.description()));
            }
            for blob in below {
                let rest = Path::new(&blob.path).strip_prefix(inside).unwrap_or_else(|_| Path::new(""));
                let is_named = rest.as_os_str().is_empty();
                if !is_read(rest) || seen.contains(&blob.path) {
                    continue;
                }
                let place = if is_named { Some(Place::Named) } else { self.place(Path::new(&blob.path), inside) };
                if let Some(place) = place {
                    seen.insert(blob.path.clone());
                    wanted.push((named(path, rest), blob.clone(), place));
                } else {
                    *input.others.entry(OtherFile::HelmChart).or_default() += 1;
                }
            }
        }
        self.take(wanted, &mut input)?;
        Ok(input)
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

    fn take(&self, wanted: Vec<(PathBuf, Blob, Place)>, input: &mut Input) -> anyhow::Result<()> {
        let (fits, large): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, blob, _)| blob.size <= MAX_FILE_BYTES);
        for (name, ..) in large {
            input.push_unreadable(&name, format!("is larger than {} MiB", MAX_FILE_BYTES >> 20));
        }
        let blobs: Vec<Blob> = fits.iter().map(|(_, blob, _)| blob.clone()).collect();
        for ((name, blob, place), bytes) in fits.iter().zip(self.repository.read(&blobs)?) {
            match String::from_utf8(bytes) {
                Ok(text) => {
                    let source = manifests::load_text(&name.to_string_lossy(), text);
                    match place.left_out_as(&source) {
                        Some(other) => *input.others.entry(other).or_default() += 1,
                        None => input.push(source, SourceOrigin::File(self.repository.root.join(&blob.path))),
                    }
                }
                Err(error) => {
                    input.push_unreadable(
                        name,
                        format!("is not valid UTF-8 (byte {})", error.utf8_error().valid_up_to()),
                    );
                }
            }
        }
        Ok(())
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
