//! Gauges of the cluster's nodes and NodePools, read from a Snapshot when they are scraped.

use super::{Label, pods};
use jiff::Timestamp;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::disruption::{allowed_disruptions, counted_nodes};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::cluster::pool::{DisruptionReason, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{VmSize, Zone};
use napkeeper_core::scheduling::OverlaidInstanceTypes;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::collector::Collector;
use napkeeper_serve::prometheus_client::encoding::DescriptorEncoder;
use napkeeper_serve::prometheus_client::metrics::MetricType;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Labels of nodes that are labels of their metrics, and their names there: as in Karpenter the part after the slash.
const NODE_LABELS: [(&str, &str); 7] = [
    (labels::NODEPOOL, "nodepool"),
    (labels::ZONE, "zone"),
    (labels::REGION, "region"),
    (labels::INSTANCE_TYPE, "instance_type"),
    (labels::CAPACITY_TYPE, "capacity_type"),
    (labels::ARCH, "arch"),
    (labels::OS, "os"),
];

/// Reasons that budgets have.
const REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Underutilized, DisruptionReason::Empty, DisruptionReason::Drifted];

/// A Snapshot that is older than this says nothing: nothing has been decided since, for example because a watch fails.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// What Karpenter says where no budget limits disruption.
const UNLIMITED: u32 = i32::MAX.cast_unsigned();

/// The last Snapshot that was kept, and when.
pub(super) struct ClusterState {
    clock: Arc<dyn Clock>,
    snapshot: Mutex<Option<(Snapshot, Instant)>>,
}

/// A gauge's value and labels.
pub(super) type Sample = (Vec<Label>, f64);

/// A gauge: name, meaning and samples.
pub(super) type Gauge = (&'static str, &'static str, Vec<Sample>);

impl ClusterState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, snapshot: Mutex::new(None) }
    }

    /// Replaces the Snapshot. Without one nothing is reported.
    pub(super) fn set(&self, snapshot: Option<Snapshot>) {
        let kept = snapshot.map(|snapshot| (snapshot, Instant::now()));
        let before = std::mem::replace(&mut *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner), kept);
        // A large one takes a while, for which no scrape waits.
        drop(before);
    }

    /// The Snapshot and its age; `None` where none is kept.
    pub(super) fn kept(&self) -> Option<(Snapshot, Duration)> {
        let kept = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept.map(|(snapshot, since)| (snapshot, since.elapsed()))
    }

    /// The Snapshot, unless it is too old to say anything, and the time.
    pub(super) fn fresh(&self) -> Option<(Snapshot, Timestamp)> {
        self.kept().filter(|(_, age)| *age < STALE_AFTER).map(|(snapshot, _)| (snapshot, self.clock.now()))
    }
}

impl fmt::Debug for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterState").finish_non_exhaustive()
    }
}

impl Collector for ClusterState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((snapshot, age)) = self.kept() else { return Ok(()) };
        let is_fresh = age < STALE_AFTER;
        let (synced, unsynced) = if is_fresh { (1.0, 0.0) } else { (0.0, age.as_secs_f64()) };
        let mut all = vec![
            ("cluster_state_synced", "1 while the state of the cluster is known", vec![(Vec::new(), synced)]),
            (
                "cluster_state_unsynced_time_seconds",
                "For how long the state of the cluster has not been known",
                vec![(Vec::new(), unsynced)],
            ),
        ];
        if is_fresh {
            let now = self.clock.now();
            all.extend(gauges(&snapshot, now));
            all.extend(pool_gauges(&snapshot, now));
            all.extend(pods::gauges(&snapshot, now));
        }
        encode(&mut encoder, all)
    }
}

/// Encodes gauges.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, all: Vec<Gauge>) -> fmt::Result {
    for (name, help, samples) in all {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

/// Gauges of nodes.
fn gauges(snapshot: &Snapshot, now: Timestamp) -> Vec<Gauge> {
    let nodes = || snapshot.nodes().values();
    let of_nodes = |amounts: &dyn Fn(&Node) -> Resources| {
        nodes().flat_map(|node| by_resource(&node_labels(snapshot, node), &amounts(node))).collect()
    };
    let usage = |node: &Node| snapshot.node_usage(&node.name);
    let requests = |node: &Node| usage(node).map(|usage| usage.pod_requests.clone()).unwrap_or_default();
    let daemons = |node: &Node| usage(node).map(|usage| usage.daemon_set_requests.clone()).unwrap_or_default();
    let limits = |node: &Node| limits_of(snapshot, node, |_| true);
    let daemon_limits = |node: &Node| limits_of(snapshot, node, |pod| pod.owner == PodOwner::DaemonSet);
    let age = |node: &Arc<Node>| (node_labels(snapshot, node), now.duration_since(node.created_at).as_secs_f64());
    let count = f64::from(u32::try_from(snapshot.nodes().len()).unwrap_or(u32::MAX));
    vec![
        ("nodes_allocatable", "What pods may use of a node", of_nodes(&|node| node.allocatable.clone())),
        ("nodes_total_pod_requests", "What the pods of a node request, those of DaemonSets too", of_nodes(&requests)),
        ("nodes_total_daemon_requests", "What the DaemonSet pods of a node request", of_nodes(&daemons)),
        ("nodes_total_pod_limits", "Limits of the pods of a node, those of DaemonSets too", of_nodes(&limits)),
        ("nodes_total_daemon_limits", "Limits of the DaemonSet pods of a node", of_nodes(&daemon_limits)),
        (
            "nodes_system_overhead",
            "What a node has and pods may not use",
            of_nodes(&|node| node.capacity.minus(&node.allocatable)),
        ),
        ("nodes_current_lifetime_seconds", "Age of a node", nodes().map(age).collect()),
        ("cluster_state_node_count", "Nodes of the cluster", vec![(Vec::new(), count)]),
        ("cluster_utilization_percent", "Requested of allocatable, of all nodes", utilization(snapshot)),
        (
            "cloudprovider_instance_type_offering_price_estimate",
            "Price of the offerings of the sizes that nodes have, in USD per hour",
            prices(snapshot),
        ),
    ]
}

/// Gauges of NodePools.
fn pool_gauges(snapshot: &Snapshot, now: Timestamp) -> Vec<Gauge> {
    let pools = || snapshot.pools().values();
    let counted = |pool: &Arc<NodePool>| {
        let nodes = f64::from(counted_nodes(snapshot, pool));
        REASONS.map(|reason| (reason_labels(pool, reason), nodes))
    };
    let overlaid = OverlaidInstanceTypes::of(snapshot);
    let cost = |pool: &Arc<NodePool>| (pool_labels(pool), dollars(cost_of(snapshot, pool, &overlaid)));
    vec![
        ("nodepools_cost_total", "What the nodes of a NodePool cost, in USD per hour", pools().map(cost).collect()),
        (
            "nodepools_nodes_consuming_budgets",
            "Nodes of a NodePool that count against its budgets",
            pools().flat_map(counted).collect(),
        ),
        ("nodepools_limit", "Limits of a NodePool", pools().flat_map(|pool| limits(pool)).collect()),
        (
            "nodepools_usage",
            "What the nodes of a NodePool have",
            pools().flat_map(|pool| by_resource(&pool_labels(pool), &pool.status.resources)).collect(),
        ),
        (
            "nodepools_allowed_disruptions",
            "Nodes of a NodePool that its budgets allow to be disrupted at once",
            pools().flat_map(|pool| allowed(snapshot, pool, now)).collect(),
        ),
    ]
}

/// The limits of some of the pods of a node together.
fn limits_of(snapshot: &Snapshot, node: &Node, of: impl Fn(&Pod) -> bool) -> Resources {
    let mut sum = Resources::default();
    snapshot.pods_on(&node.name).filter(|pod| of(pod)).for_each(|pod| sum.add(&pod.details.limits));
    sum
}

/// What the nodes of a pool cost, those in flight too, at the prices of now.
fn cost_of(snapshot: &Snapshot, pool: &NodePool, overlaid: &OverlaidInstanceTypes) -> HourlyPrice {
    let price = |claim: &Arc<Claim>| {
        let offering = &claim.intent.as_ref()?.offering;
        Some(overlaid.price(&pool.name, &offering.key).unwrap_or(offering.price))
    };
    let of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    of_pool.filter_map(price).sum()
}

/// The price of each offering of the sizes that nodes have.
fn prices(snapshot: &Snapshot) -> Vec<Sample> {
    let of_node = |node: &Arc<Node>| node.labels.get(labels::INSTANCE_TYPE).cloned();
    let in_use: BTreeSet<Arc<str>> = snapshot.nodes().values().filter_map(of_node).collect();
    let types = snapshot.instance_types.values().flat_map(|types| types.iter());
    let types = types.filter(|instance| in_use.contains(instance.facts.name.as_str()));
    let offerings = types.flat_map(|instance| {
        let key = |zone: &Zone, capacity_type| (instance.facts.name.clone(), zone.clone(), capacity_type);
        instance.offerings.iter().map(move |one| (key(&one.zone, one.capacity_type), one.price))
    });
    // Several AKSNodeClasses have the same one.
    let by_offering: BTreeMap<_, HourlyPrice> = offerings.collect();
    let labels = |(size, zone, capacity_type): (VmSize, Zone, CapacityType)| {
        let zone = ("zone", Arc::from(zone.as_str()));
        vec![("instance_type", size.text()), ("capacity_type", Arc::from(capacity_type.as_str())), zone]
    };
    by_offering.into_iter().map(|(key, price)| (labels(key), dollars(price))).collect()
}

/// USD.
fn dollars(price: HourlyPrice) -> f64 {
    to_float(price.nanos()) / 1e9
}

/// The amounts of each resource, in Karpenter's units: whole cores and bytes.
fn by_resource(labels: &[Label], amounts: &Resources) -> Vec<Sample> {
    let Resources { cpu_millis, memory, ephemeral_storage, pods, extended } = amounts;
    let named = [("memory", *memory), ("ephemeral_storage", *ephemeral_storage), ("pods", *pods)];
    let extended = extended.iter().map(|(name, amount)| (&**name, *amount));
    let whole = named.into_iter().chain(extended).map(|(name, amount)| sample(labels, name, to_float(amount)));
    std::iter::once(sample(labels, "cpu", to_float(*cpu_millis) / 1000.0)).chain(whole).collect()
}

fn sample(labels: &[Label], resource: &str, value: f64) -> Sample {
    let resource = Arc::from(resource.to_lowercase().replace('-', "_"));
    (labels.iter().cloned().chain([("resource_type", resource)]).collect(), value)
}

/// Exact to 2^53: eight petabytes.
#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn to_float(amount: i64) -> f64 {
    amount as f64
}

fn node_labels(snapshot: &Snapshot, node: &Node) -> Vec<Label> {
    let is_managed = snapshot.claim_of(node).is_some();
    let value = |key: &str| Arc::from(node.label(key).unwrap_or_default());
    let known = NODE_LABELS.iter().map(|(key, name)| (*name, value(key)));
    let managed = Arc::from(if is_managed { "true" } else { "false" });
    known.chain([("node_name", node.name.text()), ("managed", managed)]).collect()
}

fn pool_labels(pool: &NodePool) -> Vec<Label> {
    vec![("nodepool", pool.name.text())]
}

fn reason_labels(pool: &NodePool, reason: DisruptionReason) -> Vec<Label> {
    pool_labels(pool).into_iter().chain([("reason", Arc::from(reason.as_str()))]).collect()
}

fn limits(pool: &NodePool) -> Vec<Sample> {
    let labels = pool_labels(pool);
    let limit = |(name, amount): (&str, i64)| {
        let value = if name == "cpu" { to_float(amount) / 1000.0 } else { to_float(amount) };
        sample(&labels, name, value)
    };
    let resources = pool.limits.resources.iter().map(|(name, amount)| (&**name, *amount));
    resources.chain(pool.limits.nodes.map(|nodes| ("nodes", nodes))).map(limit).collect()
}

/// How many nodes the budgets allow to be disrupted at once, whether some are or not.
fn allowed(snapshot: &Snapshot, pool: &NodePool, now: Timestamp) -> Vec<Sample> {
    let of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    let total = of_pool.filter(|claim| claim.status.initialized.is_some()).count();
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    let of_reason = |reason: DisruptionReason| {
        let allowed = allowed_disruptions(&pool.disruption.budgets, total, reason, now).min(UNLIMITED);
        (reason_labels(pool, reason), f64::from(allowed))
    };
    REASONS.into_iter().map(of_reason).collect()
}

/// What is requested of what pods may use, in percent of each resource that there is.
fn utilization(snapshot: &Snapshot) -> Vec<Sample> {
    let (mut allocatable, mut requested) = (Resources::default(), Resources::default());
    for node in snapshot.nodes().values() {
        allocatable.add(&node.allocatable);
        if let Some(usage) = snapshot.node_usage(&node.name) {
            requested.add(&usage.pod_requests);
        }
    }
    let requested: Vec<Sample> = by_resource(&[], &requested);
    let share = |(labels, has): Sample| {
        let used = requested.iter().find(|(other, _)| *other == labels).map_or(0.0, |(_, used)| *used);
        (has > 0.0).then(|| (labels, 100.0 * used / has))
    };
    by_resource(&[], &allocatable).into_iter().filter_map(share).collect()
}
