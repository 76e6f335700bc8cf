//! The companion and the daily audit beside Karpenter's objects, which stay as they are.

use super::{STEP, existing, overlay, settled, uninstall};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use napkeeper_tests::control_plane::{ControlPlane, Mode, upstream_crds};
use napkeeper_tests::manifests::quickstart_file;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{claim, pod};
use serde_json::Value;
use std::pin::pin;

/// Kinds of which deletions are looked at.
const KINDS: [(&str, &str, &str); 6] = [
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("", "v1", "Namespace"),
];

/// The revisions at which objects of each kind were deleted since one, in the order of [`KINDS`].
async fn deletions(plane: &ControlPlane, since: &str) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    for (group, version, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(plane.client().await?, &resource);
        let mut events = pin!(api.watch(&WatchParams::default().timeout(3), since).await?);
        let mut revisions = Vec::new();
        while let Some(event) = events.next().await {
            if let WatchEvent::Deleted(object) = event? {
                revisions.push(object.metadata.resource_version.context("no resourceVersion")?.parse()?);
            }
        }
        all.push(revisions);
    }
    Ok(all)
}

/// Puts the companion and the audit beside Karpenter, with its objects and a pod that runs.
async fn installed() -> Result<(ControlPlane, String)> {
    let plane = ControlPlane::start(Mode::Full).await?;
    plane.create_node("system-0", "8", "32Gi").await?;
    plane.apply(&upstream_crds().await?).await?;
    plane.established().await?;
    let mut node_claim = claim();
    node_claim["metadata"]["finalizers"] = serde_json::json!(["karpenter.sh/termination"]);
    let objects = [quickstart_file("nodepool-gpu")?, node_claim.to_string()];
    plane.apply(&objects.join("\n---\n")).await?;
    let manifests = [overlay("companion").await?, overlay("audit").await?].join("\n---\n");
    plane.apply(&manifests).await?;
    plane.established().await?;
    Ok((plane, manifests))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_companion_goes_and_nothing_of_karpenter_changes() -> Result<()> {
    let (plane, manifests) = installed().await?;
    // Its certificate is missing and nothing listens: a configuration that points at nothing delays, and freezes nothing.
    let mut web = pod("default", "web");
    web["spec"]["containers"][0]["resources"] = Value::Null;
    eventually("pod that is admitted", STEP, async || Ok(plane.apply(&web.to_string()).await.ok())).await?;
    plane.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=120s"]).await?;

    let before = settled(&plane).await?;
    let plan = uninstall(&plane, &["--dry-run"]).await?;
    let text = plan.ended(0)?;
    for line in ["delete ValidatingWebhookConfiguration napkeeper", "delete CronJob napkeeper-system/napkeeper-audit"] {
        ensure!(text.contains(line), "no {line:?} in\n{text}");
    }
    ensure!(!text.contains("NodePool"), "the NodePools are not napkeeper's:\n{text}");
    ensure!(super::versions(&plane).await? == before, "--dry-run has changed something");
    let none = uninstall(&plane, &[]).await?;
    ensure!(none.code == Some(2) && none.error.contains("--dry-run"), "{}", none.error);

    // Closed, with no webhook there: writes to NodePools are refused.
    let closed = r#"--patch=[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]"#;
    plane.kubectl(&["patch", "validatingwebhookconfiguration", "napkeeper", "--type=json", closed]).await?;
    let write = ["label", "nodepool", "gpu", "a=b", "--dry-run=server"];
    eventually("refused write", STEP, async || Ok(plane.kubectl(&write).await.err())).await?;

    let since = plane.kubectl(&["get", "--raw", "/api/v1/namespaces?limit=1"]).await?;
    let since: Value = serde_json::from_str(&since)?;
    let since = since["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?.to_owned();
    uninstall(&plane, &["--apply"]).await?.ended(0)?;
    let left = existing(&plane, &manifests).await?;
    ensure!(left.is_empty(), "left: {left}");
    eventually("permitted write", STEP, async || Ok(plane.kubectl(&write).await.ok())).await?;

    let deleted = deletions(&plane, &since).await?;
    for (earlier, later) in [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)] {
        let (last, first) = (deleted[earlier].iter().max(), deleted[later].iter().min());
        let (last, first) = (last.context("nothing was deleted")?, first.context("nothing was deleted")?);
        ensure!(last < first, "{} before {}: {deleted:?}", KINDS[earlier].2, KINDS[later].2);
    }

    let after = super::versions(&plane).await?;
    let is_karpenters = |name: &&String| {
        let kinds = ["NodePool ", "NodeClaim ", "AKSNodeClass ", "Pod default/", "CustomResourceDefinition "];
        kinds.iter().any(|kind| name.starts_with(kind)) && !name.ends_with(".napkeeper.io")
    };
    let kept: Vec<_> = before.keys().filter(is_karpenters).collect();
    ensure!(kept.len() > 5, "{kept:?}");
    for name in kept {
        ensure!(before.get(name) == after.get(name), "{name} has changed");
    }
    let again = uninstall(&plane, &["--apply"]).await?;
    ensure!(again.ended(0)?.starts_with("Nothing of napkeeper is there"), "{}", again.out);
    Ok(())
}
