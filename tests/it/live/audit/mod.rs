//! One audit of a real API server and an Azure over HTTP reports the same as from saved files.

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::azure_roles::Granted;
use napkeeper_tests::control_plane::{napkeeper_binary, upstream_crds};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::manifests::repository;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Runs the audit as the ServiceAccount of the env.
fn audit(env: &Environment, args: &[&str]) -> Result<Output> {
    let file = |name: &str| env.folder().join(name).display().to_string();
    let kubeconfig = env.proxy.kubeconfig(env.folder())?;
    let mut command = Command::new(napkeeper_binary()?);
    command
        .arg("audit")
        .arg(format!("--config={}", file("napkeeper.yaml")))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--azure-endpoint={}", env.azure_url))
        .arg(format!("--azure-token-file={}", file("token")))
        .arg(format!("--time-offset-file={}", file("offset")))
        .args(args);
    command.output().context("running the audit")
}

fn replay(folder: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(napkeeper_binary()?);
    command.arg("audit").arg("--from").arg(folder).args(args);
    command.output().context("running the audit on files")
}

fn report(output: &Output, code: i32) -> Result<Value> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "it ended with {}: {error}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("no report: {error}"))
}

fn status<'r>(report: &'r Value, name: &str) -> Result<&'r str> {
    let findings = report["findings"].as_array().context("no findings")?;
    let finding = findings.iter().find(|f| f["name"] == name).with_context(|| format!("no {name} in the report"))?;
    finding["status"].as_str().context("no status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_audit_finds_leaks_and_its_files_give_the_same_report() -> Result<()> {
    let class = repository("manifests/crds/karpenter/karpenter.azure.com_aksnodeclasses.yaml");
    let definitions = format!("{}\n---\n{}", upstream_crds().await?, std::fs::read_to_string(class)?);
    let mut env = Environment::start_with_definitions("companion", &definitions).await?;
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    for n in 0..60 {
        let name = format!("foreign-{n}");
        env.tell_azure("stage", &json!({ "leakNic": { "name": name, "tags": { "owner": "somebody" } } })).await?;
    }
    env.tell_azure("stage", &json!({ "leakVm": { "name": "leaked-vm", "tags": tags, "size": "Standard_D2s_v5" } }))
        .await?;
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    env.jump(SignedDuration::from_hours(2))?;
    // The simulated Azure polls its clock a few times a second.
    tokio::time::sleep(Duration::from_millis(500)).await;
    env.tell_azure("stage", &json!({ "leakNic": { "name": "fresh", "tags": tags } })).await?;

    let writes = env.proxy.writes().len();
    let saved = env.folder().join("saved");
    let live = report(&audit(&env, &["-o", "json", "--all", "--save", &saved.display().to_string()])?, 1)?;
    env.ensure_permitted(Granted::Audit).await?;
    ensure!(status(&live, "leaked")? == "unproven" && status(&live, "leaked-vm")? == "unproven", "{}", live["totals"]);
    ensure!(status(&live, "fresh")? == "suspect" && status(&live, "foreign-0")? == "foreign", "{}", live["totals"]);
    ensure!(saved.join("networkInterfaces.page2.json").exists(), "pages are saved one by one");
    let pods = std::fs::read_to_string(saved.join("pods.json"))?;
    ensure!(!pods.contains("image"), "a saved pod holds more than disks: {pods}");
    for format in ["json", "table", "csv", "sarif", "policyreport", "markdown"] {
        let again = replay(&saved, &["-o", format, "--all"])?;
        ensure!(again.status.code() == Some(1), "{format}: {}", String::from_utf8_lossy(&again.stderr));
        ensure!(format != "json" || report(&again, 1)? == live, "files tell another story than what was asked live");
    }
    ensure!(env.proxy.writes().len() == writes, "an audit wrote: {:?}", env.proxy.writes());

    refused(&env).await
}

/// Rejections by Azure or the API server make a report incomplete, and the preflight explains them.
async fn refused(env: &Environment) -> Result<()> {
    let preflight = report(&audit(env, &["--as-controller", "-o", "json"])?, 0)?;
    ensure!(preflight["grant"] == json!([]), "{preflight}");
    for (fault, lacking) in [
        (json!({ "lockdown": { "for": "1h" } }), "AKS node resource group lockdown"),
        (json!({ "lock": { "for": "1h" } }), "lock no-delete (CanNotDelete)"),
        (json!({ "policy": { "assignment": "need-cost-center", "for": "1h" } }), "need-cost-center denies"),
    ] {
        env.fault_inside(&fault).await?;
        let preflight = report(&audit(env, &["--as-controller", "-o", "json"])?, 1)?;
        ensure!(preflight.to_string().contains(lacking), "{fault}: {preflight}");
        env.cure_azure().await?;
    }
    env.fault_inside(&json!({ "listing": { "how": "forbidden", "for": "1h" } })).await?;
    let preflight = report(&audit(env, &["--as-controller", "-o", "json"])?, 1)?;
    let lacks = preflight["grant"].as_array().context("no grant")?;
    ensure!(lacks.contains(&json!("Microsoft.Network/networkInterfaces/read")), "{preflight}");
    let saved = env.folder().join("saved-forbidden");
    let partial = report(&audit(env, &["-o", "json", "--save", &saved.display().to_string()])?, 2)?;
    ensure!(partial["orphans"]["resources"] == 0 && partial["complete"] == false, "{partial}");
    ensure!(report(&replay(&saved, &["-o", "json"])?, 2)? == partial, "a failure is told in other words from files");
    env.cure_azure().await?;

    std::fs::write(env.folder().join("token"), "wrong")?;
    let stranger = report(&audit(env, &["-o", "json"])?, 2)?;
    let failed = stranger["failed"].to_string();
    ensure!(failed.contains("sign in again"), "{failed}");
    let refused = audit(env, &["--as-controller", "-o", "json"])?;
    let error = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(2) && error.matches("sign in again").count() == 1, "{error}");
    Ok(())
}
