//! Manifests as they are written, for what edits them.

use super::kustomizations::{Kustomization, find};
use super::tree::{Disk, Tree};
use super::{ByRealPath, Contents, Exclusions, Selection, follow};
use napkeeper_api::manifests::{self, Loaded, Source};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What some paths hold, and what is built or synced with it.
pub(crate) struct AsWritten {
    /// The files of the paths.
    pub(crate) loaded: Loaded,
    /// The manifests that kustomizations among them are built from, and those that objects among them sync, which no path holds, or
    /// which are excluded.
    pub(crate) beyond: Vec<Source>,
    /// The kustomizations among all these that are no part of another.
    pub(crate) kustomizations: Vec<Kustomization>,
}

/// Reads what is selected. Nothing is built, and no variable replaced.
pub(crate) fn read_as_written(selection: &Selection) -> anyhow::Result<AsWritten> {
    let exclusions = Exclusions::read(&Disk, selection)?;
    let load =
        |paths: &[PathBuf]| Ok(manifests::load_without(paths, &|path, is_folder| exclusions.hold(path, is_folder)));
    let loaded = load(&selection.paths)?;
    let mut files = ByRealPath::default();
    files.add(&Disk, loaded.files.clone());
    let own = files.all.len();
    // What is wrong with files that no path holds is not for this run to say.
    follow(&Disk, selection, &mut files, &mut Contents::default(), load)?;
    let folders = files.folders(&selection.real_paths(&Disk));
    let kustomizations = find(&Disk, &folders, &BTreeSet::new(), true);
    let parts: BTreeSet<&PathBuf> = kustomizations.iter().flat_map(|one| &one.files).collect();
    let unread = parts.into_iter().filter(|file| files.get(file).is_none() && manifests::is_manifest(file));
    let unread: Vec<Source> = unread.filter_map(|file| Disk.read(file)).collect();
    let mut beyond: Vec<Source> = files.all.split_off(own).into_iter().map(|(_, source)| source).collect();
    beyond.extend(unread);
    Ok(AsWritten { loaded, beyond, kustomizations })
}

/// The patches among the files of a kustomization, by their real paths.
pub(crate) fn patches_in(files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let kustomizations = files.iter().filter(|file| super::is_kustomization(file));
    let sources: Vec<Source> = kustomizations.filter_map(|file| Disk.read(file)).collect();
    super::patches(&Disk, &sources)
}
