//! Manifests as repositories have them: what is no manifest is left out.

mod kustomizations;

use crate::output;
pub(crate) use kustomizations::{KUSTOMIZATION_NAMES, kustomization_in, patches};
use napkeeper_api::manifests::{self, Loaded, describe};
use std::path::{Path, PathBuf};

/// The manifests of a file or folder, without patches of kustomizations. Nothing is built: a kustomization may name what is then
/// fetched.
pub(crate) fn load(path: &Path) -> Loaded {
    let mut loaded = manifests::load(&[path.to_owned()]);
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let patches: Vec<PathBuf> = patches(&loaded.files).iter().filter_map(|file| real(file)).collect();
    loaded.files.retain(|source| !real(Path::new(&*source.file)).is_some_and(|file| patches.contains(&file)));
    if kustomization_in(path).is_some() {
        let path = path.display();
        output::warning(&format!(
            "{path} is a kustomization, and its files are read as they are: for what it builds, pass - and pipe the output of \
             kustomize build {path}"
        ));
    }
    if let Some(others) = describe(&loaded.others) {
        output::warning(&format!("{}: left out {others}: for what they render to, pass - and pipe it", path.display()));
    }
    loaded
}
