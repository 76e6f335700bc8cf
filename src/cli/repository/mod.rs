//! Manifests as repositories have them: kustomizations are built, and what is no manifest is left out.

pub(crate) mod command;
pub(crate) mod kustomize;
mod patches;

use crate::output;
use kustomize::BuildError;
use napkeeper_api::manifests::{self, Loaded, Problem};
pub(crate) use patches::patches;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The manifests of a file or folder: what its kustomization builds, or else its files without patches of kustomizations. Without a
/// program that builds, the files are read as they are, which is said.
pub(crate) fn load(path: &Path) -> Loaded {
    if kustomize::file_in(path).is_some() {
        match kustomize::build(path) {
            Ok(text) => {
                let built = manifests::load_text(&built_name(path), text);
                return Loaded { files: vec![built], ..Loaded::default() };
            }
            Err(BuildError::NoProgram) => {
                let message = format!("{}: {}: its files are read as they are", path.display(), BuildError::NoProgram);
                output::warning(&message);
            }
            Err(error) => {
                let file = Arc::from(path.to_string_lossy().as_ref());
                let problem = Problem { file, position: None, message: error.to_string() };
                return Loaded { unreadable: vec![problem], ..Loaded::default() };
            }
        }
    }
    let mut loaded = manifests::load(&[path.to_owned()]);
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let patches: Vec<PathBuf> = patches(&loaded.files).iter().filter_map(|file| real(file)).collect();
    loaded.files.retain(|source| !real(Path::new(&*source.file)).is_some_and(|file| patches.contains(&file)));
    loaded
}

/// The name of what a folder builds.
pub(crate) fn built_name(folder: &Path) -> String {
    format!("<kustomize {}>", folder.display())
}
