//! `napkeeper uninstall` on a real control plane: what it removes, in which order, and what it does not touch.

mod companion;
mod pages;
mod provisioner;

use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, kustomize, napkeeper_binary};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

const STEP: Duration = Duration::from_secs(120);
/// An end that does not come is not waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(400);

/// What a run printed, and how it ended.
pub(in crate::live) struct Run {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Run {
    /// Its output, if it ended with this code.
    pub(in crate::live) fn ended(&self, code: i32) -> Result<&str> {
        let Self { out, error, .. } = self;
        ensure!(self.code == Some(code), "exit code {:?} instead of {code}:\n{out}\n{error}", self.code);
        Ok(out)
    }
}

pub(in crate::live) async fn uninstall(plane: &ControlPlane, args: &[&str]) -> Result<Run> {
    uninstall_as(&plane.admin_kubeconfig(), args).await
}

pub(in crate::live) async fn uninstall_as(kubeconfig: &Path, args: &[&str]) -> Result<Run> {
    let mut command = Command::new(napkeeper_binary()?);
    command.arg("uninstall").arg("--kubeconfig").arg(kubeconfig).args(args).kill_on_drop(true);
    let output = tokio::time::timeout(ENDS_WITHIN, command.output()).await.context("uninstall does not end")??;
    let (out, error) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(Run { code: output.status.code(), out, error })
}

/// What an overlay installs.
async fn overlay(name: &str) -> Result<String> {
    kustomize(&repository("kustomize/overlays").join(name)).await
}

/// The objects of some manifests that exist, by kind and name.
pub(in crate::live) async fn existing(plane: &ControlPlane, manifests: &str) -> Result<String> {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile_in(plane.folder())?;
    std::fs::write(file.path(), manifests)?;
    let path = file.path().display().to_string();
    plane.kubectl(&["get", "--ignore-not-found", "--output=name", "--filename", &path]).await
}

/// The resourceVersion of each object in the cluster but those that change by themselves.
async fn versions(plane: &ControlPlane) -> Result<BTreeMap<String, String>> {
    let kinds = plane.kubectl(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let changing = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];
    let kinds: Vec<_> = kinds.lines().filter(|kind| !changing.contains(kind)).collect();
    let listed = plane.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output=json"]).await?;
    let listed: Value = serde_json::from_str(&listed)?;
    let mut all = BTreeMap::new();
    for object in listed["items"].as_array().context("no items")? {
        let metadata = &object["metadata"];
        let name = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]).replace('"', "");
        all.insert(name, metadata["resourceVersion"].as_str().unwrap_or_default().to_owned());
    }
    ensure!(all.len() > 50, "only {} objects", all.len());
    Ok(all)
}

/// The same, once nothing changes any more.
async fn settled(plane: &ControlPlane) -> Result<BTreeMap<String, String>> {
    let mut before = versions(plane).await?;
    eventually("cluster in which nothing changes", STEP, async || {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = versions(plane).await?;
        let is_settled = now == before;
        before = now;
        Ok(is_settled.then_some(()))
    })
    .await?;
    Ok(before)
}
