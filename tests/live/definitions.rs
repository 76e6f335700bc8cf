//! Does a real API server take our CustomResourceDefinitions, and the quick start by them?

use super::repository;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, upstream_crds};
use std::fs;
use std::time::Instant;

/// What belongs to the embedded world, not to a cluster.
const NOT_OF_A_CLUSTER: &str = "scenario.yaml";

/// All definitions, as one stream.
pub(super) fn definitions() -> Result<String> {
    let mut all = String::new();
    for folder in ["manifests/crds/karpenter", "manifests/crds/napkeeper"] {
        for entry in fs::read_dir(repository(folder))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
                all.push_str("---\n");
                all.push_str(&fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
            }
        }
    }
    Ok(all)
}

/// Waits until the API server serves all definitions that it holds.
pub(super) async fn established(plane: &ControlPlane) -> Result<()> {
    plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await.map(drop)
}

#[tokio::test]
async fn the_definitions_install_and_the_quick_start_applies() -> Result<()> {
    let start = Instant::now();
    let plane = ControlPlane::start(Mode::Api).await?;
    println!("etcd and kube-apiserver served after {:?}", start.elapsed());
    plane.apply(&definitions()?).await?;
    established(&plane).await?;
    let quirks = plane
        .kubectl(&[
            "get",
            "crd",
            "--output",
            "jsonpath={.items[*].status.conditions[?(@.type==\"NonStructuralSchema\")]}",
        ])
        .await?;
    ensure!(quirks.is_empty(), "a schema is not structural: {quirks}");

    let mut applied = 0;
    for entry in fs::read_dir(repository("manifests/quickstart"))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != NOT_OF_A_CLUSTER) {
            let text = fs::read_to_string(&path)?;
            plane.apply(&text).await.with_context(|| format!("applying {}", path.display()))?;
            applied += 1;
        }
    }
    ensure!(applied > 5, "the quick start has only {applied} files");
    let pools = plane.kubectl(&["get", "nodepools", "--output=name"]).await?;
    ensure!(pools.contains("nodepool.karpenter.sh/general-purpose"), "{pools}");
    Ok(())
}

#[tokio::test]
async fn mistakes_in_a_node_pool_are_refused_by_its_schema() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.apply(&definitions()?).await?;
    established(&plane).await?;
    let good = fs::read_to_string(repository("manifests/quickstart/nodepool-gpu.yaml"))?;
    plane.apply(&good).await?;
    for (right, wrong, complaint) in [
        ("operator: In", "operator: Near", "Unsupported value"),
        ("consolidateAfter: 1m", "consolidateAfter: soon", "should match"),
        ("consolidationPolicy: WhenEmpty", "consolidationPolicy: Now", "Unsupported value"),
        ("kind: AKSNodeClass", "kind: \"\"", "at least 1 chars"),
        ("limits:", "limit:", "field not declared in schema"),
    ] {
        let bad = good.replacen(right, wrong, 1).replace("name: gpu", "name: bad");
        ensure!(bad != good, "the quick start has no {right:?} to spoil");
        let answer = plane.apply(&bad).await;
        ensure!(
            answer.as_ref().is_err_and(|e| format!("{e:#}").contains(complaint)),
            "{wrong:?} should be refused with {complaint:?}: {answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn definitions_of_somebody_else_are_known_as_such() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    assert_eq!(napkeeper_kube::foreign_definitions(&client).await?, None, "what is not there belongs to nobody");
    plane.apply(&upstream_crds().await?).await?;
    let foreign = napkeeper_kube::foreign_definitions(&client).await?;
    assert_eq!(foreign.as_deref(), Some("nodepools.karpenter.sh, nodeclaims.karpenter.sh"));
    let ours = repository("manifests/crds/karpenter").display().to_string();
    plane.kubectl(&["apply", "--server-side", "--force-conflicts", "--kustomize", &ours]).await?;
    assert_eq!(napkeeper_kube::foreign_definitions(&client).await?, None);
    Ok(())
}
