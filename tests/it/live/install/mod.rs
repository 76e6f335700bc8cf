//! From nothing to Ready: napkeeper is installed as docs/install.md and docs/gitops.md say, and its pods run under their own roles.

mod guide;
mod provisioner;

use super::uninstall::existing;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_tests::control_plane::kustomize;
use napkeeper_tests::installation::{Installation, OVERLAY};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, hint, pod};
use std::path::Path;
use std::time::{Duration, Instant};

/// From the command or the commit that installs napkeeper until it does all of its work.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Longest that a step may take on a busy machine.
pub(super) const STEP: Duration = Duration::from_secs(180);

/// How long something took that must not take longer than [`READY_WITHIN`].
pub(super) fn in_time(what: &str, begun: Instant) -> Result<()> {
    let took = begun.elapsed();
    eprintln!("{what}: Ready after {took:.1?}");
    ensure!(took < READY_WITHIN, "{what}: Ready after {took:.1?}");
    Ok(())
}

/// Applies the overlay of a repository, and right after it what the quick start has for it.
pub(super) async fn apply_by_kubectl(lab: &Installation, repository: &Path) -> Result<()> {
    let overlay = repository.join(OVERLAY);
    let apply = ["apply", "--server-side", "--kustomize", overlay.to_str().context("a path")?];
    lab.env.plane.kubectl(&apply).await?;
    lab.env.plane.apply(&quickstart()?).await.map(drop)
}

/// Waits until all pods are ready, these kinds too, and the API server calls both hooks.
pub(super) async fn works(lab: &Installation, kinds: &str) -> Result<()> {
    let all_ready = async || Ok(lab.unready().await?.is_empty().then_some(()));
    eventually("Deployments whose pods are all ready", STEP, all_ready).await?;
    ensure!(lab.kubelet.running().len() == 5, "two controllers, two webhooks, one issuer of certificates run");
    lab.env.plane.kubectl(&["wait", "--for=condition=Ready", kinds, "--all", "--timeout=120s"]).await?;
    let file = lab.env.folder().join("bad.yaml");
    std::fs::write(&file, bad_pool("bad")?)?;
    let apply = ["apply", "--server-side", "--dry-run=server", "--filename", file.to_str().context("a path")?];
    let denied = async || Ok(lab.env.plane.kubectl(&apply).await.err().map(|error| format!("{error:#}")));
    let denied = eventually("denial of a bad NodePool", STEP, denied).await?;
    ensure!(denied.contains("validate.napkeeper.io") && denied.contains("99 8 * * *"), "{denied}");
    let pods: Api<Pod> = Api::namespaced(lab.env.plane.client().await?, "default");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let web = serde_json::from_value(pod("default", "web"))?;
    let hinted = async || Ok(hint(&pods.create(&params, &web).await?));
    eventually("hint on a pod", STEP, hinted).await?;
    lab.kubelet.check()
}

/// Checks that nothing is left of what the overlay of a repository installs.
pub(super) async fn nothing_is_left(lab: &Installation, repository: &Path) -> Result<()> {
    let left = existing(&lab.env.plane, &kustomize(&repository.join(OVERLAY)).await?).await?;
    ensure!(left.is_empty(), "left: {left}");
    ensure!(lab.kubelet.running().is_empty(), "{:?} still run", lab.kubelet.running().keys());
    lab.kubelet.check()
}
