//! A cluster whose etcd is restored from a backup: no watch delivers what was lost, and the controller notices it all the
//! same.

use anyhow::{Result, ensure};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, running, scale};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_etcd_is_noticed_and_pods_get_nodes_again() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let controller = env.controller()?;
    env.plane.apply(&quickstart()?).await?;
    scale(&env, "inflate", 1).await?;
    running(&env, "inflate", 1).await?;
    let before = claims(&env).await?.len();
    let backup = env.plane.back_up().await?;
    scale(&env, "inflate", 10).await?;
    running(&env, "inflate", 10).await?;
    let lost = claims(&env).await?.len() - before;
    ensure!(lost > 0, "no NodeClaim is newer than the backup");

    let listings = || controller.lines().iter().filter(|line| line.contains("initial listing")).count();
    let before_restore = listings();
    env.plane.restore(&backup).await?;
    ensure!(claims(&env).await?.len() == before, "the backup has all NodeClaims");
    // The pods fit the nodes that were lost: whoever still believes in them launches none.
    scale(&env, "inflate", 8).await?;
    controller.line("the API server has been restored from a backup", STEP).await?;
    let is_listed = async || Ok((listings() > before_restore).then_some(()));
    eventually("listing of the cluster", STEP, is_listed).await?;
    running(&env, "inflate", 8).await
}
