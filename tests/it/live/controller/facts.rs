//! The controller publishes what Azure offers, the webhook may read just that, and quota holds pods.

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams};
use napkeeper_api::azure_facts::{FACTS_CONFIG_MAP, PublishedFacts};
use napkeeper_core::catalog::live::FactKind;
use napkeeper_tests::environment::state::claims;
use napkeeper_tests::environment::{Environment, NAMESPACE};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(120);
/// The size limit of a ConfigMap, with space for its metadata.
const MOST_BYTES: usize = 900 << 10;

/// The object, once it has all facts.
async fn whole(env: &Environment) -> Result<(ConfigMap, PublishedFacts)> {
    let api: Api<ConfigMap> = Api::namespaced(env.plane.client().await?, NAMESPACE);
    eventually("whole napkeeper-facts", STEP, async || {
        let Some(map) = api.get_opt(FACTS_CONFIG_MAP).await? else { return Ok(None) };
        let published = PublishedFacts::read(map.data.as_ref().context("no data")?)?;
        let known = &published.facts;
        let rest = known.images.is_some() && known.subnets.is_some() && known.locks.is_some();
        let whole = known.sizes.is_some() && known.prices.is_some() && known.quota.is_some() && rest;
        Ok(whole.then_some((map, published)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_are_published_and_a_full_quota_holds_pods_with_the_reason() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    for of in ["cores", "lowPriorityCores"] {
        env.fault_inside(&json!({ "quota": { "of": of, "cores": 1 } })).await?;
    }
    let _controller = env.controller()?;
    let (map, published) = whole(&env).await?;
    ensure!(
        published.failing.is_empty() && published.unreadable.is_empty(),
        "{:?} {:?}",
        published.failing,
        published.unreadable
    );
    let sizes = published.facts.sizes.context("no sizes")?.value.sizes.len();
    ensure!(sizes > 400, "only {sizes} sizes");
    let bytes = serde_json::to_string(&map)?.len();
    eprintln!("napkeeper-facts of westeurope: {sizes} sizes, {bytes} bytes");
    ensure!(bytes < MOST_BYTES, "{bytes} bytes");
    let managers = map.metadata.managed_fields.unwrap_or_default();
    ensure!(managers.iter().any(|m| m.manager.as_deref() == Some("napkeeper-facts")), "{managers:?}");
    the_webhook_may_read_this_object_alone(&env).await?;
    failed_facts_keep_their_last_value(&mut env).await?;

    env.plane.apply(&quickstart()?).await?;
    let events: Api<Event> = Api::namespaced(env.plane.client().await?, "default");
    let event = eventually("an event that names the quota", STEP, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let mut notes = all.into_iter().filter_map(|event| event.message);
        Ok(notes.find(|note| note.contains("vCPU quota")))
    })
    .await?;
    ensure!(event.contains("0 of 1 vCPUs used, 0 launching"), "{event}");
    ensure!(claims(&env).await?.is_empty(), "NodeClaims are made that Azure would refuse");
    Ok(())
}

/// Azure no longer lists locks.
async fn failed_facts_keep_their_last_value(env: &mut Environment) -> Result<()> {
    let fail = json!({ "status": 503, "code": "ServerBusy", "message": "later", "requests": { "path": "/locks" } });
    env.fault(&json!({ "fail": fail })).await?;
    env.jump(SignedDuration::from_mins(7))?;
    let api: Api<ConfigMap> = Api::namespaced(env.plane.client().await?, NAMESPACE);
    let published = eventually("a failing fact in napkeeper-facts", STEP, async || {
        let map = api.get(FACTS_CONFIG_MAP).await?;
        let published = PublishedFacts::read(map.data.as_ref().context("no data")?)?;
        Ok(published.failing.contains_key(&FactKind::Locks).then_some(published))
    })
    .await?;
    let (locks, quota) = (published.facts.locks.context("no locks")?, published.facts.quota.context("no quota")?);
    ensure!(locks.as_of < quota.as_of, "the locks are as old as the quota: {} {}", locks.as_of, quota.as_of);
    ensure!(published.failing.len() == 1, "{:?}", published.failing);
    env.cure_azure().await?;
    for of in ["cores", "lowPriorityCores"] {
        env.fault_inside(&json!({ "quota": { "of": of, "cores": 1 } })).await?;
    }
    Ok(())
}

async fn the_webhook_may_read_this_object_alone(env: &Environment) -> Result<()> {
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:napkeeper-webhook");
    let namespace = format!("--namespace={NAMESPACE}");
    for (verb, name, allowed) in [
        ("get", "configmap/napkeeper-facts", true),
        ("watch", "configmap/napkeeper-facts", true),
        ("patch", "configmap/napkeeper-facts", false),
        ("get", "configmap/napkeeper-config", false),
        ("list", "configmap", false),
    ] {
        // It exits with 1 where the answer is no.
        let answer = env.plane.kubectl(&["auth", "can-i", verb, name, &account, &namespace]).await;
        let may = answer.is_ok_and(|text| text.trim() == "yes");
        ensure!(may == allowed, "the webhook may {verb} {name}: {may}");
    }
    Ok(())
}
