//! Text: how does an account read on a terminal?

use super::{counted, pools, size, subject};
use crate::output::{one_line, plural};
use anstyle::{AnsiColor, Style};
use napkeeper_core::scheduling::{
    ExplainedResult, Explanation, Explanations, FilterCriterion, FilterStep, NewNodesSummary, PlacementExplanation,
    PlacementSummary, PoolFilterSteps, TopologyCause, TopologyDecision, UnschedulableExplanation,
};
use std::io::{self, Write};

/// Most names in a line.
const NAMES: usize = 4;
/// Most values of a label in a line.
const VALUES: usize = 8;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default();

/// Writes at most so many accounts, and how many pods are left out.
pub(crate) fn write(out: &mut impl Write, told: &Explanations, most: usize) -> io::Result<()> {
    for (i, account) in told.explanations.iter().take(most).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(out, account)?;
    }
    let unsaid = told.explanations.iter().skip(most);
    let groups = told.omitted_groups + unsaid.clone().count();
    if groups > 0 {
        let pods = told.omitted_pods + unsaid.map(|account| account.pods.len()).sum::<usize>();
        let (groups, pods) = (plural(groups, "more group"), plural(pods, "pod"));
        writeln!(out, "\n{DIM}and {groups} of identical pods ({pods}): name one of them to explain it{DIM:#}")?;
    }
    Ok(())
}

fn one(out: &mut impl Write, account: &Explanation) -> io::Result<()> {
    let Explanation { pods, requests, result: fate } = account;
    let many = pods.len() > 1;
    let (style, verb) = match (fate, many) {
        (ExplainedResult::Placed(_), false) => (GOOD, "can be scheduled"),
        (ExplainedResult::Placed(_), true) => (GOOD, "can be scheduled"),
        (ExplainedResult::Unschedulable(_), false) => (BAD, "cannot be scheduled"),
        (ExplainedResult::Unschedulable(_), true) => (BAD, "cannot be scheduled"),
    };
    writeln!(out, "{BOLD}{}{BOLD:#} {style}{verb}{style:#}", subject(pods))?;
    row(out, "requests", &format!("{requests}{}", if many { " each" } else { "" }))?;
    match fate {
        ExplainedResult::Placed(because) => placed(out, because, pods.len()),
        ExplainedResult::Unschedulable(stuck) => nowhere(out, stuck),
    }
}

/// One line: what, and what about it.
pub(crate) fn row(out: &mut impl Write, what: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {DIM}{what:<13}{DIM:#} {}", one_line(text))
}

fn placed(out: &mut impl Write, because: &PlacementExplanation, pods: usize) -> io::Result<()> {
    match &because.placement {
        PlacementSummary::Existing { nodes, count } => {
            let names = counted(nodes, *count, NAMES);
            let text = match count {
                1 => format!("existing node {names}"),
                n => format!("{n} existing nodes: {names}"),
            };
            row(out, "node", &text)?;
        }
        PlacementSummary::InFlight { claims, count, planned_pods: promised } => {
            let names = counted(claims, *count, NAMES);
            let made = match *promised {
                0 => "has room",
                made if made == pods => "nominated",
                _ => "nominated for some of them",
            };
            let text = match count {
                1 => format!("NodeClaim {names} (launching), {made}"),
                n => format!("{n} launching NodeClaims: {names}"),
            };
            row(out, "node", &text)?;
        }
        PlacementSummary::New(purchase) => bought(out, purchase)?,
    }
    for bond in &because.topology_decisions {
        row(out, tie(bond.cause), &bond_in_words(bond))?;
    }
    for wish in because.relaxed.iter().take(NAMES) {
        row(out, "not met", &format!("{wish}: not satisfiable"))?;
    }
    match because.relaxed.len().saturating_sub(NAMES) {
        0 => {}
        more => row(out, "not met", &plural(more, "more preference"))?,
    }
    if because.satisfied_preferences > 0 {
        row(out, "met", &plural(because.satisfied_preferences, "preference"))?;
    }
    Ok(())
}

fn bought(out: &mut impl Write, purchase: &NewNodesSummary) -> io::Result<()> {
    let NewNodesSummary {
        node_count: nodes,
        pool,
        first_offering: best,
        own_pods: own,
        other_pods: others,
        requests,
        size,
        offering_count: offerings,
        ..
    } = purchase;
    let such = if *nodes == 1 { "new node".to_owned() } else { format!("{nodes} new nodes") };
    row(out, "node", &format!("{such} in NodePool {pool}: {} at {}/h", best.key, best.price))?;
    let first = if *nodes == 1 { "" } else { " on the first node" };
    let pods = plural(own + others, "pod");
    let why = match size.fitting {
        0 | 1 => format!("no existing node fits; the only size that fits {pods}{first} ({requests})"),
        n => format!("no existing node fits; cheapest of {n} sizes that fit {pods}{first} ({requests})"),
    };
    row(out, "reason", &why)?;
    if let Some(cheaper) = size::cheaper(size) {
        row(out, "cheaper", &cheaper)?;
    }
    if let Some(next) = &size.next_fitting {
        row(out, "next", &format!("{} (next most expensive)", size::shown(next)))?;
    }
    if *offerings > 1 {
        row(out, "fallbacks", &plural(offerings - 1, "other offering"))?;
    }
    shared(out, purchase)?;
    for (pool, why) in purchase.skipped_pools.iter().take(NAMES) {
        row(out, "skipped", &format!("NodePool {pool}: {why}"))?;
    }
    Ok(())
}

/// What the company of others comes to.
fn shared(out: &mut impl Write, purchase: &NewNodesSummary) -> io::Result<()> {
    let NewNodesSummary {
        first_offering: best,
        own_pods: own,
        other_pods: others,
        size_without_own: without,
        size_for_one_pod: alone,
        ..
    } = purchase;
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

fn tie(tie: TopologyCause) -> &'static str {
    match tie {
        TopologyCause::TopologySpread => "spread",
        TopologyCause::PodAffinity => "affinity",
        TopologyCause::PodAntiAffinity => "anti-affinity",
        TopologyCause::Volume => "volume",
    }
}

fn bond_in_words(TopologyDecision { key, values, .. }: &TopologyDecision) -> String {
    let values: Vec<(&str, usize)> = values.iter().map(|(value, pods)| (&**value, *pods)).collect();
    match values.len() {
        0 => format!("by {key}"),
        count => format!("by {key}: {}", counted(&values, count, VALUES)),
    }
}

fn nowhere(out: &mut impl Write, stuck: &UnschedulableExplanation) -> io::Result<()> {
    let (pools, more) = pools(stuck);
    for of in &pools {
        let why = of.why.map(ToString::to_string).unwrap_or_default();
        match of.pool {
            Some(pool) if why.is_empty() => row(out, "pool", pool.as_str())?,
            Some(pool) => row(out, "pool", &format!("{pool}: {why}"))?,
            None => row(out, "reason", &why)?,
        }
        if let Some(waterfall) = of.waterfall {
            writeln!(out, "  {:<13} {DIM}{}{DIM:#}", "", one_line(&steps(waterfall)))?;
        }
    }
    if more > 0 {
        row(out, "pool", &format!("{} cannot run them either", plural(more, "more NodePool")))?;
    }
    match &stuck.suggestion {
        Some(remedy) => writeln!(out, "  {HELP}{:<13}{HELP:#} {}", "fix", one_line(&remedy.to_string())),
        None => Ok(()),
    }
}

/// What is left of a pool, step by step.
fn steps(waterfall: &PoolFilterSteps) -> String {
    let step = |FilterStep { criterion: what, sizes, .. }: &FilterStep| match what {
        FilterCriterion::Available => format!("{} {what}", plural(*sizes, "size")),
        // Which ones stands above.
        FilterCriterion::Topology(_) => format!("{sizes} after topology constraints"),
        _ => format!("{sizes} after {what}"),
    };
    waterfall.steps.iter().map(step).collect::<Vec<_>>().join(" → ")
}
