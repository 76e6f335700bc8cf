//! Measures the speed and quality of plans: `scheduling::schedule` on the pods of Karpenter's scheduling
//! benchmark, beside a packing as Karpenter does it and a bound that nothing can be below.
//!
//! `cargo bench -p napkeeper-tests --bench scheduling`, or with `-- 1000` and other numbers of pods, `-- preferences` for
//! the mix with preferences, `-- catalogue` for plans over the real catalogue and a pass of consolidation, or `-- passes`
//! for passes of provisioning while thousands of different pods wait. `--peer` measures nothing but the peer.
//!
//! What is timed is the one call on a fresh Snapshot and Market, on one thread. A plan is judged three times: by its
//! price, by a checker that replays it, and by what it costs once kube-scheduler (see `napkeeper_tests::kube_scheduler`)
//! has bound all pods, in six orders. The memory is the peak of a process that does nothing but make the plan.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod catalogue;
mod consolidation;
mod market;
mod napkeeper;
mod passes;
mod peer;
mod plan;
mod replay;
mod rounds;
mod workload;

use anyhow::{Context, Result, ensure};
use market::{Sizes, State};
use plan::Plan;
use rounds::Closed;
use std::process::Command;
use std::time::{Duration, Instant};
use workload::Work;

/// The numbers of pods that are measured when none is asked for.
const USUAL: [usize; 5] = [500, 1_000, 5_000, 10_000, 20_000];
/// How often a plan is made; the median counts.
const REPEATS: usize = 3;
/// The word by which a process is told to do nothing but make a plan.
const CHILD: &str = "--only-plan";

/// What is asked for.
#[derive(Debug, Default)]
struct Args {
    sizes: Vec<usize>,
    preferences: bool,
    catalogue: bool,
    passes: bool,
    /// Only the peer.
    peer: bool,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` for benchmarks; when it only tests all targets nothing is measured.
    let (cargos, words): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| *word == "--bench");
    if let [word, pods] = &words[..]
        && *word == CHILD
    {
        return only_plan(pods);
    }
    if cargos.is_empty() && words.is_empty() {
        return Ok(());
    }
    let args = Args::read(&words)?;
    machine();
    for pods in &args.sizes {
        measure(*pods, &args)?;
    }
    if args.preferences {
        measure_preferences()?;
    }
    if args.catalogue {
        catalogue::measure();
        consolidation::measure()?;
    }
    if args.passes {
        passes::measure();
    }
    Ok(())
}

impl Args {
    fn read(words: &[&String]) -> Result<Self> {
        let mut args = Self::default();
        for word in words {
            match word.as_str() {
                "preferences" => args.preferences = true,
                "catalogue" => args.catalogue = true,
                "passes" => args.passes = true,
                "--peer" => args.peer = true,
                word => args.sizes.push(word.parse().with_context(|| {
                    format!("{word:?}: say numbers of pods, preferences, catalogue, passes or --peer")
                })?),
            }
        }
        if args.sizes.is_empty() && !args.preferences && !args.catalogue && !args.passes {
            args.sizes.extend(USUAL);
            (args.preferences, args.catalogue, args.passes) = (!args.peer, !args.peer, !args.peer);
        }
        Ok(args)
    }
}

/// Prints the machine and the measurement.
fn machine() {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.trim_start_matches([' ', '\t', ':']);
    println!("scheduling::schedule on 1 thread; the median of {REPEATS} calls, each on a fresh Snapshot and Market");
    println!("machine: {cores} cores, {model}; load {}", read("/proc/loadavg").trim());
}

fn measure(pods: usize, args: &Args) -> Result<()> {
    let (work, sizes) = (workload::diverse(pods, true)?, Sizes::new()?);
    let bound = market::bound(&work);
    println!("\n{pods} pods; the bound is {bound:.1} USD/h");
    let peer_price = measure_peer(&work, &sizes)?;
    if args.peer {
        return Ok(());
    }
    let (plan, setup, solve) = time_napkeeper(&work, &sizes)?;
    let errors = replay::check(&plan, &work, &State::of(&work));
    println!("  napkeeper  {}  in {:.1} ms, after {:.1} ms of setup", summary(&plan, bound), ms(solve), ms(setup));
    println!("    replayed: {errors}");
    let again = |state: &State| napkeeper::plan(&napkeeper::solve(&work, &sizes, state).outcome, &work, &sizes, state);
    let closed = run_rounds(|| rounds::close(&work, &sizes, &plan, &again))?;
    let rss = peak_of_child(pods)?;
    println!(
        "N={pods} pods_per_s={:.0} nodes={} price={:.1} bound={bound:.1} loop_price={} peer_loop_price={peer_price} \
         errors={} rss_mib={rss:.0}",
        pods as f64 / solve.as_secs_f64(),
        plan.offerings.len(),
        plan.price(),
        mean_price(&closed),
        errors.sum(),
    );
    Ok(())
}

/// Measures the peer; returns the price of its plan after binding.
fn measure_peer(work: &Work, sizes: &Sizes) -> Result<String> {
    let state = State::of(work);
    let begun = Instant::now();
    let plan = peer::plan(work, &state);
    let time = begun.elapsed();
    println!("  peer       {}  in {:.1} ms", summary(&plan, market::bound(work)), ms(time));
    println!("    replayed: {}", replay::check(&plan, work, &state));
    let again = |state: &State| Ok(peer::plan(work, state));
    Ok(mean_price(&run_rounds(|| rounds::close(work, sizes, &plan, &again))?))
}

/// Runs the rounds, and prints their results.
fn run_rounds(close: impl FnOnce() -> Result<Vec<Closed>>) -> Result<Vec<Closed>> {
    let begun = Instant::now();
    let closed = close()?;
    println!("    bound by kube-scheduler: {}  ({:.1} s)", closed_summary(&closed), begun.elapsed().as_secs_f64());
    Ok(closed)
}

fn measure_preferences() -> Result<()> {
    let (work, sizes) = (workload::preferring()?, Sizes::new()?);
    let (plan, setup, solve) = time_napkeeper(&work, &sizes)?;
    let unplaced = work.rows.len() - plan.goes.len();
    println!(
        "\n{} pods with preferences: {} nodes for {:.1} USD/h in {:.1} ms, after {:.1} ms of setup; {unplaced} unplaced",
        work.rows.len(),
        plan.offerings.len(),
        plan.price(),
        ms(solve),
        ms(setup),
    );
    Ok(())
}

/// The plan, and the medians of setup and call.
fn time_napkeeper(work: &Work, sizes: &Sizes) -> Result<(Plan, Duration, Duration)> {
    let state = State::of(work);
    let mut solved: Vec<_> = (0..REPEATS).map(|_| napkeeper::solve(work, sizes, &state)).collect();
    let same = solved.windows(2).all(|pair| pair[0].outcome == pair[1].outcome);
    ensure!(same, "two calls on the same Snapshot differ");
    solved.sort_by_key(|s| s.setup);
    let setup = solved[REPEATS / 2].setup;
    solved.sort_by_key(|s| s.solve);
    let median = &solved[REPEATS / 2];
    Ok((napkeeper::plan(&median.outcome, work, sizes, &state)?, setup, median.solve))
}

/// The child process: makes the plan, and prints its peak memory in KiB.
fn only_plan(pods: &str) -> Result<()> {
    let (work, sizes) = (workload::diverse(pods.parse()?, false)?, Sizes::new()?);
    let solved = napkeeper::solve(&work, &sizes, &State::of(&work));
    let status = std::fs::read_to_string("/proc/self/status").context("the kernel says nothing of memory")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("it says nothing of the peak")?;
    println!("{} {}", peak.trim().trim_end_matches(" kB"), solved.outcome.new_nodes.len());
    Ok(())
}

/// The peak of memory of a process that only makes the plan, in MiB.
fn peak_of_child(pods: usize) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?).args([CHILD, &pods.to_string()]).output()?;
    ensure!(output.status.success(), "the child failed: {}", String::from_utf8_lossy(&output.stderr));
    let output_text = String::from_utf8_lossy(&output.stdout);
    let kib: f64 = output_text.split_whitespace().next().context("the child says nothing")?.parse()?;
    Ok(kib / 1024.0)
}

fn summary(plan: &Plan, bound: f64) -> String {
    let price = plan.price();
    format!("{} nodes for {price:.1} USD/h ({:.3} of the bound)", plan.offerings.len(), price / bound)
}

fn closed_summary(closed: &[Closed]) -> String {
    let range = |of: &dyn Fn(&Closed) -> f64| {
        let all = || closed.iter().map(of);
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
    };
    let (low, high) = range(&|c| c.price);
    let (few, many) = range(&|c| c.nodes as f64);
    let (short, long) = range(&|c| c.rounds as f64);
    let mean = mean_price(closed);
    format!("{low:.1}..{high:.1} USD/h (mean {mean}), {few}..{many} nodes, {short}..{long} rounds")
}

/// The mean price. Where pods were left without a node it is no price of all pods, and says so.
fn mean_price(closed: &[Closed]) -> String {
    let mean = closed.iter().map(|c| c.price).sum::<f64>() / closed.len() as f64;
    let left: usize = closed.iter().map(|c| c.left).sum();
    if left == 0 { format!("{mean:.1}") } else { format!("{mean:.1}(without_{}_pods)", left.div_ceil(closed.len())) }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
