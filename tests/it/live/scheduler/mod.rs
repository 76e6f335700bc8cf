//! The real kube-scheduler binds pods where our simulation says that they can be scheduled.
//!
//! The workloads and what is asked of them are those of `scheduling`. The emulation of kube-scheduler that other tests
//! lean on is held against the real one all along: whether there is a place for each pod, and whether the place taken is
//! one of those with the highest score.

mod provisioner;
mod real;

use crate::scheduling::{Tally, Workload, judge, namespaces, seeds};
use anyhow::{Context, Result};
use real::RealScheduler;
use std::collections::BTreeSet;
use std::time::Instant;

/// Workloads of a plain run; `.ci/nightly` takes 300.
const FEW: u64 = 30;
/// One whose pods still waited when they were deleted, and were counted after it.
const FOUND: [u64; 1] = [48];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_scheduler_binds_pods_where_we_say_that_there_is_room() -> Result<()> {
    let start = Instant::now();
    let seeds: BTreeSet<u64> = seeds(FEW)?.chain(FOUND).collect();
    let mut scheduler = RealScheduler::new(seeds.iter().copied().flat_map(namespaces).collect()).await?;
    eprintln!("kube-scheduler listens after {:?}", start.elapsed());
    let mut tally = Tally::default();
    for seed in seeds {
        let work = Workload::new(seed)?;
        judge(&mut scheduler, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    tally.tell();
    eprintln!("{tally} in {:?}", start.elapsed());
    tally.is_good()
}
