//! Plays the same load to the real Karpenter and to napkeeper, each on a real control plane of its own, and to Karpenter's
//! policy in the simulator.
//!
//! `cargo build --release && cargo bench -p napkeeper-tests --bench karpenter` plays all worlds once, a quarter of an hour
//! each, to all sides at once. `-- --world steps,rollouts` plays these, `--repeats N` repeats them, `--sides
//! karpenter,napkeeper,simulated` chooses the sides, and `--out FOLDER` keeps the samples, the figures and the
//! controllers' logs. `-- --waiting 2000` measures instead how soon each controller has bought nodes for so many pods
//! that wait when it starts.
//!
//! Karpenter is built from its Go module with its kwok provider, whose sizes and prices are those of the embedded
//! catalogue. A Node costs from its appearance until it is gone, on all sides.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod args;
mod baseline;
mod figures;
mod manifests;
mod player;
mod report;
mod series;
mod sides;
mod sizes;
mod waiting;
mod world;

use anyhow::{Context, Result, bail};
use args::Args;
use player::Player;
use report::{Report, Run};
use sides::{Prepared, Side};
use sizes::Sizes;
use std::thread::available_parallelism;
use world::World;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` for benchmarks; when it only tests all targets nothing is measured.
    let (cargos, words): (Vec<String>, Vec<String>) = words.into_iter().partition(|word| word == "--bench");
    if cargos.is_empty() && words.is_empty() {
        return Ok(());
    }
    let args = Args::read(&words)?;
    drop(rustls::crypto::ring::default_provider().install_default());
    tokio::select! {
        done = run(args) => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("listening for Ctrl-C")?;
            bail!("interrupted; all programs are stopped")
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let machine = machine();
    println!("{machine}");
    let mut report = Report::new(args.out.clone(), machine)?;
    for world in &args.worlds {
        play(world, &args, &mut report).await?;
    }
    for pods in &args.waiting {
        for side in args.sides.iter().filter(|side| **side != Side::Simulated) {
            for _ in 0..args.repeats {
                let figures = waiting::measure(*side, *pods).await?;
                println!("{}", figures.line(*side, *pods));
                report.add_waiting(*side, *pods, &figures)?;
            }
        }
    }
    Ok(())
}

/// Plays a world as often as is asked for, to both real sides at the same time.
async fn play(world: &World, args: &Args, report: &mut Report) -> Result<()> {
    let sizes = Sizes::of(world)?;
    println!("world {}: {} sizes of {}", world.name, sizes.len(), sizes::REGION);
    let mut all = Vec::new();
    for repeat in 1..=args.repeats {
        let sides = args.sides.iter().map(|side| play_to(*side, world, &sizes, repeat));
        for run in futures::future::try_join_all(sides).await? {
            let figures = report.add(world, &run)?;
            all.push((run.side, repeat, figures));
        }
        println!("{}", report::text(world, &all));
    }
    Ok(())
}

async fn play_to(side: Side, world: &World, sizes: &Sizes, repeat: u64) -> Result<Run> {
    if side == Side::Simulated {
        let (series, log) = baseline::play(world, sizes, repeat)?;
        return Ok(Run { side, repeat, series, log });
    }
    let running = Prepared::new(side, world, sizes).await?.start_and_wait().await?;
    let series = Player::new(running.plane.client().await?).play(world, sizes).await;
    let log = running.provisioner.lines();
    let series = series.with_context(|| format!("playing to {}:\n{}", side.name(), running.provisioner.tail(20)))?;
    Ok(Run { side, repeat, series, log })
}

/// The machine, and how busy it is.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    format!("machine: {cores} cores,{}; load at the start {}", model.trim_start_matches([' ', '\t', ':']), load.trim())
}
