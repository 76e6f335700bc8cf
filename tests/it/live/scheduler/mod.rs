//! The real kube-scheduler binds pods where our simulation says that they can be scheduled.
//!
//! The workloads and checks are those of `scheduling`. The emulation of kube-scheduler that other tests use is compared
//! with the real one throughout: whether each pod fits, and whether its node is one of those with the highest score.

mod provisioner;
mod real;

use crate::scheduling::{Tally, Workload, judge, namespaces, seeds};
use anyhow::{Context, Result, ensure};
pub(crate) use provisioner::Provisioner;
use real::RealScheduler;
use std::time::Instant;

/// Workloads of a plain run, too few for rates; `.ci/nightly` takes 300.
const FEW: u64 = 10;
/// Workloads that found an error of the tests: pods that were still pending when they were deleted were counted
/// afterwards (48), and pods of a Service have the built-in spread constraints (77, 134).
const FOUND: [u64; 3] = [48, 77, 134];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_scheduler_binds_pods_as_planned() -> Result<()> {
    let start = Instant::now();
    let seeds = seeds(FEW, &FOUND)?;
    let mut scheduler = RealScheduler::new(seeds.iter().copied().flat_map(namespaces).collect()).await?;
    eprintln!("kube-scheduler listens after {:?}", start.elapsed());
    let mut tally = Tally::default();
    for seed in seeds {
        let work = Workload::new(seed)?;
        judge(&mut scheduler, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    tally.tell();
    eprintln!("{tally} in {:?}", start.elapsed());
    ensure!(tally.scored > 0, "no score of the emulation was compared: {tally}");
    tally.is_good()
}
