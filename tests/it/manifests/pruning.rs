//! What GitOps tools must not prune or reset.

use super::objects;
use anyhow::{Result, bail, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use std::fs;

/// Objects in Git with nodes must not be pruned with their file.
#[test]
fn shipped_manifests_are_protected_from_pruning() -> Result<()> {
    let protected = ["NodePool", "AKSNodeClass", "CustomResourceDefinition"];
    let (mut folders, mut seen) = (vec![repository("manifests"), repository("kustomize")], [0; 3]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.display().to_string();
            for document in &yaml::read(&name, &fs::read_to_string(&path)?).documents {
                let Some(kind) = protected.iter().position(|kind| document.value["kind"] == *kind) else { continue };
                seen[kind] += 1;
                let annotations = &document.value["metadata"]["annotations"];
                let argo = annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false";
                let flux = annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled";
                ensure!(argo && flux, "{name}: {} may be pruned: {annotations}", document.value["metadata"]["name"]);
            }
        }
    }
    ensure!(seen[0] >= 9 && seen[1] >= 4 && seen[2] >= 6, "NodePools, AKSNodeClasses and definitions: {seen:?}");
    Ok(())
}

/// What Git sets is reset by a GitOps tool, in the middle of an incident.
#[test]
fn the_pause_switch_ships_without_keys() -> Result<()> {
    let all = objects("base/pause.yaml")?;
    let [switch] = &all[..] else { bail!("{all:?}") };
    ensure!(switch["metadata"]["name"] == "napkeeper-pause");
    let annotations = &switch["metadata"]["annotations"];
    ensure!(
        annotations["kustomize.toolkit.fluxcd.io/ssa"] == "Merge",
        "Flux removes keys that kubectl has set: {switch}"
    );
    ensure!(switch["data"].is_null() && switch["binaryData"].is_null(), "{switch}");
    Ok(())
}
