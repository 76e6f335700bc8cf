//! NodePools, workloads and sweeps that every history begins with.

use super::Hazard;
use super::history::{key, known, object};
use crate::random::Random;
use crate::workload::{BudgetLimit, PodBudget, PodTemplate, Workload, WorkloadKind};
use jiff::SignedDuration;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::pod::{Labels, PodShape, Spread};
use napkeeper_core::model::cluster::pool::{
    Budget, BudgetNodes, ConsolidationPolicy, Disruption, Limits, NodeClass, NodePool,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, NodeClassName, NodePoolName, ObjectKey, Uid};
use napkeeper_core::model::orphans::sweep::{Exclusion, Sweep, SweepMode};
use napkeeper_core::model::requirements::{Operator, Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn workloads(random: &mut Random) -> Vec<(ObjectKey, Workload)> {
    let deployment = |name: &str, cpu: i64, memory: i64, replicas: u64, spread: bool| {
        let own = Labels::from([(Arc::from("app"), Arc::from(name))]);
        let mut selector = Requirements::new();
        selector.add("app", Requirement::any_of([name]));
        let zonal = Spread::over(labels::ZONE, 1, selector);
        let shape = PodShape {
            spread: spread.then_some(zonal).into_iter().collect(),
            ..PodShape::plain(
                known(Namespace::new("default")),
                own,
                Resources { pods: 1, ..Resources::cpu_memory(cpu, memory << 20) },
            )
        };
        let replicas = u32::try_from(replicas).unwrap_or(1);
        (key(name), Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } })
    };
    vec![
        deployment("web", 1000, 1024, random.between(2, 10), false),
        deployment("api", 500, 2048, random.between(2, 8), true),
        deployment("cache", 250, 6144, random.between(1, 5), false),
    ]
}

/// PodDisruptionBudgets of two workloads.
pub(super) fn budgets() -> Vec<(ObjectKey, PodBudget)> {
    let limits = [("web", BudgetLimit::MaxUnavailable(2)), ("api", BudgetLimit::MinAvailablePercent(50))];
    let budget = |(name, limit): (&str, BudgetLimit)| {
        let mut selector = Requirements::new();
        selector.add("app", Requirement::any_of([name]));
        (
            key(name),
            PodBudget { namespace: known(Namespace::new("default")), selector, limit, always_allows_unready: false },
        )
    };
    limits.map(budget).into()
}

/// A sweep that collects; where users change things, another one that only excludes.
pub(super) fn sweeps(hazard: Hazard, random: &mut Random) -> Vec<Sweep> {
    let collects = sweep(hazard, random);
    if hazard != Hazard::ManualChanges {
        return vec![collects];
    }
    let excludes = Sweep {
        name: object("exclusions"),
        mode: SweepMode::Report,
        kinds: [ResourceKind::Nic].into(),
        ..collects.clone()
    };
    vec![Sweep { exclusions: Vec::new(), ..collects }, excludes]
}

fn sweep(hazard: Hazard, random: &mut Random) -> Sweep {
    let by_hand = hazard == Hazard::ManualChanges || random.one_in(2);
    let vms = if by_hand { vec![ResourceKind::Vm, ResourceKind::DataDisk] } else { vec![ResourceKind::DataDisk] };
    Sweep {
        name: object("default"),
        uid: known(Uid::new("sweep")),
        inventory_interval: SignedDuration::from_mins(i64::try_from(random.between(10, 30)).unwrap_or(15)),
        schedule: None,
        mode: SweepMode::Collect,
        kinds: BTreeSet::from(ResourceKind::ALL),
        minimum_age: BTreeMap::from([(ResourceKind::DataDisk, SignedDuration::from_hours(4))]),
        approval_required: vms.into_iter().collect(),
        cap: (hazard == Hazard::Caps).then_some(1),
        exclusions: vec![Exclusion::Name(Arc::from("excluded"))],
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    }
}

pub(super) fn pool(name: &str, weight: i32, capacity_types: &[&str], cores: i64) -> NodePool {
    let mut requirements = Requirements::new();
    for (key, values) in
        [(labels::ARCH, &["amd64"][..]), (labels::SKU_FAMILY, &["D"]), (labels::CAPACITY_TYPE, capacity_types)]
    {
        known(requirements.add_entry(key, Operator::In, values));
    }
    NodePool {
        name: known(NodePoolName::new(name)),
        uid: known(Uid::new(name)),
        weight,
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: known(NodeClassName::new("default")),
        limits: Limits { nodes: None, resources: BTreeMap::from([(Arc::from("cpu"), cores * 1000)]) },
        expire_after: Some(SignedDuration::from_hours(40)),
        termination_grace_period: Some(SignedDuration::from_mins(20)),
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::from_secs(30)),
            budgets: vec![Budget { nodes: BudgetNodes::Percent(34), reasons: None, window: None }],
        },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

pub(super) fn class() -> NodeClass {
    NodeClass::with_defaults(known(NodeClassName::new("default")), known(Uid::new("class")))
}
