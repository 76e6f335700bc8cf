//! Outages of the API server and of Azure: each is reported clearly, borne without a busy loop or a standstill, and got
//! over without a restart.

use anyhow::{Context, Result, ensure};
use http::Method;
use jiff::SignedDuration;
use napkeeper_tests::control_plane::{Process, word};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{all_deleted, phases, running, scale, sweep_status};
use napkeeper_tests::fault_proxy::{Fate, Rule};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_secs(90);
/// A watch waits for up to 30 s, and as much again by chance, before it tries once more; and its first try after an
/// outage may meet an API server that is still starting.
const RECOVERS_WITHIN: Duration = Duration::from_secs(150);
/// How long a trouble lasts.
const TROUBLE: Duration = Duration::from_secs(5);
/// More requests than this in that time are a busy loop.
const BUSY: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outage_is_reported_and_recovered_from() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let controller = env.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    env.plane.apply(&quickstart()?).await?;
    scale(&env, "inflate", 1).await?;
    running(&env, "inflate", 1).await?;

    refused_reads(&env, &controller, 403, "nodepools").await?;
    refused_reads(&env, &controller, 404, "orphansweeps").await?;
    no_api_server(&mut env, &controller).await?;
    running(&env, "inflate", 1).await?;
    a_wrong_clock(&mut env, &controller).await?;
    let fail =
        |status: u16, code: &str| json!({ "fail": { "status": status, "code": code, "message": "as a test wants" } });
    for (fault, category) in [
        (fail(401, "ExpiredAuthenticationToken"), "permission"),
        (fail(403, "AuthorizationFailed"), "permission"),
        // A missing group proves nothing about its resources.
        (fail(404, "ResourceGroupNotFound"), "unavailable"),
        (json!({ "throttle": { "retryAfter": "2s" } }), "throttled"),
        (fail(500, "InternalServerError"), "unavailable"),
        (json!({ "garbage": {} }), "unavailable"),
        // Nothing is reported before the deadline of a request. What hangs must hold nothing else up.
        (json!({ "hang": { "when": "before" } }), ""),
    ] {
        bad_azure(&mut env, &controller, &fault, category).await?;
    }
    let events = env.plane.kubectl(&["get", "events", "--all-namespaces"]).await?;
    ensure!(events.contains("OfferingRefused"), "no event says what Azure refused: {events}");
    a_blind_sweep_is_not_ready(&mut env).await?;
    scale(&env, "inflate", 0).await?;
    all_deleted(&mut env).await
}

/// The API server refuses to list and watch a kind.
async fn refused_reads(env: &Environment, controller: &Process, status: u16, kind: &'static str) -> Result<()> {
    let rule = |path| Rule {
        method: Method::GET,
        path,
        not: Vec::new(),
        body: "",
        fate: Fate::Refused(status),
        times: usize::MAX,
    };
    let since = controller.lines().len();
    env.proxy.rule(rule(vec![kind]));
    env.proxy.break_connections();
    let before = env.proxy.requests();
    tokio::time::sleep(TROUBLE).await;
    let requests = env.proxy.requests() - before;
    ensure!(requests < BUSY, "{requests} requests in {TROUBLE:?} while {kind} answers {status}: a busy loop");
    says(controller, since, kind).await?;
    let (ready, body) = readyz(controller).await?;
    ensure!(!ready && body.contains(kind), "/readyz does not say that {kind} cannot be read: {body}");
    env.proxy.clear();
    works(controller).await
}

async fn no_api_server(env: &mut Environment, controller: &Process) -> Result<()> {
    env.plane.stop_apiserver();
    tokio::time::sleep(TROUBLE).await;
    ensure!(controller.exit_status().is_none(), "it ended without an API server: {}", controller.tail(20));
    ensure!(!readyz(controller).await?.0, "/readyz says that all is well without an API server");
    env.plane.start_apiserver().await?;
    works(controller).await
}

/// While the API server's clock differs from the controller's, no NodeClaim is created.
async fn a_wrong_clock(env: &mut Environment, controller: &Process) -> Result<()> {
    scale(env, "inflate", 0).await?;
    all_deleted(env).await?;
    let since = controller.lines().len();
    env.proxy.set_clock_ahead(SignedDuration::from_mins(2));
    logged(controller, since, &["ERROR", "nothing is decided"]).await?;
    let before = env.proxy.writes().len();
    scale(env, "inflate", 1).await?;
    tokio::time::sleep(TROUBLE).await;
    let written = env.proxy.writes().split_off(before);
    ensure!(env.proxy.remembers(), "too many requests to remember");
    ensure!(!written.iter().any(|write| write.contains("nodeclaims")), "a clock is wrong: {written:?}");
    env.proxy.set_clock_ahead(SignedDuration::ZERO);
    running(env, "inflate", 1).await
}

/// Azure is not well while a node is wanted; afterwards it comes.
async fn bad_azure(env: &mut Environment, controller: &Process, fault: &Value, category: &str) -> Result<()> {
    scale(env, "inflate", 0).await?;
    all_deleted(env).await?;
    let since = controller.lines().len();
    env.fault(fault).await?;
    scale(env, "inflate", 1).await?;
    let (before, requests_before, renewed) =
        (env.proxy.requests(), azure_requests(env).await?, lease_renewed(env).await?);
    tokio::time::sleep(TROUBLE).await;
    let renewed_since = lease_renewed(env).await?;
    ensure!(renewed_since > renewed, "the Lease is not renewed with {fault}: {renewed}, then {renewed_since}");
    let requests = env.proxy.requests() - before;
    let of_azure = azure_requests(env).await? - requests_before;
    eprintln!("{fault}: {requests} requests to the API server and {of_azure} to Azure in {TROUBLE:?}");
    ensure!(requests < BUSY && of_azure < 30, "a busy loop");
    let asked = async || Ok((azure_requests(env).await? > requests_before).then_some(()));
    eventually("request to Azure", STEP, asked).await?;
    ensure!(controller.exit_status().is_none(), "it ended with {fault}: {}", controller.tail(20));
    if !category.is_empty() {
        says(controller, since, category).await?;
    }
    env.cure_azure().await?;
    let end = Instant::now() + STEP;
    while phases(env, "inflate").await?.get("Running") != Some(&1) {
        ensure!(Instant::now() < end, "after {fault} no node comes: {}", controller.tail(30));
        // Back-offs and answers that were held end sooner.
        env.jump(SignedDuration::from_secs(3))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

/// When the controller has last renewed its Lease. The text sorts as the time does.
async fn lease_renewed(env: &Environment) -> Result<String> {
    let leases =
        ["get", "leases", "--namespace=kube-system", "napkeeper-controller", "--output=jsonpath={.spec.renewTime}"];
    let renewed = env.plane.kubectl(&leases).await?;
    ensure!(!renewed.is_empty(), "there is no Lease");
    Ok(renewed)
}

async fn azure_requests(env: &Environment) -> Result<u64> {
    env.azure("requests").await?["total"].as_u64().context("no total")
}

/// While Azure's listings are rejected, the sweep is not Ready; then it is again.
async fn a_blind_sweep_is_not_ready(env: &mut Environment) -> Result<()> {
    env.fault_inside(&json!({ "listing": { "how": "forbidden", "for": "2h" } })).await?;
    sweep_is(env, "False").await?;
    env.cure_azure().await?;
    sweep_is(env, "True").await
}

async fn sweep_is(env: &mut Environment, wanted: &str) -> Result<()> {
    let end = Instant::now() + STEP;
    loop {
        let status = sweep_status(env).await?;
        let ready = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready").cloned();
        if ready.as_ref().is_some_and(|c| c["status"] == wanted) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the sweep's Ready is not {wanted}: {status}");
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Whether it is ready, and the text with the reasons.
async fn readyz(controller: &Process) -> Result<(bool, String)> {
    let line = controller.line("health=", STEP).await?;
    let address = word(&line, "health=")?;
    let response = reqwest::get(format!("http://{address}/readyz?verbose")).await?;
    Ok((response.status().is_success(), response.text().await?))
}

/// Waits for a warning about this after that line of the log.
async fn says(controller: &Process, since: usize, word: &str) -> Result<()> {
    logged(controller, since, &["WARN", word]).await
}

/// Waits for a line with these words after that line of the log.
async fn logged(controller: &Process, since: usize, words: &[&str]) -> Result<()> {
    eventually(&format!("word of {words:?}"), STEP, async || {
        let lines = controller.lines();
        Ok(lines.iter().skip(since).any(|line| words.iter().all(|word| line.contains(word))).then_some(()))
    })
    .await
}

/// It is ready again, without having been started again.
async fn works(controller: &Process) -> Result<()> {
    let ready = async || Ok(readyz(controller).await?.0.then_some(()));
    let Err(error) = eventually("recovery", RECOVERS_WITHIN, ready).await else { return Ok(()) };
    Err(error.context(format!("/readyz says {}\n{}", readyz(controller).await?.1, controller.tail(20))))
}
