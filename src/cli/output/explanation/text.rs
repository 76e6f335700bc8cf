//! Explanations as text.

use super::{counted, rejected_pools, size, subject};
use crate::output::style::{BOLD, DIM, ERROR, GREEN, HELP};
use crate::output::{one_line, plural};
use napkeeper_core::scheduling::{
    ExplainedResult, Explanation, Explanations, FilterCriterion, FilterStep, NewNodesSummary, PlacementExplanation,
    PlacementSummary, PoolFilterSteps, TopologyCause, TopologyDecision, UnschedulableExplanation,
};
use std::io::{self, Write};

/// Most names in a line.
const NAMES: usize = 4;
/// Most values of a label in a line.
const VALUES: usize = 8;

/// Writes at most this many explanations, and how many pods are omitted.
pub(crate) fn write(out: &mut dyn Write, explained: &Explanations, most: usize) -> io::Result<()> {
    for (i, explanation) in explained.explanations.iter().take(most).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(out, explanation)?;
    }
    let omitted = explained.explanations.iter().skip(most);
    let groups = explained.omitted_groups + omitted.clone().count();
    if groups > 0 {
        let pods = explained.omitted_pods + omitted.map(|explanation| explanation.pods.len()).sum::<usize>();
        let (groups, pods) = (plural(groups, "more group"), plural(pods, "pod"));
        writeln!(out, "\n{DIM}and {groups} of identical pods ({pods}): name one of them to explain it{DIM:#}")?;
    }
    Ok(())
}

fn one(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let Explanation { pods, requests, result } = explanation;
    let (style, verb) = match result {
        ExplainedResult::Placed(_) => (GREEN.bold(), "can be scheduled"),
        ExplainedResult::Unschedulable(_) => (ERROR, "cannot be scheduled"),
    };
    writeln!(out, "{BOLD}{}{BOLD:#} {style}{verb}{style:#}", subject(pods))?;
    row(out, "requests", &format!("{requests}{}", if pods.len() > 1 { " each" } else { "" }))?;
    match result {
        ExplainedResult::Placed(placement) => placed(out, placement, pods.len()),
        ExplainedResult::Unschedulable(result) => unschedulable(out, result),
    }
}

/// A line with a label.
pub(crate) fn row(out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {DIM}{label:<13}{DIM:#} {}", one_line(text))
}

fn placed(out: &mut dyn Write, explained: &PlacementExplanation, pods: usize) -> io::Result<()> {
    match &explained.placement {
        PlacementSummary::Existing { nodes, count } => {
            let names = counted(nodes, *count, NAMES);
            let text = match count {
                1 => format!("existing node {names}"),
                n => format!("{n} existing nodes: {names}"),
            };
            row(out, "node", &text)?;
        }
        PlacementSummary::InFlight { claims, count, planned_pods } => {
            let names = counted(claims, *count, NAMES);
            let nominated = match *planned_pods {
                0 => "has room",
                planned if planned == pods => "nominated",
                _ => "nominated for some of them",
            };
            let text = match count {
                1 => format!("NodeClaim {names} (launching), {nominated}"),
                n => format!("{n} launching NodeClaims: {names}"),
            };
            row(out, "node", &text)?;
        }
        PlacementSummary::New(nodes) => new_nodes(out, nodes)?,
    }
    for decision in &explained.topology_decisions {
        row(out, cause(decision.cause), &describe(decision))?;
    }
    for preference in explained.relaxed.iter().take(NAMES) {
        row(out, "not met", &format!("{preference}: not satisfiable"))?;
    }
    match explained.relaxed.len().saturating_sub(NAMES) {
        0 => {}
        more => row(out, "not met", &plural(more, "more preference"))?,
    }
    if explained.satisfied_preferences > 0 {
        row(out, "met", &plural(explained.satisfied_preferences, "preference"))?;
    }
    Ok(())
}

fn new_nodes(out: &mut dyn Write, nodes: &NewNodesSummary) -> io::Result<()> {
    let NewNodesSummary {
        node_count,
        pool,
        first_offering: best,
        zones,
        own_pods: own,
        other_pods: others,
        requests,
        size,
        offering_count: offerings,
        ..
    } = nodes;
    let new = if *node_count == 1 { "new node".to_owned() } else { format!("{node_count} new nodes") };
    let offering = match zones.len() {
        0 | 1 => best.key.to_string(),
        _ => {
            let zones: Vec<(String, usize)> = zones.iter().map(|(zone, nodes)| (zone.to_string(), *nodes)).collect();
            format!("{} {} in {}", best.key.size, best.key.capacity_type, counted(&zones, zones.len(), VALUES))
        }
    };
    let each = if *node_count == 1 { "" } else { " each" };
    row(out, "node", &format!("{new} in NodePool {pool}: {offering} at {}/h{each} (VM and OS disk)", best.price))?;
    let first = if *node_count == 1 { "" } else { " on the first node" };
    let pods = plural(own + others, "pod");
    let reason = match size.fitting {
        0 | 1 => format!("no existing node fits; the only size that fits {pods}{first} ({requests})"),
        n => format!("no existing node fits; cheapest of {n} sizes that fit {pods}{first} ({requests})"),
    };
    row(out, "reason", &reason)?;
    if let Some(cheaper) = size::cheaper(size) {
        row(out, "cheaper", &cheaper)?;
    }
    if let Some(next) = &size.next_fitting {
        row(out, "next", &format!("{} (next most expensive)", size::shown(next)))?;
    }
    if *offerings > 1 {
        row(out, "fallbacks", &plural(offerings - 1, "other offering"))?;
    }
    shared(out, nodes)?;
    for (pool, reason) in nodes.skipped_pools.iter().take(NAMES) {
        row(out, "skipped", &format!("NodePool {pool}: {reason}"))?;
    }
    Ok(())
}

/// What sharing the node with other pods costs.
fn shared(out: &mut dyn Write, nodes: &NewNodesSummary) -> io::Result<()> {
    let NewNodesSummary {
        first_offering: best,
        own_pods: own,
        other_pods: others,
        size_without_own: without,
        size_for_one_pod: alone,
        ..
    } = nodes;
    if *others == 0 {
        return Ok(());
    }
    let them = if *own == 1 { "it" } else { "them" };
    let mut text = format!("with {}", plural(*others, "other pod"));
    if let Some(without) = without {
        let adds = best.price - without.price;
        text += &if adds.nanos() > 0 {
            format!("; without {them} the node would be {}, {adds}/h cheaper", size::shown(without))
        } else {
            format!("; without {them} the node would cost the same")
        };
    }
    if let Some(alone) = alone {
        text += &format!("; one pod alone would get {}", size::shown(alone));
    }
    row(out, "shared", &text)
}

fn cause(cause: TopologyCause) -> &'static str {
    match cause {
        TopologyCause::TopologySpread => "spread",
        TopologyCause::PodAffinity => "affinity",
        TopologyCause::PodAntiAffinity => "anti-affinity",
        TopologyCause::Volume => "volume",
    }
}

fn describe(TopologyDecision { key, values, .. }: &TopologyDecision) -> String {
    let values: Vec<(&str, usize)> = values.iter().map(|(value, pods)| (&**value, *pods)).collect();
    match values.len() {
        0 => format!("by {key}"),
        count => format!("by {key}: {}", counted(&values, count, VALUES)),
    }
}

fn unschedulable(out: &mut dyn Write, result: &UnschedulableExplanation) -> io::Result<()> {
    let (pools, more) = rejected_pools(result);
    for of in &pools {
        let reason = of.reason.map(ToString::to_string).unwrap_or_default();
        match of.pool {
            Some(pool) if reason.is_empty() => row(out, "pool", pool.as_str())?,
            Some(pool) => row(out, "pool", &format!("{pool}: {reason}"))?,
            None => row(out, "reason", &reason)?,
        }
        if let Some(filter_steps) = of.filter_steps {
            writeln!(out, "  {:<13} {DIM}{}{DIM:#}", "", one_line(&steps(filter_steps)))?;
        }
    }
    if more > 0 {
        row(out, "pool", &format!("{} cannot run them either", plural(more, "more NodePool")))?;
    }
    match &result.suggestion {
        Some(suggestion) => writeln!(out, "  {HELP}{:<13}{HELP:#} {}", "fix", one_line(&suggestion.to_string())),
        None => Ok(()),
    }
}

/// What each filter step leaves of a pool.
fn steps(filter_steps: &PoolFilterSteps) -> String {
    let step = |FilterStep { criterion, sizes, .. }: &FilterStep| match criterion {
        FilterCriterion::Available => format!("{} {criterion}", plural(*sizes, "size")),
        // The constraints are in the line above.
        FilterCriterion::Topology(_) => format!("{sizes} after topology constraints"),
        _ => format!("{sizes} after {criterion}"),
    };
    filter_steps.steps.iter().map(step).collect::<Vec<_>>().join(" → ")
}
