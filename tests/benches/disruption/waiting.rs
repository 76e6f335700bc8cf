//! Measures what is launched for thousands of pods that wait at the start, as when a cluster is restored: how many nodes, at
//! which price, and how many of them in later passes because kube-scheduler bound pods otherwise than planned.

use crate::world::{WorldBuilder, minutes};
use anyhow::{Result, anyhow};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::Operator;
use napkeeper_sim::karpenter::{Karpenter, Variant};
use napkeeper_sim::world::{EventKind, Summary, TimelineEntry, World, WorldSetup};
use napkeeper_tests::fixtures::{self, TEN_KINDS};

/// How long each runs: long enough that all pods have a node.
const MINUTES: i64 = 15;

/// What is compared.
struct Row {
    name: &'static str,
    per_node: &'static str,
    os_disk: Option<&'static str>,
}

/// The first is what the price of the VM alone decides.
const ROWS: [Row; 5] = [
    Row { name: "VM", per_node: "0", os_disk: Some("0") },
    Row { name: "VM, OS disk", per_node: "0", os_disk: None },
    Row { name: "VM, OS disk, $0.005", per_node: "0.005", os_disk: None },
    Row { name: "VM, OS disk, $0.02", per_node: "0.02", os_disk: None },
    Row { name: "VM, OS disk, $0.05", per_node: "0.05", os_disk: None },
];

/// Measures the numbers of pods with some seeds, and prints a table for each.
pub(crate) fn measure(catalog: &Catalog, pods: &[usize], seeds: &[u64]) -> Result<()> {
    for count in pods {
        println!("\n{count} pods wait at the start; nodes of up to 16 vCPU on demand; prices with OS disks");
        println!("| seed | decides by | nodes | USD/h | launched later | passes | last after | pending |");
        println!("|---|---|---|---|---|---|---|---|");
        for seed in seeds {
            let setup = setup(*count, *seed)?;
            for row in &ROWS {
                let (summary, launches) = napkeeper(catalog, setup.clone(), row)?;
                println!("| {seed} | {} {launches} {} |", named(row.name, &summary), summary.pods_pending);
            }
            let mut karpenter = Karpenter::new(catalog, &setup, &Variant::default())?;
            karpenter.run_until(setup.at + minutes(MINUTES))?;
            println!("| {seed} | {} | | | |", named("Karpenter", &karpenter.summary()));
        }
    }
    Ok(())
}

fn named(name: &str, summary: &Summary) -> String {
    let price = summary.prices.steps().last().map_or(0, |(_, price)| price.nanos());
    format!("{name} | {} | {:.2} |", summary.nodes_launched, price as f64 / 1e9)
}

fn napkeeper(catalog: &Catalog, setup: WorldSetup, row: &Row) -> Result<(Summary, String)> {
    let mut world = World::new(catalog, setup)?;
    world.set_node_options(InstanceTypeOptions {
        per_node: HourlyPrice::parse_usd(row.per_node)?,
        os_disk_price: row.os_disk.map(HourlyPrice::parse_usd).transpose()?,
        ..InstanceTypeOptions::default()
    });
    let end = world.now() + minutes(MINUTES);
    world.run_until(end).map_err(|violation| anyhow!("{violation}"))?;
    let launches = launches(world.timeline());
    Ok((world.summary(), launches))
}

/// How many nodes later passes launched, in how many, and how long after the first the last was launched.
fn launches(timeline: &[TimelineEntry]) -> String {
    let mut at: Vec<_> = timeline.iter().filter(|e| e.kind == EventKind::Provision).map(|e| e.at).collect();
    let (Some(first), Some(last)) = (at.first().copied(), at.last().copied()) else { return "| | |".to_owned() };
    let later = at.iter().filter(|time| **time > first).count();
    at.dedup();
    let permille = later * 1_000 / timeline.iter().filter(|e| e.kind == EventKind::Provision).count().max(1);
    let after = last.duration_since(first).as_secs();
    format!("{later} ({}.{} %) | {} | {after} s |", permille / 10, permille % 10, at.len() - 1)
}

/// The world: a NodePool of D sizes, three DaemonSets, and the pods.
fn setup(pods: usize, seed: u64) -> Result<WorldSetup> {
    let mut builder = WorldBuilder::new("waiting", seed, 1)?;
    builder.pool("general", 0, &["on-demand"])?;
    if let Some(pool) = builder.world.setup.manifests.pools.last_mut() {
        pool.requirements.remove(labels::SKU_CPU);
        pool.requirements.add_entry(labels::SKU_CPU, Operator::Lte, &["16"])?;
        pool.disruption.consolidate_after = None;
    }
    let replicas = u32::try_from(pods / TEN_KINDS.len())?;
    for (i, (cpu, memory)) in TEN_KINDS.into_iter().enumerate() {
        let name = format!("app-{i}");
        builder.deployment(&name, fixtures::shape(&name, cpu.into(), memory.into(), false), replicas)?;
    }
    Ok(builder.finish().setup)
}
