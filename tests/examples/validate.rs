//! Measures `napkeeper validate` beside kubeconform on the same NodePools, as one file and as one file each. kubeconform
//! checks the schema alone; napkeeper its cross-field rules and everything else too. Prints what it ran, on what.
//!
//! `cargo build --release && cargo run --release -p napkeeper-tests --example validate`; needs Linux and Go.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use anyhow::{Context, Result, ensure};
use napkeeper_api::crds;
use napkeeper_tests::control_plane::{kubeconform, napkeeper_binary};
use napkeeper_tests::node_pools;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

const POOLS: usize = 5_000;
const RUNS: usize = 7;
/// How often a program's memory is looked at.
const LOOK: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let peer = runtime.block_on(kubeconform())?;
    let own = napkeeper_binary()?;
    let folder = tempfile::tempdir()?;
    let (one, many) = inputs(folder.path())?;
    let schemas = folder.path().join("schemas");
    write_schemas(&schemas)?;
    println!("{POOLS} NodePools, all different, {} bytes; {}", fs::metadata(&one)?.len(), machine());
    println!("{RUNS} runs each, alternating; median and worst of wall time, median CPU time, largest peak of memory");
    for (name, input) in [("one file", &one), ("a file each", &many)] {
        let template = format!("{}/{{{{ .ResourceKind }}}}_{{{{ .ResourceAPIVersion }}}}.json", schemas.display());
        let runs = [
            vec![own.display().to_string(), "validate".into(), "--fail-on=never".into(), shown(input)],
            vec![peer.display().to_string(), "-strict".into(), "-schema-location".into(), template, shown(input)],
        ];
        let mut measured = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            for (line, into) in runs.iter().zip(&mut measured) {
                into.push(run(line)?);
            }
        }
        for (program, measured) in ["napkeeper validate", "kubeconform -strict"].iter().zip(&measured) {
            println!("  {name:<12} {program:<20} {}", Summary::of(measured));
        }
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|l| l.strip_prefix("model name")).map(|l| l.trim_start_matches([' ', '\t', ':']));
    let cores = thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}

/// The same pools as one file, and as a folder with a file each.
fn inputs(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (one, many) = (folder.join("one.yaml"), folder.join("many"));
    fs::create_dir(&many)?;
    let pools: Vec<String> = (0..POOLS).map(node_pools::pool).collect();
    for (i, pool) in pools.iter().enumerate() {
        fs::write(many.join(format!("pool-{i:04}.yaml")), pool)?;
    }
    fs::write(&one, pools.join("---\n"))?;
    Ok((one, many))
}

/// The schemas of our definitions, as kubeconform reads them: fields that a schema does not name are refused.
fn write_schemas(folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    for crd in crds::all()? {
        let spec = &crd.definition["spec"];
        for version in spec["versions"].as_array().into_iter().flatten() {
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            close(&mut schema);
            for (field, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
                schema["properties"][field] = json!({ "type": kind });
            }
            let kind = spec["names"]["kind"].as_str().context("a definition without a kind")?.to_lowercase();
            let version = version["name"].as_str().context("a version without a name")?;
            fs::write(folder.join(format!("{kind}_{version}.json")), schema.to_string())?;
        }
    }
    Ok(())
}

fn close(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    if map.contains_key("properties") && !map.contains_key("x-kubernetes-preserve-unknown-fields") {
        map.insert("additionalProperties".to_owned(), json!(false));
    }
    for (key, child) in map {
        match (key.as_str(), child) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(close),
            ("items" | "additionalProperties", child) => close(child),
            _ => {}
        }
    }
}

/// One run of a program.
struct Run {
    wall: Duration,
    cpu: Duration,
    peak_kib: u64,
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs in this program")]
fn run(line: &[String]) -> Result<Run> {
    let (program, args) = line.split_first().context("an empty command line")?;
    let start = Instant::now();
    let mut child = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    let mut peak_kib = 0;
    // A program that has ended keeps its times until it is waited for.
    while !stat(&proc)?.ended {
        peak_kib = peak_kib.max(peak(&proc));
        thread::sleep(LOOK);
    }
    let wall = start.elapsed();
    let cpu = stat(&proc)?.cpu;
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}", line.join(" "));
    Ok(Run { wall, cpu, peak_kib })
}

/// What `/proc/<pid>/stat` says.
struct Stat {
    ended: bool,
    cpu: Duration,
}

fn stat(proc: &Path) -> Result<Stat> {
    /// Ticks a second, on every Linux that Rust runs on.
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string(proc.join("stat"))?;
    // The name of the program may hold blanks; it ends with the last bracket.
    let (_, rest) = text.rsplit_once(") ").context("an unreadable stat")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u32>().ok()).unwrap_or(0);
    Ok(Stat { ended: fields.first() == Some(&"Z"), cpu: TICK * (ticks(11) + ticks(12)) })
}

fn peak(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

struct Summary {
    median: Duration,
    worst: Duration,
    cpu: Duration,
    peak_kib: u64,
}

impl Summary {
    fn of(runs: &[Run]) -> Self {
        let sorted = |of: fn(&Run) -> Duration| {
            let mut all: Vec<_> = runs.iter().map(of).collect();
            all.sort();
            all
        };
        let (wall, cpu) = (sorted(|r| r.wall), sorted(|r| r.cpu));
        let middle = runs.len() / 2;
        let peak_kib = runs.iter().map(|r| r.peak_kib).max().unwrap_or(0);
        Self { median: wall[middle], worst: wall[wall.len() - 1], cpu: cpu[middle], peak_kib }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_millis();
        write!(f, "{:>5} ms, worst {:>5} ms, ", ms(self.median), ms(self.worst))?;
        write!(f, "CPU {:>5} ms, {:>4} MiB", ms(self.cpu), self.peak_kib / 1024)
    }
}
