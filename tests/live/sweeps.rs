//! Sweeps: do marks come and go, does an approval from Git count, and is a lockdown borne and got over?

use super::story::{objects, quickstart, running, scale};
use super::{a_lab, eventually};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::control_plane::{Process, word};
use napkeeper_tests::lab::Lab;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(180);
/// Our mark.
const MARK: &str = "napkeeper.io_suspect-since";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_come_and_go_approvals_count_and_a_lockdown_is_got_over() -> Result<()> {
    let _turn = a_lab().await?;
    let mut lab = Lab::start("provisioner").await?;
    let controller = lab.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    lab.plane.apply(&quickstart()?).await?;
    commit(&lab, &json!({ "mode": "Mark" })).await?;
    // Something alive must be in the group, else it might be another cluster's.
    scale(&lab, "inflate", 1).await?;
    running(&lab, "inflate", 1).await?;
    let tags = json!({ "napkeeper.io_cluster": lab.cluster() });
    lab.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;

    until(&mut lab, "mark", async |lab| Ok(tags_of(lab, "leaked").await?.get(MARK).is_some())).await?;
    ensure!(tags_of(&lab, "leaked").await?["napkeeper.io_cluster"] == lab.cluster(), "other tags are kept");
    commit(&lab, &json!({ "mode": "Report" })).await?;
    until(&mut lab, "unmarked NIC", async |lab| Ok(tags_of(lab, "leaked").await?.get(MARK).is_none())).await?;

    an_approval_is_asked_for_counts_and_is_spent(&mut lab).await?;
    a_lockdown_degrades_and_passes(&mut lab).await?;
    everything_was_told(&lab, &controller).await
}

/// What somebody commits to the sweep's spec in Git.
async fn commit(lab: &Lab, spec: &Value) -> Result<()> {
    let patch = json!({ "spec": spec }).to_string();
    lab.plane.kubectl(&["patch", "orphansweep", "default", "--type=merge", "--patch", &patch]).await?;
    Ok(())
}

/// Lets time pass until something holds.
async fn until(lab: &mut Lab, what: &str, mut holds: impl AsyncFnMut(&Lab) -> Result<bool>) -> Result<()> {
    let end = Instant::now() + STEP;
    while !holds(lab).await? {
        ensure!(Instant::now() < end, "no {what} in time: {:#}", status(lab).await?);
        lab.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    Ok(())
}

async fn status(lab: &Lab) -> Result<Value> {
    super::story::sweep_status(lab).await
}

async fn tags_of(lab: &Lab, name: &str) -> Result<Value> {
    let state = lab.azure("state").await?;
    let resources = state["resources"].as_array().context("the state has no resources")?;
    let named = |r: &&Value| r["id"].as_str().is_some_and(|id| id.ends_with(&format!("/{name}")));
    Ok(resources.iter().find(named).with_context(|| format!("{name} is gone"))?["tags"].clone())
}

async fn is_there(lab: &Lab, name: &str) -> Result<bool> {
    Ok(lab.resources().await?.iter().any(|id| id.ends_with(&format!("/{name}"))))
}

async fn finding(lab: &Lab, name: &str) -> Result<Option<Value>> {
    let status = status(lab).await?;
    let named = |f: &&Value| f["id"].as_str().is_some_and(|id| id.ends_with(&format!("/{name}")));
    Ok(status["findings"].as_array().and_then(|all| all.iter().find(named).cloned()))
}

async fn condition(lab: &Lab, kind: &str) -> Result<Value> {
    let status = status(lab).await?;
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().find(|c| c["type"] == kind).unwrap_or_default())
}

async fn an_approval_is_asked_for_counts_and_is_spent(lab: &mut Lab) -> Result<()> {
    commit(lab, &json!({ "mode": "Collect", "approvalRequired": ["Nic", "Vm", "DataDisk"] })).await?;
    let asks =
        async |lab: &Lab| Ok(finding(lab, "leaked").await?.is_some_and(|f| f["refusals"] == json!(["approval"])));
    until(lab, "finding that asks for an approval", asks).await?;
    ensure!(is_there(lab, "leaked").await?, "it was collected without an approval");
    let found = finding(lab, "leaked").await?.context("no finding")?;
    let now = lab.azure("clock").await?["now"].as_str().context("no time")?.parse::<jiff::Timestamp>()?;
    let approval = json!({
        "id": found["id"],
        "incarnation": found["incarnation"],
        "expiresAt": (now + SignedDuration::from_hours(13 * 24)).to_string(),
    });
    commit(lab, &json!({ "approvals": [approval] })).await?;
    until(lab, "collected NIC", async |lab| Ok(!is_there(lab, "leaked").await?)).await?;
    let spent = async |lab: &Lab| Ok(status(lab).await?["approvals"][0]["state"] == "Spent");
    until(lab, "spent approval", spent).await?;
    let advice = status(lab).await?["approvals"][0]["advice"].to_string();
    ensure!(advice.contains("remove these lines"), "{advice}");
    commit(lab, &json!({ "approvals": [], "approvalRequired": ["Vm", "DataDisk"] })).await?;
    until(lab, "status without the approval", async |lab| Ok(status(lab).await?["approvals"].is_null())).await
}

async fn a_lockdown_degrades_and_passes(lab: &mut Lab) -> Result<()> {
    let message =
        "The client has permission, however the access is denied because of the deny assignment of the system.";
    let requests = json!({ "method": "DELETE", "path": "networkInterfaces/locked" });
    let fail =
        json!({ "status": 403, "code": "DenyAssignmentAuthorizationFailed", "message": message, "requests": requests });
    lab.fault(&json!({ "fail": fail })).await?;
    let tags = json!({ "napkeeper.io_cluster": lab.cluster() });
    lab.tell_azure("stage", &json!({ "leakNic": { "name": "locked", "tags": tags } })).await?;
    // The cap of the first day is used up.
    let degraded = async |lab: &Lab| Ok(condition(lab, "Degraded").await?["status"] == "True");
    until_fast(lab, "condition Degraded", degraded).await?;
    let said = condition(lab, "Degraded").await?;
    ensure!(said["message"].as_str().is_some_and(|m| m.contains("deny assignment")), "{said}");
    ensure!(condition(lab, "Ready").await?["status"] == "True", "what Azure denies is no inability to look");
    ensure!(is_there(lab, "locked").await?);
    let deletes = |log: &Value| {
        let all = log["requests"].as_array().cloned().unwrap_or_default();
        all.iter()
            .filter(|r| r["method"] == "DELETE" && r["path"].as_str().is_some_and(|p| p.contains("locked")))
            .count()
    };
    let before = deletes(&lab.azure("requests").await?);
    for _ in 0..30 {
        lab.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let tries = deletes(&lab.azure("requests").await?) - before;
    ensure!((1..=3).contains(&tries), "{tries} tries in half an hour");
    lab.cure_azure().await?;
    until(lab, "collected NIC after the lockdown", async |lab| Ok(!is_there(lab, "locked").await?)).await?;
    let well = async |lab: &Lab| Ok(condition(lab, "Degraded").await?["status"] == "False");
    until(lab, "end of Degraded", well).await
}

/// As [`until`], but for what takes a day. A jump is shorter than the gap that would not count as watched: 25 min.
async fn until_fast(lab: &mut Lab, what: &str, mut holds: impl AsyncFnMut(&Lab) -> Result<bool>) -> Result<()> {
    let end = Instant::now() + STEP;
    while !holds(lab).await? {
        ensure!(Instant::now() < end, "no {what} in time: {:#}", status(lab).await?);
        lab.jump(SignedDuration::from_mins(12))?;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    Ok(())
}

/// Each delete and each refusal is an event, a metric and a record.
async fn everything_was_told(lab: &Lab, controller: &Process) -> Result<()> {
    let line = controller.line("health=", STEP).await?;
    let address = word(&line, "health=")?;
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
        let events = lab.plane.kubectl(&["get", "events", "--all-namespaces"]).await?;
        let all = ["Kept", "Collecting", "Collected", "NotCollected", "Degraded", "Recovered", "ApprovalStale"];
        Ok(all.iter().all(|reason| events.contains(reason)).then_some(()))
    })
    .await?;
    let records = objects(lab, "napkeeper.io", "v1alpha1", "OrphanRecord").await?;
    let deletions: Vec<Value> =
        records.iter().filter_map(|r| r.data["spec"]["deletions"].as_array()).flatten().cloned().collect();
    ensure!(deletions.iter().all(|d| d["evidence"].as_array().is_some_and(|e| !e.is_empty())), "{deletions:?}");
    let table = lab.plane.kubectl(&["get", "orphansweeps"]).await?;
    eprintln!("{table}");
    ensure!(table.contains("MONTHLY") && table.contains("DEGRADED"), "{table}");
    Ok(())
}
