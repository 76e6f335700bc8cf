//! The scheduler: does the real kube-scheduler bind pods where our simulation says that there is room for them?
//!
//! Workloads are drawn, planned by `napkeeper_core::scheduling` on the pods as the API server has them, and the nodes of
//! the plan are made just as it proposes them. Then the pods come, one by one in the order of the plan, twice. The first
//! time each asks for an extended resource that only its planned node has: that ties it there and changes nothing else
//! (a node affinity would change which nodes its spread constraints count). A pod that is not bound then, or one that we
//! found no place for and that is bound, is a disagreement about filters, and there must be none. For a pod without a
//! place the greatest nodes that could be bought are tried too, by the emulation: had one of them a place, it was missed.
//!
//! The second time kube-scheduler is free to choose by its scores. It spreads the first pods over all nodes, those that
//! later ones were planned for too, so that some find no place: these are counted, and planned for again. One that has
//! no place even then is stuck, which hardly ever may be.
//!
//! The emulation of kube-scheduler that other tests lean on is held against the real one all along: whether there is a
//! place for each pod, and whether the place taken is one of those with the highest score.
//!
//! Volumes are left out.

mod arena;
mod asks;
mod judge;
mod market;
mod plan;
mod workload;

use super::a_lab;
use anyhow::{Context, Result, ensure};
use arena::Arena;
use judge::{Tally, judge};
use std::time::Instant;
use workload::{Workload, namespaces};

/// Workloads of a plain run.
const FEW: u64 = 60;
/// Of so many pods one may find no place where kube-scheduler is free to choose: no promise, but more than is usual.
const BY_ORDER: usize = 6;
/// Of so many pods one may be bound to a place that the emulation does not think one of the best: kube-scheduler may take
/// pods that are alike by the scores of the one before, and scores some pods that ask for something as a whole otherwise.
const SCORES: usize = 100;
/// Of so many pods one may be stuck.
const STUCK: usize = 200;

/// `NAPKEEPER_WORKLOADS`: how many workloads, or from which seed to which, as in `17..18`.
fn seeds() -> Result<std::ops::Range<u64>> {
    let Ok(text) = std::env::var("NAPKEEPER_WORKLOADS") else { return Ok(0..FEW) };
    let read = |text: &str| text.parse().with_context(|| format!("NAPKEEPER_WORKLOADS={text}: as in 300, or 17..18"));
    Ok(match text.split_once("..") {
        Some((first, end)) => read(first)?..read(end)?,
        None => 0..read(&text)?,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes five minutes, and workload 39 still finds a disagreement: near and even by the same label"]
async fn the_real_scheduler_binds_pods_where_we_say_that_there_is_room() -> Result<()> {
    let _turn = a_lab().await?;
    let (start, seeds) = (Instant::now(), seeds()?);
    let mut arena = Arena::new(seeds.clone().flat_map(namespaces).collect()).await?;
    eprintln!("kube-scheduler listens after {:?}", start.elapsed());
    let mut tally = Tally::default();
    for seed in seeds {
        let work = Workload::new(seed)?;
        judge(&mut arena, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    let Tally { filter, missed, by_order, stuck, emulation, scores, .. } = &tally;
    let ours = [("FILTER", filter), ("MISSED", missed), ("ORDER", by_order), ("STUCK", stuck)];
    let all = ours.into_iter().chain([("EMULATION", emulation), ("SCORES", scores)]);
    for (what, all) in all {
        all.iter().for_each(|said| eprintln!("{what}: {said}"));
    }
    eprintln!("{tally} in {:?}", start.elapsed());
    ensure!(tally.placed > tally.unplaced && tally.unplaced > 0, "too easy, or too hard: {tally}");
    ensure!(tally.filter.is_empty(), "the first of {}: {}", tally.filter.len(), tally.filter[0]);
    ensure!(tally.emulation.is_empty(), "the first of {}: {}", tally.emulation.len(), tally.emulation[0]);
    ensure!(tally.missed.is_empty(), "the first of {}: {}", tally.missed.len(), tally.missed[0]);
    ensure!(tally.scores.len() * SCORES <= tally.scored, "the emulation scores otherwise: {tally}");
    ensure!(tally.by_order.len() * BY_ORDER <= tally.pods, "too many pods without a place: {tally}");
    ensure!(tally.stuck.len() * STUCK <= tally.pods, "too many pods are stuck: {tally}");
    Ok(())
}
