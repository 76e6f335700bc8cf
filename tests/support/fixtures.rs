//! Clusters to measure and test with, of any size.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, instance_types};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Labels, Pod, PodOwner, PodPhase, PodShape, Spread};
use napkeeper_core::model::cluster::pool::{
    Budget, BudgetNodes, ConsolidationPolicy, Disruption, Limits, NodeClass, NodePool,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{
    ArmId, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, Region, Uid,
};
use napkeeper_core::model::requirements::{Operator, Requirements};
use napkeeper_core::model::settings::{ClusterIdentity, Settings};
use napkeeper_core::snapshot::Snapshot;
use std::sync::Arc;

/// Ten kinds of pods: CPU in thousandths of a core, and memory in MiB.
pub const TEN_KINDS: [(u32, u32); 10] = [
    (250, 256),
    (500, 512),
    (500, 1_024),
    (1_000, 1_024),
    (1_000, 4_096),
    (2_000, 2_048),
    (100, 128),
    (1_500, 3_072),
    (750, 1_536),
    (300, 2_048),
];

/// Text that is known to be a good name.
macro_rules! named {
    ($type:ident, $text:expr) => {
        $type::new($text).expect("a good name")
    };
}

/// The instant of all worlds.
pub fn instant() -> Timestamp {
    "2026-08-03T08:00:00Z".parse().expect("a time")
}

/// Settings of a cluster in westeurope.
pub fn settings() -> Settings {
    Settings::new(ClusterIdentity {
        id: named!(ArmId, "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"),
        tag_value: Arc::from("c"),
        node_resource_group: named!(ArmId, "/subscriptions/s/resourceGroups/MC_g_c_westeurope"),
        region: named!(Region, "westeurope"),
    })
}

/// An AKSNodeClass with everything at its default.
pub fn class() -> NodeClass {
    NodeClass::with_defaults(named!(NodeClassName, "default"), named!(Uid, "class"))
}

/// A pool without limits for everything on amd64.
pub fn pool(name: &str) -> NodePool {
    let mut requirements = Requirements::new();
    requirements.add_entry(labels::ARCH, Operator::In, &["amd64"]).expect("a requirement");
    NodePool {
        name: named!(NodePoolName, name),
        uid: named!(Uid, name),
        weight: 0,
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: named!(NodeClassName, "default"),
        limits: Limits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::ZERO),
            budgets: vec![Budget { nodes: BudgetNodes::Percent(10), reasons: None, window: None }],
        },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

/// An empty cluster in westeurope with one pool over the whole catalogue.
pub fn empty_cluster() -> Snapshot {
    let catalog = Catalog::embedded().expect("the embedded catalogue");
    let region = catalog.region(&named!(Region, "westeurope")).expect("westeurope");
    let mut snapshot = Snapshot::default();
    let class = class();
    let types = instance_types(&region, &class, &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    snapshot.put_class(class.name.clone(), class);
    let pool = pool("general");
    snapshot.put_pool(pool.name.clone(), pool);
    snapshot
}

/// A shape of pods of one app; with an optional zone spread.
pub fn shape(app: &str, cpu_millis: i64, memory_mib: i64, zone_spread: bool) -> Arc<PodShape> {
    let mut selector = Requirements::new();
    selector.add_entry("app", Operator::In, &[app]).expect("a requirement");
    let spread = Spread::over(labels::ZONE, 1, selector);
    Arc::new(PodShape {
        spread: zone_spread.then_some(spread).into_iter().collect(),
        ..PodShape::plain(
            named!(Namespace, "default"),
            Labels::from([(Arc::from("app"), Arc::from(app))]),
            Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, memory_mib << 20) },
        )
    })
}

/// A waiting pod, or one that runs on a node.
pub fn pod(shape: &Arc<PodShape>, name: &str, node: Option<&NodeName>) -> Pod {
    let key = ObjectKey { namespace: shape.namespace.clone(), name: named!(ObjectName, name) };
    let waiting = Pod::waiting(key, named!(Uid, name), shape, PodOwner::Controller);
    Pod {
        created_at: instant(),
        started_at: node.map(|_| instant()),
        node: node.cloned(),
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        unschedulable: node.is_none(),
        ..waiting
    }
}

/// `shapes` kinds of pods, every one spread over zones, `pods` of them in all, waiting.
pub fn waiting_pods(pods: usize, shapes: usize) -> Vec<Arc<Pod>> {
    let cpu = [100, 250, 500, 1000, 1500, 2000, 4000];
    let memory = [128, 256, 512, 1024, 2048, 4096, 8192];
    let kinds: Vec<Arc<PodShape>> = (0..shapes)
        .map(|i| {
            shape(&format!("app-{i}"), cpu[i % cpu.len()] + i as i64, memory[(i * 3 + i / 7) % memory.len()], true)
        })
        .collect();
    (0..pods).map(|i| Arc::new(pod(&kinds[i % shapes], &format!("pod-{i}"), None))).collect()
}

/// An unmanaged node of 16 cores and 64 GiB.
pub fn node(name: &str, zone: u8) -> Node {
    let region = named!(Region, "westeurope");
    let zone = napkeeper_core::model::names::Zone::of(&region, zone);
    let allocatable = Resources { pods: 250, ..Resources::cpu_memory(15_740, 58 << 30) };
    Node {
        name: named!(NodeName, name),
        uid: named!(Uid, name),
        provider_id: None,
        labels: Labels::from([(Arc::from(labels::ZONE), zone.text()), (Arc::from(labels::ARCH), Arc::from("amd64"))]),
        taints: Vec::new(),
        capacity: allocatable.clone(),
        allocatable,
        ready: true,
        ready_since: instant(),
        created_at: instant(),
        deleting_at: None,
        cordoned: false,
        has_finalizer: false,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    }
}

/// A cluster of `nodes` nodes with `pods` running pods, all nodes nearly full.
pub fn busy_cluster(nodes: usize, pods: usize) -> Snapshot {
    let mut snapshot = empty_cluster();
    let names: Vec<NodeName> = (0..nodes)
        .map(|i| {
            let node = node(&format!("node-{i:05}"), (i % 3) as u8 + 1);
            let name = node.name.clone();
            snapshot.put_node(node);
            name
        })
        .collect();
    let kinds: Vec<Arc<PodShape>> = (0..50).map(|i| shape(&format!("app-{i}"), 750, 2048, i % 2 == 0)).collect();
    for i in 0..pods {
        snapshot.put_pod(pod(&kinds[i % kinds.len()], &format!("running-{i}"), Some(&names[i % nodes])));
    }
    snapshot
}
