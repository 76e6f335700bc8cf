//! Measures time and memory of verdicts on a large node resource group.
//!
//! ```text
//! cargo run --release --example sweep_verdicts [-- <nodes> <disks> <volumes>]
//! ```

#![expect(clippy::print_stdout, reason = "its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "a program that measures; nothing of this is in the library")]

mod cluster;

use cluster::{Counts, cluster};
use napkeeper_core as domain;
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, instance_types};
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::pool::NodeClass;
use napkeeper_core::model::names::{ArmId, NodeClassName, ObjectName, Region, Uid};
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};
use napkeeper_core::model::settings::{ClusterIdentity, Settings};
use napkeeper_core::orphans::{
    Assessment, DeletionCap, SweepContext, SweepMemory, find_discrepancies, findings_for, report_only_findings, sweep,
};
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often each thing is measured.
const RUNS: usize = 11;

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<usize> = std::env::args().skip(1).map(|n| n.parse()).collect::<Result<_, _>>()?;
    let number = |index: usize, default| given.get(index).copied().unwrap_or(default);
    let counts = Counts { nodes: number(0, 30_000), disks: number(1, 40_000), volumes: number(2, 20_000), leaks: 40 };
    let settings = settings()?;
    let now = "2026-08-03T08:00:00Z".parse()?;
    let (inventory, records) = cluster(counts, &settings, now)?;
    let mut snapshot = Snapshot::default();
    let class = NodeClass::with_defaults(NodeClassName::new("default")?, Uid::new("class")?);
    let region = Catalog::embedded()?.region(&settings.cluster.region).ok_or("the catalogue has no such region")?;
    let types = instance_types(&region, &class, &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    let policy = policy()?;
    snapshot.put_sweep(policy.name.clone(), policy.clone());
    snapshot.records = Arc::new(records);
    snapshot.inventory = Some(Arc::new(inventory));
    let inventory = Arc::clone(snapshot.inventory.as_ref().ok_or("no inventory")?);
    println!(
        "{} NodeClaims, {0} Nodes, {0} VMs, {0} NICs, {} disks, {} PersistentVolumes, {} leaked NICs",
        counts.nodes, counts.disks, counts.volumes, counts.leaks
    );
    let before = peak();
    println!("the inventory itself: {before} MiB at most");

    let case = SweepContext {
        inventory: &inventory,
        records: &snapshot.records,
        settings: &settings,
        prices: &snapshot,
        infrastructure: &snapshot.infrastructure,
        cleared_at: None,
        unreadable_sweeps: &snapshot.unreadable_sweeps,
        paused: false,
        now,
    };
    measure("links and references of all", || case.assess_terse().len());
    measure("verdicts of all", || verdicts(&case, &case.assess_terse(), &policy));
    println!("the inventory and all verdicts: {} MiB at most", peak());
    measure("verdicts with evidence of all, as an audit has it", || verdicts(&case, &case.assess(), &policy));
    println!("the same with evidence of all: {} MiB at most", peak());
    measure("the reverse: claims, Machines and Nodes", || {
        find_discrepancies(&inventory, Some(&snapshot), &settings).len()
    });
    measure("addresses and frontends", || report_only_findings(&inventory).len());
    let pass = |snapshot: &Snapshot| sweep(snapshot, &mut SweepMemory::default(), &settings, now).commands.len();
    measure("one pass that records", || pass(&snapshot));
    let mut recorded = snapshot.clone();
    Arc::make_mut(&mut recorded.records).last_inventory_at = Some(now);
    measure("one pass that acts", || pass(&recorded));
    println!("all of it: {} MiB at most", peak());
    Ok(())
}

fn verdicts(case: &SweepContext<'_>, assessed: &[Assessment<'_>], policy: &Sweep) -> usize {
    let mut allowance = DeletionCap::from_records(case.records, 1000, case.now);
    findings_for(case, assessed, policy, &mut allowance).len()
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let subscription = "/subscriptions/00000000-0000-4000-8000-000000000001";
    let cluster =
        format!("{subscription}/resourceGroups/demo/providers/Microsoft.ContainerService/managedClusters/demo");
    Ok(Settings::new(ClusterIdentity {
        id: ArmId::new(cluster)?,
        tag_value: Arc::from("demo"),
        node_resource_group: ArmId::new(format!("{subscription}/resourceGroups/MC_demo_demo_westeurope"))?,
        region: Region::new("westeurope")?,
    }))
}

fn policy() -> Result<Sweep, Box<dyn Error>> {
    Ok(Sweep {
        name: ObjectName::new("all")?,
        uid: Uid::new("sweep")?,
        inventory_interval: jiff::SignedDuration::from_mins(10),
        schedule: None,
        mode: SweepMode::Collect,
        kinds: ResourceKind::ALL.into(),
        minimum_age: BTreeMap::new(),
        approval_required: [ResourceKind::Vm, ResourceKind::DataDisk].into(),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    })
}

/// Runs a thing some times, and prints how long it took by the clock and by the processor alone: on a busy machine the
/// two differ.
fn measure(name: &str, mut run: impl FnMut() -> usize) {
    let (mut times, mut on_cpu) = (Vec::new(), Vec::new());
    let mut found = 0;
    for _ in 0..RUNS {
        let (start, before) = (Instant::now(), on_processor());
        found = run();
        times.push(start.elapsed());
        on_cpu.push(on_processor().saturating_sub(before));
    }
    times.sort();
    on_cpu.sort();
    let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{name}: {found} in {:.0} ms (median of {RUNS}; {:.0} to {:.0}); {:.0} ms on the processor ({:.0} at least)",
        ms(&times[RUNS / 2]),
        ms(&times[0]),
        ms(&times[RUNS - 1]),
        ms(&on_cpu[RUNS / 2]),
        ms(&on_cpu[0]),
    );
}

/// How long this process has run on a processor, on Linux; 0 elsewhere.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default())
}

/// The most memory that this process has had, in MiB, on Linux; 0 elsewhere.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
