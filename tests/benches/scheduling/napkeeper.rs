//! Napkeeper's scheduler, by the call that its deciders make, on one thread.

use crate::market::{Sizes, State};
use crate::plan::{Goes, Plan};
use crate::workload::Work;
use anyhow::{Context, Result};
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::NodeName;
use napkeeper_core::scheduling::{
    AvailableOfferings, Input, MAX_NEW_NODES, SchedulingResult, Target, UnavailableOfferings, schedule,
};
use napkeeper_tests::fixtures;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The result of one call.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) outcome: SchedulingResult,
    /// How long it took to put the Snapshot and the Market together.
    pub(crate) setup: Duration,
    /// How long the call took.
    pub(crate) solve: Duration,
}

/// Schedules all pending pods, on a fresh Snapshot.
pub(crate) fn solve(work: &Work, sizes: &Sizes, state: &State) -> Solved {
    let begun = Instant::now();
    let snapshot = sizes.snapshot(work, state);
    let market = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), fixtures::instant());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let pods: Vec<Arc<Pod>> = state.waiting().into_iter().map(|pod| Arc::clone(&work.core[pod])).collect();
    let new_nodes = MAX_NEW_NODES;
    let input = Input {
        snapshot: &snapshot,
        available: &market,
        excluded_nodes: &without,
        max_new_nodes: new_nodes,
        claim_of_pod: &promised,
    };
    let setup = begun.elapsed();
    let begun = Instant::now();
    let outcome = schedule(input, &pods);
    Solved { outcome, setup, solve: begun.elapsed() }
}

/// The outcome as a plan.
pub(crate) fn plan(outcome: &SchedulingResult, work: &Work, sizes: &Sizes, state: &State) -> Result<Plan> {
    let names: HashMap<&NodeName, usize> = state.nodes.iter().enumerate().map(|(i, n)| (&n.core.name, i)).collect();
    let mut plan = Plan::default();
    for node in &outcome.new_nodes {
        let cheapest = node.offerings.first().context("a node without offerings")?;
        plan.offerings.push(sizes.offering_index(&cheapest.key)?);
    }
    for placement in &outcome.placements {
        let pod = *work.index.get(&placement.pod).context("a pod that nobody asked about")?;
        let goes = match &placement.target {
            Target::Node(name) => Goes::Standing(*names.get(name).context("a node that is not there")?),
            Target::New(index) => Goes::New(*index),
            Target::Claim(name) => anyhow::bail!("there is no NodeClaim {name}"),
        };
        plan.goes.push((pod, goes));
    }
    Ok(plan)
}
