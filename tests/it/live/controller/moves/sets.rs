//! Sets of nodes are consolidated at once: those whose pods fit on others, and those that only together are dearer than
//! what replaces them.

use super::{
    BALLAST, Disruptions, EIGHT_CORES, FOUR_CORES, POD, consolidated, deployment, node_class, one_pod_on_each_node,
    pool, quiet, sizes, stream,
};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use kube::ResourceExt;
use kube::api::DynamicObject;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, running, scale};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Of these nodes the pods fit on two.
const HALF_EMPTY: usize = 6;
/// These nodes of four cores, with two cores in use each, cost more than one of eight; two of them would not.
const WASTEFUL: usize = 3;
/// Longest time between deletions of one pass. Passes follow each other after 2 s at the earliest, so that three more take
/// longer.
const ONE_PASS: SignedDuration = SignedDuration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/nightly runs it"]
async fn sets_of_nodes_are_deleted_and_replaced_at_once() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let objects = [
        node_class(),
        pool("deleted", &[FOUR_CORES]),
        pool("replaced", &[FOUR_CORES, EIGHT_CORES]),
        deployment("ballast", "deleted", BALLAST),
        deployment("many", "deleted", POD),
        deployment("few", "replaced", "2"),
    ];
    env.plane.apply(&stream(&objects)).await?;
    let controller = env.controller()?;
    // One after the other, so that each gets a node of its own: no two of them fit on four cores.
    for replicas in 1..=WASTEFUL {
        scale(&env, "few", replicas).await?;
        running(&env, "few", replicas).await?;
    }
    one_pod_on_each_node(&env, &[("many", HALF_EMPTY)]).await?;
    let before = sizes(&env).await?;
    ensure!(before == BTreeMap::from([(FOUR_CORES.to_owned(), HALF_EMPTY + WASTEFUL)]), "{before:?}");
    let wasteful = of_pool(&env, "replaced").await?;

    quiet(&mut env).await?;
    let start = Instant::now();
    let seen = consolidated(&env, &[(FOUR_CORES, 2), (EIGHT_CORES, 1)]).await.with_context(|| controller.tail(60))?;
    eprintln!("nine nodes became three in {:?}", start.elapsed());
    running(&env, "many", HALF_EMPTY).await?;
    running(&env, "few", WASTEFUL).await?;
    are_sets(&seen, &wasteful)
}

/// The names of the NodeClaims of a NodePool.
async fn of_pool(env: &Environment, pool: &str) -> Result<BTreeSet<String>> {
    let is_of = |claim: &&DynamicObject| claim.labels().get("karpenter.sh/nodepool").is_some_and(|of| of == pool);
    Ok(claims(env).await?.iter().filter(is_of).map(ResourceExt::name_any).collect())
}

/// Each NodePool had one move, of all the nodes that had to go.
fn are_sets(seen: &Disruptions, wasteful: &BTreeSet<String>) -> Result<()> {
    let at_once = |pool: &str| seen.at_once.get(pool).copied().unwrap_or_default();
    ensure!(at_once("deleted") == HALF_EMPTY - 2, "they were not deleted at once: {seen:?}");
    ensure!(at_once("replaced") == WASTEFUL, "they were not replaced at once: {seen:?}");
    let replaced: Vec<_> = seen.replaced.values().collect();
    ensure!(replaced == [wasteful], "not one node for all of {wasteful:?}: {seen:?}");
    let (of_one, of_other): (BTreeMap<_, _>, BTreeMap<_, _>) =
        seen.deleted.iter().partition(|(name, _)| wasteful.contains(*name));
    for times in [of_one, of_other] {
        let (first, last) = times.values().min().zip(times.values().max()).context("none was deleted")?;
        ensure!(last.duration_since(**first) <= ONE_PASS, "one after the other: {times:?}");
    }
    Ok(())
}
