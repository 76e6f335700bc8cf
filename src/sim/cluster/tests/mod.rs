mod disruption;
mod inter_pod_affinity;
mod lifecycle;
mod properties;
mod scheduling;
mod storage;

use super::{Cluster, ClusterEvent, NewNode, Timings};
use crate::workload::{PodTemplate, Workload, WorkloadKind};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::{Claim, ClaimSpec};
use napkeeper_core::model::cluster::pod::{Labels, Pod, PodShape, Spread, Taint, TaintEffect};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::*;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::plan::{ClaimDraft, ClaimUpdate, ClusterWrite, NodeUpdate, Reply};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::apply_delta;
use std::collections::BTreeMap;
use std::sync::Arc;

const GIB: i64 = 1 << 30;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(1, Timings::default());
    cluster.advance(at(0));
    cluster
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn labelled(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect()
}

fn shape(app: &str, cpu_millis: i64) -> PodShape {
    PodShape::plain(
        Namespace::new("default").unwrap(),
        labelled(&[("app", app)]),
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, cpu_millis * (GIB / 1000)) },
    )
}

fn app_is(app: &str) -> Requirements {
    let mut selector = Requirements::new();
    selector.add("app", Requirement::any_of([app]));
    selector
}

fn spread_over_zones(app: &str, cpu_millis: i64) -> PodShape {
    PodShape { spread: vec![Spread::over(labels::ZONE, 1, app_is(app))], ..shape(app, cpu_millis) }
}

fn vm(name: &str) -> ArmId {
    let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
    ArmId::new(format!("{group}/virtualMachines/{name}")).unwrap()
}

fn disk(name: &str) -> ArmId {
    let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
    ArmId::new(format!("{group}/disks/{name}")).unwrap()
}

/// A machine of so many cores with 1 GiB each in zone `westeurope-<zone>`.
fn machine(name: &str, cores: i64, zone: u8) -> NewNode {
    let all = Resources { pods: 110, ..Resources::cpu_memory(cores * 1000, cores * GIB) };
    NewNode {
        name: NodeName::new(name).unwrap(),
        provider_id: ProviderId::of_vm(&vm(name)),
        labels: labelled(&[(labels::ZONE, &format!("westeurope-{zone}"))]),
        taints: Vec::new(),
        capacity: all.clone(),
        allocatable: all,
        kubelet_version: None,
    }
}

fn deployment(shape: PodShape, replicas: u32) -> Workload {
    Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } }
}

fn pods_of(cluster: &Cluster, app: &str) -> Vec<Arc<Pod>> {
    let of_app = |p: &&Arc<Pod>| p.shape.labels.get("app").is_some_and(|a| &**a == app);
    cluster.state().pods().values().filter(of_app).cloned().collect()
}

/// How many pods of an app each node has.
fn by_node(cluster: &Cluster, app: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods_of(cluster, app) {
        let node = pod.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        *counts.entry(node).or_default() += 1;
    }
    counts
}

fn counts(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
}

fn perform(cluster: &mut Cluster, write: ClusterWrite, now: Timestamp) -> Result<Reply, ClusterError> {
    match cluster.write(&write, now) {
        Ok(reply) => Ok(reply),
        Err(EffectError::Cluster(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

fn assert_same(a: &Snapshot, b: &Snapshot) {
    macro_rules! same {
        ($($table:ident),*) => {
            $(assert_eq!(
                a.$table().iter().collect::<Vec<_>>(),
                b.$table().iter().collect::<Vec<_>>(),
                stringify!($table)
            );)*
        };
    }
    same!(pods, nodes, claims, pools, classes, daemon_sets, sweeps, volumes, volume_claims, storage_classes);
    assert_eq!(a.records, b.records);
    assert_eq!(a.pause, b.pause);
    assert!(a.same_indexes(b));
    assert!(a.same_indexes(&a.reindexed()));
}

fn spec() -> ClaimSpec {
    ClaimSpec {
        pool: Some(NodePoolName::new("general").unwrap()),
        startup_taints: vec![startup()],
        ..ClaimSpec::of_class(NodeClassName::new("default").unwrap())
    }
}

fn startup() -> Taint {
    Taint { key: Arc::from("example.com/setup"), value: Arc::from(""), effect: TaintEffect::NoSchedule }
}

fn create(cluster: &mut Cluster, name: &str, now: Timestamp) -> Arc<Claim> {
    let name = ClaimName::new(name).unwrap();
    let draft = ClaimDraft { name: name.clone(), spec: spec(), reason: None, pods: Vec::new() };
    perform(cluster, ClusterWrite::CreateClaim(Box::new(draft)), now).unwrap();
    cluster.state().claims().get(&name).unwrap().clone()
}

/// A claim whose VM has been created; its kubelet has not joined.
fn launch(cluster: &mut Cluster, machine: &NewNode, now: Timestamp) -> Arc<Claim> {
    let claim = create(cluster, machine.name.as_str(), now);
    let step = ClaimUpdate::Launched {
        provider_id: machine.provider_id.clone(),
        offering: offering(),
        image: None,
        capacity: machine.capacity.clone(),
        allocatable: machine.allocatable.clone(),
    };
    perform(cluster, ClusterWrite::UpdateClaim(claim.reference(), step), now).unwrap();
    cluster.state().claims().get(&claim.name).unwrap().clone()
}

fn offering() -> OfferingKey {
    OfferingKey {
        size: VmSize::new("Standard_D4s_v5").unwrap(),
        zone: Zone::new("westeurope-1").unwrap(),
        capacity_type: CapacityType::OnDemand,
    }
}
