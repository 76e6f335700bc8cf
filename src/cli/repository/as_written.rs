//! Manifests as they are written, for what edits them.

use super::kustomizations::{Kustomization, Obstacle, components_of, kustomization_in, replacements_of};
use super::tree::{Disk, Tree};
use super::{ByRealPath, Contents, Exclusions, Selection, follow, patches};
use napkeeper_api::manifests::{self, Loaded, Source};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What some paths hold, and what is built or synced with it.
pub(crate) struct AsWritten {
    /// The files of the paths.
    pub(crate) loaded: Loaded,
    /// The manifests that kustomizations among them are built from, and those that objects among them sync, which no path holds, or
    /// which are excluded; and what changes a file that is given by name.
    pub(crate) beyond: Vec<Source>,
    /// What is changed by the kustomizations among all these, by those that they name, and by those above files that are given by name.
    pub(crate) changing: Vec<Changing>,
}

/// What a kustomization changes, and by which files. All are real paths.
pub(crate) struct Changing {
    /// Its own file, the patches and replacements that it names, and the same of its components.
    pub(crate) by: BTreeSet<PathBuf>,
    /// All files that it is built from.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Why these are not all.
    pub(crate) obstacle: Option<Obstacle>,
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
    let given = selection.real_paths(&Disk);
    let mut changing = all_below(files.folders(&given));
    let mut parts: BTreeSet<PathBuf> = changing.iter().flat_map(|one| one.files.iter().cloned()).collect();
    let named: Vec<PathBuf> = given.into_iter().filter(|path| !Disk.is_folder(path)).collect();
    let mut above = all_below(named.iter().flat_map(|file| folders_above(file)).collect());
    above.retain(|one| named.iter().any(|file| one.files.contains(file)));
    // Other resources of theirs are not concerned.
    parts.extend(above.iter().flat_map(|one| one.by.iter().cloned()));
    changing.extend(above);
    let unread = parts.iter().filter(|file| files.get(file).is_none() && manifests::is_manifest(file));
    let unread: Vec<Source> = unread.filter_map(|file| Disk.read(file)).collect();
    let mut beyond: Vec<Source> = files.all.split_off(own).into_iter().map(|(_, source)| source).collect();
    beyond.extend(unread);
    Ok(AsWritten { loaded, beyond, changing })
}

/// The kustomizations in some folders, and those that they name.
fn all_below(folders: BTreeSet<PathBuf>) -> Vec<Changing> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut pending: Vec<PathBuf> = folders.into_iter().collect();
    while let Some(folder) = pending.pop() {
        if seen.contains(&folder) {
            continue;
        }
        if let Some(one) = Kustomization::read(&Disk, &folder) {
            pending.extend(one.bases.iter().cloned());
            // A component changes what the kustomizations that name it are built from.
            if !matches!(one.obstacle, Some(Obstacle::Component)) {
                all.push(Changing { by: changed_by(&folder), files: one.files, obstacle: one.obstacle });
            }
        }
        seen.insert(folder);
    }
    all
}

/// The files by which a kustomization changes what it is built from.
fn changed_by(folder: &Path) -> BTreeSet<PathBuf> {
    let mut by = BTreeSet::new();
    let mut pending: Vec<PathBuf> = kustomization_in(&Disk, folder).into_iter().collect();
    while let Some(file) = pending.pop() {
        if !by.insert(file.clone()) {
            continue;
        }
        let Some(source) = Disk.read(&file) else { continue };
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let real = |path: &str| Disk.real(&folder.join(path));
        for document in &source.parsed().documents {
            by.extend(replacements_of(&document.value).filter_map(real));
            pending.extend(components_of(&document.value).filter_map(|path| kustomization_in(&Disk, &real(path)?)));
        }
        by.extend(patches(&Disk, &[source]));
    }
    by
}

/// The folder of a file and those above it in the repository.
fn folders_above(file: &Path) -> Vec<PathBuf> {
    let root = Disk.root(file);
    let is_near = |folder: &&Path| root.as_ref().is_some_and(|root| folder.starts_with(root));
    let above = file.ancestors().skip(1).enumerate();
    above.filter(|(i, folder)| *i == 0 || is_near(folder)).map(|(_, folder)| folder.to_path_buf()).collect()
}
