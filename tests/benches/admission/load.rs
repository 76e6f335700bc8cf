//! Measures how many reviews are answered in a second, how soon, and with how much CPU and memory.
//!
//! The client, [oha](https://github.com/hatoo/oha), runs on the same cores: a server alone would do more. The webhook
//! watches a cluster of a thousand nodes that changes all the time; the hook that does nothing watches none.

use crate::cluster::{Cluster, Size};
use crate::reviews::{self, Bodies};
use crate::server::{Server, certificate, shipped_environment};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

const BUSY: Size = Size { nodes: 1_000, pods: 20_000, changes: 50 };
/// How long each row is measured for.
const ROW: Duration = Duration::from_secs(8);
/// The target: reviews per second, at half of which the 99th percentile is checked.
const RATE: f64 = 5_000.0;
const SLOWEST_MS: f64 = 10.0;
const MEMORY_MIB: f64 = 100.0 * 1e6 / 1_048_576.0;
const ADDED_US: f64 = 100.0;
const HINTED: f64 = 0.99;

/// How the client sends requests.
#[derive(Debug, Clone, Copy)]
enum How {
    /// As fast as answers come, over so many connections of HTTP/1.1.
    Connections(usize),
    /// As fast as answers come, over so many streams of one connection of HTTP/2.
    Streams(usize),
    /// At a rate, over 16 connections; latencies count from when a request was due.
    Rate(f64),
}

/// A row of the table.
struct Row {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
    /// The part of answers that carry a computed hint; none for paths without hints.
    hinted: Option<f64>,
    memory_mib: (f64, f64),
}

/// Prints the table, and whether the targets are met.
pub(crate) async fn measure() -> Result<()> {
    println!("load: {}, {BUSY:?}, rows of {ROW:?}", version().await?);
    println!("load: the webhook has the environment that kustomize gives it: {:?}", shipped_environment()?);
    let folder = tempfile::Builder::new().prefix("admission-").tempdir()?;
    certificate(folder.path())?;
    let cluster = Cluster::start(folder.path(), BUSY).await?;
    let (webhook, ready) = Server::napkeeper(folder.path(), &cluster.kubeconfig).await?;
    webhook.hints().await?;
    let (now, most) = webhook.memory()?;
    println!(
        "load: the webhook knows this cluster {ready:.1?} after its start; {now:.0} MiB, {most:.0} MiB at the most"
    );
    let follows = idle(&webhook).await?;
    println!(
        "load: to follow the cluster takes {:.1} % of a core when nobody asks, which is not charged to reviews",
        follows * 100.0
    );
    let nothing = Server::nothing(folder.path()).await?;
    println!("| path | hook | client | reviews/s | p50 ms | p99 ms | CPU µs | hinted | RSS MiB (most) |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut lines = Vec::new();
    for (path, bodies) in
        [("mutate", reviews::of_pods(folder.path())?), ("validate", reviews::of_pools(folder.path())?)]
    {
        lines.push(format!("{path}: {} bodies of {} bytes on average", bodies.count, bodies.size));
        let (mut napkeeper, mut baseline) = (Vec::new(), Vec::new());
        for how in [How::Connections(16), How::Streams(16), How::Rate(RATE / 2.0)] {
            baseline.push(row(&Target { name: "nothing", server: &nothing, idle: 0.0 }, path, &bodies, how).await?);
            napkeeper
                .push(row(&Target { name: "napkeeper", server: &webhook, idle: follows }, path, &bodies, how).await?);
        }
        lines.extend(verdicts(path, &napkeeper, &baseline));
    }
    for line in lines {
        println!("load: {line}");
    }
    Ok(())
}

fn verdicts(path: &str, napkeeper: &[Row], baseline: &[Row]) -> Vec<String> {
    let say = |claim: String, holds: bool| format!("{path}: {claim}: {}", if holds { "holds" } else { "MISSED" });
    let rate = napkeeper[..2].iter().map(|row| row.per_second).fold(f64::INFINITY, f64::min);
    let paced = &napkeeper[2];
    let memory = napkeeper.iter().map(|row| row.memory_mib.1).fold(0.0, f64::max);
    let mut lines = vec![
        say(format!("{rate:.0} reviews/s, promised {RATE}"), rate >= RATE),
        say(
            format!("p99 {:.1} ms at {:.0}/s, promised {SLOWEST_MS} ms", paced.p99_ms, paced.per_second),
            paced.p99_ms < SLOWEST_MS && paced.per_second > RATE * 0.49,
        ),
        say(format!("{memory:.0} MiB at the most, promised {MEMORY_MIB:.0}"), memory < MEMORY_MIB),
    ];
    for (name, (mine, other)) in
        ["16 connections", "16 streams", "the paced rate"].iter().zip(napkeeper.iter().zip(baseline))
    {
        let added = mine.cpu_us - other.cpu_us;
        lines.push(say(
            format!("{added:.0} µs of CPU more than nothing at {name}, promised {ADDED_US}"),
            added <= ADDED_US,
        ));
    }
    if path == "mutate" {
        let least = napkeeper.iter().filter_map(|row| row.hinted).fold(1.0, f64::min);
        lines.push(say(
            format!("{:.2} % carry a hint, promised {:.0} %", least * 100.0, HINTED * 100.0),
            least >= HINTED,
        ));
    }
    lines.push(format!(
        "{path}: rates compare with {:.0} and {:.0} of nothing",
        baseline[0].per_second, baseline[1].per_second
    ));
    lines
}

/// The CPU that it uses without requests, in cores.
async fn idle(server: &Server) -> Result<f64> {
    let (since, cpu) = (Instant::now(), server.cpu()?);
    tokio::time::sleep(ROW).await;
    Ok(server.cpu()?.saturating_sub(cpu).div_duration_f64(since.elapsed()))
}

/// A server that is measured.
struct Target<'a> {
    name: &'a str,
    server: &'a Server,
    /// The part of a core that it uses without requests.
    idle: f64,
}

/// Measures a server.
async fn row(target: &Target<'_>, path: &str, bodies: &Bodies, how: How) -> Result<Row> {
    let Target { name, server, idle } = *target;
    // The first requests find cold caches.
    ask(server, path, bodies, how, Duration::from_secs(2)).await?;
    let hints = async || server.counter("napkeeper_placement_hints_total", "").await;
    let (since, cpu, hinted) = (Instant::now(), server.cpu()?, hints().await?);
    let (answers, report) = ask(server, path, bodies, how, ROW).await?;
    let anyway = since.elapsed().mul_f64(idle);
    let (cpu, hinted) = (server.cpu()?.saturating_sub(cpu).saturating_sub(anyway), hints().await? - hinted);
    let number =
        |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer}"));
    let row = Row {
        per_second: number("/summary/requestsPerSec")?,
        p50_ms: number("/latencyPercentiles/p50")? * 1e3,
        p99_ms: number("/latencyPercentiles/p99")? * 1e3,
        cpu_us: cpu.as_secs_f64() * 1e6 / answers as f64,
        hinted: (name == "napkeeper" && path == "mutate").then(|| hinted as f64 / answers as f64),
        memory_mib: server.memory()?,
    };
    let client = match how {
        How::Connections(n) => format!("h1, {n} connections"),
        How::Streams(n) => format!("h2, {n} streams"),
        How::Rate(rate) => format!("h1, {rate}/s"),
    };
    let hinted = row.hinted.map_or_else(String::new, |part| format!("{:.2} %", part * 100.0));
    let Row { per_second, p50_ms, p99_ms, cpu_us, memory_mib: (now, most), .. } = &row;
    println!(
        "| {path} | {name} | {client} | {per_second:.0} | {p50_ms:.2} | {p99_ms:.2} | {cpu_us:.0} | {hinted} | {now:.0} ({most:.0}) |"
    );
    Ok(row)
}

/// Runs the client; returns the number of successful responses and its report.
async fn ask(server: &Server, path: &str, bodies: &Bodies, how: How, time: Duration) -> Result<(u64, Value)> {
    let mut client = tokio::process::Command::new("oha");
    client.args(["--no-tui", "--output-format", "json", "--insecure", "-m", "POST", "-T", "application/json"]);
    client.args(["-w", "-z", &format!("{}s", time.as_secs()), "-Z"]).arg(&bodies.file);
    match how {
        How::Connections(n) => client.args(["--http-version", "1.1", "-c", &n.to_string()]),
        How::Streams(n) => client.args(["--http-version", "2", "-c", "1", "-p", &n.to_string()]),
        How::Rate(rate) => {
            client.args(["--http-version", "1.1", "-c", "16", "--latency-correction", "-q", &rate.to_string()])
        }
    };
    let output = client.arg(format!("https://{}/{path}?timeout=2s", server.admission)).output().await?;
    ensure!(output.status.success(), "oha: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let codes = report["statusCodeDistribution"].as_object().context("no statusCodeDistribution")?;
    let errors = report["errorDistribution"].as_object().is_some_and(|errors| !errors.is_empty());
    if errors || codes.keys().any(|code| code != "200") {
        bail!("not all answers are good: {} {}", report["statusCodeDistribution"], report["errorDistribution"]);
    }
    let answers = codes.values().filter_map(Value::as_u64).sum();
    ensure!(answers > 0, "no answer came");
    Ok((answers, report))
}

async fn version() -> Result<String> {
    let version = tokio::process::Command::new("oha").arg("--version").output().await;
    let output = version.context("there is no oha to ask with: cargo install oha --locked")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
