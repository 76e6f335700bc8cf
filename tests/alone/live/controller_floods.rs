//! Floods of silent connections against the ports of a controller that launches nodes meanwhile.

use crate::alone;
use crate::floods::{Flood, MONITORING_RATE, client, flood_monitoring};
use anyhow::{Result, ensure};
use napkeeper_tests::control_plane::word;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::phases;
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest duration of a step.
const STEP: Duration = Duration::from_secs(60);
/// Pods that get nodes during the floods.
const PODS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_to_the_controller_hold_up_neither_probes_nor_metrics_nor_launches() -> Result<()> {
    let _turn = alone().await;
    let env = Environment::start("provisioner").await?;
    let controller = env.controller()?;
    let line = controller.line("metrics=", STEP).await?;
    let (health, metrics) = (word(&line, "health=")?, word(&line, "metrics=")?);
    controller.line("initial listing of the cluster complete", STEP).await?;
    flood_monitoring(&client()?, &health, &metrics).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let flood = Flood { target: metrics.parse()?, rate: MONITORING_RATE };
    let flooding = tokio::spawn(flood.run(Arc::clone(&stop)));
    env.plane.apply(&quickstart()?).await?;
    eventually("running pods during a flood", STEP, async || {
        let phases = phases(&env, "inflate").await?;
        Ok((phases.get("Running") == Some(&PODS)).then_some(()))
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    ensure!(flooding.await? > 0, "no connection was opened");
    ensure!(controller.exit_status().is_none(), "the controller ended: {}", controller.tail(20));
    Ok(())
}
