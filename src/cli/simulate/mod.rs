//! `napkeeper simulate`: simulates manifests and a scenario, and their cost.

pub(super) mod input;
mod reasons;
mod summary;
mod timeline;

use super::Outcome;
use super::output::style::{BOLD, DIM};
use super::output::{self, OutputFormat, TextAndJson};
use crate::repository::ReadingArgs;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use input::{Input, InputArgs};
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::config;
use napkeeper_api::types::duration::parse_with_days;
use napkeeper_controller::config_file::{RepositoryFacts, find_facts};
use napkeeper_core::catalog::Catalog;
use napkeeper_sim::autoscaler::{self, Baseline};
use napkeeper_sim::scenario::{LONGEST, Scenario};
use napkeeper_sim::world::{Violation, World};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  napkeeper simulate                                     the built-in quickstart
  napkeeper simulate clusters/prod                       your manifests: one hour, nodes are launched for pods
  napkeeper simulate clusters/prod --scenario friday.yaml --region northeurope
  napkeeper simulate clusters/prod -v                    also explain VM sizes and pending pods
  napkeeper simulate --seed 7 -o json | jq .summary

Azure and the cluster are simulated on a virtual clock; nothing is sent anywhere. The same seed gives the same run.
Exit codes: 0 fine, 1 an invariant was violated (a bug in napkeeper), 2 error (bad input or I/O).";

/// Run manifests and a scenario on a simulated cluster and a simulated Azure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Folder of manifests, with or without a scenario [default: the built-in quickstart].
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Scenario file, overrides the one in the folder.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Azure region, overrides the scenario's.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Random seed, overrides the scenario's.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,
    /// How long to simulate, such as 90m, 36h or 9d; overrides the scenario's duration.
    #[arg(long = "for", value_name = "DURATION", value_parser = lasting)]
    lasting: Option<SignedDuration>,
    /// CSV of prices that override list prices [default: the price sheet of the napkeeper.yaml in or above PATH]; see
    /// docs/facts.md.
    #[arg(long, value_name = "FILE")]
    price_sheet: Option<PathBuf>,
    /// Cluster in that napkeeper.yaml whose region, network mode, price sheet and costs of nodes are used [default: the only
    /// one, or the only one with PATH in its paths]; required if it has several price sheets.
    #[arg(long, value_name = "NAME", requires = "path", conflicts_with = "price_sheet")]
    cluster: Option<String>,
    /// Also explain why VM sizes were chosen, and why pods are pending at the end.
    #[arg(short, long)]
    verbose: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

fn lasting(text: &str) -> Result<SignedDuration, String> {
    let time = parse_with_days(text).map_err(|e| e.to_string())?;
    let fits = time.is_positive() && time <= LONGEST;
    fits.then_some(time).ok_or_else(|| "must be greater than 0 and at most 366d".to_owned())
}

/// A random seed.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let sheet = napkeeper_controller::price_sheet::find(
        args.price_sheet.as_deref(),
        args.path.as_deref(),
        args.cluster.as_deref(),
    )?;
    let own_prices = !sheet.is_empty();
    let catalog = Catalog::embedded()?.priced_by(sheet);
    let region = args.region.as_deref().map(|text| catalog.find_region(text)).transpose()?;
    let change = |scenario: &mut Scenario| {
        scenario.region = region.clone().unwrap_or_else(|| scenario.region.clone());
        scenario.seed = args.seed.unwrap_or(scenario.seed);
        scenario.duration = args.lasting.unwrap_or(scenario.duration);
    };
    let facts = find_facts(args.path.as_deref(), args.cluster.as_deref())?;
    let input_args = InputArgs {
        path: args.path.as_deref(),
        scenario: args.scenario.as_deref(),
        reading: &args.reading,
        facts: &facts,
        catalog: &catalog,
    };
    let Some(input) = input::read(input_args, change, &mut anstream::stderr())? else { return Ok(Outcome::Incomplete) };
    let report = Report { own_prices, ..simulate(&input, &catalog, facts, args.verbose)? };
    output::print(args.output, &report)?;
    let Some(violation) = &report.violation else { return Ok(Outcome::Fine) };
    output::error(&format!(
        "{violation}\nThis is a bug in napkeeper, not in your manifests. To reproduce it: {}",
        args.replay(&input.scenario)
    ));
    Ok(Outcome::Findings)
}

impl Args {
    /// The command that runs the same simulation again.
    fn replay(&self, scenario: &Scenario) -> String {
        let mut command = "napkeeper simulate".to_owned();
        if let Some(path) = &self.path {
            command += &format!(" {}", path.display());
        }
        if let Some(file) = &self.scenario {
            command += &format!(" --scenario {}", file.display());
        }
        if let Some(file) = &self.price_sheet {
            command += &format!(" --price-sheet {}", file.display());
        }
        if let Some(cluster) = &self.cluster {
            command += &format!(" --cluster {cluster}");
        }
        let time = napkeeper_api::types::duration::format(scenario.duration);
        command + &format!(" --region {} --seed {} --for {time}", scenario.region, scenario.seed)
    }
}

/// The report of a simulation.
struct Report<'i> {
    input: &'i Input,
    catalogue: String,
    /// Some of its prices are the customer's own.
    own_prices: bool,
    /// The cluster of napkeeper.yaml.
    facts: RepositoryFacts,
    /// With explanations.
    verbose: bool,
    world: World,
    violation: Option<Violation>,
    /// The same load with cluster-autoscaler.
    baseline: Baseline,
    took: Duration,
}

fn simulate<'i>(
    input: &'i Input,
    catalog: &Catalog,
    facts: RepositoryFacts,
    verbose: bool,
) -> anyhow::Result<Report<'i>> {
    let began = Instant::now();
    let setup = input.scenario.setup(input.manifests.clone());
    let baseline = autoscaler::run(catalog, &setup, input.scenario.duration)?;
    let mut world = World::new(catalog, setup)?;
    world.set_node_options(facts.options);
    if verbose {
        world.record_launch_reasons();
    }
    let end = world.now().checked_add(input.scenario.duration).context("the end of the scenario is out of range")?;
    let bar = progress(world.now(), end);
    let begun = world.now();
    let violation = world.run_reporting(end, |now| bar.set_position(minutes(begun, now))).err();
    bar.finish_and_clear();
    let catalogue = catalog.as_of().to_string();
    Ok(Report {
        input,
        catalogue,
        own_prices: false,
        facts,
        verbose,
        world,
        violation,
        baseline,
        took: began.elapsed(),
    })
}

fn minutes(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_mins()).unwrap_or(0)
}

/// A bar on a terminal, nothing elsewhere.
fn progress(from: Timestamp, to: Timestamp) -> ProgressBar {
    let bar = ProgressBar::new(minutes(from, to));
    let style = ProgressStyle::with_template("simulating {bar:40} {percent:>3} %  {elapsed}");
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}

impl TextAndJson for Report<'_> {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.write_header(out)?;
        timeline::write(out, self.world.timeline(), self.world.started_at())?;
        writeln!(out)?;
        let took = self.took.as_millis();
        summary::write(out, &self.world, &self.baseline)?;
        if self.verbose {
            reasons::write(out, &self.world)?;
            writeln!(out)?;
        }
        let time = self.world.now().duration_since(self.world.started_at());
        Ok(writeln!(out, "{BOLD}time{BOLD:#}         {} simulated in {took} ms", timeline::offset(time))?)
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let scenario = &self.input.scenario;
        let mut value = json!({
            "scenario": scenario.name,
            "cluster": self.facts.cluster,
            "region": scenario.region,
            "seed": scenario.seed,
            "catalogue": self.catalogue,
            "ownPrices": self.own_prices,
            "start": scenario.start,
            "end": self.world.now(),
            "ignored": self.input.manifests.skipped,
            "timeline": self.world.timeline(),
            "summary": self.world.summary(),
            "baseline": {"policy": autoscaler::POLICY, "result": self.baseline},
            "orphans": self.world.orphans(),
            "violation": self.violation.as_ref().map(ToString::to_string),
            "tookMs": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        });
        if self.verbose {
            value["reasons"] = reasons::json(&self.world);
        }
        Ok(value)
    }
}

impl Report<'_> {
    fn write_header(&self, out: &mut dyn Write) -> io::Result<()> {
        let Input { scenario, manifests, from, .. } = self.input;
        writeln!(out, "{BOLD}{}{BOLD:#} ({from})", scenario.name)?;
        if let Some(description) = &scenario.description {
            for line in description.trim_end().lines() {
                writeln!(out, "  {DIM}{line}{DIM:#}")?;
            }
        }
        let own = if self.own_prices { ", with your price sheet" } else { "" };
        writeln!(out, "region       {}, prices as of {}{own}", scenario.region, self.catalogue)?;
        if let Some(cluster) = &self.facts.cluster {
            let version = self.facts.kubernetes_version.as_ref().map(|version| format!(", Kubernetes {version}"));
            writeln!(out, "cluster      {cluster} of {}{}", config::FILE_NAME, version.unwrap_or_default())?;
        }
        let end = scenario.start.checked_add(scenario.duration).unwrap_or(scenario.start);
        writeln!(out, "time         {} to {end}, seed {}", scenario.start, scenario.seed)?;
        if !manifests.skipped.is_empty() {
            let kinds: Vec<String> = manifests.skipped.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            writeln!(out, "ignored      {}", kinds.join(", "))?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests;
