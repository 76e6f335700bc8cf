//! A small cluster for tests: a NodePool with two nodes, of which the second replaces the first, and their pods.

use jiff::{SignedDuration, Timestamp};
use napkeeper_api::manifests::{Object, object};
use napkeeper_core::catalog::{CapacityType, Catalog, InstanceTypeOptions, OfferingKey, instance_types};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::naming::resource_ids;
use napkeeper_core::model::cluster::claim::{
    Claim, ClaimSpec, ClaimStatus, DriftedCondition, LaunchIntent, PlannedOffering,
};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodDetails, PodOwner, PodPhase, PodShape};
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{
    ArmId, ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId, Region, Uid,
    VmSize, Zone,
};
use napkeeper_core::plan::{Command, Launch, PlannedCommand, SecurityProfile};
use napkeeper_core::snapshot::Snapshot;
use serde_json::json;
use std::sync::Arc;

/// When everything begins.
pub(super) fn start() -> Timestamp {
    "2026-08-03T10:00:00Z".parse().unwrap()
}

/// So many seconds later.
pub(super) fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

pub(super) fn offering() -> PlannedOffering {
    let (size, zone) = (VmSize::new("Standard_D4s_v5").unwrap(), Zone::new("westeurope-1").unwrap());
    let key = OfferingKey { size, zone, capacity_type: CapacityType::OnDemand };
    PlannedOffering { key, price: HourlyPrice::from_nanos(192_000_000) }
}

pub(super) fn group() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/g").unwrap()
}

/// A NodeClaim that is planned and launched.
pub(super) fn claim(name: &str) -> Claim {
    let ids = resource_ids(&group(), &ClaimName::new(name).unwrap());
    let intent = LaunchIntent {
        offering: offering(),
        vm: ids.vm.clone(),
        nic: ids.nic,
        os_disk: ids.os_disk,
        machine: None,
        reservation: None,
        written_at: start(),
        refused: 0,
        operation: None,
    };
    Claim {
        name: ClaimName::new(name).unwrap(),
        uid: Uid::new(format!("claim-{name}")).unwrap(),
        created_at: start(),
        deleting_at: None,
        termination_at: None,
        has_finalizer: true,
        owned_by_pool: false,
        spec: ClaimSpec {
            pool: Some(NodePoolName::new("general").unwrap()),
            planned: vec![offering()],
            ..ClaimSpec::of_class(NodeClassName::new("default").unwrap())
        },
        intent: Some(intent),
        status: ClaimStatus {
            launched: Some(start()),
            registered: Some(start()),
            initialized: Some(start()),
            provider_id: Some(ProviderId::of_vm(&ids.vm)),
            ..ClaimStatus::default()
        },
    }
}

/// The launch of a NodeClaim.
pub(super) fn launch(name: &str) -> Command {
    Command::Launch(Box::new(Launch {
        claim: claim(name).reference(),
        pool: claim(name).spec.pool,
        offerings: vec![offering()],
        intent: None,
        group: group(),
        tags: [].into(),
        os_disk_gb: 128,
        security: SecurityProfile::default(),
        subnet: None,
        capacity_reservation_group: None,
        image: None,
    }))
}

/// The Node of a NodeClaim.
pub(super) fn node(claim: &Claim) -> Node {
    let room = Resources { pods: 110, ..Resources::cpu_memory(4_000, 16 << 30) };
    let name = NodeName::new(format!("aks-{}", claim.name)).unwrap();
    let labels = [
        (labels::NODEPOOL, "general"),
        (labels::NODECLASS, "default"),
        (labels::ZONE, "westeurope-1"),
        (labels::REGION, "westeurope"),
        (labels::INSTANCE_TYPE, "Standard_D4s_v5"),
        (labels::CAPACITY_TYPE, "on-demand"),
        (labels::ARCH, "amd64"),
        (labels::OS, "linux"),
    ];
    Node {
        uid: Uid::new(name.as_str()).unwrap(),
        name,
        provider_id: claim.status.provider_id.clone(),
        labels: labels.map(|(key, value)| (Arc::from(key), Arc::from(value))).into(),
        taints: Vec::new(),
        capacity: room.clone(),
        allocatable: room,
        ready: true,
        ready_since: start(),
        created_at: start(),
        deleting_at: None,
        cordoned: false,
        has_finalizer: true,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    }
}

/// A pod that waits.
pub(super) fn pod(name: &str) -> Pod {
    let namespace = Namespace::new("shop").unwrap();
    let requests = Resources { pods: 1, ..Resources::cpu_memory(500, 1 << 30) };
    let shape = Arc::new(PodShape::plain(namespace.clone(), [].into(), requests.clone()));
    let key = ObjectKey { namespace, name: ObjectName::new(name).unwrap() };
    let details = PodDetails { limits: Arc::new(requests.times(2)), ..PodDetails::default() };
    let waiting = Pod::waiting(key, Uid::new(name).unwrap(), &shape, PodOwner::Controller);
    Pod { created_at: start(), details, ..waiting }
}

/// A pod that runs on a node since a second after its creation.
pub(super) fn running(name: &str, on: &Node) -> Pod {
    let waiting = pod(name);
    let details = PodDetails { scheduled_at: Some(at(1)), ready_at: Some(at(4)), ..waiting.details.clone() };
    Pod { node: Some(on.name.clone()), phase: PodPhase::Running, ready: true, unschedulable: false, details, ..waiting }
}

/// The NodeClaim `general-a` has drifted and is replaced by `general-b`; both have a Node with a pod, and a pod waits.
pub(super) fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class = json!({
        "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "default", "uid": "c1" },
        "spec": {},
    });
    let Object::NodeClass(class) = object(&class).unwrap() else { panic!("not a class") };
    let region = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
    let types = instance_types(&region, &class, &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    snapshot.put_class(class.name.clone(), *class);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "general", "uid": "p1" },
        "spec": {
            "limits": { "cpu": "100" },
            "disruption": { "budgets": [{ "nodes": "0", "reasons": ["Drifted"] }], "consolidateAfter": "1m" },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
                "requirements": [],
            } },
        },
    });
    let Object::NodePool(pool) = object(&pool).unwrap() else { panic!("not a pool") };
    snapshot.put_pool(pool.name.clone(), *pool);
    let (mut old, mut new) = (claim("general-a"), claim("general-b"));
    old.status.disrupted = Some(DisruptionReason::Drifted);
    old.status.drifted =
        Some(DriftedCondition { since: start(), reason: Arc::from("NodePoolDrifted"), message: Arc::from("labels") });
    new.spec.replaces = vec![old.name.clone()];
    for claim in [old, new] {
        let node = node(&claim);
        snapshot.put_pod(running(&format!("on-{}", claim.name), &node));
        snapshot.put_node(node);
        snapshot.put_claim(claim);
    }
    snapshot.put_pod(pod("waiting"));
    snapshot
}

/// A command for a reason.
pub(super) fn planned(command: Command) -> PlannedCommand {
    PlannedCommand { command, reason: Arc::from("so it is"), preconditions: None }
}
