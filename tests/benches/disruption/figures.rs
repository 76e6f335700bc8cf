//! The figures of a run, their means, and how they are printed.

use crate::bounds::Bounds;
use crate::world::BenchWorld;
use napkeeper_sim::world::Summary;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is measured of a policy on one world.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) family: &'static str,
    pub(crate) seed: u64,
    pub(crate) policy: &'static str,
    /// In USD.
    cost: f64,
    /// Of what the load can cost.
    bounds: Bounds,
    evictions: f64,
    evictions_by_reason: BTreeMap<Arc<str>, u64>,
    re_evictions: f64,
    pod_days: f64,
    unavailable_seconds: f64,
    p99_new: f64,
    p99_evicted: f64,
    launches: f64,
    node_days: f64,
    days: f64,
    /// Minutes until the cost has settled after a drop of load, on average; none where load never drops at once.
    settle_minutes: Option<f64>,
    pending_at_end: f64,
    /// How much of the node-hours were those of spot VMs, in per cent.
    spot_percent: f64,
    /// How much of the CPU was requested, in per cent.
    cpu_percent: f64,
    /// How long the run took, in seconds.
    pub(crate) seconds: f64,
}

/// Which run it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunName {
    pub(crate) family: &'static str,
    pub(crate) seed: u64,
    pub(crate) policy: &'static str,
}

/// A column of the table: its heading, and the value of a row.
type Column = (&'static str, fn(&Figures) -> Option<f64>);

const COLUMNS: [Column; 16] = [
    ("  cost USD", |f| Some(f.cost)),
    ("above B1 %", |f| f.percent_above(f.bounds.fluid)),
    ("B2 %", |f| f.percent_above(f.bounds.constrained)),
    ("B3 %", |f| f.percent_above(f.bounds.configurations)),
    ("B5 %", |f| f.percent_above(f.bounds.repacked)),
    ("evict/pod-day", |f| Some(f.evictions_per_pod_day())),
    ("re-evict", |f| Some(f.re_evictions)),
    ("unavail s/pod-day", |f| Some(f.unavailable_seconds / f.pod_days.max(1e-9))),
    ("p99 new s", |f| Some(f.p99_new)),
    ("p99 evicted s", |f| Some(f.p99_evicted)),
    ("launch/node-day", |f| Some(f.launches_per_node_day())),
    (" nodes", |f| Some(f.node_days / f.days)),
    ("spot %", |f| Some(f.spot_percent)),
    ("CPU %", |f| Some(f.cpu_percent)),
    ("settle min", |f| f.settle_minutes),
    ("pending at end", |f| Some(f.pending_at_end)),
];

/// A figure that is compared: its name, its value, and the floor below which values count as equal.
type Compared = (&'static str, fn(&Figures) -> f64, f64);

const COMPARED: [Compared; 6] = [
    ("cost", |f| f.cost, 0.01),
    ("evictions per pod-day", Figures::evictions_per_pod_day, 0.01),
    ("re-evictions", |f| f.re_evictions, 1.0),
    ("p99 of new pods", |f| f.p99_new, 1.0),
    ("p99 of evicted pods", |f| f.p99_evicted, 1.0),
    ("launches per node-day", Figures::launches_per_node_day, 0.01),
];

impl Figures {
    pub(crate) fn new(name: RunName, world: &BenchWorld, summary: &Summary, bounds: Bounds) -> Self {
        let pods = &summary.disruption.all;
        let start = world.setup.at;
        let settling = |(drop, end): &(_, _)| summary.prices.settling_time(start + *drop, start + *end).as_secs_f64();
        let drops = world.drops.iter().filter(|(_, end)| *end <= world.duration);
        let settled: Vec<f64> = drops.map(settling).collect();
        Self {
            family: name.family,
            seed: name.seed,
            policy: name.policy,
            cost: summary.cost.nanos() as f64 / 1e9,
            bounds,
            evictions: pods.voluntary_evictions as f64,
            evictions_by_reason: pods.evictions_by_reason.clone(),
            re_evictions: pods.re_evictions as f64,
            pod_days: pods.running_pod_seconds as f64 / 86_400.0,
            unavailable_seconds: pods.unavailable_pod_seconds as f64,
            p99_new: pods.pending_new.p99_seconds as f64,
            p99_evicted: pods.pending_evicted.p99_seconds as f64,
            launches: f64::from(summary.nodes_launched),
            node_days: summary.node_hours as f64 / 24.0,
            days: world.duration.as_secs_f64() / 86_400.0,
            settle_minutes: (!settled.is_empty()).then(|| settled.iter().sum::<f64>() / settled.len() as f64 / 60.0),
            pending_at_end: summary.pods_pending as f64,
            spot_percent: summary.spot_percent as f64,
            cpu_percent: summary.cpu_utilisation_percent as f64,
            seconds: 0.0,
        }
    }

    /// Its cost in parts of the sharpest lower bound; a run that pays less shows that the bound is wrong.
    pub(crate) fn cost_of_bound(&self) -> f64 {
        let bound = self.bounds.configurations;
        if bound > 0.0 { self.cost / bound } else { f64::INFINITY }
    }

    fn percent_above(&self, bound: f64) -> Option<f64> {
        (bound > 0.0).then(|| (self.cost / bound - 1.0) * 100.0)
    }

    fn evictions_per_pod_day(&self) -> f64 {
        self.evictions / self.pod_days.max(1e-9)
    }

    fn launches_per_node_day(&self) -> f64 {
        self.launches / self.node_days.max(1e-9)
    }

    fn json(&self) -> Value {
        json!({
            "family": self.family, "seed": self.seed, "policy": self.policy, "costUsd": self.cost,
            "boundsUsd": self.bounds.json(), "voluntaryEvictions": self.evictions, "reEvictions": self.re_evictions,
            "evictionsByReason": self.evictions_by_reason, "podDays": self.pod_days, "unavailablePodSeconds": self.unavailable_seconds,
            "pendingNewP99Seconds": self.p99_new, "pendingEvictedP99Seconds": self.p99_evicted,
            "launches": self.launches, "nodeDays": self.node_days, "settleMinutes": self.settle_minutes,
            "spotPercent": self.spot_percent, "cpuUtilisationPercent": self.cpu_percent,
            "podsPendingAtEnd": self.pending_at_end, "seconds": self.seconds,
        })
    }
}

/// The bounds of a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldBounds {
    pub(crate) family: &'static str,
    pub(crate) seed: u64,
    pub(crate) bounds: Bounds,
}

/// All bounds and runs as JSON.
pub(crate) fn json(worlds: &[WorldBounds], runs: &[Figures]) -> Value {
    let world = |of: &WorldBounds| json!({"family": of.family, "seed": of.seed, "boundsUsd": of.bounds.json()});
    json!({
        "worlds": worlds.iter().map(world).collect::<Vec<_>>(),
        "runs": runs.iter().map(Figures::json).collect::<Vec<_>>(),
    })
}

/// One line for each family: its bounds in USD, and the part of each policy's cost that B3 is; means over the seeds.
pub(crate) fn bounds_table(worlds: &[WorldBounds], runs: &[Figures], policies: &[&'static str]) -> String {
    let mut heading = format!("{:<13} {:>5}", "family", "seeds");
    ["B1 USD", "B2 USD", "B3 USD", "whole", "B5 USD", "bounds s"]
        .iter()
        .for_each(|name| heading += &format!("  {name:>8}"));
    policies.iter().for_each(|policy| heading += &format!("  B3/{policy}"));
    let mut families: Vec<&str> = worlds.iter().map(|world| world.family).collect();
    families.dedup();
    let mut lines = vec![heading];
    for family in families {
        let of: Vec<Bounds> = worlds.iter().filter(|w| w.family == family).map(|w| w.bounds).collect();
        let mut line = format!("{family:<13} {:>5}", of.len());
        let values: [fn(&Bounds) -> f64; 6] =
            [|b| b.fluid, |b| b.constrained, |b| b.configurations, |b| b.whole, |b| b.repacked, |b| b.seconds];
        for value in values {
            line += &format!("  {:>8.2}", of.iter().map(value).sum::<f64>() / of.len() as f64);
        }
        for policy in policies {
            let runs = runs.iter().filter(|run| run.family == family && run.policy == *policy);
            let parts: Vec<f64> = runs.map(|run| 1.0 / run.cost_of_bound()).collect();
            let width = policy.len() + 5;
            line += &format!("{:>width$.3}", parts.iter().sum::<f64>() / parts.len() as f64);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// One line for each family and policy: means over the seeds.
pub(crate) fn table(runs: &[Figures], policies: &[&'static str]) -> String {
    let mut lines = vec![heading()];
    let mut families: Vec<&str> = runs.iter().map(|run| run.family).collect();
    families.dedup();
    for family in families {
        for policy in policies {
            let of: Vec<&Figures> = runs.iter().filter(|run| run.family == family && run.policy == *policy).collect();
            if !of.is_empty() {
                lines.push(row(family, policy, &of));
            }
        }
    }
    lines.join("\n")
}

fn heading() -> String {
    let mut line = format!("{:<13} {:<11} {:>5}", "family", "policy", "seeds");
    COLUMNS.iter().for_each(|(name, _)| line += &format!("  {name}"));
    line
}

fn row(family: &str, policy: &str, runs: &[&Figures]) -> String {
    let mut line = format!("{family:<13} {policy:<11} {:>5}", runs.len());
    for (name, value) in &COLUMNS {
        let width = name.len() + 2;
        let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
        if values.is_empty() {
            line += &format!("{:>width$}", "-");
        } else {
            line += &format!("{:>width$.2}", values.iter().sum::<f64>() / values.len() as f64);
        }
    }
    line
}

/// For each policy but the first: the geometric means, over all worlds that both ran, of its figures relative to those of
/// the first.
pub(crate) fn comparison(runs: &[Figures], policies: &[&'static str]) -> String {
    let Some((first, others)) = policies.split_first() else { return String::new() };
    let find = |policy: &str, like: &Figures| {
        runs.iter().find(|run| run.policy == policy && run.family == like.family && run.seed == like.seed)
    };
    let mut lines = Vec::new();
    for policy in others {
        let of = runs.iter().filter(|run| run.policy == *policy);
        let pairs: Vec<_> = of.filter_map(|run| Some((run, find(first, run)?))).collect();
        let mean = |value: fn(&Figures) -> f64, floor: f64| {
            let logs = pairs.iter().map(|(run, base)| (value(run).max(floor) / value(base).max(floor)).ln());
            (logs.sum::<f64>() / pairs.len().max(1) as f64).exp()
        };
        let each = COMPARED.iter().map(|(name, value, floor)| format!("{name} {:.3}", mean(*value, *floor)));
        lines.push(format!(
            "{policy} relative to {first}, geometric means over {} worlds: {}",
            pairs.len(),
            each.collect::<Vec<_>>().join(", ")
        ));
    }
    lines.join("\n")
}
