//! kube-scheduler binds pods where our simulation says that they can be scheduled.
//!
//! Workloads are drawn, planned by `napkeeper_core::scheduling`, and the nodes of the plan are made just as it proposes
//! them. Then the pods come, one by one in the order of the plan, twice. The first time each asks for an extended resource
//! that only its planned node has: that ties it there and changes nothing else (a node affinity would change which nodes
//! its spread constraints count). A pod that is not bound then, or one that we found no place for and that is bound, is a
//! disagreement about filters, and there must be none. For a pod without a place the greatest nodes that could be bought
//! are tried too, by the emulation: had one of them a place, it was missed.
//!
//! The second time kube-scheduler is free to choose by its scores. It spreads the first pods over all nodes, those that
//! later ones were planned for too, so that some find no place: these are counted, and planned for again. One that has
//! no place even then is stuck, which hardly ever may be.
//!
//! Here the emulation of kube-scheduler plays its part, in `live::scheduler` the real one, by which the emulation is held
//! against it. In a fourth of the workloads some pods have volumes, which a driver of our own makes as Azure's would; in a
//! third some are of a profile of kube-scheduler that gives them spread constraints, and in about
//! a fourth DaemonSets run.

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
use std::ops::Range;
use std::time::Instant;
pub(crate) use storage::{Storage, binding, claims_of, classes, is_ephemeral, is_shared, made, zone_of};
pub(crate) use workload::{Workload, namespaces};

/// Workloads of a plain run.
const FEW: u64 = 100;
/// Others that have found something: domains that only a preference rules out (274), where no node can be had (229), or
/// where a shared volume is not (249).
const FOUND: [u64; 3] = [229, 249, 274];

/// Seeds of the workloads of a run; `NAPKEEPER_WORKLOADS` asks for others.
pub(crate) fn seeds(few: u64) -> Result<Range<u64>> {
    seed_range("NAPKEEPER_WORKLOADS", few)
}

#[tokio::test]
async fn the_emulated_scheduler_binds_pods_where_we_say_that_there_is_room() -> Result<()> {
    let start = Instant::now();
    let mut tally = Tally::default();
    for seed in seeds(FEW)?.chain(FOUND) {
        let work = Workload::new(seed)?;
        let mut scheduler = EmulatedScheduler::new(seed, namespaces(seed));
        judge(&mut scheduler, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    tally.tell();
    eprintln!("{tally} in {:?}", start.elapsed());
    tally.is_good()
}
