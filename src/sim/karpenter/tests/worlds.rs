//! The whole policy on simulated clusters.

use super::super::*;
use crate::workload::{BudgetLimit, PodBudget, PodTemplate, Workload, WorkloadKind};
use crate::world::{Manifests, ShortageSpec};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, PodPhase, PodShape, Spread};
use napkeeper_core::model::cluster::pool::{Disruption, Limits as PoolLimits, NodeClass, NodePool};
use napkeeper_core::model::names::{Namespace, NodeClassName, NodePoolName, ObjectKey, ObjectName, Uid};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::model::settings::DeletionRules;

const GIB: i64 = 1 << 30;

fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn one_of(key: &str, values: &[&str]) -> Requirements {
    let mut all = Requirements::new();
    all.add(key, Requirement::any_of(values));
    all
}

fn shape(app: &str, cpu_millis: i64) -> PodShape {
    PodShape::plain(
        Namespace::new("default").unwrap(),
        Labels::from([(Arc::from("app"), Arc::from(app))]),
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, cpu_millis * (GIB / 500)) },
    )
}

fn deployment(shape: PodShape, replicas: u32) -> Workload {
    Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } }
}

/// A pool of amd64 nodes at the full price.
fn pool() -> NodePool {
    let mut requirements = one_of(labels::ARCH, &["amd64"]);
    requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand"]));
    requirements.add(labels::SKU_FAMILY, Requirement::any_of(["D", "E", "F"]));
    NodePool {
        name: NodePoolName::new("general").unwrap(),
        uid: Uid::new("general").unwrap(),
        weight: 0,
        requirements,
        labels: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: PoolLimits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::ZERO),
            budgets: vec![napkeeper_core::model::cluster::pool::Budget {
                nodes: napkeeper_core::model::cluster::pool::BudgetNodes::Percent(10),
                reasons: None,
                window: None,
            }],
        },
        replicas: None,
        conditions: Default::default(),
    }
}

fn setup(workloads: Vec<(&str, Workload)>) -> WorldSetup {
    WorldSetup {
        region: Region::new("westeurope").unwrap(),
        seed: 1,
        at: "2026-08-03T00:00:00Z".parse().unwrap(),
        manifests: Manifests {
            pools: vec![pool()],
            classes: vec![NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("class").unwrap())],
            workloads: workloads.into_iter().map(|(name, w)| (key(name), w)).collect(),
            ..Manifests::default()
        },
        system_nodes: 1,
        actions: Vec::new(),
        deletion_rules: DeletionRules::default(),
    }
}

fn scale(after: SignedDuration, workload: &str, replicas: u32) -> (SignedDuration, Action) {
    (after, Action::Scale { workload: key(workload), replicas })
}

fn after(setup: &WorldSetup, time: SignedDuration, variant: &Variant) -> Karpenter {
    let mut karpenter = Karpenter::new(&Catalog::embedded().unwrap(), setup, variant).unwrap();
    karpenter.run_until(setup.at + time).unwrap();
    karpenter
}

fn running(karpenter: &Karpenter) -> usize {
    let pods = karpenter.cluster.state().pods().values();
    pods.filter(|p| p.phase == PodPhase::Running && p.deleting_at.is_none()).count()
}

/// A day in the small: eight workloads of different sizes whose replicas follow a wave with some noise.
fn wave(seed: u64, hours: i64) -> WorldSetup {
    let sizes = [250, 500, 750, 1000, 1500, 2000, 3000, 4000];
    let mut random = crate::random::Random::new(seed);
    let names: Vec<String> = sizes.iter().map(|size| format!("app{size}")).collect();
    let workloads = names.iter().zip(sizes).map(|(name, size)| (name.as_str(), deployment(shape(name, size), 20)));
    let mut start = setup(workloads.collect());
    for step in 1..hours * 6 {
        let at = mins(step * 10);
        for name in &names {
            // A triangle over two hours, from 12 to 36 replicas.
            let phase = (step % 12 - 6).unsigned_abs() as u32;
            let noise = u32::try_from(random.between(0, 6)).unwrap();
            start.actions.push(scale(at, name, 12 + phase * 4 + noise));
        }
    }
    start
}

#[test]
fn measure_variants() {
    for (name, consolidation) in [
        ("when empty", ConsolidationPolicy::WhenEmpty),
        ("balanced", ConsolidationPolicy::Balanced),
        ("underutilized", ConsolidationPolicy::WhenEmptyOrUnderutilized),
    ] {
        let start = std::time::Instant::now();
        let variant = Variant { consolidation: Some(consolidation), ..Variant::default() };
        let outcome = run(&Catalog::embedded().unwrap(), &wave(1, 6), mins(360), &variant).unwrap();
        println!("{name}: {outcome:?} in {:?}", start.elapsed());
    }
}
