//! Measures what policies cost and disturb: ten families of worlds of about 50 nodes and three days, each under each
//! policy on the same simulated cluster.
//!
//! `cargo bench -p napkeeper-tests --bench disruption` runs the seeds 1 and 2 of each family. `-- --seeds train` runs the seeds 1
//! to 15, by which policies may be tuned, `--seeds kept` the seeds 16 to 20, which are kept for final figures, and
//! `--seeds 1,4` these. `--family NAME` and `--policy NAME`, which may be repeated, and `--days N` run less. `--json FILE`
//! writes the figures of every run. Worlds run in parallel, one on each core. `--waiting 2000,5000` measures only what is
//! launched for so many pods that wait at the start (`waiting`).
//!
//! With the policy `karpenter-provisioning`, Karpenter's policy chooses the nodes for pods that wait and napkeeper does the rest.
//!
//! Figures are those of `napkeeper_sim::measures`. How far costs are above what the load costs at least, and above what whole
//! nodes cost if pods move for nothing, is beside them (`bounds`). `--bounds-only true` runs no policy.

#![expect(dead_code, unused_imports, reason = "the tests of its modules run in the target `bounds`, not here")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]

mod bounds;
mod families;
mod figures;
mod policy;
mod waiting;
mod world;

use anyhow::{Context, Result, bail, ensure};
use bounds::Bounds;
use families::Family;
use figures::{Figures, RunName, WorldBounds};
use napkeeper_core::catalog::Catalog;
use policy::Policy;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;
use world::BenchWorld;

/// Seeds by which policies may be tuned, and those that are kept for final figures.
const TRAIN: std::ops::RangeInclusive<u64> = 1..=15;
const KEPT: std::ops::RangeInclusive<u64> = 16..=20;

/// What is asked for.
struct Args {
    seeds: Vec<u64>,
    families: Vec<Family>,
    policies: Vec<Policy>,
    days: i64,
    json: Option<PathBuf>,
    /// No policy is run.
    bounds_only: bool,
    /// Numbers of pods that wait at the start; then nothing else is measured.
    waiting: Vec<usize>,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` for benchmarks; when it only tests all targets nothing is measured.
    let (cargos, words): (Vec<String>, Vec<String>) = words.into_iter().partition(|word| word == "--bench");
    if cargos.is_empty() && words.is_empty() {
        return Ok(());
    }
    let args = Args::read(&words)?;
    if !args.waiting.is_empty() {
        return waiting::measure(&Catalog::embedded()?, &args.waiting, &args.seeds);
    }
    let begun = Instant::now();
    let (bounds, runs, failures) = run_all(&args)?;
    let names: Vec<_> = args.policies.iter().map(|policy| policy.name).collect();
    println!("{} days; means over the seeds {:?}", args.days, args.seeds);
    println!("{}\n", figures::bounds_table(&bounds, &runs, &names));
    if !runs.is_empty() {
        println!("{}\n\n{}", figures::table(&runs, &names), figures::comparison(&runs, &names));
    }
    println!("{} runs in {:.0} s", runs.len(), begun.elapsed().as_secs_f64());
    if let Some(file) = &args.json {
        std::fs::write(file, figures::json(&bounds, &runs).to_string())
            .with_context(|| format!("writing {}", file.display()))?;
    }
    ensure!(failures.is_empty(), "{} runs failed:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

impl Args {
    fn read(words: &[String]) -> Result<Self> {
        let mut args = Self {
            seeds: vec![1, 2],
            families: Vec::new(),
            policies: Vec::new(),
            days: 3,
            json: None,
            bounds_only: false,
            waiting: Vec::new(),
        };
        for pair in words.chunks(2) {
            let [flag, value] = pair else { bail!("{:?} has no value", pair.concat()) };
            match flag.as_str() {
                "--seeds" => args.seeds = seeds(value)?,
                "--family" => args.families.push(*named(&families::ALL, value, |family| family.name)?),
                "--policy" => args.policies.push(*named(policy::ALL, value, |policy| policy.name)?),
                "--days" => args.days = value.parse().with_context(|| format!("{value:?} is no number of days"))?,
                "--json" => args.json = Some(PathBuf::from(value)),
                "--waiting" => args.waiting = numbers(value)?,
                "--bounds-only" => {
                    args.bounds_only = value.parse().with_context(|| format!("{value:?}: say true or false"))?
                }
                _ => bail!("{flag:?}: say --seeds, --family, --policy, --days, --json, --bounds-only or --waiting"),
            }
        }
        if args.families.is_empty() {
            args.families.extend(families::ALL);
        }
        if args.bounds_only {
            args.policies.clear();
        } else if args.policies.is_empty() {
            args.policies.extend(policy::ALL);
        }
        Ok(args)
    }
}

fn seeds(text: &str) -> Result<Vec<u64>> {
    match text {
        "train" => Ok(TRAIN.collect()),
        "kept" => Ok(KEPT.collect()),
        list => numbers(list),
    }
}

fn numbers<T: std::str::FromStr>(list: &str) -> Result<Vec<T>> {
    let number = |word: &str| word.parse().ok().with_context(|| format!("{word:?} is no number"));
    list.split(',').map(number).collect()
}

fn named<'a, T>(all: &'a [T], name: &str, name_of: impl Fn(&T) -> &'static str) -> Result<&'a T> {
    let names: Vec<_> = all.iter().map(&name_of).collect();
    all.iter().find(|one| name_of(one) == name).with_context(|| format!("{name:?} is none of {names:?}"))
}

/// A family and a seed.
type WorldName = (Family, u64);

/// The bounds of every world, and the figures of every policy there, in the order of the table; and what went wrong.
fn run_all(args: &Args) -> Result<(Vec<WorldBounds>, Vec<Figures>, Vec<String>)> {
    let catalog = Catalog::embedded()?;
    let of_family = |family: &Family| args.seeds.iter().map(|seed| (*family, *seed)).collect::<Vec<_>>();
    let worlds: Vec<WorldName> = args.families.iter().flat_map(of_family).collect();
    let mut failures = Vec::new();
    let (mut bounds, mut jobs) = (Vec::new(), Vec::new());
    let bound = |(family, seed): &WorldName| Bounds::of(&catalog, &family.world(*seed, args.days)?);
    for ((family, seed), result) in worlds.iter().zip(in_parallel(&worlds, bound)) {
        match result {
            Ok(found) => {
                bounds.push(WorldBounds { family: family.name, seed: *seed, bounds: found });
                jobs.extend(args.policies.iter().map(|policy| (*family, *seed, *policy, found)));
            }
            Err(error) => failures.push(format!("{} {seed}: {error:#}", family.name)),
        }
    }
    let results = in_parallel(&jobs, |(family, seed, policy, found)| {
        run(
            &catalog,
            &family.world(*seed, args.days)?,
            RunName { family: family.name, seed: *seed, policy: policy.name },
            *policy,
            *found,
        )
    });
    let mut runs = Vec::new();
    for ((family, seed, policy, _), result) in jobs.iter().zip(results) {
        match result {
            Ok(figures) => runs.push(figures),
            Err(error) => failures.push(format!("{} {seed} {}: {error:#}", family.name, policy.name)),
        }
    }
    Ok((bounds, runs, failures))
}

/// The results of jobs in their order; as many run at once as there are cores.
fn in_parallel<J: Sync, T: Send>(jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let results: Mutex<Vec<(usize, T)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(n) else { break };
                    let result = work(job);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

fn run(catalog: &Catalog, world: &BenchWorld, name: RunName, policy: Policy, bounds: Bounds) -> Result<Figures> {
    let begun = Instant::now();
    let summary = (policy.run)(catalog, world.setup.clone(), world.duration)?;
    let mut figures = Figures::new(name, world, &summary, bounds);
    figures.seconds = begun.elapsed().as_secs_f64();
    let part = figures.cost_of_bound();
    ensure!(part > 0.98, "it costs {part:.3} of the lower bound, so the bound is wrong");
    eprintln!("{} {} {}: {:.1} s", name.family, name.seed, name.policy, figures.seconds);
    Ok(figures)
}
