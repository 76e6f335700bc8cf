//! Definitions of another version replace those that are there while objects of them exist and are read.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::{definitions, quickstart_file, repository};
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FOLDER: &str = "manifests/crds";

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(repository("")).args(args).output().context("running git")?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The definitions before their last change, as Git has them; of a clone without history those of today.
fn earlier() -> Result<String> {
    let changed = git(&["log", "--max-count=1", "--format=%H", "--", FOLDER]).unwrap_or_default();
    let before = format!("{}^", changed.trim());
    let Ok(files) = git(&["ls-tree", "-r", "--name-only", "--full-tree", &before, FOLDER]) else {
        eprintln!("this clone has no history: the definitions are applied over themselves");
        return definitions();
    };
    let mut all = String::new();
    for file in files.lines().filter(|file| !file.ends_with("kustomization.yaml")) {
        all.push_str("---\n");
        all.push_str(&git(&["show", &format!("{before}:{file}")])?);
    }
    Ok(all)
}

/// Name, UID, generation and spec of the objects of the quick start.
async fn objects(plane: &ControlPlane) -> Result<Vec<Value>> {
    let listed = plane.kubectl(&["get", "nodepools,aksnodeclasses,orphansweeps,placementpolicies", "--output=json"]);
    let listed: Value = serde_json::from_str(&listed.await?)?;
    let items = listed["items"].as_array().context("no items")?.iter();
    let part = |object: &Value| {
        let metadata = &object["metadata"];
        serde_json::json!([object["kind"], metadata["name"], metadata["uid"], metadata["generation"], object["spec"]])
    };
    Ok(items.map(part).collect())
}

/// Lists NodePools and OrphanSweeps again and again until it is told to end; how often.
async fn read_until(client: kube::Client, ended: Arc<AtomicBool>) -> Result<usize> {
    let kinds = [("karpenter.sh", "v1", "NodePool"), ("napkeeper.io", "v1alpha1", "OrphanSweep")];
    let apis = kinds.map(|(group, version, kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::<DynamicObject>::all_with(client.clone(), &resource)
    });
    let mut reads = 0;
    while !ended.load(Ordering::Relaxed) {
        for api in &apis {
            let listed = api.list(&ListParams::default()).await.context("reading during an upgrade")?;
            ensure!(!listed.items.is_empty(), "no objects during an upgrade");
            reads += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(reads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_replaced_while_their_objects_are_read() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let (earlier, today) = (earlier()?, definitions()?);
    plane.apply(&earlier).await?;
    plane.established().await?;
    for file in ["aksnodeclass", "nodepool-general-purpose", "nodepool-gpu", "orphansweep"] {
        plane.apply(&quickstart_file(file)?).await?;
    }
    plane.apply(&std::fs::read_to_string(repository("manifests/examples/placementpolicy.yaml"))?).await?;
    let before = objects(&plane).await?;
    ensure!(before.len() == 5, "{before:?}");

    let ended = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_until(plane.client().await?, Arc::clone(&ended)));
    // Forth, back and forth.
    for definitions in [&today, &earlier, &today] {
        plane.apply(definitions).await?;
        plane.established().await?;
        ensure!(objects(&plane).await? == before, "an object has changed");
        plane.apply(&quickstart_file("nodepool-gpu")?).await.context("writing an object after an upgrade")?;
    }
    ended.store(true, Ordering::Relaxed);
    let reads = reader.await??;
    ensure!(reads > 50, "only {reads} reads");

    // One stored version each: there is nothing to migrate.
    let stored = ["get", "crd", "--output=jsonpath={range .items[*]}{.status.storedVersions}{\"\\n\"}{end}"];
    let stored = plane.kubectl(&stored).await?;
    ensure!(stored.lines().count() == 8 && !stored.contains(','), "{stored}");
    Ok(())
}
