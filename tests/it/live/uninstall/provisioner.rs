//! A provisioner's NodePools and nodes are handed over: they stay, and lose what nobody would remove later.

use super::{existing, overlay, uninstall, uninstall_as};
use crate::live::policies::exported;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Identity, Mode};
use napkeeper_tests::environment::NAMESPACE;
use napkeeper_tests::manifests::{examples, quickstart_file, repository};
use napkeeper_tests::webhook::hooks::{claim, pod};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::pin::pin;

/// A provisioner with a NodePool, a NodeClaim and its Node, a record, the delete guards, and what is not napkeeper's.
async fn installed() -> Result<(ControlPlane, String)> {
    let plane = ControlPlane::start(Mode::Full).await?;
    let manifests = overlay("provisioner").await?;
    plane.apply(&manifests).await?;
    plane.established().await?;
    plane.create_node("gpu-1", "8", "32Gi").await?;
    let mut held = claim();
    held["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    held["metadata"]["annotations"] = json!({ "napkeeper.io/launch-intent": "{}" });
    let mut ending = held.clone();
    ending["metadata"]["name"] = json!("gpu-2");
    let record = json!({
        "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanRecord", "metadata": { "name": "r" }, "spec": {},
    });
    let pool = [quickstart_file("aksnodeclass")?, quickstart_file("nodepool-gpu")?];
    plane.apply(&pool.join("\n---\n")).await?;
    let objects = [held, ending, record].map(|object| object.to_string());
    plane.apply(&objects.join("\n---\n")).await?;
    plane.kubectl(&["delete", "nodeclaim", "gpu-2", "--wait=false"]).await?;
    let status = r#"--patch={"status":{"nodeName":"gpu-1"}}"#;
    plane.kubectl(&["patch", "nodeclaim", "gpu-1", "--subresource=status", "--type=merge", status]).await?;
    let finalizers = r#"--patch={"metadata":{"finalizers":["napkeeper.io/nodes","example.com/other"]}}"#;
    plane.kubectl(&["patch", "nodepool", "gpu", "--type=merge", finalizers]).await?;
    let finalizer = r#"--patch={"metadata":{"finalizers":["karpenter.sh/termination"]}}"#;
    plane.kubectl(&["patch", "node", "gpu-1", "--type=merge", finalizer]).await?;
    plane.apply(&exported(&["definitions", "in-use", "approvals", "orphan-records"])?).await?;
    Ok((plane, manifests))
}

/// The kubeconfig of a user with the rights that docs/uninstall.md names.
async fn remover(plane: &ControlPlane) -> Result<PathBuf> {
    let page = std::fs::read_to_string(repository("docs/uninstall.md"))?;
    plane.apply(examples(&page, "Rights").first().context("the page names no rights")?).await?;
    let binding = ["create", "clusterrolebinding", "remover", "--clusterrole=uninstall-napkeeper", "--user=remover"];
    plane.kubectl(&binding).await?;
    plane.kubeconfig(&Identity::user("remover"))
}

async fn finalizers(plane: &ControlPlane, kind: &str, name: &str) -> Result<String> {
    plane.kubectl(&["get", kind, name, "--output=jsonpath={.metadata.finalizers[*]}"]).await
}

/// By its Lease, which it renews: no finalizer is removed beside it.
async fn a_controller_elsewhere_is_noticed(plane: &ControlPlane, remover: &Path) -> Result<()> {
    let lease = |renewals: u32| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "napkeeper-controller", "namespace": "kube-system" },
            "spec": { "holderIdentity": "elsewhere", "leaseTransitions": renewals },
        });
        lease.to_string()
    };
    plane.apply(&lease(0)).await?;
    let mut stopped = pin!(uninstall_as(remover, &["--apply", "--timeout=3s"]));
    let mut renewals = 0;
    let stopped = loop {
        renewals += 1;
        let renewed = lease(renewals);
        tokio::select! {
            run = &mut stopped => break run?,
            renewed = plane.apply(&renewed) => drop(renewed?),
        }
    };
    let text = stopped.ended(1)?;
    ensure!(renewals > 1, "the Lease was not renewed");
    ensure!(text.contains("a controller that renews the Lease"), "{text}");
    ensure!(finalizers(plane, "nodepool", "gpu").await?.contains("napkeeper.io/nodes"));
    plane.kubectl(&["delete", "lease", "napkeeper-controller", "--namespace=kube-system"]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provisioner_hands_its_nodes_over() -> Result<()> {
    let (plane, manifests) = installed().await?;
    // A pod that does not end: the finalizers must not go before it, for its controller would put them back.
    let mut stuck = pod(NAMESPACE, "stuck");
    stuck["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "napkeeper" });
    stuck["metadata"]["finalizers"] = json!(["example.com/hold"]);
    plane.apply(&stuck.to_string()).await?;
    let remover = remover(&plane).await?;
    let stopped = uninstall_as(&remover, &["--apply", "--timeout=3s"]).await?;
    let text = stopped.ended(1)?;
    ensure!(text.contains("Stopped after 3 s still there: ") && text.contains("Pod napkeeper-system/stuck"), "{text}");
    ensure!(finalizers(&plane, "nodepool", "gpu").await? == "napkeeper.io/nodes example.com/other");
    let release = r#"--patch={"metadata":{"finalizers":null}}"#;
    let namespace = "--namespace=napkeeper-system";
    plane.kubectl(&["patch", "pod", "stuck", namespace, "--type=merge", release]).await?;
    plane.kubectl(&["delete", "pod", "stuck", namespace, "--ignore-not-found"]).await?;
    a_controller_elsewhere_is_noticed(&plane, &remover).await?;
    // Of somebody else, in napkeeper's namespace.
    plane.kubectl(&["create", "configmap", "mine", namespace]).await?;

    let claim = plane.kubectl(&["get", "nodeclaim", "gpu-1", "--output=yaml"]).await?;
    let kept = uninstall_as(&remover, &["--apply", "--output=json"]).await?;
    let report: Value = serde_json::from_str(kept.ended(1)?)?;
    let left: Vec<_> = report["left"].as_array().context("no list")?.iter().collect();
    let unexpected: Vec<_> =
        left.iter().filter(|left| left["isExpected"] == false).filter_map(|left| left["what"].as_str()).collect();
    let record = "CustomResourceDefinition orphanrecords.napkeeper.io";
    let deleting = "NodeClaims that are being deleted: gpu-2";
    ensure!(unexpected == [record, "Namespace napkeeper-system", deleting], "{unexpected:?}");
    ensure!(left.iter().any(|left| left["what"] == "CustomResourceDefinition nodepools.karpenter.sh"), "{left:?}");
    ensure!(finalizers(&plane, "nodepool", "gpu").await? == "example.com/other");
    ensure!(
        plane.kubectl(&["get", "nodeclaim", "gpu-1", "--output=yaml"]).await? == claim,
        "the NodeClaim has changed"
    );
    ensure!(finalizers(&plane, "node", "gpu-1").await? == "karpenter.sh/termination");
    plane.kubectl(&["get", "orphanrecord", "r"]).await?;

    plane.kubectl(&["delete", "configmap", "mine", namespace]).await?;
    let all = uninstall_as(&remover, &["--apply", "--delete-records", "--release-nodes"]).await?;
    let text = all.ended(1)?;
    ensure!(text.contains("nodepool-in-use") && text.contains(deleting), "what stays is not named:\n{text}");
    // Without its finalizer it would be gone, and its VM left.
    ensure!(finalizers(&plane, "nodeclaim", "gpu-2").await? == "karpenter.sh/termination");
    plane.kubectl(&["patch", "nodeclaim", "gpu-2", "--type=merge", release]).await?;
    for kind in ["nodeclaim", "node"] {
        ensure!(finalizers(&plane, kind, "gpu-1").await?.is_empty(), "the {kind} keeps its finalizer");
    }
    let left = existing(&plane, &manifests).await?;
    let karpenters = "customresourcedefinition.apiextensions.k8s.io/";
    let left: Vec<_> = left.lines().map(|line| line.trim_start_matches(karpenters)).collect();
    // Karpenter's, of which some hold objects.
    let karpenter = ["aksnodeclasses.karpenter.azure.com", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh"];
    ensure!(left.len() == 4 && left.starts_with(&karpenter) && left.ends_with(&["nodepools.karpenter.sh"]), "{left:?}");
    let policies = plane.kubectl(&["get", "validatingadmissionpolicies", "--output=name"]).await?;
    ensure!(!policies.contains("orphan") && policies.contains("nodepools-definition"), "{policies}");
    uninstall(&plane, &["--apply"]).await?.ended(0).map(drop)
}
