//! The figures of a run, and how they are printed.

use crate::series::{Sample, Series};
use crate::world::World;
use serde::Serialize;

/// A managed OS disk of 128 GiB (Premium SSD P10), in nano-USD per hour: the list price of westeurope in 2026, 19.71 USD a
/// month of 730 hours.
pub(crate) const OS_DISK: i64 = 27_000_000;
/// The cost has settled once it stays within this part of what it is at the end of a step.
const SETTLED: f64 = 0.10;
/// What a step ends with is the mean of its last seconds.
const LAST_SECONDS: u32 = 10;
const NANOS: f64 = 1e9;
const HOUR: f64 = 3_600.0;

/// What is measured of one side on one world.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// Of all Nodes while they exist, in USD.
    pub(crate) cost: f64,
    /// With an OS disk for each Node.
    pub(crate) cost_with_disks: f64,
    /// Pods beyond those that scaling and rollouts create.
    pub(crate) replaced: f64,
    /// Sum of the times that pods have no node, in pod-seconds.
    pub(crate) waiting: f64,
    /// Nodes that appeared.
    pub(crate) launched: f64,
    /// Most Nodes at once.
    pub(crate) most_nodes: f64,
    /// Each time between two changes of replicas.
    pub(crate) levels: Vec<LevelFigures>,
}

/// What is measured between two changes of replicas.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LevelFigures {
    /// When replicas change, in seconds after the start.
    pub(crate) at: u32,
    /// What the Nodes cost at the end, in USD per hour.
    pub(crate) end_price: f64,
    /// Nodes at the end.
    pub(crate) end_nodes: f64,
    /// Seconds until what the Nodes cost stays within 10 % of that at the end.
    pub(crate) settled_after: f64,
}

/// A column of the table: its heading, and the value of a row.
type Column = (&'static str, fn(&Figures) -> f64);

const COLUMNS: [Column; 6] = [
    ("cost USD", |f| f.cost),
    ("with disks", |f| f.cost_with_disks),
    ("replaced pods", |f| f.replaced),
    ("waiting pod-s", |f| f.waiting),
    ("launched", |f| f.launched),
    ("most nodes", |f| f.most_nodes),
];

impl Figures {
    /// Those of a run.
    pub(crate) fn of(world: &World, series: &Series) -> Self {
        let usd = |nanos: f64| nanos / NANOS / HOUR;
        let disks = |sample: &Sample| OS_DISK as f64 * sample.nodes as f64;
        let cost = series.integral(|sample| sample.price as f64);
        let most = series.samples.iter().map(|sample| sample.nodes).max();
        Self {
            cost: usd(cost),
            cost_with_disks: usd(cost + series.integral(disks)),
            replaced: series.pods_seen.len() as f64 - world.pods_created() as f64,
            waiting: series.integral(|sample| sample.waiting as f64),
            launched: series.nodes_seen.len() as f64,
            most_nodes: most.unwrap_or(0) as f64,
            levels: world.levels().into_iter().filter_map(|(from, to)| LevelFigures::of(series, from, to)).collect(),
        }
    }

    /// The means of runs of the same world; `None` of none.
    pub(crate) fn mean(runs: &[&Self]) -> Option<Self> {
        let first = runs.first()?;
        let mean = |value: &dyn Fn(&Self) -> f64| runs.iter().map(|run| value(run)).sum::<f64>() / runs.len() as f64;
        let levels = first.levels.iter().enumerate().map(|(n, level)| {
            let of = |value: fn(&LevelFigures) -> f64| mean(&|run: &Self| run.levels.get(n).map_or(0.0, value));
            LevelFigures {
                at: level.at,
                end_price: of(|level| level.end_price),
                end_nodes: of(|level| level.end_nodes),
                settled_after: of(|level| level.settled_after),
            }
        });
        Some(Self {
            cost: mean(&|run| run.cost),
            cost_with_disks: mean(&|run| run.cost_with_disks),
            replaced: mean(&|run| run.replaced),
            waiting: mean(&|run| run.waiting),
            launched: mean(&|run| run.launched),
            most_nodes: mean(&|run| run.most_nodes),
            levels: levels.collect(),
        })
    }
}

impl LevelFigures {
    fn of(series: &Series, from: u32, to: u32) -> Option<Self> {
        let samples = series.between(from, to);
        let last = series.between(to.saturating_sub(LAST_SECONDS), to);
        let mean = |value: fn(&Sample) -> f64| last.iter().map(value).sum::<f64>() / last.len().max(1) as f64;
        let end = mean(|sample| sample.price as f64);
        let is_off = |sample: &&Sample| (sample.price as f64 - end).abs() > SETTLED * end;
        let settled = samples.iter().rev().find(is_off).map_or(0.0, |sample| sample.seconds - f64::from(from));
        samples.first()?;
        Some(Self {
            at: from,
            end_price: end / NANOS,
            end_nodes: mean(|sample| sample.nodes as f64),
            settled_after: settled.max(0.0),
        })
    }
}

/// One line for each named row, and below it for each but the first how it relates to the first.
pub(crate) fn table(rows: &[(String, Figures)]) -> String {
    let mut lines = vec![format!("{:<22}", "side")];
    COLUMNS.iter().for_each(|(name, _)| lines[0] += &format!("{name:>15}"));
    for (name, figures) in rows {
        let mut line = format!("{name:<22}");
        COLUMNS.iter().for_each(|(_, value)| line += &format!("{:>15.3}", value(figures)));
        lines.push(line);
    }
    lines.join("\n")
}

/// How the figures of others relate to those of one.
pub(crate) fn comparison(name: &str, figures: &Figures, others: &[(String, Figures)]) -> String {
    let line = |(other, of_other): &(String, Figures)| {
        let ratio = |(column, value): &Column| match value(figures) {
            0.0 => format!("{column} -"),
            base => format!("{column} {:.3}", value(of_other) / base),
        };
        format!("{other} relative to {name}: {}", COLUMNS.iter().map(ratio).collect::<Vec<_>>().join(", "))
    };
    others.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// For each change of replicas what each side settles at, and when.
pub(crate) fn levels(rows: &[(String, Figures)]) -> String {
    let mut lines = Vec::new();
    let count = rows.iter().map(|(_, figures)| figures.levels.len()).max().unwrap_or(0);
    for n in 0..count {
        for (name, figures) in rows {
            if let Some(level) = figures.levels.get(n) {
                lines.push(format!(
                    "after {:>4} s {name:<12} {:>8.3} USD/h, {:>5.1} nodes at the end, settled after {:>5.0} s",
                    level.at, level.end_price, level.end_nodes, level.settled_after
                ));
            }
        }
    }
    lines.join("\n")
}
