//! How fast are plans made, and how good are they? Measures `scheduling::schedule` on the pods of Karpenter's scheduling
//! benchmark, beside a packing as Karpenter does it and a bound that nothing can be below.
//!
//! `cargo bench -p napkeeper-tests --bench scheduling`, or with `-- 1000` and other numbers of pods, `-- preferences` for
//! the mix with preferences. `--all` goes through the rounds of the peer above 5,000 pods too.
//!
//! What is timed is the one call on a fresh Snapshot and Market, on one thread. A plan is judged three times: by its
//! price, by a checker that replays it, and by what it costs once kube-scheduler (see `napkeeper_tests::kube_scheduler`)
//! has bound all pods, in six orders. The memory is the peak of a process that does nothing but make the plan.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod market;
mod ours;
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
/// Above so many pods the rounds of the peer are left out, unless `--all` is said.
const MOST_FOR_PEER: usize = 5_000;
/// How often a plan is made; the median counts.
const REPEATS: usize = 3;
/// The word by which a process is told to do nothing but make a plan.
const CHILD: &str = "--only-plan";
const PREFERENCES: &str = "preferences";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` where it measures; where it only tests all targets nothing is asked for.
    let (cargos, asked): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| *word == "--bench");
    if let [word, what] = &asked[..]
        && *word == CHILD
    {
        return only_plan(what);
    }
    if cargos.is_empty() && asked.is_empty() {
        return Ok(());
    }
    let all = asked.iter().any(|word| *word == "--all");
    let preferences = asked.iter().any(|word| *word == PREFERENCES);
    let named = asked.iter().filter(|word| **word != "--all" && **word != PREFERENCES);
    let mut sizes = named
        .map(|word| word.parse().with_context(|| format!("{word:?}: say a number of pods, {PREFERENCES} or --all")))
        .collect::<Result<Vec<usize>>>()?;
    let everything = sizes.is_empty() && !preferences;
    if everything {
        sizes.extend(USUAL);
    }
    machine();
    for pods in sizes {
        measure(pods, all || pods <= MOST_FOR_PEER)?;
    }
    if everything || preferences {
        measure_preferences()?;
    }
    Ok(())
}

/// On what is measured, and what.
fn machine() {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.trim_start_matches([' ', '\t', ':']);
    println!("scheduling::schedule on 1 thread; the median of {REPEATS} calls, each on a fresh Snapshot and Market");
    println!("machine: {cores} cores, {model}; load {}", read("/proc/loadavg").trim());
}

fn measure(pods: usize, with_peer: bool) -> Result<()> {
    let (work, sizes) = (workload::diverse(pods, true)?, Sizes::new()?);
    let state = State::of(&work);
    let (plan, setup, solve) = time_ours(&work, &sizes)?;
    let errors = replay::check(&plan, &work, &state);
    let begun = Instant::now();
    let peer = peer::plan(&work, &state);
    let peer_time = begun.elapsed();
    let peer_errors = replay::check(&peer, &work, &state);
    let ours_again = |state: &State| ours::plan(&ours::solve(&work, &sizes, state).outcome, &work, &sizes, state);
    let peer_again = |state: &State| Ok(peer::plan(&work, state));
    let begun = Instant::now();
    let closed = rounds::close(&work, &sizes, &plan, &ours_again)?;
    let closed_time = begun.elapsed();
    let peer_closed = with_peer.then(|| rounds::close(&work, &sizes, &peer, &peer_again)).transpose()?;
    let rss = peak_of_child(&pods.to_string())?;
    let bound = market::bound(&work);
    let per_s = pods as f64 / solve.as_secs_f64();

    println!("\n{pods} pods; the bound is {bound:.1} USD/h");
    println!("  napkeeper  {}  in {:.1} ms, after {:.1} ms of setup", told(&plan, bound), ms(solve), ms(setup));
    println!("    replayed: {errors}");
    println!("    bound by kube-scheduler: {}  ({:.1} s)", told_closed(&closed), closed_time.as_secs_f64());
    println!("  peer       {}  in {:.1} ms", told(&peer, bound), ms(peer_time));
    println!("    replayed: {peer_errors}");
    if let Some(closed) = &peer_closed {
        println!("    bound by kube-scheduler: {}", told_closed(closed));
    }
    let peer_loop = peer_closed.map_or_else(|| "-".to_owned(), |closed| format!("{:.1}", mean(&closed)));
    println!(
        "N={pods} pods_per_s={per_s:.0} nodes={} price={:.1} bound={bound:.1} loop_price={:.1} peer_loop_price={peer_loop} \
         errors={} rss_mib={rss:.0}",
        plan.buys.len(),
        plan.price(),
        mean(&closed),
        errors.sum(),
    );
    Ok(())
}

fn measure_preferences() -> Result<()> {
    let (work, sizes) = (workload::preferring()?, Sizes::new()?);
    let (plan, setup, solve) = time_ours(&work, &sizes)?;
    let unplaced = work.rows.len() - plan.goes.len();
    println!(
        "\n{} pods with preferences: {} nodes for {:.1} USD/h in {:.1} ms, after {:.1} ms of setup; {unplaced} unplaced",
        work.rows.len(),
        plan.buys.len(),
        plan.price(),
        ms(solve),
        ms(setup),
    );
    Ok(())
}

/// The plan, and the medians of setup and call.
fn time_ours(work: &Work, sizes: &Sizes) -> Result<(Plan, Duration, Duration)> {
    let state = State::of(work);
    let mut solved: Vec<_> = (0..REPEATS).map(|_| ours::solve(work, sizes, &state)).collect();
    let same = solved.windows(2).all(|pair| pair[0].outcome == pair[1].outcome);
    ensure!(same, "two calls on the same Snapshot differ");
    solved.sort_by_key(|s| s.setup);
    let setup = solved[REPEATS / 2].setup;
    solved.sort_by_key(|s| s.solve);
    let median = &solved[REPEATS / 2];
    Ok((ours::plan(&median.outcome, work, sizes, &state)?, setup, median.solve))
}

/// What the child process does: the pods, the plan, and the most memory that it ever had in KiB.
fn only_plan(pods: &str) -> Result<()> {
    let (work, sizes) = (workload::diverse(pods.parse()?, false)?, Sizes::new()?);
    let solved = ours::solve(&work, &sizes, &State::of(&work));
    let status = std::fs::read_to_string("/proc/self/status").context("the kernel says nothing of memory")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("it says nothing of the peak")?;
    println!("{} {}", peak.trim().trim_end_matches(" kB"), solved.outcome.new.len());
    Ok(())
}

/// The peak of memory of a process that only makes the plan, in MiB.
fn peak_of_child(pods: &str) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?).args([CHILD, pods]).output()?;
    ensure!(output.status.success(), "the child failed: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let kib: f64 = said.split_whitespace().next().context("the child says nothing")?.parse()?;
    Ok(kib / 1024.0)
}

fn told(plan: &Plan, bound: f64) -> String {
    let price = plan.price();
    format!("{} nodes for {price:.1} USD/h ({:.3} of the bound)", plan.buys.len(), price / bound)
}

fn told_closed(closed: &[Closed]) -> String {
    let range = |of: &dyn Fn(&Closed) -> f64| {
        let all = || closed.iter().map(of);
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
    };
    let (low, high) = range(&|c| c.price);
    let (few, many) = range(&|c| c.nodes as f64);
    let (short, long) = range(&|c| c.rounds as f64);
    let left: usize = closed.iter().map(|c| c.left).sum();
    let left = if left > 0 { format!(", {left} pods LEFT WITHOUT A NODE over all orders") } else { String::new() };
    let mean = mean(closed);
    format!("{low:.1}..{high:.1} USD/h (mean {mean:.1}), {few}..{many} nodes, {short}..{long} rounds{left}")
}

fn mean(closed: &[Closed]) -> f64 {
    closed.iter().map(|c| c.price).sum::<f64>() / closed.len() as f64
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
