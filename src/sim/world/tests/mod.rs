//! Tests of small worlds.

mod crash_safety;
mod drains;
mod drift;
mod expiry;
mod external_changes;
mod falls;
mod history;
mod lost_nodes;
mod moves;
mod node_health;
mod pool_deletion;
mod replacement_loops;
mod restores;
mod statuses;
mod stories;

use super::{Action, EventKind, Manifests, World, WorldSetup};
use crate::workload::{PodTemplate, Workload, WorkloadKind};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::pod::{Labels, PodShape};
use napkeeper_core::model::cluster::pool::{
    Budget, BudgetNodes, ConsolidationPolicy, Disruption, Limits, NodeClass, NodePool,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{
    ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, Region, Uid,
};
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};
use napkeeper_core::model::requirements::{Operator, Requirements};
use napkeeper_core::model::settings::DeletionRules;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| Catalog::embedded().unwrap())
}

fn mk_class() -> NodeClass {
    NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("class").unwrap())
}

fn mk_pool(name: &str, weight: i32, capacity_types: &[&str], cores: i64) -> NodePool {
    let mut requirements = Requirements::new();
    requirements.add_entry(labels::ARCH, Operator::In, &["amd64"]).unwrap();
    requirements.add_entry(labels::SKU_FAMILY, Operator::In, &["D"]).unwrap();
    requirements.add_entry(labels::CAPACITY_TYPE, Operator::In, capacity_types).unwrap();
    NodePool {
        name: NodePoolName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight,
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: Limits { nodes: None, resources: BTreeMap::from([(Arc::from("cpu"), cores * 1000)]) },
        expire_after: Some(SignedDuration::from_hours(720)),
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::from_secs(30)),
            budgets: vec![Budget { nodes: BudgetNodes::Percent(10), reasons: None, window: None }],
        },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

fn mk_sweep(mode: SweepMode) -> Sweep {
    Sweep {
        name: ObjectName::new("default").unwrap(),
        uid: Uid::new("sweep").unwrap(),
        inventory_interval: SignedDuration::from_mins(15),
        schedule: None,
        mode,
        kinds: BTreeSet::from(ResourceKind::ALL),
        minimum_age: BTreeMap::new(),
        approval_required: BTreeSet::from([ResourceKind::Vm, ResourceKind::DataDisk]),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn mk_deployment(name: &str, replicas: u32, cpu_millis: i64, memory_mib: i64) -> (ObjectKey, Workload) {
    let shape = PodShape::plain(
        Namespace::new("default").unwrap(),
        Labels::from([(Arc::from("app"), Arc::from(name))]),
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, memory_mib << 20) },
    );
    (key(name), Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } })
}

fn mk_start(seed: u64) -> WorldSetup {
    WorldSetup {
        region: Region::new("westeurope").unwrap(),
        seed,
        at: "2026-08-03T06:00:00Z".parse::<Timestamp>().unwrap(),
        manifests: Manifests {
            pools: vec![
                mk_pool("general-purpose", 10, &["on-demand", "spot"], 100),
                mk_pool("spot-preferred", 50, &["spot"], 50),
            ],
            classes: vec![mk_class()],
            sweeps: vec![mk_sweep(SweepMode::Collect)],
            workloads: vec![mk_deployment("inflate", 10, 1000, 1024)],
            ..Manifests::default()
        },
        system_nodes: 2,
        actions: Vec::new(),
        deletion_rules: DeletionRules::all(),
    }
}

/// Runs a world and panics, with its timeline, when an invariant breaks.
fn run(start: WorldSetup, hours: i64) -> World {
    let mut world = World::new(catalog(), start).unwrap();
    let end = world.now() + SignedDuration::from_hours(hours);
    if let Err(violation) = world.run_until(end) {
        print(&world);
        panic!("{violation}");
    }
    world
}

fn print(world: &World) {
    for entry in world.timeline() {
        println!("{} {:<10} {:<32} {}", entry.at, entry.kind, entry.subject, entry.text);
    }
    println!("{:#?}", world.summary());
}

fn after(mins: i64, action: Action) -> (SignedDuration, Action) {
    (SignedDuration::from_mins(mins), action)
}

/// Pods on several nodes that nothing but the faults disrupts.
fn steady(seed: u64, actions: Vec<(SignedDuration, Action)>) -> WorldSetup {
    let mut start = mk_start(seed);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 100);
    pool.requirements.add_entry(labels::SKU_CPU, Operator::In, &["2"]).unwrap();
    start.manifests.pools = vec![pool];
    start.manifests.workloads = vec![mk_deployment("inflate", 12, 800, 1024)];
    start.actions = actions;
    start
}

/// Until this minute.
fn run_to(start: &WorldSetup, mins: i64) -> World {
    let mut world = World::new(catalog(), start.clone()).unwrap();
    let end = world.now() + SignedDuration::from_mins(mins);
    if let Err(violation) = world.run_until(end) {
        print(&world);
        panic!("{violation}");
    }
    world
}

fn nodes(world: &World, ready: bool) -> Vec<NodeName> {
    let managed = world.cluster().state().nodes().values().filter(|n| n.label(labels::NODEPOOL).is_some());
    managed.filter(|n| n.ready == ready).map(|n| n.name.clone()).collect()
}

fn claims(world: &World) -> Vec<ClaimName> {
    world.cluster().state().claims().iter().map(|(name, _)| name.clone()).collect()
}

fn vms(world: &World) -> usize {
    world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::Vm).count()
}

fn logged(world: &World, kind: EventKind, words: &str) -> usize {
    world.timeline().iter().filter(|e| e.kind == kind && e.text.contains(words)).count()
}

fn created_claims(world: &World) -> usize {
    logged(world, EventKind::Provision, "")
}

/// The node of each pod.
fn pods(world: &World) -> BTreeMap<ObjectKey, Option<NodeName>> {
    world.cluster().state().pods().values().map(|pod| (pod.key.clone(), pod.node.clone())).collect()
}
