//! Surroundings: what if the API server or Azure is not well?
//!
//! Each trouble must be said clearly, be borne without a busy loop, and pass without a restart.

use super::story::{all_gone, quickstart, running, scale};
use super::{eventually, one_lab_at_a_time};
use anyhow::{Result, ensure};
use http::Method;
use jiff::SignedDuration;
use napkeeper_tests::control_plane::Process;
use napkeeper_tests::lab::Lab;
use napkeeper_tests::proxy::{Fate, Rule};
use serde_json::json;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);
/// How long a trouble lasts.
const TROUBLE: Duration = Duration::from_secs(6);
/// More requests than this in that time are a busy loop.
const BUSY: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_trouble_is_said_borne_and_got_over() -> Result<()> {
    let _turn = one_lab_at_a_time().await;
    let mut lab = Lab::start("provisioner").await?;
    let controller = lab.controller()?;
    controller.line("the cluster has been listed", STEP).await?;
    lab.plane.apply(&quickstart()?).await?;
    scale(&lab, "inflate", 1).await?;
    running(&lab, "inflate", 1).await?;

    refused_reads(&lab, &controller, 403, "nodepools").await?;
    refused_reads(&lab, &controller, 404, "orphansweeps").await?;
    no_api_server(&mut lab, &controller).await?;
    for fault in [
        json!({ "fail": { "status": 401, "code": "ExpiredAuthenticationToken", "message": "expired" } }),
        json!({ "fail": { "status": 403, "code": "AuthorizationFailed", "message": "no right" } }),
        json!({ "fail": { "status": 404, "code": "ResourceGroupNotFound", "message": "no group" } }),
        json!({ "throttle": { "retryAfter": "2s" } }),
        json!({ "fail": { "status": 500, "code": "InternalServerError", "message": "oops" } }),
        json!({ "garbage": {} }),
        json!({ "hang": { "when": "before" } }),
    ] {
        bad_azure(&mut lab, &controller, &fault).await?;
    }
    scale(&lab, "inflate", 0).await?;
    all_gone(&mut lab).await
}

/// The API server refuses to list and watch a kind.
async fn refused_reads(lab: &Lab, controller: &Process, status: u16, kind: &'static str) -> Result<()> {
    let rule = |path| Rule {
        method: Method::GET,
        path,
        not: Vec::new(),
        body: "",
        fate: Fate::Refused(status),
        times: usize::MAX,
    };
    let said = controller.lines().len();
    lab.proxy.rule(rule(vec![kind]));
    lab.proxy.break_connections();
    let before = lab.proxy.requests();
    tokio::time::sleep(TROUBLE).await;
    let asked = lab.proxy.requests() - before;
    ensure!(asked < BUSY, "{asked} requests in {TROUBLE:?} while {kind} answers {status}: a busy loop");
    says(controller, said, kind).await?;
    lab.proxy.clear();
    works(lab, controller, said).await
}

async fn no_api_server(lab: &mut Lab, controller: &Process) -> Result<()> {
    let said = controller.lines().len();
    lab.plane.stop_apiserver();
    tokio::time::sleep(TROUBLE).await;
    ensure!(controller.exit_status().is_none(), "it ended without an API server: {}", controller.tail(20));
    lab.plane.start_apiserver().await?;
    works(lab, controller, said).await
}

/// Azure is not well while a node is wanted; afterwards it comes.
async fn bad_azure(lab: &mut Lab, controller: &Process, fault: &serde_json::Value) -> Result<()> {
    lab.fault(fault).await?;
    scale(lab, "inflate", 12).await?;
    let before = lab.proxy.requests();
    tokio::time::sleep(TROUBLE).await;
    let asked = lab.proxy.requests() - before;
    ensure!(asked < BUSY * 2, "{asked} requests in {TROUBLE:?} with {fault}: a busy loop");
    ensure!(controller.exit_status().is_none(), "it ended with {fault}: {}", controller.tail(20));
    lab.cure_azure().await?;
    // Back-offs and held answers end sooner.
    for _ in 0..12 {
        lab.jump(SignedDuration::from_secs(5))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    running(lab, "inflate", 12).await?;
    scale(lab, "inflate", 1).await?;
    running(lab, "inflate", 1).await
}

/// It says, since that line of its log, what is wrong with this.
async fn says(controller: &Process, since: usize, what: &str) -> Result<()> {
    eventually(&format!("word of {what}"), STEP, async || {
        let lines = controller.lines();
        Ok(lines.iter().skip(since).any(|l| l.contains("WARN") && l.contains(what)).then_some(()))
    })
    .await
}

/// It says, since that line of its log, that watching works again.
async fn works(lab: &Lab, controller: &Process, since: usize) -> Result<()> {
    eventually("recovery", STEP, async || {
        let lines = controller.lines();
        Ok(lines.iter().skip(since).any(|l| l.contains("works again")).then_some(()))
    })
    .await?;
    running(lab, "inflate", 1).await
}
