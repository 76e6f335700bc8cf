//! kube-scheduler binds pods where our simulation says that they can be scheduled.
//!
//! Workloads are drawn, planned by `napkeeper_core::scheduling`, and the nodes of the plan are created as proposed.
//! Then the pods are created one by one in the order of the plan, twice. The first time each requests an extended
//! resource that only its planned node has: that pins it and changes nothing else (a node affinity would change which
//! nodes its spread constraints count). A pod that stays pending then, or an unplaced one that is bound, is a
//! disagreement about filters, and there must be none. For an unplaced pod the largest new nodes are tried too, by the
//! emulation: if it fits one of them, the plan missed it.
//!
//! The second time kube-scheduler is free to choose by its scores. It spreads the first pods over all nodes, also those
//! planned for later ones, so that some stay pending: these are counted, and planned again. One that is unplaced even
//! then is stuck, which must be rare.
//!
//! These tests use the emulation of kube-scheduler, `live::scheduler` the real one, with which it also compares the
//! emulation. In a fourth of the workloads some pods have volumes, which a test driver creates as Azure's would; in a
//! third some are of a profile of kube-scheduler that gives them spread constraints, and in about a fourth DaemonSets
//! run.

#![expect(clippy::print_stderr, reason = "what was found in which workload is told beside the verdict")]

mod daemon_sets;
mod emulated;
mod judge;
mod offerings;
mod plan;
mod pod_specs;
mod scheduler;
mod simulated;
mod spread_owners;
mod storage;
mod workload;

use anyhow::{Context, Result};
use emulated::EmulatedScheduler;
pub(crate) use judge::{Tally, judge};
use napkeeper_tests::options::seed_range;
pub(crate) use pod_specs::{SANDBOXED, URGENT, USEFUL, overhead};
pub(crate) use scheduler::{Namespaces, Scheduler, Verdict};
pub(crate) use spread_owners::{SpreadOwners, profiles};
use std::collections::BTreeSet;
use std::time::Instant;
pub(crate) use storage::{DRIVER_ZONE, Storage, binding, claims_of, classes, is_ephemeral, is_shared, made, zone_of};
pub(crate) use workload::{Workload, namespaces};

/// Workloads of a plain run, so many that rates say something; `.ci/nightly` takes 300.
const FEW: u64 = 100;
/// Others that have found something: domains that only a preference rules out (274), where no node can be had (229), or
/// where a shared volume is not (249).
const FOUND: [u64; 3] = [229, 249, 274];

/// Seeds of the workloads of a run; `NAPKEEPER_WORKLOADS` selects others.
///
/// A range from 0 includes the `found` ones, which once failed; any other range is run as it is.
pub(crate) fn seeds(few: u64, found: &[u64]) -> Result<BTreeSet<u64>> {
    let seeds = seed_range("NAPKEEPER_WORKLOADS", few)?;
    let found = if seeds.start == 0 { found } else { &[] };
    Ok(seeds.chain(found.iter().copied()).collect())
}

#[tokio::test]
async fn the_emulated_scheduler_binds_pods_as_planned() -> Result<()> {
    let start = Instant::now();
    let mut tally = Tally::default();
    for seed in seeds(FEW, &FOUND)? {
        let work = Workload::new(seed)?;
        let mut scheduler = EmulatedScheduler::new(seed, namespaces(seed));
        judge(&mut scheduler, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    tally.tell();
    eprintln!("{tally} in {:?}", start.elapsed());
    tally.is_good()
}
