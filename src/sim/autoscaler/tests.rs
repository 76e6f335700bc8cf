use super::*;
use crate::workload::{BudgetLimit, DiskRequest, PodBudget, PodTemplate, Workload, WorkloadKind};
use crate::world::Manifests;
use crate::world::ShortageSpec;
use napkeeper_core::catalog::{Arch, CapacityType, OfferedSize, SizeName, managed_disk_price};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Labels, PodPhase, PodShape, Spread, Taint, TaintEffect, Toleration};
use napkeeper_core::model::cluster::pool::{
    ConsolidationPolicy, Disruption, Limits as PoolLimits, NodeClass, NodePool,
};
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, NodeClassName, NodePoolName, ObjectKey, ObjectName, Region, Uid};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::model::settings::DeletionRules;
use std::collections::BTreeSet;
use std::sync::Arc;

const GIB: i64 = 1 << 30;

fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

fn catalog() -> Catalog {
    Catalog::embedded().unwrap()
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
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, cpu_millis * (GIB / 1000)) },
    )
}

fn spread_over_zones(app: &str, cpu_millis: i64) -> PodShape {
    let spread = Spread::over(labels::ZONE, 1, one_of("app", &[app]));
    PodShape { spread: vec![spread], ..shape(app, cpu_millis) }
}

fn deployment(shape: PodShape, replicas: u32) -> Workload {
    Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } }
}

fn pool(name: &str, requirements: Requirements) -> NodePool {
    NodePool {
        name: NodePoolName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight: 0,
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: PoolLimits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmpty,
            consolidate_after: Some(SignedDuration::ZERO),
            budgets: Vec::new(),
        },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

fn class() -> NodeClass {
    NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("class").unwrap())
}

/// A cluster in westeurope with a general pool and this load.
fn start(workloads: Vec<(&str, Workload)>) -> WorldSetup {
    WorldSetup {
        region: Region::new("westeurope").unwrap(),
        seed: 1,
        at: "2026-08-03T00:00:00Z".parse().unwrap(),
        manifests: Manifests {
            pools: vec![pool("general", one_of(labels::ARCH, &["amd64"]))],
            classes: vec![class()],
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

/// The autoscaler as it is after a time.
fn after(start: &WorldSetup, time: SignedDuration) -> Autoscaler {
    let mut autoscaler = Autoscaler::new(&catalog(), start).unwrap();
    autoscaler.run_until(start.at + time).unwrap();
    autoscaler
}

fn own_nodes(autoscaler: &Autoscaler) -> Vec<&Node> {
    let own = |n: &&Arc<Node>| n.label(AGENT_POOL).is_some();
    autoscaler.cluster.state().nodes().values().filter(own).map(|n| &**n).collect()
}

fn running(autoscaler: &Autoscaler) -> usize {
    let pods = autoscaler.cluster.state().pods().values();
    pods.filter(|p| p.phase == PodPhase::Running && p.deleting_at.is_none()).count()
}

/// Spot price of the cheapest size that is right for a general pool of 4 vCPU, found apart from the code under test.
fn spot_price_of_four_cores() -> HourlyPrice {
    let region = catalog().region(&Region::new("westeurope").unwrap()).unwrap();
    let is_right = |s: &&OfferedSize| {
        let name = SizeName::parse(s.facts.name.as_str()).unwrap();
        s.facts.vcpus == 4
            && s.facts.arch == Arch::Amd64
            && (name.family(), name.is_confidential(), name.constrained()) == ("D", false, None)
            && s.zones.len() == 3
            && !s.restricted
            && s.on_demand.is_some()
    };
    let cheapest = region.sizes.iter().filter(is_right).min_by_key(|s| (s.on_demand, &s.facts.name)).unwrap();
    cheapest.spot.unwrap()
}

#[test]
fn one_pod_costs_one_spot_node_from_the_start_of_its_vm() {
    let start = start(vec![("one", deployment(shape("one", 1000), 1))]);
    let (one, two) = (run(&catalog(), &start, hours(1)).unwrap(), run(&catalog(), &start, hours(2)).unwrap());
    // The size has no local disk that would hold the OS disk.
    let price = spot_price_of_four_cores() + managed_disk_price("Premium_LRS", 128);
    let hour = price.over(hours(1)).nanos();
    // A span of time that is cut in two is rounded twice.
    assert!((two.cost.nanos() - one.cost.nanos() - hour).abs() <= 10, "{one:?} {two:?}");
    // Azure takes 30 to 90 s to create a VM; the scan that orders it is at once.
    let billed = |secs: i64| price.over(SignedDuration::from_secs(3600 - secs)).nanos();
    assert!((billed(90) - 10..=billed(30)).contains(&one.cost.nanos()), "{one:?} {hour}");
    assert!(one.cost < one.cost_on_demand);
    assert_eq!((one.nodes_launched, one.nodes_most, one.unplaced_pods), (1, 1, 0));
    // 1000 of 3860 thousandths of a core.
    assert_eq!(two.cpu_utilisation_percent, 25);
}

#[test]
fn inflate_scales_up_and_down_and_every_pod_runs() {
    let mut start = start(vec![("inflate", deployment(shape("inflate", 1000), 10))]);
    start.actions = vec![scale(hours(1), "inflate", 100), scale(hours(2), "inflate", 2)];
    assert_eq!(running(&after(&start, mins(59))), 10);
    let full = after(&start, mins(119));
    assert_eq!(running(&full), 100);
    let cores: i64 = own_nodes(&full).iter().map(|n| n.capacity.cpu_millis).sum();
    assert!((104_000..=150_000).contains(&cores), "{cores}");
    let quiet = after(&start, hours(4));
    assert_eq!((running(&quiet), own_nodes(&quiet).len()), (2, 1));
    assert_eq!(quiet.summary().pods_pending, 0);
}

#[test]
fn no_node_is_removed_within_ten_minutes_of_becoming_empty() {
    let mut start = start(vec![("inflate", deployment(shape("inflate", 1000), 3))]);
    start.actions = vec![scale(hours(1), "inflate", 0)];
    assert_eq!(own_nodes(&after(&start, mins(70))).len(), 1);
    assert_eq!(own_nodes(&after(&start, mins(73))).len(), 0);
}

#[test]
fn a_scale_up_keeps_empty_nodes_for_ten_minutes() {
    let big = PodShape { priority: 1, ..shape("big", 14_000) };
    let mut start = start(vec![("small", deployment(shape("small", 1000), 3)), ("big", deployment(big, 0))]);
    start.actions = vec![scale(hours(1), "small", 0), scale(mins(69), "big", 1)];
    assert_eq!(own_nodes(&after(&start, mins(78))).len(), 2);
    assert_eq!(own_nodes(&after(&start, mins(82))).len(), 1);
}

#[test]
fn pods_that_spread_over_zones_get_nodes_in_every_zone() {
    let mut start = start(vec![("web", deployment(spread_over_zones("web", 2000), 9))]);
    start.actions = vec![scale(hours(1), "web", 30)];
    let all = after(&start, hours(2));
    assert_eq!(running(&all), 30);
    let zones: BTreeSet<&str> = own_nodes(&all).iter().filter_map(|n| n.label(labels::ZONE)).collect();
    assert_eq!(zones.len(), 3, "{zones:?}");
}

#[test]
fn new_nodes_are_balanced_over_zones() {
    let start = start(vec![("inflate", deployment(shape("inflate", 3000), 6))]);
    let mut by_zone: BTreeMap<String, usize> = BTreeMap::new();
    let all = after(&start, hours(1));
    for node in own_nodes(&all) {
        *by_zone.entry(node.label(labels::ZONE).unwrap().to_owned()).or_default() += 1;
    }
    let (least, most) = (by_zone.values().min().unwrap(), by_zone.values().max().unwrap());
    assert!(by_zone.len() == 3 && most - least <= 1, "{by_zone:?}");
}

fn gpu_job() -> WorldSetup {
    let gpu = |key: &str| Taint { key: Arc::from(key), value: Arc::from("true"), effect: TaintEffect::NoSchedule };
    let mut training = shape("training", 2000);
    training.requests.set_extended("nvidia.com/gpu", 1);
    training.tolerations = vec![Toleration { key: Some(Arc::from("nvidia.com/gpu")), value: None, effect: None }];
    let kind = WorkloadKind::Job { parallelism: 2, completions: 2, run_for: hours(1) };
    let mut start = start(vec![("web", deployment(shape("web", 500), 2))]);
    start.manifests.pools[0].requirements.add(labels::SKU_FAMILY, Requirement::any_of(["D"]));
    let mut gpus = one_of(labels::SKU_FAMILY, &["N"]);
    gpus.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand"]));
    start.manifests.pools.push(NodePool { taints: vec![gpu("nvidia.com/gpu")], ..pool("gpu", gpus) });
    start.manifests.suspended = vec![(key("training"), Workload { template: PodTemplate::new(training), kind })];
    start.actions = vec![(hours(1), Action::StartJob { workload: key("training") })];
    start
}

#[test]
fn a_gpu_job_gets_gpu_nodes_while_it_runs() {
    let start = gpu_job();
    let is_gpu = |n: &&&Node| n.capacity.extended("nvidia.com/gpu") > 0;
    let busy = after(&start, mins(90));
    let gpus: Vec<&Node> = own_nodes(&busy).into_iter().filter(|n| is_gpu(&n)).collect();
    assert_eq!(gpus.iter().map(|n| n.capacity.extended("nvidia.com/gpu")).sum::<i64>(), 2);
    assert!(gpus.iter().all(|n| n.label(labels::CAPACITY_TYPE) == Some("on-demand") && !n.taints.is_empty()));
    assert_eq!(running(&busy), 4);
    let done = after(&start, hours(3));
    assert_eq!((own_nodes(&done).iter().filter(is_gpu).count(), running(&done)), (0, 2));
}

#[test]
fn the_same_start_gives_the_same_numbers() {
    let start = gpu_job();
    assert_eq!(run(&catalog(), &start, hours(5)), run(&catalog(), &start, hours(5)));
}

#[test]
fn an_evicted_spot_node_is_replaced() {
    let mut start = start(vec![("one", deployment(shape("one", 1000), 1))]);
    start.actions = vec![(hours(1), Action::EvictSpot { count: 1 })];
    let result = after(&start, hours(2));
    assert_eq!(running(&result), 1);
    let baseline = result.summary();
    assert_eq!((baseline.nodes_launched, baseline.nodes_most, baseline.pods_pending), (2, 1, 0));
}

#[test]
fn pods_that_ask_for_the_full_price_get_it() {
    let selector = one_of(labels::CAPACITY_TYPE, &["on-demand"]);
    let start = start(vec![("one", deployment(PodShape { selector, ..shape("one", 1000) }, 1))]);
    let baseline = run(&catalog(), &start, hours(1)).unwrap();
    assert_eq!((baseline.cost, baseline.unplaced_pods), (baseline.cost_on_demand, 0));
}

#[test]
fn without_spot_quota_or_permission_nodes_are_on_demand() {
    let load = || start(vec![("one", deployment(shape("one", 1000), 1))]);
    let mut quota = load();
    let none = Action::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores: Some(0) };
    quota.actions = vec![(SignedDuration::ZERO, none)];
    let mut refused = load();
    let shortage =
        ShortageSpec { size: None, zone: None, capacity_type: Some(CapacityType::Spot), duration: Some(hours(2)) };
    refused.actions = vec![(SignedDuration::ZERO, Action::Refuse(shortage.clone()))];
    let mut starved = load();
    starved.actions = vec![(SignedDuration::ZERO, Action::NoCapacity(shortage))];
    let mut forbidden = load();
    forbidden.manifests.pools[0].requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand"]));
    for start in [quota, refused, starved, forbidden] {
        let baseline = run(&catalog(), &start, hours(1)).unwrap();
        assert_eq!((baseline.cost, baseline.unplaced_pods), (baseline.cost_on_demand, 0), "{:?}", start.actions);
        assert_eq!(baseline.nodes_launched, 1);
    }
}

#[test]
fn labels_that_the_node_pools_share_are_on_the_nodes() {
    let selector = one_of("team", &["a"]);
    let mut start = start(vec![("one", deployment(PodShape { selector, ..shape("one", 1000) }, 1))]);
    start.manifests.pools[0].labels.insert(Arc::from("team"), Arc::from("a"));
    start.manifests.pools[0].requirements.add("team", Requirement::any_of(["a"]));
    assert_eq!(run(&catalog(), &start, hours(1)).unwrap().unplaced_pods, 0);
    start.manifests.pools.push(pool("other", one_of(labels::ARCH, &["amd64"])));
    assert_eq!(run(&catalog(), &start, hours(1)).unwrap().unplaced_pods, 1);
}

#[test]
fn a_budget_that_allows_no_eviction_keeps_its_node() {
    // Three of the first kind fill a node of 4 cores. When one of them ends, the guarded pod fits.
    let mut start =
        start(vec![("first", deployment(shape("first", 1000), 3)), ("guarded", deployment(shape("guarded", 1000), 0))]);
    start.actions = vec![scale(mins(30), "guarded", 1), scale(hours(1), "first", 2)];
    let free = after(&start, hours(3));
    let budget = PodBudget {
        namespace: Namespace::new("default").unwrap(),
        selector: one_of("app", &["guarded"]),
        limit: BudgetLimit::MaxUnavailable(0),
        always_allows_unready: false,
    };
    start.manifests.budgets = vec![(key("guarded"), budget)];
    let held = after(&start, hours(3));
    assert_eq!((running(&free), running(&held)), (3, 3));
    assert_eq!((own_nodes(&free).len(), own_nodes(&held).len()), (1, 2));
}

#[test]
fn capacity_for_daemon_pods_is_reserved_on_new_nodes() {
    // 3600m of 3860m would fit on 4 cores, but not beside the agent.
    let mut start = start(vec![("one", deployment(shape("one", 3600), 1))]);
    start.manifests.daemon_sets = vec![(key("agent"), PodTemplate::new(shape("agent", 300)))];
    let one = after(&start, hours(1));
    assert_eq!(own_nodes(&one).iter().map(|n| n.capacity.cpu_millis).collect::<Vec<_>>(), [8000]);
    assert_eq!(one.summary().nodes_launched, 1);
}

#[test]
fn a_pod_with_a_disk_gets_a_new_node_in_the_zone_of_the_disk() {
    let disk = DiskRequest { size_gib: 8, reclaim: ReclaimPolicy::Delete };
    let kind = WorkloadKind::StatefulSet { replicas: 3, disk: Some(disk) };
    // One to a node, so that every zone has one.
    let mut start = start(vec![("db", Workload { template: PodTemplate::new(shape("db", 3000)), kind })]);
    start.actions = vec![(hours(1), Action::EvictSpot { count: 3 })];
    let zones = |autoscaler: &Autoscaler| -> Vec<String> {
        let zone =
            |node: &NodeName| autoscaler.cluster.state().nodes().get(node)?.label(labels::ZONE).map(str::to_owned);
        let pods = autoscaler.cluster.state().pods().values();
        pods.filter(|p| p.phase == PodPhase::Running).filter_map(|p| zone(p.node.as_ref()?)).collect()
    };
    let (before, later) = (after(&start, mins(59)), after(&start, hours(2)));
    assert_eq!(zones(&before).len(), 3);
    assert_eq!(zones(&before), zones(&later));
    let names = |a: &Autoscaler| own_nodes(a).iter().map(|n| n.name.clone()).collect::<BTreeSet<_>>();
    assert!(names(&before).is_disjoint(&names(&later)));
}

#[test]
fn a_week_of_days_and_nights_follows_the_load() {
    let mut start = start(vec![
        ("web", deployment(spread_over_zones("web", 500), 10)),
        ("api", deployment(shape("api", 1000), 10)),
        ("batch", deployment(shape("batch", 2000), 0)),
    ]);
    for hour in 0..7 * 24 {
        let up = [4, 2, 1, 1, 2, 4, 8, 14, 20, 26, 30, 32, 32, 30, 30, 28, 26, 24, 20, 16, 12, 10, 8, 6][hour % 24];
        let at = hours(i64::try_from(hour).unwrap());
        start.actions.extend([scale(at, "web", up * 2), scale(at + mins(20), "api", up)]);
        start.actions.push(scale(at + mins(40), "batch", 34 - up));
    }
    let week = run(&catalog(), &start, hours(7 * 24)).unwrap();
    assert_eq!(week.unplaced_pods, 0);
    assert!(week.cpu_utilisation_percent > 50, "{week:?}");
}

#[test]
fn a_region_that_is_not_in_the_catalogue_is_an_error() {
    let start = WorldSetup { region: Region::new("westeuope").unwrap(), ..start(Vec::new()) };
    let error = run(&catalog(), &start, hours(1)).unwrap_err().to_string();
    assert!(error.contains("did you mean westeurope"), "{error}");
}
