//! Text: how does an account read on a terminal?

use super::{counted, pools, size, subject};
use crate::cli::output::{one_line, plural};
use anstyle::{AnsiColor, Style};
use napkeeper_core::scheduling::{
    Account, Accounts, Because, Bond, Fate, Place, PoolStep, PoolWaterfall, Purchase, StepWhat, Stuck, Tie,
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
pub(in crate::cli) fn write(out: &mut impl Write, told: &Accounts, most: usize) -> io::Result<()> {
    for (i, account) in told.accounts.iter().take(most).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(out, account)?;
    }
    let unsaid = told.accounts.iter().skip(most);
    let groups = told.more_groups + unsaid.clone().count();
    if groups > 0 {
        let pods = told.more_pods + unsaid.map(|account| account.pods.len()).sum::<usize>();
        let (groups, pods) = (plural(groups, "more group"), plural(pods, "pod"));
        writeln!(out, "\n{DIM}and {groups} of identical pods ({pods}): name one of them to explain it{DIM:#}")?;
    }
    Ok(())
}

fn one(out: &mut impl Write, account: &Account) -> io::Result<()> {
    let Account { pods, requests, fate } = account;
    let many = pods.len() > 1;
    let (style, verb) = match (fate, many) {
        (Fate::Placed(_), false) => (GOOD, "can be scheduled"),
        (Fate::Placed(_), true) => (GOOD, "can be scheduled"),
        (Fate::Nowhere(_), false) => (BAD, "cannot be scheduled"),
        (Fate::Nowhere(_), true) => (BAD, "cannot be scheduled"),
    };
    writeln!(out, "{BOLD}{}{BOLD:#} {style}{verb}{style:#}", subject(pods))?;
    row(out, "requests", &format!("{requests}{}", if many { " each" } else { "" }))?;
    match fate {
        Fate::Placed(because) => placed(out, because, pods.len()),
        Fate::Nowhere(stuck) => nowhere(out, stuck),
    }
}

/// One line: what, and what about it.
pub(in crate::cli) fn row(out: &mut impl Write, what: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {DIM}{what:<13}{DIM:#} {}", one_line(text))
}

fn placed(out: &mut impl Write, because: &Because, pods: usize) -> io::Result<()> {
    match &because.place {
        Place::Nodes { nodes, count } => {
            let names = counted(nodes, *count, NAMES);
            let text = match count {
                1 => format!("existing node {names}"),
                n => format!("{n} existing nodes: {names}"),
            };
            row(out, "node", &text)?;
        }
        Place::Claims { claims, count, promised } => {
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
        Place::New(purchase) => bought(out, purchase)?,
    }
    for bond in &because.bonds {
        row(out, tie(bond.tie), &bond_in_words(bond))?;
    }
    for wish in because.given_up.iter().take(NAMES) {
        row(out, "not met", &format!("{wish}: not satisfiable"))?;
    }
    match because.given_up.len().saturating_sub(NAMES) {
        0 => {}
        more => row(out, "not met", &plural(more, "more preference"))?,
    }
    if because.granted > 0 {
        row(out, "met", &plural(because.granted, "preference"))?;
    }
    Ok(())
}

fn bought(out: &mut impl Write, purchase: &Purchase) -> io::Result<()> {
    let Purchase { nodes, pool, best, own, others, requests, size, offerings, .. } = purchase;
    let such = if *nodes == 1 { "new node".to_owned() } else { format!("{nodes} new nodes") };
    row(out, "node", &format!("{such} in NodePool {pool}: {} at {}/h", best.key, best.price))?;
    let first = if *nodes == 1 { "" } else { " on the first node" };
    let pods = plural(own + others, "pod");
    let why = match size.suiting {
        0 | 1 => format!("no existing node fits; the only size that fits {pods}{first} ({requests})"),
        n => format!("no existing node fits; cheapest of {n} sizes that fit {pods}{first} ({requests})"),
    };
    row(out, "reason", &why)?;
    if let Some(cheaper) = size::cheaper(size) {
        row(out, "cheaper", &cheaper)?;
    }
    if let Some(next) = &size.next {
        row(out, "next", &format!("{} (next most expensive)", size::shown(next)))?;
    }
    if *offerings > 1 {
        row(out, "fallbacks", &plural(offerings - 1, "other offering"))?;
    }
    shared(out, purchase)?;
    for (pool, why) in purchase.passed_over.iter().take(NAMES) {
        row(out, "skipped", &format!("NodePool {pool}: {why}"))?;
    }
    Ok(())
}

/// What the company of others comes to.
fn shared(out: &mut impl Write, purchase: &Purchase) -> io::Result<()> {
    let Purchase { best, own, others, without, alone, .. } = purchase;
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

fn tie(tie: Tie) -> &'static str {
    match tie {
        Tie::Spread => "spread",
        Tie::Near => "affinity",
        Tie::Apart => "anti-affinity",
        Tie::Volume => "volume",
    }
}

fn bond_in_words(Bond { key, values, .. }: &Bond) -> String {
    let values: Vec<(&str, usize)> = values.iter().map(|(value, pods)| (&**value, *pods)).collect();
    match values.len() {
        0 => format!("by {key}"),
        count => format!("by {key}: {}", counted(&values, count, VALUES)),
    }
}

fn nowhere(out: &mut impl Write, stuck: &Stuck) -> io::Result<()> {
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
    match &stuck.remedy {
        Some(remedy) => writeln!(out, "  {HELP}{:<13}{HELP:#} {}", "fix", one_line(&remedy.to_string())),
        None => Ok(()),
    }
}

/// What is left of a pool, step by step.
fn steps(waterfall: &PoolWaterfall) -> String {
    let step = |PoolStep { what, sizes, .. }: &PoolStep| match what {
        StepWhat::Offered => format!("{} {what}", plural(*sizes, "size")),
        // Which ones stands above.
        StepWhat::Topology(_) => format!("{sizes} after topology constraints"),
        _ => format!("{sizes} after {what}"),
    };
    waterfall.steps.iter().map(step).collect::<Vec<_>>().join(" → ")
}
