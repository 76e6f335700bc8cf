//! Marks come and go, an approval from Git counts, and a lockdown is borne and got over.

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::control_plane::{Process, word};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{objects, running, scale};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(180);
/// Our mark.
const MARK: &str = "napkeeper.io_suspect-since";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_approvals_and_a_lockdown_work() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let controller = env.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    env.plane.apply(&quickstart()?).await?;
    commit(&env, &json!({ "mode": "Mark" })).await?;
    // Something alive must be in the group, else it might be another cluster's.
    scale(&env, "inflate", 1).await?;
    running(&env, "inflate", 1).await?;
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;

    until(&mut env, "mark", async |env| Ok(tags_of(env, "leaked").await?.get(MARK).is_some())).await?;
    ensure!(tags_of(&env, "leaked").await?["napkeeper.io_cluster"] == env.cluster(), "other tags are kept");
    commit(&env, &json!({ "mode": "Report" })).await?;
    until(&mut env, "unmarked NIC", async |env| Ok(tags_of(env, "leaked").await?.get(MARK).is_none())).await?;

    an_approval_is_requested_counts_and_is_spent(&mut env).await?;
    a_lockdown_degrades_and_passes(&mut env).await?;
    everything_was_reported(&env, &controller).await
}

/// Commits a change of the sweep's spec.
async fn commit(env: &Environment, spec: &Value) -> Result<()> {
    let patch = json!({ "spec": spec }).to_string();
    env.plane.kubectl(&["patch", "orphansweep", "default", "--type=merge", "--patch", &patch]).await?;
    Ok(())
}

/// Lets time pass until something holds.
async fn until(
    env: &mut Environment,
    condition_text: &str,
    mut holds: impl AsyncFnMut(&Environment) -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + STEP;
    while !holds(env).await? {
        ensure!(Instant::now() < end, "no {condition_text} in time: {:#}", status(env).await?);
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    Ok(())
}

async fn status(env: &Environment) -> Result<Value> {
    napkeeper_tests::environment::state::sweep_status(env).await
}

async fn tags_of(env: &Environment, name: &str) -> Result<Value> {
    let state = env.azure("state").await?;
    let resources = state["resources"].as_array().context("the state has no resources")?;
    let named = |r: &&Value| r["id"].as_str().is_some_and(|id| id.ends_with(&format!("/{name}")));
    Ok(resources.iter().find(named).with_context(|| format!("{name} is gone"))?["tags"].clone())
}

async fn exists(env: &Environment, name: &str) -> Result<bool> {
    Ok(env.resources().await?.iter().any(|id| id.ends_with(&format!("/{name}"))))
}

async fn finding(env: &Environment, name: &str) -> Result<Option<Value>> {
    let status = status(env).await?;
    let named = |f: &&Value| f["id"].as_str().is_some_and(|id| id.ends_with(&format!("/{name}")));
    Ok(status["findings"].as_array().and_then(|all| all.iter().find(named).cloned()))
}

async fn condition(env: &Environment, kind: &str) -> Result<Value> {
    let status = status(env).await?;
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().find(|c| c["type"] == kind).unwrap_or_default())
}

async fn an_approval_is_requested_counts_and_is_spent(env: &mut Environment) -> Result<()> {
    commit(env, &json!({ "mode": "Collect", "approvalRequired": ["Nic", "Vm", "DataDisk"] })).await?;
    let needs_approval = async |env: &Environment| {
        Ok(finding(env, "leaked").await?.is_some_and(|f| f["refusals"] == json!(["approval"])))
    };
    until(env, "finding that asks for an approval", needs_approval).await?;
    ensure!(exists(env, "leaked").await?, "it was collected without an approval");
    let found = finding(env, "leaked").await?.context("no finding")?;
    let now = env.azure("clock").await?["now"].as_str().context("no time")?.parse::<jiff::Timestamp>()?;
    let approval = json!({
        "id": found["id"],
        "incarnation": found["incarnation"],
        "expiresAt": (now + SignedDuration::from_hours(13 * 24)).to_string(),
    });
    commit(env, &json!({ "approvals": [approval] })).await?;
    until(env, "collected NIC", async |env| Ok(!exists(env, "leaked").await?)).await?;
    let spent = async |env: &Environment| Ok(status(env).await?["approvals"][0]["state"] == "Spent");
    until(env, "spent approval", spent).await?;
    let advice = status(env).await?["approvals"][0]["advice"].to_string();
    ensure!(advice.contains("remove these lines"), "{advice}");
    commit(env, &json!({ "approvals": [], "approvalRequired": ["Vm", "DataDisk"] })).await?;
    until(env, "status without the approval", async |env| Ok(status(env).await?["approvals"].is_null())).await
}

async fn a_lockdown_degrades_and_passes(env: &mut Environment) -> Result<()> {
    let message =
        "The client has permission, however the access is denied because of the deny assignment of the system.";
    let requests = json!({ "method": "DELETE", "path": "networkInterfaces/locked" });
    let fail =
        json!({ "status": 403, "code": "DenyAssignmentAuthorizationFailed", "message": message, "requests": requests });
    env.fault(&json!({ "fail": fail })).await?;
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "locked", "tags": tags } })).await?;
    // The cap of the first day is used up.
    let degraded = async |env: &Environment| Ok(condition(env, "Degraded").await?["status"] == "True");
    until_fast(env, "condition Degraded", degraded).await?;
    let degraded = condition(env, "Degraded").await?;
    ensure!(degraded["message"].as_str().is_some_and(|m| m.contains("deny assignment")), "{degraded}");
    ensure!(condition(env, "Ready").await?["status"] == "True", "what Azure denies is no inability to look");
    ensure!(exists(env, "locked").await?);
    let before = deletes_of_locked(env).await?;
    for _ in 0..30 {
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // On a busy machine the program is behind the clock.
    let tries = async || Ok(Some(deletes_of_locked(env).await? - before).filter(|tries| *tries > 0));
    let tries = eventually("try", STEP, tries).await?;
    ensure!(tries <= 3, "{tries} tries in half an hour");
    env.cure_azure().await?;
    until(env, "collected NIC after the lockdown", async |env| Ok(!exists(env, "locked").await?)).await?;
    let well = async |env: &Environment| Ok(condition(env, "Degraded").await?["status"] == "False");
    until(env, "end of Degraded", well).await
}

async fn deletes_of_locked(env: &Environment) -> Result<usize> {
    let log = env.azure("requests").await?;
    let all = log["requests"].as_array().into_iter().flatten();
    let deletes = all.filter(|request| request["method"] == "DELETE");
    Ok(deletes.filter(|request| request["path"].as_str().is_some_and(|path| path.contains("locked"))).count())
}

/// As [`until`], but for what takes a day. A jump is shorter than the gap that would not count as watched: 25 min.
async fn until_fast(
    env: &mut Environment,
    condition_text: &str,
    mut holds: impl AsyncFnMut(&Environment) -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + STEP;
    while !holds(env).await? {
        ensure!(Instant::now() < end, "no {condition_text} in time: {:#}", status(env).await?);
        env.jump(SignedDuration::from_mins(12))?;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    Ok(())
}

/// Each delete and each refusal is an event, a metric and a record.
async fn everything_was_reported(env: &Environment, controller: &Process) -> Result<()> {
    let line = controller.line("metrics=", STEP).await?;
    let address = word(&line, "metrics=")?;
    let metrics = reqwest::get(format!("http://{address}/metrics")).await?.text().await?;
    for wanted in [
        "napkeeper_sweep_collected_total{kind=\"Nic\"} 2",
        "reason=\"lockdown\"",
        "napkeeper_sweep_orphan_addresses{sweep=\"default\"}",
        "napkeeper_sweep_last_whole_inventory_timestamp_seconds 1",
    ] {
        ensure!(metrics.contains(wanted), "no {wanted} in the metrics:\n{metrics}");
    }
    eventually("events", STEP, async || {
        let events = env.plane.kubectl(&["get", "events", "--all-namespaces"]).await?;
        let all = ["Kept", "Collecting", "Collected", "NotCollected", "Degraded", "Recovered", "ApprovalStale"];
        Ok(all.iter().all(|reason| events.contains(reason)).then_some(()))
    })
    .await?;
    let records = objects(env, "napkeeper.io", "v1alpha1", "OrphanRecord").await?;
    let deletions: Vec<Value> =
        records.iter().filter_map(|r| r.data["spec"]["deletions"].as_array()).flatten().cloned().collect();
    ensure!(deletions.iter().all(|d| d["evidence"].as_array().is_some_and(|e| !e.is_empty())), "{deletions:?}");
    let table = env.plane.kubectl(&["get", "orphansweeps"]).await?;
    eprintln!("{table}");
    ensure!(table.contains("MONTHLY") && table.contains("DEGRADED"), "{table}");
    Ok(())
}
