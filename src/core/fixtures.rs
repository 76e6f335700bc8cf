//! A small cluster for tests: a dozen sizes in three zones, with pools, nodes and pods.

use crate::catalog::live::{CapacityReservation, Fact, InfrastructureFacts, SubnetAddresses};
use crate::catalog::{
    CapacityType, Catalog, InstanceTypeOptions, InstanceTypes, OfferingKey, instance_types, reserved_price,
    with_reserved,
};
use crate::model::amounts::resources::Resources;
use crate::model::azure::naming::resource_ids;
use crate::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent, PlannedOffering};
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Labels, Pod, PodOwner, PodPhase, PodShape, Spread};
use crate::model::cluster::pool::{Budget, BudgetNodes, ConsolidationPolicy, Disruption, Limits, NodeClass, NodePool};
use crate::model::cluster::status::{PoolDeletion, StatusCondition};
use crate::model::cluster::volume::VolumeClaim;
use crate::model::labels;
use crate::model::names::{
    ArmId, ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId, Region, Uid,
    VmSize, Zone,
};
use crate::model::requirements::{Operator, Requirements};
use crate::model::settings::{ClusterIdentity, Settings};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::{Arc, LazyLock};

pub(crate) const GIB: i64 = 1 << 30;
pub(crate) const GPU: &str = "nvidia.com/gpu";

const SIZES: [&str; 10] = [
    "Standard_D2s_v5",
    "Standard_D4s_v5",
    "Standard_D8s_v5",
    "Standard_D16s_v5",
    "Standard_D2ps_v5",
    "Standard_D8ps_v5",
    "Standard_E4s_v5",
    "Standard_F8s_v2",
    "Standard_NC4as_T4_v3",
    "Standard_NC16as_T4_v3",
];

static TYPES: LazyLock<InstanceTypes> = LazyLock::new(|| {
    let catalog = Catalog::embedded().unwrap();
    let region = catalog.region(&region()).unwrap();
    let mut types = instance_types(&region, &class(), &InstanceTypeOptions::default());
    types.retain(|t| SIZES.contains(&t.facts.name.as_str()));
    assert_eq!(types.len(), SIZES.len(), "a size of the fixtures is not sold in westeurope any more");
    Arc::new(types)
});

/// Numbers from a seed (xorshift), enough to mix tests with.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).rev().for_each(|last| all.swap(last, self.roll(last + 1)));
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.roll(n) == 0
    }
}

pub(crate) fn region() -> Region {
    Region::new("westeurope").unwrap()
}

pub(crate) fn zone(n: u8) -> Zone {
    Zone::of(&region(), n)
}

pub(crate) fn start() -> Timestamp {
    "2026-08-03T08:00:00Z".parse().unwrap()
}

/// So many seconds after the start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

pub(crate) fn group() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/MC_g").unwrap()
}

pub(crate) fn settings() -> Settings {
    let cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
    Settings::new(ClusterIdentity {
        id: ArmId::new(cluster).unwrap(),
        tag_value: Arc::from("c-1"),
        node_resource_group: group(),
        region: region(),
    })
}

pub(crate) fn class() -> NodeClass {
    NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("class").unwrap())
}

/// Requirements, each on one key with operator In.
pub(crate) fn requirements_in(entries: &[(&str, &[&str])]) -> Requirements {
    let mut requirements = Requirements::new();
    for (key, values) in entries {
        requirements.add_entry(key, Operator::In, values).unwrap();
    }
    requirements
}

/// A pool for amd64 at any capacity type, without limits, whose idle nodes may all be disrupted at once.
pub(crate) fn pool(name: &str) -> NodePool {
    NodePool {
        name: NodePoolName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight: 0,
        requirements: requirements_in(&[(labels::ARCH, &["amd64"])]),
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: class().name,
        limits: Limits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::ZERO),
            budgets: vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }],
        },
        replicas: None,
        deletion: PoolDeletion { has_finalizer: true, ..PoolDeletion::default() },
        generation: 1,
        status: Default::default(),
    }
}

/// How far the deletion of a NodePool is that was requested then, and waits for our finalizer.
pub(crate) fn being_deleted(at: Timestamp) -> PoolDeletion {
    PoolDeletion { requested_at: Some(at), has_finalizer: true, keeps_nodes: false }
}

/// A cluster without nodes: the class, its sizes and these pools.
pub(crate) fn cluster(pools: impl IntoIterator<Item = NodePool>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.instance_types.insert(class().name, Arc::clone(&TYPES));
    snapshot.put_class(class().name, class());
    for pool in pools {
        snapshot.put_pool(pool.name.clone(), pool);
    }
    snapshot
}

pub(crate) fn shape(app: &str, cpu_millis: i64, gib: i64) -> PodShape {
    PodShape::plain(
        Namespace::new("default").unwrap(),
        Labels::from([(Arc::from("app"), Arc::from(app))]),
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, gib * GIB) },
    )
}

/// A spread constraint over the pods of one app.
pub(crate) fn spread(topology_key: &str, app: &str, max_skew: u32) -> Spread {
    Spread::over(topology_key, max_skew, requirements_in(&[("app", &[app])]))
}

/// A waiting pod.
pub(crate) fn pod(name: &str, shape: &Arc<PodShape>) -> Pod {
    let key = ObjectKey { namespace: shape.namespace.clone(), name: ObjectName::new(name).unwrap() };
    let uid = Uid::new(format!("uid-{name}")).unwrap();
    Pod { created_at: start(), ..Pod::waiting(key, uid, shape, PodOwner::Controller) }
}

/// Waiting pods of one shape, `<prefix>-<n>`.
pub(crate) fn pods(prefix: &str, shape: PodShape, count: usize) -> Vec<Arc<Pod>> {
    let shape = Arc::new(shape);
    (0..count).map(|i| Arc::new(pod(&format!("{prefix}-{i:03}"), &shape))).collect()
}

/// A PersistentVolumeClaim that is bound to a volume.
pub(crate) fn bound_claim(key: &ObjectKey, volume: &ObjectName) -> VolumeClaim {
    VolumeClaim {
        key: key.clone(),
        uid: Uid::new(key.name.as_str()).unwrap(),
        volume: Some(volume.clone()),
        bound: true,
        class: None,
        lost: false,
        deleting: false,
        for_one_pod: false,
        selected_node: None,
    }
}

/// A PodDisruptionBudget for the pods of one app, which allows so many evictions now.
pub(crate) fn disruption_budget(app: &str, disruptions_allowed: u32) -> PodDisruptionBudget {
    let key = ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(app).unwrap() };
    PodDisruptionBudget {
        key,
        selector: Some(requirements_in(&[("app", &[app])])),
        disruptions_allowed,
        allows_unready: false,
        is_fully_blocking: false,
        healthy: 1 + disruptions_allowed,
        desired_healthy: 1,
    }
}

/// A pod that runs on a node.
pub(crate) fn running(name: &str, shape: &Arc<PodShape>, node: &Node) -> Pod {
    Pod {
        node: Some(node.name.clone()),
        started_at: Some(start()),
        phase: PodPhase::Running,
        ready: true,
        unschedulable: false,
        ..pod(name, shape)
    }
}

/// An unmanaged node with `cores` cores and four times as many GiB.
pub(crate) fn node(name: &str, zone_number: u8, cores: i64) -> Node {
    let allocatable = Resources { pods: 110, ..Resources::cpu_memory(cores * 1000, cores * 4 * GIB) };
    Node {
        name: NodeName::new(name).unwrap(),
        uid: Uid::new(format!("node-{name}")).unwrap(),
        provider_id: None,
        labels: Labels::from([
            (Arc::from(labels::ZONE), zone(zone_number).text()),
            (Arc::from(labels::ARCH), Arc::from("amd64")),
        ]),
        taints: Vec::new(),
        capacity: allocatable.clone(),
        allocatable,
        ready: true,
        ready_since: start(),
        created_at: start(),
        deleting_at: None,
        cordoned: false,
        has_finalizer: false,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    }
}

/// An offering at the price of the catalogue, with its OS disk.
pub(crate) fn offering(size: &str, zone_number: u8, capacity_type: CapacityType) -> PlannedOffering {
    let instance = TYPES.iter().find(|t| t.facts.name.as_str() == size).unwrap();
    let key = OfferingKey { size: VmSize::new(size).unwrap(), zone: zone(zone_number), capacity_type };
    let found = |of| instance.offerings.iter().find(|o| o.zone == key.zone && o.capacity_type == of);
    let price = match capacity_type {
        CapacityType::Reserved => found(CapacityType::OnDemand).map(|offering| reserved_price(offering.price)),
        _ => found(capacity_type).map(|offering| instance.node_price(offering)),
    };
    PlannedOffering { price: price.unwrap_or_default(), key }
}

/// The capacity reservation group that [`reserve`] sets on the class.
pub(crate) fn reservation_group() -> ArmId {
    ArmId::new(format!(
        "/subscriptions/s/resourceGroups/r/providers/{}/paid",
        crate::catalog::live::CAPACITY_RESERVATION_GROUP_TYPE
    ))
    .unwrap()
}

/// Lets the class have reserved capacity: size, zone, VMs used and VMs reserved.
pub(crate) fn reserve(snapshot: &mut Snapshot, as_of: Timestamp, reserved: &[(&str, u8, u64, u64)]) {
    let reservation = |&(size, n, used, capacity): &(&str, u8, u64, u64)| CapacityReservation {
        group: reservation_group(),
        size: VmSize::new(size).unwrap(),
        zone: if n == 0 { Zone::regional() } else { zone(n) },
        capacity,
        used,
    };
    let reservations = Some(Fact { as_of, value: reserved.iter().map(reservation).collect() });
    snapshot.set_infrastructure(Arc::new(InfrastructureFacts { reservations, ..InfrastructureFacts::default() }));
    let class = NodeClass { reservations: Some(reservation_group()), ..class() };
    let types = with_reserved(TYPES.to_vec(), &snapshot.infrastructure.reserved_for(&class));
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    snapshot.put_class(class.name.clone(), class);
}

/// One subnet for all nodes, without a free address.
pub(crate) fn full_subnet(as_of: Timestamp) -> Arc<InfrastructureFacts> {
    let id = ArmId::new("/subscriptions/s/resourceGroups/n/providers/a/b/c/subnets/nodes").unwrap();
    let full = SubnetAddresses { id, used: 251, usable: 251, is_default: true };
    let subnets = Some(Fact { as_of, value: vec![full] });
    Arc::new(InfrastructureFacts { subnets, ..InfrastructureFacts::default() })
}

/// A pool with these capacity types.
pub(crate) fn pool_with_capacity_types(name: &str, capacity_types: &[&str]) -> NodePool {
    let mut pool = pool(name);
    pool.requirements.add_all(&requirements_in(&[(labels::CAPACITY_TYPE, capacity_types)]));
    pool
}

/// A claim of a pool that has just been created.
pub(crate) fn claim(name: &str, pool: &NodePool, planned: Vec<PlannedOffering>) -> Claim {
    let own = [(labels::NODEPOOL, pool.name.text()), (labels::NODECLASS, pool.class.text())];
    let mut labels = pool.labels.clone();
    labels.extend(own.map(|(key, value)| (Arc::from(key), value)));
    Claim {
        name: ClaimName::new(name).unwrap(),
        uid: Uid::new(format!("claim-{name}")).unwrap(),
        created_at: start(),
        deleting_at: None,
        termination_at: None,
        owned_by_pool: false,
        has_finalizer: true,
        spec: ClaimSpec {
            pool: Some(pool.name.clone()),
            requirements: pool.requirements.clone(),
            labels,
            taints: pool.taints.clone(),
            startup_taints: pool.startup_taints.clone(),
            expire_after: pool.expire_after,
            termination_grace_period: pool.termination_grace_period,
            planned,
            ..ClaimSpec::of_class(pool.class.clone())
        },
        intent: None,
        status: ClaimStatus::default(),
    }
}

/// The intent to launch an offering for a claim.
pub(crate) fn intent(claim: &Claim, offering: PlannedOffering) -> LaunchIntent {
    let ids = resource_ids(&group(), &claim.name);
    let (vm, nic, os_disk) = (ids.vm, ids.nic, ids.os_disk);
    LaunchIntent {
        offering,
        vm,
        nic,
        os_disk,
        machine: None,
        reservation: None,
        written_at: start(),
        refused: 0,
        operation: None,
    }
}

/// A claim whose node has run since the start, and that node, registered and initialised.
pub(crate) fn managed(name: &str, pool: &NodePool, offering: PlannedOffering) -> (Claim, Node) {
    let instance = TYPES.iter().find(|t| t.facts.name == offering.key.size).unwrap();
    let mut claim = claim(name, pool, vec![offering.clone()]);
    let id = ProviderId::of_vm(&resource_ids(&group(), &claim.name).vm);
    claim.intent = Some(intent(&claim, offering.clone()));
    let mut node = node(&format!("aks-{name}"), 1, 1);
    claim.status = ClaimStatus {
        launched: Some(start()),
        registered: Some(start()),
        initialized: Some(start()),
        provider_id: Some(id.clone()),
        node_name: Some(node.name.clone()),
        capacity: instance.capacity.clone(),
        allocatable: instance.allocatable.clone(),
        consolidatable: pool.consolidatable_from(start()).is_some_and(|from| from <= start()),
        consistent_state: Some(StatusCondition::holding("ConsistentStateFound")),
        ..ClaimStatus::default()
    };
    node.provider_id = Some(id);
    node.has_finalizer = true;
    node.capacity = instance.capacity.clone();
    node.allocatable = instance.allocatable.clone();
    node.labels.extend(claim.spec.labels.clone());
    for (key, value) in [
        (labels::ZONE, offering.key.zone.as_str()),
        (labels::INSTANCE_TYPE, offering.key.size.as_str()),
        (labels::CAPACITY_TYPE, offering.key.capacity_type.as_str()),
        (labels::REGISTERED, "true"),
        (labels::INITIALIZED, "true"),
    ] {
        node.labels.insert(Arc::from(key), Arc::from(value));
    }
    (claim, node)
}

/// Puts a claim and its node into a cluster.
pub(crate) fn put(snapshot: &mut Snapshot, (claim, node): (Claim, Node)) {
    snapshot.put_claim(claim);
    snapshot.put_node(node);
}
