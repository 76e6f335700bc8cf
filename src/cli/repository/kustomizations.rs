//! Kustomizations, and the files that are their patches.
//!
//! A patch is part of an object and lacks the fields of the rest. It is validated where the kustomization is built.

use napkeeper_api::manifests::Source;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Names that kustomize accepts for its file.
pub(crate) const KUSTOMIZATION_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The name of the kustomization file in a directory.
pub(crate) fn kustomization_in(folder: &Path) -> Option<&'static str> {
    KUSTOMIZATION_NAMES.into_iter().find(|name| folder.join(name).is_file())
}

/// The files that kustomizations among these name as patches.
pub(crate) fn patches(sources: &[Source]) -> Vec<PathBuf> {
    let files = sources.iter().map(|source| (Path::new(&*source.file), source));
    let kustomizations =
        files.filter(|(file, _)| file.file_name().is_some_and(|name| KUSTOMIZATION_NAMES.iter().any(|n| name == *n)));
    kustomizations
        .flat_map(|(file, source)| {
            let folder = file.parent().unwrap_or_else(|| Path::new(""));
            let documents = &source.parsed().documents;
            documents.iter().flat_map(|d| named(&d.value)).map(|path| folder.join(path)).collect::<Vec<_>>()
        })
        .filter(|path| path.is_file())
        .collect()
}

fn named(kustomization: &Value) -> Vec<&str> {
    let list = |field: &str| kustomization[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_maps = list("patches").iter().chain(list("patchesJson6902")).filter_map(|patch| patch["path"].as_str());
    of_maps.chain(list("patchesStrategicMerge").iter().filter_map(Value::as_str)).collect()
}
