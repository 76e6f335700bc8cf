//! Collects the results of all runs, and writes them.

use crate::figures::{Figures, comparison, levels, table};
use crate::series::Series;
use crate::sides::Side;
use crate::waiting::WaitingFigures;
use crate::world::World;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Results so far.
pub(crate) struct Report {
    folder: Option<PathBuf>,
    machine: String,
    runs: Vec<Value>,
    waiting: Vec<Value>,
}

/// A run of a world on a side.
pub(crate) struct Run {
    pub(crate) side: Side,
    pub(crate) repeat: u64,
    pub(crate) series: Series,
    /// What the controller has printed.
    pub(crate) log: Vec<String>,
}

impl Report {
    /// An empty one; with a folder, all is written there as it comes.
    pub(crate) fn new(folder: Option<PathBuf>, machine: String) -> Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
        }
        Ok(Self { folder, machine, runs: Vec::new(), waiting: Vec::new() })
    }

    /// Adds a run of a world, and returns its figures.
    pub(crate) fn add(&mut self, world: &World, run: &Run) -> Result<Figures> {
        let figures = Figures::of(world, &run.series);
        self.runs.push(json!({
            "world": world.name, "side": run.side.name(), "repeat": run.repeat, "figures": figures,
            "series": run.series.samples,
        }));
        if let Some(folder) = &self.folder
            && !run.log.is_empty()
        {
            let file = folder.join(format!("{}-{}-{}.log", world.name, run.side.name(), run.repeat));
            std::fs::write(&file, run.log.join("\n")).with_context(|| format!("writing {}", file.display()))?;
        }
        self.write()?;
        Ok(figures)
    }

    /// Adds a measurement of waiting pods.
    pub(crate) fn add_waiting(&mut self, side: Side, pods: u32, figures: &WaitingFigures) -> Result<()> {
        self.waiting.push(json!({ "side": side.name(), "pods": pods, "figures": figures }));
        self.write()
    }

    fn write(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let file = folder.join("report.json");
        let all = json!({ "machine": self.machine, "runs": self.runs, "waiting": self.waiting });
        std::fs::write(&file, all.to_string()).with_context(|| format!("writing {}", file.display()))
    }
}

/// The tables of all runs of a world: each run, the means of each side, and how they relate to the real Karpenter's.
pub(crate) fn text(world: &World, runs: &[(Side, u64, Figures)]) -> String {
    let rows: Vec<_> =
        runs.iter().map(|(side, n, figures)| (format!("{} {n}", side.name()), figures.clone())).collect();
    let means: Vec<_> = Side::ALL
        .into_iter()
        .filter_map(|side| {
            let own: Vec<_> = runs.iter().filter(|(of, ..)| *of == side).map(|(.., figures)| figures).collect();
            Some((side.name().to_owned(), Figures::mean(&own)?))
        })
        .collect();
    let mut text = format!("world {}\n{}\nmeans\n{}\n{}\n", world.name, table(&rows), table(&means), levels(&means));
    if let Some(((name, first), others)) = means.split_first()
        && name == Side::Karpenter.name()
    {
        text += &comparison(name, first, others);
        text += "\n";
    }
    text
}
