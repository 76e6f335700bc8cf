//! `--drain` deletes NodePools while the controller runs, which takes their nodes and VMs away.

use super::{STEP, uninstall};
use crate::live::policies::exported;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, running, scale};
use napkeeper_tests::manifests::{quickstart_file, quickstart_object};
use napkeeper_tests::wait::eventually;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_drained_while_the_controller_runs() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    let before = env.resources().await?;
    for file in ["aksnodeclass", "nodepool-general-purpose", "inflate"] {
        env.plane.apply(&quickstart_file(file)?).await?;
    }
    env.plane.apply(&exported(&["in-use"])?).await?;
    let controller = env.controller()?;
    let app = quickstart_object("inflate")?["metadata"]["name"].as_str().context("no name")?.to_owned();
    scale(&env, &app, 1).await?;
    running(&env, &app, 1).await?;
    ensure!(!claims(&env).await?.is_empty(), "nothing was launched");
    // The guard protects the NodePool from anybody who does not know it.
    let delete = ["delete", "nodepool", "general-purpose", "--dry-run=server"];
    eventually("guard", STEP, async || Ok(env.plane.kubectl(&delete).await.err())).await?;
    let plan = uninstall(&env.plane, &["--dry-run", "--drain"]).await?;
    let text = plan.ended(0)?;
    ensure!(text.contains("delete NodePool general-purpose") && !text.contains("finalizer napkeeper.io"), "{text}");
    // A pod that can go nowhere else keeps its node.
    scale(&env, &app, 0).await?;

    let start = Instant::now();
    let drained = uninstall(&env.plane, &["--apply", "--drain", "--timeout=2s", "--drain-timeout=5m"]).await?;
    eprintln!("a NodePool with one node was drained, and napkeeper stopped, within {:?}", start.elapsed());
    let result = async {
        // The controller of this test runs outside of the cluster: it is noticed, and no finalizer is removed beside it.
        let text = drained.ended(1)?;
        ensure!(text.contains("delete NodePool general-purpose") && text.contains("that renews the Lease"), "{text}");
        ensure!(claims(&env).await?.is_empty(), "NodeClaims are left");
        let pools = env.plane.kubectl(&["get", "nodepools", "--output=name"]).await?;
        ensure!(pools.is_empty(), "{pools}");
        eventually("end of the VMs", STEP, async || Ok((env.resources().await? == before).then_some(()))).await
    };
    result.await.with_context(|| controller.tail(40))?;
    drop(controller);
    let rest = uninstall(&env.plane, &["--apply", "--drain", "--delete-records"]).await?;
    ensure!(rest.ended(0)?.contains("delete ClusterRole napkeeper-provisioner"), "{}", rest.out);
    Ok(())
}
