//! The kustomizations that docs/gitops.md advises: their sync waves, and that nothing of what they install differs from Git.

use anyhow::{Context, Result, ensure};
use napkeeper_tests::argo_cd::{differences, objects, sync};
use napkeeper_tests::control_plane::{ControlPlane, kustomize};
use napkeeper_tests::manifests::{examples, quickstart_file, repository};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The folder of an Application as docs/gitops.md advises it, `n`-th of two: napkeeper, NodePools. It is built with the
/// manifests of the quick start.
pub(in crate::live) async fn documented(n: usize) -> Result<Vec<Value>> {
    let page = std::fs::read_to_string(repository("docs/gitops.md"))?;
    let text = examples(&page, "Argo CD").into_iter().filter(|text| text.contains("kind: Kustomization")).nth(n);
    let text = text.context("docs/gitops.md has no such kustomization")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().canonicalize()?;
    // Kustomize takes no absolute paths.
    let up = "../".repeat(path.components().count() - 1);
    let root = repository("").canonicalize()?;
    std::fs::write(
        path.join("kustomization.yaml"),
        text.replace('…', &format!("{up}{}", root.strip_prefix("/")?.display())),
    )?;
    let kustomization: Value = serde_saphyr::from_str(&text)?;
    for resource in kustomization["resources"].as_array().context("no resources")?.iter().filter_map(Value::as_str) {
        if let Some(name) = resource.strip_suffix(".yaml") {
            std::fs::write(path.join(resource), quickstart_file(name)?)?;
        }
    }
    objects(&kustomize(&path).await?)
}

/// The kinds of which an object has a wave.
fn waves(objects: &[Value]) -> BTreeMap<&str, &str> {
    let waves = objects.iter().filter_map(|object| {
        let wave = object["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"].as_str()?;
        Some((object["kind"].as_str()?, wave))
    });
    waves.collect()
}

/// The component gives every object of a kind its wave, and no other.
#[tokio::test]
async fn definitions_come_first_and_node_pools_and_sweeps_last() -> Result<()> {
    let (napkeeper, pools) = (documented(0).await?, documented(1).await?);
    ensure!(waves(&napkeeper) == BTreeMap::from([("CustomResourceDefinition", "-1")]), "{:?}", waves(&napkeeper));
    let wanted = BTreeMap::from([("NodePool", "1"), ("OrphanSweep", "1")]);
    ensure!(waves(&pools) == wanted, "{:?}", waves(&pools));
    for object in napkeeper.iter().chain(&pools) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let has_one = ["CustomResourceDefinition", "NodePool", "OrphanSweep"].contains(&kind);
        let annotations = &object["metadata"]["annotations"];
        ensure!(annotations["argocd.argoproj.io/sync-wave"].is_string() == has_one, "{kind}: {annotations}");
        // Those that the manifests have themselves stay.
        if ["CustomResourceDefinition", "NodePool", "AKSNodeClass"].contains(&kind) {
            ensure!(annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false", "{annotations}");
        }
    }
    Ok(())
}

/// Neither what the API server defaults nor a key of the pause switch that somebody has set in an incident.
pub(super) async fn the_companion_does_not_differ_from_git(plane: &ControlPlane) -> Result<()> {
    let git = documented(0).await?;
    sync(plane, &git).await?;
    let pause = format!("--patch={}", json!({ "data": { "launch": "true" } }));
    let namespace = "--namespace=napkeeper-system";
    plane.kubectl(&["patch", "configmap", "napkeeper-pause", namespace, "--type=merge", &pause]).await?;
    let found = differences(plane, &git).await?;
    ensure!(found.is_empty(), "Argo CD shows {found:?}");
    sync(plane, &git).await?;
    let kept = ["get", "configmap", "napkeeper-pause", namespace, "--output=jsonpath={.data.launch}"];
    ensure!(plane.kubectl(&kept).await? == "true", "a sync has reset the pause switch");
    // A field of Git that somebody changes is one.
    let replicas = ["scale", "deployment", "napkeeper-controller", namespace, "--replicas=7"];
    plane.kubectl(&replicas).await?;
    let found = differences(plane, &git).await?;
    ensure!(found.iter().any(|one| one == "Deployment napkeeper-controller: /spec/replicas"), "{found:?}");
    Ok(())
}
