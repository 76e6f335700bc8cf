//! Why VM sizes were chosen, and why pods are pending at the end.

use crate::output::explanation::{json, size, text};
use crate::output::plural;
use crate::output::style::{BOLD, DIM};
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::scheduling::{AvailableOfferings, Explanations, Input, MAX_NEW_NODES, explain};
use napkeeper_sim::world::{LaunchReason, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

/// Most groups of each list.
const MOST: usize = 10;

/// Writes why sizes were chosen, and explains the pods that are pending at the end.
pub(super) fn write(out: &mut dyn Write, world: &World) -> io::Result<()> {
    let all: Vec<&LaunchReason> = by_cost(world);
    if !all.is_empty() {
        writeln!(out, "\n{BOLD}launched{BOLD:#}     by NodePool and size, and why that size")?;
    }
    let planned = world.planned();
    if let Some(above) = planned.gap_permille().filter(|_| !all.is_empty()) {
        let (whole, tenth) = (above / 10, above % 10);
        writeln!(
            out,
            "  {}/h in total (VMs and OS disks), {whole}.{tenth} % above the lower bound (fractions of VM sizes)",
            planned.price
        )?;
    }
    for launch in all.iter().take(MOST) {
        let LaunchReason { pool, size, capacity_type, price, nodes, pods, requests, choice } = launch;
        let (nodes, pods) = (plural(*nodes, "node"), plural(*pods, "pod"));
        writeln!(out, "  {pool}: {nodes} of {size} {} at {price}/h for {pods}", capacity_type.as_str())?;
        let which = match choice.fitting {
            0 | 1 => "the only matching size".to_owned(),
            n => format!("the cheapest of {n} matching sizes"),
        };
        writeln!(out, "    {DIM}{which}; the first was launched for {requests}{DIM:#}")?;
        if let Some(cheaper) = size::cheaper(choice) {
            writeln!(out, "    {DIM}cheaper: {cheaper}{DIM:#}")?;
        }
        if let Some(next) = &choice.next_fitting {
            writeln!(out, "    {DIM}next most expensive: {}{DIM:#}", size::shown(next))?;
        }
    }
    match all.len().saturating_sub(MOST) {
        0 => {}
        more => writeln!(out, "  {DIM}and {} more that cost less{DIM:#}", plural(more, "size"))?,
    }
    let pending = pending(world);
    if !pending.explanations.is_empty() {
        writeln!(out, "\n{BOLD}pending{BOLD:#}      at the end, and how they would be scheduled")?;
        text::write(out, &pending, MOST)?;
    }
    Ok(())
}

/// The same for programs.
pub(super) fn json(world: &World) -> Value {
    let launches = by_cost(world).into_iter().take(MOST).map(|launch| {
        json!({
            "pool": launch.pool.as_str(),
            "size": launch.size.as_str(),
            "capacityType": launch.capacity_type.as_str(),
            "price": launch.price.nanos(),
            "cost": format!("{}/h", launch.price),
            "nodes": launch.nodes,
            "pods": launch.pods,
            "requests": launch.requests.to_string(),
            "sizeChoice": size::json(&launch.choice),
        })
    });
    let planned = world.planned();
    json!({ "launched": launches.collect::<Vec<_>>(), "planned": { "price": planned.price.nanos(), "bound": planned.lower_bound.nanos() }, "pending": json::explanations(&pending(world)) })
}

/// The launched nodes by size, the most expensive first.
fn by_cost(world: &World) -> Vec<&LaunchReason> {
    let mut all: Vec<&LaunchReason> = world.launch_reasons().collect();
    let cost = |launch: &LaunchReason| i128::from(launch.price.nanos()) * launch.nodes as i128;
    all.sort_by_key(|launch| std::cmp::Reverse(cost(launch)));
    all
}

/// How the pending pods would be scheduled.
fn pending(world: &World) -> Explanations {
    let snapshot = world.known();
    let pods: Vec<Arc<Pod>> = snapshot.pending_pods().cloned().collect();
    if pods.is_empty() {
        return Explanations::default();
    }
    let available = AvailableOfferings::new(snapshot, world.unavailable(), world.now());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot,
        available: &available,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &claim_of_pod,
    };
    explain(input, &pods, |_| true)
}
