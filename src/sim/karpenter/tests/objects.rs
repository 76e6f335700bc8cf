//! The objects of the clusters that are written as text.
//!
//! Sizes `m1` to `m32` have as many vCPUs and four times as many GiB, and cost 10 cents an hour for each vCPU; `c4` has
//! less memory and costs 35 cents. `x01` to `x24` have 4 vCPUs and cost 21 to 44 cents. Spot costs 40 % of that.

use super::fixtures::{Cluster, Words, duration, now};
use crate::karpenter::view::{ClaimView, EvictionLimit, NodeView};
use jiff::SignedDuration;
use napkeeper_core::catalog::{Arch, CapacityType, InstanceType, NodeCosts, Offering, SizeFacts};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{
    DoNotDisrupt, HostPort, Labels, Pod, PodAffinity, PodOwner, PodPhase, PodShape, PodTerm, Preferences, Spread,
    Taint, TaintEffect, Toleration,
};
use napkeeper_core::model::cluster::pool::{
    Budget, BudgetNodes, ConsolidationPolicy, Disruption, DisruptionReason, Limits, NodePool,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{
    Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, Region, Uid, VmSize, Zone,
};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::sync::Arc;

const GIB: i64 = 1 << 30;
const CENT: i64 = 10_000_000;

pub(super) fn one_of(key: &str, values: &str) -> Requirements {
    let mut all = Requirements::new();
    all.add(key, Requirement::any_of(values.split(',')));
    all
}

fn namespace() -> Namespace {
    Namespace::new("default").unwrap()
}

fn zone(number: &str) -> Zone {
    Zone::of(&Region::new("westeurope").unwrap(), number.parse().unwrap())
}

pub(super) fn instance_types() -> Vec<Arc<InstanceType>> {
    let general = [1_u32, 2, 4, 8, 16, 32]
        .map(|cpus| instance(&format!("m{cpus}"), cpus, i64::from(cpus) * 4, i64::from(cpus) * 10));
    let others = (1..=24).map(|n| instance(&format!("x{n:02}"), 4, 16, 20 + n));
    general.into_iter().chain([instance("c4", 4, 8, 35)]).chain(others).collect()
}

fn instance(name: &str, vcpus: u32, gib: i64, cents: i64) -> Arc<InstanceType> {
    let facts = SizeFacts {
        name: VmSize::new(name).unwrap(),
        family: Arc::from(&name[..1]),
        vcpus,
        memory_mib: u64::try_from(gib).unwrap() * 1024,
        arch: Arch::Amd64,
        hyperv_v1: true,
        hyperv_v2: true,
        max_data_disks: 8,
        max_nics: 2,
        accelerated_networking: true,
        premium_io: true,
        ephemeral: None,
        encryption_at_host: true,
        spot_eligible: true,
        gpu: None,
    };
    let mut requirements = one_of(labels::INSTANCE_TYPE, name);
    requirements.add_all(&one_of(labels::ARCH, "amd64"));
    requirements.add_all(&one_of(labels::ZONE, "westeurope-1,westeurope-2,westeurope-3"));
    requirements.add_all(&one_of(labels::CAPACITY_TYPE, "spot,on-demand"));
    let prices = [(CapacityType::Spot, cents * CENT * 2 / 5), (CapacityType::OnDemand, cents * CENT)];
    let offering = |(capacity_type, price): (CapacityType, i64), number: &str| Offering {
        zone: zone(number),
        capacity_type,
        price: HourlyPrice::from_nanos(price),
    };
    let offerings = prices.into_iter().flat_map(|of| ["1", "2", "3"].map(|number| offering(of, number))).collect();
    let capacity = Resources { pods: 110, ..Resources::cpu_memory(i64::from(vcpus) * 1000, gib * GIB) };
    let costs = NodeCosts::default();
    Arc::new(InstanceType {
        facts: Arc::new(facts),
        requirements,
        allocatable: capacity.clone(),
        capacity,
        offerings,
        costs,
    })
}

pub(super) fn pool_entry(words: &Words<'_>) -> (Vec<String>, NodePool) {
    let name = words.alone[0];
    let mut requirements = one_of(labels::CAPACITY_TYPE, words.get("capacity").unwrap_or("on-demand"));
    if let Some(least) = words.get("min") {
        requirements.add(labels::INSTANCE_TYPE, Requirement::exists().with_min_values(Some(least.parse().unwrap())));
    }
    let taint = |key: &str| {
        let (key, effect) = match key.strip_prefix('~') {
            Some(key) => (key, TaintEffect::PreferNoSchedule),
            None => (key, TaintEffect::NoSchedule),
        };
        Taint { key: Arc::from(key), value: Arc::from(""), effect }
    };
    let limit = |key: &str| words.get(key).map(|n| n.parse::<i64>().unwrap());
    let pool = NodePool {
        name: NodePoolName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight: words.get("weight").map_or(0, |n| n.parse().unwrap()),
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: words.get("taint").map(taint).into_iter().collect(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: Limits {
            nodes: limit("nodes"),
            resources: limit("cpus").map(|cpus| (Arc::from("cpu"), cpus * 1000)).into_iter().collect(),
        },
        expire_after: None,
        termination_grace_period: words.get("grace").map(duration),
        disruption: Disruption {
            policy: match words.get("policy").unwrap_or("under") {
                "empty" => ConsolidationPolicy::WhenEmpty,
                "under" => ConsolidationPolicy::WhenEmptyOrUnderutilized,
                "balanced" => ConsolidationPolicy::Balanced,
                other => panic!("policy {other:?}"),
            },
            consolidate_after: match words.get("after").unwrap_or("0s") {
                "never" => None,
                time => Some(duration(time)),
            },
            budgets: words.valued.iter().filter(|(key, _)| *key == "budget").map(|(_, text)| budget(text)).collect(),
        },
        replicas: words.has("static").then_some(1),
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    };
    let families = words.get("types").unwrap_or("m").split(',').map(str::to_owned).collect();
    (families, pool)
}

/// `10%`, `3`, `0:empty`, `0@11h` (since 11:00 today, for 2 h).
fn budget(text: &str) -> Budget {
    let (text, window) = match text.split_once('@') {
        Some((text, hour)) => {
            let hour = hour.trim_end_matches('h');
            (text, Some((Arc::from(format!("0 {hour} * * *")), SignedDuration::from_hours(2))))
        }
        None => (text, None),
    };
    let (size, reason) = text.split_once(':').unwrap_or((text, ""));
    let nodes = match size.strip_suffix('%') {
        Some(percent) => BudgetNodes::Percent(percent.parse().unwrap()),
        None => BudgetNodes::Count(size.parse().unwrap()),
    };
    let reasons = match reason {
        "" => None,
        "empty" => Some(vec![DisruptionReason::Empty]),
        "under" => Some(vec![DisruptionReason::Underutilized]),
        "drifted" => Some(vec![DisruptionReason::Drifted]),
        other => panic!("reason {other:?}"),
    };
    Budget { nodes, reasons, window }
}

pub(super) fn node_entry(cluster: &mut Cluster, words: &Words<'_>) {
    let name = words.alone[0];
    let wanted = words.get("type").unwrap_or("m4");
    let instance = cluster.types.iter().find(|instance| instance.facts.name.as_str() == wanted).unwrap();
    let pool = words.get("pool").unwrap_or("general");
    let mut labels = Labels::new();
    let mut label = |key: &str, value: &str| drop(labels.insert(Arc::from(key), Arc::from(value)));
    label(labels::HOSTNAME, name);
    label(labels::ARCH, "amd64");
    label(labels::INSTANCE_TYPE, wanted);
    label(labels::ZONE, zone(words.get("zone").unwrap_or("1")).as_str());
    label(labels::CAPACITY_TYPE, words.get("capacity").unwrap_or("on-demand"));
    let managed = !words.has("unmanaged");
    if managed {
        label(labels::NODEPOOL, pool);
    }
    if let Some((key, value)) = words.get("label").and_then(|text| text.split_once(':')) {
        label(key, value);
    }
    if let Some(key) = words.get("without") {
        labels.remove(key);
    }
    let ago = |key: &str| words.get(key).map(|age| now() - duration(age));
    let claim = ClaimView {
        pool: NodePoolName::new(pool).unwrap(),
        instance: Arc::clone(instance),
        initialized_at: Some(ago("init").unwrap_or_else(|| now() - SignedDuration::from_hours(1))),
        last_pod_event: ago("event"),
        nominated_until: None,
        queued: false,
        marked: false,
        terminating: false,
    };
    let taint = |key: &str| Taint { key: Arc::from(key), value: Arc::from(""), effect: TaintEffect::NoSchedule };
    let mut node = NodeView {
        name: NodeName::new(name).unwrap(),
        claim: managed.then_some(claim),
        joined: true,
        ready: true,
        do_not_disrupt: false,
        labels: Arc::new(labels),
        taints: words.get("taint").map(taint).into_iter().collect(),
        cordoned: false,
        capacity: instance.capacity.clone(),
        room: Resources::default(),
        ports: Vec::new(),
        pods: Vec::new(),
    };
    set(&mut node, &words.alone[1..]);
    cluster.allocatable.insert(name.to_owned(), instance.allocatable.clone());
    cluster.nodes.insert(name.to_owned(), node);
}

/// Sets what these words mean.
pub(super) fn set(node: &mut NodeView, words: &[&str]) {
    for word in words {
        match (*word, &mut node.claim) {
            ("notready", _) => node.ready = false,
            ("dnd", _) => node.do_not_disrupt = true,
            ("cordoned", _) => node.cordoned = true,
            ("unjoined", _) => node.joined = false,
            ("unmanaged", _) => {}
            ("uninit", Some(claim)) => claim.initialized_at = None,
            ("marked", Some(claim)) => claim.marked = true,
            ("queued", Some(claim)) => (claim.queued, claim.marked) = (true, true),
            ("terminating", Some(claim)) => (claim.marked, claim.terminating) = (true, true),
            ("event", Some(claim)) => claim.last_pod_event = Some(now()),
            ("nominated", Some(claim)) => claim.nominated_until = Some(now() + SignedDuration::from_secs(5)),
            ("was-nominated", Some(claim)) => claim.nominated_until = Some(now()),
            (other, _) => panic!("word {other:?}"),
        }
    }
}

pub(super) fn pod_entry(cluster: &mut Cluster, words: &Words<'_>) {
    let node = Some(words.alone[0]).filter(|name| *name != "-").map(str::to_owned);
    let cpu: i64 = words.alone[1].parse().unwrap();
    let times = words.alone.iter().find_map(|word| word.strip_prefix('x')?.parse().ok()).unwrap_or(1);
    let shape = Arc::new(shape(cpu, words));
    if words.has("daemon") && !cluster.daemons.contains(&shape) {
        cluster.daemons.push(Arc::clone(&shape));
    }
    for _ in 0..times {
        let name = format!("pod{:03}", cluster.pods.len());
        let key = ObjectKey { namespace: namespace(), name: ObjectName::new(&name).unwrap() };
        let mut pod = Pod::waiting(key, Uid::new(&name).unwrap(), &shape, owner(words));
        pod.created_at = now() - SignedDuration::from_hours(1);
        if let Some(node) = &node {
            pod.node = Some(NodeName::new(node).unwrap());
            pod.unschedulable = false;
            pod.ready = !words.has("starting");
            pod.phase = if pod.ready { PodPhase::Running } else { PodPhase::Pending };
            pod.started_at = Some(now() - words.get("age").map_or(SignedDuration::from_hours(1), duration));
        }
        if words.has("done") {
            pod.phase = PodPhase::Succeeded;
        }
        pod.deleting_at = words.has("ending").then_some(now());
        pod.deletion_cost = words.get("deletion-cost").map_or(0, |cost| cost.parse().unwrap());
        let timed = words.get("dnd").map(|time| DoNotDisrupt::For(duration(time)));
        pod.do_not_disrupt = timed.or_else(|| words.has("dnd").then_some(DoNotDisrupt::Always));
        let volume = words.get("volume").map(|number| zone(number).as_str().to_owned());
        cluster.pods.push((node.clone(), pod, volume));
    }
}

fn owner(words: &Words<'_>) -> PodOwner {
    match () {
        () if words.has("daemon") => PodOwner::DaemonSet,
        () if words.has("static") => PodOwner::Static,
        () if words.has("bare") => PodOwner::Nobody,
        () => PodOwner::Controller,
    }
}

fn term(app: &str) -> PodTerm {
    PodTerm {
        topology_key: Arc::from(labels::HOSTNAME),
        namespaces: [namespace()].into(),
        namespace_selector: None,
        selector: one_of("app", app),
    }
}

fn spread(over: &str, app: &str) -> Spread {
    Spread::over(if over == "zone" { labels::ZONE } else { labels::HOSTNAME }, 1, one_of("app", app))
}

fn shape(cpu: i64, words: &Words<'_>) -> PodShape {
    let app = words.get("app").unwrap_or("app");
    let labels = Labels::from([(Arc::from("app"), Arc::from(app))]);
    let gib = words.get("mem").map_or(0, |n| n.parse().unwrap());
    let mut shape =
        PodShape::plain(namespace(), labels, Resources { pods: 1, ..Resources::cpu_memory(cpu, gib * GIB) });
    shape.priority = words.get("priority").map_or(0, |n| n.parse().unwrap());
    let near: Vec<PodTerm> = words.get("near").map(term).into_iter().collect();
    let apart: Vec<PodTerm> = words.get("apart").map(term).into_iter().collect();
    shape.affinity = (!near.is_empty() || !apart.is_empty()).then(|| Box::new(PodAffinity { near, apart }));
    shape.spread = words.get("spread").map(|over| spread(over, app)).into_iter().collect();
    let soft: Vec<Spread> = words.get("soft").map(|over| spread(over, app)).into_iter().collect();
    let prefers = words.get("prefers").map(|number| (1, one_of(labels::ZONE, zone(number).as_str())));
    let preferences = Preferences { spread: soft, node: prefers.into_iter().collect(), ..Preferences::default() };
    shape.preferences = (!preferences.is_empty()).then(|| Box::new(preferences));
    let number = words.get("zone").map(|number| one_of(labels::ZONE, zone(number).as_str()));
    number.iter().for_each(|wanted| shape.selector.add_all(wanted));
    if let Some((key, value)) = words.get("label").and_then(|text| text.split_once(':')) {
        shape.selector.add_all(&one_of(key, value));
    }
    let toleration = |key: &str| Toleration { key: Some(Arc::from(key)), value: None, effect: None };
    shape.tolerations.extend(words.get("tolerates").map(toleration));
    if words.has("tolerates") {
        shape.tolerations.push(Toleration { key: None, value: None, effect: None });
    }
    let port = |port: &str| HostPort { port: port.parse().unwrap(), protocol: Arc::from("TCP"), address: None };
    shape.ports.extend(words.get("port").map(port));
    shape
}

/// `pdb APP none|one|blocks`, and `unready` for a policy that lets unready pods go.
pub(super) fn eviction_limit(words: &Words<'_>) -> EvictionLimit {
    EvictionLimit {
        namespace: Namespace::new(words.get("namespace").unwrap_or("default")).unwrap(),
        selector: one_of("app", words.alone[0]),
        allows_one: words.has("one"),
        blocks_for_ever: words.has("blocks"),
        frees_unready: words.has("unready"),
    }
}
