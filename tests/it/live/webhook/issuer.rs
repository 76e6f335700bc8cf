//! How `napkeeper certificates` ends when it cannot do its work.

use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install_without_accounts};
use napkeeper_tests::webhook;
use serde_json::{Value, json};
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);

/// It has neither a probe nor a metric, so that only its end shows that it cannot go on. The time of a check follows the
/// lifetime of certificates.
#[tokio::test]
async fn without_its_rights_it_says_why_and_ends_with_an_error() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    install_without_accounts(&plane, "provisioner").await?;
    ends_with_an_error(&plane, "napkeeper-webhook", &["napkeeper-webhook-ca", "forbidden"]).await?;
    let parts = ["Lease napkeeper-webhook cannot be read or written", "leases.coordination.k8s.io", "forbidden"];
    may_only_read_leases(&plane, "napkeeper-certificates").await?;
    ends_with_an_error(&plane, "napkeeper-certificates", &parts).await
}

/// Takes the rights to write Leases from a Role.
async fn may_only_read_leases(plane: &ControlPlane, role: &str) -> Result<()> {
    let text = plane.kubectl(&["get", "role", role, "--namespace", NAMESPACE, "--output=json"]).await?;
    let mut role_object: Value = serde_json::from_str(&text)?;
    let rules = role_object["rules"].as_array_mut().context("the Role has no rules")?;
    let mut about_leases = 0;
    for rule in rules.iter_mut().filter(|rule| rule["resources"] == json!(["leases"])) {
        rule["verbs"] = json!(["get"]);
        about_leases += 1;
    }
    ensure!(about_leases > 0, "no rule is about Leases: {rules:?}");
    let patch = json!([{ "op": "replace", "path": "/rules", "value": rules }]).to_string();
    plane.kubectl(&["patch", "role", role, "--namespace", NAMESPACE, "--type=json", "--patch", &patch]).await.map(drop)
}

/// It ends with an error of 30 checks, and its log has these parts.
async fn ends_with_an_error(plane: &ControlPlane, account: &str, parts: &[&str]) -> Result<()> {
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, account).await?;
    let program = webhook::certificates(&kubeconfig)?.args(["--authority-life=3", "--certificate-life=1"]);
    let process = Process::spawn("certificates", &program)?;
    let exit = process.exited(STEP).await?;
    let lines = process.lines().join("\n");
    ensure!(exit.code() == Some(2), "as {account} it ended with {exit}: {lines}");
    for part in parts.iter().chain(&["30 checks in a row have failed"]) {
        ensure!(lines.contains(part), "{part} is not in the log of {account}: {lines}");
    }
    Ok(())
}
