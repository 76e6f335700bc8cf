//! Measures the time to readiness.

use crate::cluster::{Cluster, Size};
use crate::server::{Server, certificate};
use anyhow::{Result, ensure};
use napkeeper_tests::control_plane::napkeeper_binary;
use std::time::{Duration, Instant};

const RUNS: usize = 11;
const EMPTY: Size = Size { nodes: 0, pods: 0, changes: 0 };
/// The target.
const READY: Duration = Duration::from_millis(300);
const VERSION: Duration = Duration::from_millis(50);

/// Starts the program again and again.
pub(crate) async fn measure() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("admission-").tempdir()?;
    certificate(folder.path())?;
    let cluster = Cluster::start(folder.path(), EMPTY).await?;
    let binary = napkeeper_binary()?;
    let (mut ready, mut version) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (_server, took) = Server::napkeeper(folder.path(), &cluster.kubeconfig).await?;
        ready.push(took);
        let begun = Instant::now();
        let status = tokio::process::Command::new(&binary).arg("version").output().await?.status;
        version.push(begun.elapsed());
        ensure!(status.success(), "napkeeper version: {status}");
    }
    report("ready, with an empty cluster", ready, READY);
    report("napkeeper version", version, VERSION);
    Ok(())
}

fn report(case: &str, mut times: Vec<Duration>, promised: Duration) {
    times.sort();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    let verdict = if median <= promised { "holds" } else { "MISSED" };
    println!(
        "start: {case}: min {least:.1?}, median {median:.1?}, max {most:.1?} of {RUNS} (promised {promised:?}: {verdict})"
    );
}
