//! A webhook that fails closed, behind a real API server: what it cannot check is refused, and says why.

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::client::Body;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::environment::{NAMESPACE, install_without_accounts};
use napkeeper_tests::manifests::quickstart_file;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, certificate, hooks};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

const STEP: Duration = Duration::from_secs(90);
/// NodePools that are created at once.
const FLOOD: usize = 300;

/// The hooks as the component `fail-closed` sets them: the API server refuses what no webhook answers.
fn strict_hooks(address: &str, ca: &str) -> Result<String> {
    let hooks = hooks(address, ca)?;
    let strict = hooks.replace(r#""failurePolicy":"Ignore""#, r#""failurePolicy":"Fail""#);
    ensure!(strict != hooks, "every hook fails closed");
    Ok(strict)
}

/// Status and message of the create of a NodePool that writes nothing.
async fn create(client: kube::Client, document: String) -> Result<(u16, String)> {
    let request = Request::builder().method(Method::POST).uri("/apis/karpenter.sh/v1/nodepools?dryRun=All");
    let request = request.header("Content-Type", "application/yaml").header("Accept", "application/json");
    let answer = client.send(request.body(Body::from(document.into_bytes()))?).await?;
    let code = answer.status().as_u16();
    let body: Value = serde_json::from_slice(&answer.into_body().collect_bytes().await?).unwrap_or_default();
    Ok((code, body["message"].as_str().unwrap_or_default().to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_gets_past_a_webhook_that_fails_closed() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    install_without_accounts(&plane, "provisioner").await?;
    let folder = tempfile::Builder::new().prefix("closed-").tempdir()?;
    let (ca, client) = (certificate(folder.path())?, plane.client().await?);
    let (good, bad) = (quickstart_file("nodepool-general-purpose")?, bad_pool("bad")?);

    // One that knows no cluster refuses what is right, and the API server passes its reason on.
    let strict = ["--when-unable=refuse".to_owned(), "--region=westeurope".to_owned()];
    let blind = webhook::program("/nonexistent".as_ref(), "127.0.0.1:0", Some(folder.path()))?.args(strict.clone());
    let Listening { process: _blind, admission, .. } = webhook::listening(&blind).await?;
    plane.apply(&strict_hooks(&admission, &ca)?).await?;
    // By kubectl: the client of kube repeats what is answered with 503.
    let file = folder.path().join("good.yaml");
    std::fs::write(&file, &good)?;
    let file = file.display().to_string();
    // Before its first attempt to reach the cluster has failed it cannot say why.
    let message = eventually("a refusal that says why", STEP, async || {
        let created = plane.kubectl(&["create", "--dry-run=server", "--filename", &file]).await;
        let refusal = created.err().map(|error| format!("{error:#}"));
        Ok(refusal.filter(|message| message.contains("cannot reach the cluster")))
    })
    .await?;
    ensure!(message.contains("--when-unable refuse"), "{message}");

    // One that knows it is ready, and admits it.
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
    let seeing = webhook::program(&kubeconfig, "127.0.0.1:0", Some(folder.path()))?.args(strict);
    let Listening { process: _seeing, admission, health, .. } = webhook::listening(&seeing).await?;
    let ready = format!("http://{health}/readyz");
    eventually("readiness", STEP, async || {
        Ok(reqwest::get(&ready).await.is_ok_and(|a| a.status() == 200).then_some(()))
    })
    .await?;
    plane.apply(&strict_hooks(&admission, &ca)?).await?;
    eventually("an admission", STEP, async || Ok((create(client.clone(), good.clone()).await?.0 == 201).then_some(())))
        .await?;

    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        flood.spawn(create(client.clone(), bad.clone()));
    }
    let mut codes = BTreeMap::<u16, usize>::new();
    while let Some(answer) = flood.join_next().await {
        let (code, message) = answer?.context("a create")?;
        ensure!(code >= 400, "a NodePool that breaks a rule was admitted: {code} {message}");
        *codes.entry(code).or_default() += 1;
    }
    ensure!(codes.values().sum::<usize>() == FLOOD, "{codes:?}");
    Ok(())
}
