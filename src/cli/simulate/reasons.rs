//! Reasons: why were nodes bought as they were, and what keeps pods waiting?

use super::{BOLD, DIM};
use crate::account::{json, size, text};
use crate::output::plural;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::scheduling::{AvailableOfferings, Explanations, Input, MAX_NEW_NODES, explain};
use napkeeper_sim::world::{LaunchReason, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

/// Most groups of each sort.
const MOST: usize = 10;

/// Writes why nodes were bought, and about the pods that wait at the end.
pub(super) fn write(out: &mut impl Write, world: &World) -> io::Result<()> {
    let all: Vec<&LaunchReason> = dearest(world);
    if !all.is_empty() {
        writeln!(out, "\n{BOLD}launched{BOLD:#}     by NodePool and size, and why that size")?;
    }
    let planned = world.planned();
    if let Some(above) = planned.gap_permille().filter(|_| !all.is_empty()) {
        let (whole, tenth) = (above / 10, above % 10);
        writeln!(
            out,
            "  {}/h in total, {whole}.{tenth} % above the lower bound (fractions of VM sizes)",
            planned.price
        )?;
    }
    for bought in all.iter().take(MOST) {
        let LaunchReason { pool, size, capacity_type, price, nodes, pods, requests, choice } = bought;
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
    let told = waiting(world);
    if !told.explanations.is_empty() {
        writeln!(out, "\n{BOLD}pending{BOLD:#}      at the end, and how they would be scheduled")?;
        text::write(out, &told, MOST)?;
    }
    Ok(())
}

/// The same for programs.
pub(super) fn json(world: &World) -> Value {
    let bought = dearest(world).into_iter().take(MOST).map(|bought| {
        json!({
            "pool": bought.pool.as_str(),
            "size": bought.size.as_str(),
            "capacityType": bought.capacity_type.as_str(),
            "price": bought.price.nanos(),
            "cost": format!("{}/h", bought.price),
            "nodes": bought.nodes,
            "pods": bought.pods,
            "requests": bought.requests.to_string(),
            "why": size::json(&bought.choice),
        })
    });
    let planned = world.planned();
    json!({ "bought": bought.collect::<Vec<_>>(), "planned": { "price": planned.price.nanos(), "bound": planned.lower_bound.nanos() }, "waiting": json::accounts(&waiting(world)) })
}

/// What was bought, that which costs most first.
fn dearest(world: &World) -> Vec<&LaunchReason> {
    let mut all: Vec<&LaunchReason> = world.launch_reasons().collect();
    let cost = |bought: &LaunchReason| i128::from(bought.price.nanos()) * bought.nodes as i128;
    all.sort_by_key(|bought| std::cmp::Reverse(cost(bought)));
    all
}

/// What would become of the pods that wait.
fn waiting(world: &World) -> Explanations {
    let snapshot = world.known();
    let pods: Vec<Arc<Pod>> = snapshot.pending_pods().cloned().collect();
    if pods.is_empty() {
        return Explanations::default();
    }
    let market = AvailableOfferings::new(snapshot, world.unavailable(), world.now());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot,
        available: &market,
        excluded_nodes: &without,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &promised,
    };
    explain(input, &pods, |_| true)
}
