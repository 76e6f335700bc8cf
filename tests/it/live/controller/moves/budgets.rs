//! Many nodes are drained at once, and no PodDisruptionBudget is ever broken.

use super::super::availability::Sampler;
use super::{
    BALLAST, FOUR_CORES, POD, budget, consolidated, deployment, node_class, one_pod_on_each_node, pool, quiet, stream,
    take_time,
};
use anyhow::{Context, Result, ensure};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::running;
use serde_json::json;
use std::time::Instant;

/// Replicas of each app, on a node of their own each.
const REPLICAS: usize = 4;
/// Each budget allows one eviction at a time.
const FLOOR: usize = REPLICAS - 1;
const APPS: [&str; 3] = ["max-unavailable", "min-available", "percent"];
/// How many nodes are left: three pods fit on each.
const LEFT: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_of_many_nodes_keep_to_tight_budgets() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let mut objects = vec![node_class(), pool("general", &[FOUR_CORES]), deployment("ballast", "general", BALLAST)];
    objects.extend(APPS.map(|app| take_time(deployment(app, "general", POD))));
    objects.extend([
        budget("max-unavailable", "maxUnavailable", json!(1)),
        budget("min-available", "minAvailable", json!(FLOOR)),
        budget("percent", "maxUnavailable", json!("25%")),
    ]);
    env.plane.apply(&stream(&objects)).await?;
    let controller = env.controller()?;
    one_pod_on_each_node(&env, &APPS.map(|app| (app, REPLICAS))).await?;

    let sampler = Sampler::start(&env, &APPS).await?;
    quiet(&mut env).await?;
    let start = Instant::now();
    let seen = consolidated(&env, &[(FOUR_CORES, LEFT)]).await;
    let drained = start.elapsed();
    let samples = sampler.end().await?;
    eprintln!("drains took {drained:?}: {samples:?}");
    samples.check(&APPS.map(|app| (app, FLOOR)))?;
    let seen = seen.with_context(|| controller.tail(60))?;
    let at_once = seen.at_once.get("general").copied().unwrap_or_default();
    ensure!(at_once == APPS.len() * REPLICAS - LEFT, "not drained at once: {seen:?}");
    for app in APPS {
        running(&env, app, REPLICAS).await?;
    }
    Ok(())
}
