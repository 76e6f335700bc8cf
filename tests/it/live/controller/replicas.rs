//! Two controllers: only the leader writes, the other takes over from one that is stopped, and the pause switch holds.

use anyhow::{Result, ensure};
use napkeeper_tests::control_plane::Process;
use napkeeper_tests::environment::state::{claims, running, scale, vms_created};
use napkeeper_tests::environment::{Environment, NAMESPACE};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_secs(120);
/// A pending pod gets a NodeClaim within a second or two: after this time it is paused.
const PAUSED: Duration = Duration::from_secs(10);

/// Sets a key of the pause switch.
async fn pause(env: &Environment, key: &str, value: &str) -> Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "napkeeper-pause", "namespace": NAMESPACE },
        "data": { key: value },
    });
    env.plane.apply(&map.to_string()).await.map(drop)
}

/// Waits until a replica has become leader for the n-th time.
async fn leads(replica: &Process, times: usize) -> Result<()> {
    eventually("leader", STEP, async || {
        let won = replica.lines().iter().filter(|line| line.contains("leads=true")).count();
        Ok((won >= times).then_some(()))
    })
    .await
}

async fn is_one_vm_for_each_claim(env: &Environment) -> Result<()> {
    let (vms, claims) = (vms_created(env).await?, claims(env).await?.len());
    ensure!(vms == claims, "{vms} VMs for {claims} NodeClaims");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_controllers_writes_and_the_other_takes_over() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    let first = env.replica("first")?;
    leads(&first, 1).await?;
    let second = env.replica("second")?;
    second.line("starting napkeeper controller", STEP).await?;

    pause(&env, "launch", "true").await?;
    env.plane.apply(&quickstart()?).await?;
    tokio::time::sleep(PAUSED).await;
    ensure!(claims(&env).await?.is_empty() && vms_created(&env).await? == 0, "launched while launches are paused");
    pause(&env, "launch", "false").await?;
    running(&env, "inflate", 10).await?;
    is_one_vm_for_each_claim(&env).await?;
    ensure!(!second.lines().iter().any(|line| line.contains("leads=true")), "two leaders: {}", second.tail(20));

    // A frozen leader does not release its Lease. The other one has never watched the pause switch, and misses it.
    let before = vms_created(&env).await?;
    env.plane.kubectl(&["delete", "configmap", "napkeeper-pause", "--namespace", NAMESPACE]).await?;
    first.signal("STOP")?;
    scale(&env, "inflate", 20).await?;
    leads(&second, 1).await?;
    tokio::time::sleep(PAUSED).await;
    ensure!(vms_created(&env).await? == before, "launched without the pause switch");
    pause(&env, "launch", "false").await?;
    running(&env, "inflate", 20).await?;
    ensure!(vms_created(&env).await? > before, "the pods fit the nodes that there were");
    first.signal("CONT")?;
    first.line("leads=false", STEP).await?;
    is_one_vm_for_each_claim(&env).await?;

    // A terminated one releases it, and the other leads at its next poll.
    second.terminate()?;
    let status = second.exited(Duration::from_secs(30)).await?;
    ensure!(status.success(), "the second controller ended with {status}: {}", second.tail(20));
    leads(&first, 2).await?;
    second_signal(&env, &first).await
}

/// A controller that waits for a response of Azure ends within its grace period, or at once on a second signal.
async fn second_signal(env: &Environment, leader: &Process) -> Result<()> {
    let requests = json!({ "method": "PUT", "path": "virtualMachines/aks-[^/]*$", "times": 1 });
    env.fault(&json!({ "hang": { "when": "before", "requests": requests } })).await?;
    scale(env, "inflate", 40).await?;
    eventually("held request", STEP, async || {
        let held = env.azure("held").await?["held"].as_array().is_some_and(|held| !held.is_empty());
        Ok(held.then_some(()))
    })
    .await?;
    leader.terminate()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(leader.exit_status().is_none(), "the first signal does not wait for what is in flight");
    let sent = Instant::now();
    leader.terminate()?;
    let status = leader.exited(Duration::from_secs(10)).await?;
    ensure!(!status.success(), "unfinished work is no success: {}", leader.tail(20));
    ensure!(leader.tail(20).contains("second signal"), "{}", leader.tail(20));
    eprintln!("ended {} ms after the second signal", sent.elapsed().as_millis());
    Ok(())
}
