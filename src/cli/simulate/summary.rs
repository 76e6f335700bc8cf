//! The summary of a simulation: nodes, cost and orphans.

use super::timeline::offset;
use crate::output::style::{BOLD, DIM};
use crate::output::{first_names, plural};
use napkeeper_core::model::amounts::money::Money;
use napkeeper_core::plan::kind_label;
use napkeeper_sim::autoscaler::{self, Baseline};
use napkeeper_sim::measures::{PodFigures, WaitFigures};
use napkeeper_sim::world::{OrphanSummary, RetainedResource, Summary, World};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Most names in a line.
const NAMES: usize = 4;

/// Writes the summary.
pub(super) fn write(out: &mut dyn Write, world: &World, baseline: &Baseline) -> io::Result<()> {
    let summary = world.summary();
    nodes(out, &summary, world)?;
    cost(out, &summary)?;
    compare(out, &summary, waiting(world), baseline)?;
    orphans(out, &world.orphans(), world)
}

fn nodes(out: &mut dyn Write, s: &Summary, world: &World) -> io::Result<()> {
    let Summary { nodes_launched, nodes_most, nodes_now, node_hours, spot_percent, .. } = s;
    writeln!(
        out,
        "{BOLD}nodes{BOLD:#}        {nodes_launched} launched, peak {nodes_most}, {nodes_now} at the end; \
         {}, {spot_percent} % spot; {}, {}",
        hours(*node_hours),
        plural(s.spot_evictions as usize, "spot eviction"),
        plural(s.refusals as usize, "refusal"),
    )?;
    let waiting = waiting(world);
    writeln!(
        out,
        "{BOLD}pods{BOLD:#}         CPU utilization {} % (requests/allocatable); pending {} pod-minutes, {waiting} \
         pending at the end",
        s.cpu_utilisation_percent, s.pod_wait_minutes,
    )?;
    disruption(out, &s.disruption.all)
}

/// How the policy disturbs pods, and how long pods are pending.
fn disruption(out: &mut dyn Write, pods: &PodFigures) -> io::Result<()> {
    writeln!(
        out,
        "{BOLD}evictions{BOLD:#}    {} voluntary ({:.2} per pod-day), {} of a replacement within 1 h; unavailable {} \
         pod-seconds",
        pods.voluntary_evictions,
        pods.evictions_per_pod_day(),
        pods.re_evictions,
        pods.unavailable_pod_seconds,
    )?;
    let new = percentiles(&pods.pending_new, "new pod");
    let evicted = percentiles(&pods.pending_evicted, "replacement");
    if new.is_empty() && evicted.is_empty() {
        return Ok(());
    }
    let both = if new.is_empty() || evicted.is_empty() { "" } else { "; " };
    writeln!(out, "{BOLD}pending{BOLD:#}      {new}{both}{evicted}")
}

/// How long pods of a kind are pending; empty when there are none.
fn percentiles(waits: &WaitFigures, kind: &str) -> String {
    let WaitFigures { pods, never_bound, p50_seconds, p95_seconds, p99_seconds, max_seconds } = waits;
    if *pods == 0 {
        return String::new();
    }
    let unbound = if *never_bound > 0 { format!(", {never_bound} never bound") } else { String::new() };
    format!(
        "{}: p50 {p50_seconds} s, p95 {p95_seconds} s, p99 {p99_seconds} s, max {max_seconds} s{unbound}",
        plural(usize::try_from(*pods).unwrap_or(usize::MAX), kind)
    )
}

/// Pods that are pending at the end.
fn waiting(world: &World) -> usize {
    world.cluster().state().pending().values().map(std::collections::BTreeSet::len).sum()
}

fn cost(out: &mut dyn Write, s: &Summary) -> io::Result<()> {
    match saving(s.cost, s.cost_on_demand) {
        Some(saved) => writeln!(
            out,
            "{BOLD}cost{BOLD:#}         {}; same VMs on-demand: {} ({saved}); VMs and OS disks",
            s.cost, s.cost_on_demand
        ),
        None => writeln!(out, "{BOLD}cost{BOLD:#}         {}: there are no VMs", s.cost),
    }
}

fn hours(count: i64) -> String {
    plural(usize::try_from(count).unwrap_or(usize::MAX), "node-hour")
}

/// Compares with cluster-autoscaler on the same load, and names its policy.
fn compare(out: &mut dyn Write, s: &Summary, waiting: usize, baseline: &Baseline) -> io::Result<()> {
    let Baseline { cost, node_hours, nodes_launched, pod_wait_minutes, cpu_utilisation_percent, unplaced_pods, .. } =
        baseline;
    let evictions = plural(
        usize::try_from(baseline.disruption.all.voluntary_evictions).unwrap_or(usize::MAX),
        "voluntary eviction",
    );
    // A bill for fewer pods is no cheaper bill.
    let verdict = match (waiting, *unplaced_pods, saving(s.cost, *cost)) {
        (0, 0, Some(saved)) => format!(" (napkeeper {saved})"),
        (0, 0, None) => String::new(),
        _ => " (not comparable: pods are pending at the end)".to_owned(),
    };
    let node_hours = hours(*node_hours);
    writeln!(
        out,
        "{BOLD}baseline{BOLD:#}     cluster-autoscaler {cost}{verdict}; {nodes_launched} launched, {node_hours}, \
         CPU utilization {cpu_utilisation_percent} %, pending {pod_wait_minutes} pod-minutes, \
         {unplaced_pods} pending at the end, {evictions}",
    )?;
    writeln!(out, "  {DIM}{}{DIM:#}", autoscaler::POLICY)
}

/// The difference from another cost, such as `-40 %`; `None` if that is nothing.
fn saving(cost: Money, other: Money) -> Option<String> {
    let (cost, other) = (cost.nanos(), other.nanos());
    if other <= 0 {
        return None;
    }
    let percent = (other - cost) * 100 / other;
    Some(match percent {
        0 => "±0 %".to_owned(),
        1.. => format!("-{percent} %"),
        _ => format!("+{} %", -percent),
    })
}

fn orphans(out: &mut dyn Write, orphans: &OrphanSummary, world: &World) -> io::Result<()> {
    let left = orphans.left();
    let OrphanSummary { found, collected, retained, halted } = orphans;
    writeln!(
        out,
        "{BOLD}orphans{BOLD:#}      {found} found: {} collected, {left} left; {} other resources kept, not owned by \
         this cluster or protected",
        collected.len(),
        retained.len() - left,
    )?;
    for one in collected {
        let at = offset(one.at.duration_since(world.started_at()));
        writeln!(out, "  collected  {} {} {DIM}at {at}{DIM:#}", kind_label(one.kind), one.name)?;
    }
    let mut by_reason: BTreeMap<String, Vec<&RetainedResource>> = BTreeMap::new();
    for one in retained {
        by_reason.entry(one.reasons.join("; ")).or_default().push(one);
    }
    for (reason, of_it) in &by_reason {
        writeln!(out, "  kept       {}: {reason}", names(of_it))?;
    }
    if let Some(halted) = halted {
        writeln!(out, "  halted     {halted}")?;
    }
    let mut waiting: BTreeMap<&str, Vec<&RetainedResource>> = BTreeMap::new();
    for one in retained {
        if let Some(person) = one.waits_for {
            waiting.entry(person).or_default().push(one);
        }
    }
    for (person, of_it) in &waiting {
        writeln!(out, "  waits      for {person}: {}", names(of_it))?;
    }
    Ok(())
}

fn names(retained: &[&RetainedResource]) -> String {
    first_names(retained.iter().map(|one| format!("{} {}", kind_label(one.kind), one.name)), retained.len(), NAMES)
}
