//! A provisioner in an empty cluster.

use super::{STEP, apply_by_kubectl, in_time, nothing_is_left, works};
use crate::live::policies::exported;
use crate::live::uninstall::{uninstall, uninstall_as};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::environment::state::running;
use napkeeper_tests::flux::{Flux, documented_checks};
use napkeeper_tests::installation::{Installation, OVERLAY};
use napkeeper_tests::manifests::{quickstart_file, repository};
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Kinds with a condition `Ready` where napkeeper launches the nodes.
pub(super) const KINDS: &str = "orphansweeps,nodepools,aksnodeclasses";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provisioner_is_installed_by_kubectl_removed_and_installed_by_flux() -> Result<()> {
    let mut lab = Installation::start("provisioner", "").await?;
    let repository = lab.repository().await?;
    let done = async {
        let begun = Instant::now();
        apply_by_kubectl(&lab, &repository).await?;
        works(&lab, KINDS).await?;
        running(&lab.env, "inflate", 10).await?;
        in_time("a provisioner by kubectl", begun)?;
        remove(&mut lab, &repository).await?;
        by_flux(&lab, &repository).await
    };
    let done = done.await;
    done.with_context(|| lab.kubelet.tails(12))
}

/// Takes all of it out, with its nodes: the controller drains them, and ends only then.
async fn remove(lab: &mut Installation, repository: &Path) -> Result<()> {
    let begun = Instant::now();
    let plane = &lab.env.plane;
    plane.kubectl(&["delete", "deployment/inflate", "poddisruptionbudget/inflate", "job/training"]).await?;
    // It protects NodePools from anybody who does not know it.
    plane.apply(&exported(&["in-use"])?).await?;
    let delete = ["delete", "nodepools", "--all", "--dry-run=server"];
    eventually("guard", STEP, async || Ok(plane.kubectl(&delete).await.err())).await?;
    let plan = uninstall(plane, &["--dry-run", "--drain"]).await?;
    let text = plan.ended(0)?;
    ensure!(text.contains("delete NodePool general-purpose") && !text.contains("finalizer napkeeper.io"), "{text}");

    let kubeconfig = plane.admin_kubeconfig();
    let mut drained = pin!(uninstall_as(&kubeconfig, &["--apply", "--drain", "--delete-records"]));
    let drained = loop {
        tokio::select! {
            run = &mut drained => break run?,
            () = tokio::time::sleep(Duration::from_millis(500)) => lab.env.jump(SignedDuration::from_secs(5))?,
        }
    };
    let text = drained.ended(0)?;
    ensure!(text.contains("delete NodePool spot-preferred") && text.contains("aksnodeclasses"), "{text}");
    ensure!(lab.env.resources().await?.is_empty(), "left in Azure: {:?}", lab.env.resources().await?);
    // The AKSNodeClass is the user's, and keeps Karpenter's definitions.
    let plane = &lab.env.plane;
    plane.kubectl(&["delete", "aksnodeclasses", "--all"]).await?;
    uninstall(plane, &["--apply"]).await?.ended(0)?;
    plane.kubectl(&["delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--all"]).await?;
    eprintln!("drained and removed in {:.1?}", begun.elapsed());
    nothing_is_left(lab, repository).await
}

/// Flux syncs two Kustomizations from one commit, as docs/gitops.md has them. With the component `fail-closed`, NodePools that came
/// before the webhook is ready would be refused.
async fn by_flux(lab: &Installation, folder: &Path) -> Result<()> {
    let plane = &lab.env.plane;
    let mut flux = Flux::start(plane).await?;
    let pools = folder.join("nodepools");
    std::fs::create_dir(&pools)?;
    let names = ["aksnodeclass", "nodepool-general-purpose", "nodepool-gpu", "nodepool-spot-preferred", "orphansweep"];
    let files = names.map(|name| format!("{name}.yaml"));
    for file in &files {
        std::fs::copy(repository("manifests/quickstart").join(file), pools.join(file))?;
    }
    std::fs::write(pools.join("kustomization.yaml"), json!({ "resources": files }).to_string())?;
    let kustomization = folder.join(OVERLAY).join("kustomization.yaml");
    let text = std::fs::read_to_string(&kustomization)?;
    std::fs::write(&kustomization, format!("{text}components: [../../../kustomize/components/fail-closed]\n"))?;
    let system = json!({ "path": OVERLAY, "wait": true, "timeout": "5m" });
    let mut after =
        json!({ "path": "nodepools", "wait": true, "timeout": "5m", "dependsOn": [{ "name": "napkeeper" }] });
    after["healthCheckExprs"] = documented_checks()?["healthCheckExprs"].take();
    let begun = Instant::now();
    // Pods that wait for nodes from the beginning.
    plane.apply(&quickstart_file("inflate")?).await?;
    let revision = flux.commit_tree(plane, folder, &[("napkeeper", system), ("nodepools", after)]).await?;
    for name in ["napkeeper", "nodepools"] {
        let ready = async || flux.ready_of(plane, name, &revision).await;
        let ready = eventually("answer of Flux", STEP, ready).await?;
        ensure!(ready["status"] == "True", "{name}: {ready}");
        eprintln!("{name}: Ready to Flux after {:.1?}", begun.elapsed());
    }
    works(lab, KINDS).await?;
    let policy =
        ["get", "validatingwebhookconfiguration", "napkeeper", "--output=jsonpath={.webhooks[*].failurePolicy}"];
    ensure!(plane.kubectl(&policy).await? == "Fail", "it does not fail closed");
    running(&lab.env, "inflate", 10).await?;
    in_time("a provisioner by Flux", begun)
}
