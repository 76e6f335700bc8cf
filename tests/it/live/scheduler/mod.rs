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
use std::time::Instant;

/// Workloads of a plain run.
const FEW: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_scheduler_binds_pods_where_we_say_that_there_is_room() -> Result<()> {
    let (start, seeds) = (Instant::now(), seeds(FEW)?);
    let mut scheduler = RealScheduler::new(seeds.clone().flat_map(namespaces).collect()).await?;
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
