//! Pods that come one at a time go where a simulation of each would put it.

use crate::model::cluster::pod::PodShape;
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::scheduling::tests::random_cluster::random_cluster;
use crate::scheduling::tests::*;
use crate::scheduling::{IncrementalScheduler, Placement, SuggestedChange, Unschedulable};

type NoExclusions = (BTreeSet<NodeName>, BTreeMap<ObjectKey, ClaimName>);

fn incremental_scheduler(
    snapshot: &Snapshot,
    available_offerings: &AvailableOfferings,
    none: &NoExclusions,
) -> IncrementalScheduler {
    IncrementalScheduler::new(Input {
        snapshot,
        available: available_offerings,
        excluded_nodes: &none.0,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &none.1,
    })
}

/// A simulation's placement of its only pod, as far as both can name it.
fn target_name(outcome: &SchedulingResult) -> String {
    match outcome.placements.first().map(|p| &p.target) {
        Some(Target::Node(name)) => format!("node {name}"),
        Some(Target::Claim(name)) => format!("claim {name}"),
        Some(Target::New(_)) => format!("new {} {:?}", outcome.new_nodes[0].pool, outcome.new_nodes[0].offerings[0]),
        None => format!("unschedulable {:?}", outcome.unschedulable[0].reasons),
    }
}

fn placement_name(found: &Result<Placement, Unschedulable>) -> String {
    match found {
        Ok(Placement::Node(name)) => format!("node {name}"),
        Ok(Placement::Claim(name)) => format!("claim {name}"),
        Ok(Placement::New(planned)) => format!("new {} {:?}", planned.pool, planned.cheapest),
        Err(error) => format!("unschedulable {:?}", error.reasons),
    }
}

#[test]
fn one_pod_goes_where_schedule_puts_it() {
    let (mut placed, mut total) = (0, 0);
    for seed in 1..200 {
        let (snapshot, pods) = random_cluster(seed);
        let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
        let none = Default::default();
        let mut scheduler = incremental_scheduler(&snapshot, &available_offerings, &none);
        for pod in &pods {
            let outcome = solve(&snapshot, std::slice::from_ref(pod));
            let found = scheduler.find(pod);
            // If limits forbid a zone, the incremental scheduler tries the next one.
            if outcome.placements.is_empty() && !pod.shape.spread.is_empty() {
                continue;
            }
            total += 1;
            placed += usize::from(found.is_ok());
            assert_eq!(placement_name(&found), target_name(&outcome), "seed {seed}, {}", pod.key);
        }
    }
    assert!(placed * 2 > total && placed < total, "{placed} of {total}");
}

#[test]
fn taken_capacity_is_not_reused_and_limits_hold() {
    let mut small = pool("small");
    small.limits.resources.insert(Arc::from("cpu"), 16_000);
    small.requirements = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D8s_v5"])]);
    let mut snapshot = cluster([small]);
    snapshot.put_node(node("here", 1, 4));
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let none = Default::default();
    let mut scheduler = incremental_scheduler(&snapshot, &available_offerings, &none);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods("p", shape("a", 1000, 1), 500) {
        let found = scheduler.find(&pod);
        assert_eq!(placement_name(&scheduler.find(&pod)), placement_name(&found), "find takes no capacity");
        if let Ok(placement) = &found {
            assert!(scheduler.take(&pod, placement));
        }
        let key = placement_name(&found);
        *counts.entry(key.split(' ').next().unwrap().to_owned()).or_insert(0) += 1;
    }
    // Four cores on the node; twice eight, less reserved ones, in the pool.
    assert_eq!(
        counts,
        BTreeMap::from([("node".to_owned(), 4), ("new".to_owned(), 14), ("unschedulable".to_owned(), 482)])
    );
}

#[test]
fn cached_placements_equal_fresh_ones() {
    let (mut new_nodes, mut from_cache, mut all) = (0, 0, 0);
    for seed in 1..150 {
        let (snapshot, pods) = random_cluster(seed);
        let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
        let none = Default::default();
        let mut scheduler = incremental_scheduler(&snapshot, &available_offerings, &none);
        let mut taken: Vec<(&Arc<Pod>, Placement)> = Vec::new();
        let mut shapes: BTreeSet<&Arc<PodShape>> = BTreeSet::new();
        for pod in pods.iter().filter(|pod| pod.shape.spread.is_empty()) {
            let mut fresh = incremental_scheduler(&snapshot, &available_offerings, &none);
            assert!(taken.iter().all(|(pod, placement)| fresh.take(pod, placement)));
            let cached = scheduler.find_cached(pod);
            let found = scheduler.find(pod);
            let same = cached.as_ref().is_none_or(|cached| placement_name(cached) == placement_name(&found));
            assert!(same && (cached.is_none() || shapes.contains(&pod.shape)), "seed {seed}, {}", pod.key);
            shapes.insert(&pod.shape);
            all += 1;
            from_cache += usize::from(cached.is_some());
            assert_eq!(placement_name(&found), placement_name(&fresh.find(pod)), "seed {seed}, {}", pod.key);
            if let Ok(placement) = found {
                new_nodes += usize::from(matches!(placement, Placement::New(_)));
                assert!(scheduler.take(pod, &placement));
                taken.push((pod, placement));
            }
        }
    }
    assert!(new_nodes > 100 && from_cache > all / 2, "{new_nodes} {from_cache} {all}");
}

#[test]
fn incremental_spread_alternates_zones() {
    let mut snapshot = cluster([pool("general")]);
    for n in 1..=3 {
        snapshot.put_node(node(&format!("n{n}"), n, 8));
    }
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let none = Default::default();
    let mut scheduler = incremental_scheduler(&snapshot, &available_offerings, &none);
    let even = PodShape { spread: vec![spread(labels::ZONE, "a", 1)], ..shape("a", 1000, 1) };
    let mut nodes = BTreeMap::new();
    for pod in pods("p", even, 9) {
        let Ok(Placement::Node(name)) = scheduler.find(&pod) else { panic!("{pod:?}") };
        assert!(scheduler.take(&pod, &Placement::Node(name.clone())));
        *nodes.entry(name.to_string()).or_insert(0) += 1;
    }
    assert_eq!(nodes.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn a_vanished_node_takes_nothing() {
    let snapshot = cluster([pool("general")]);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let none = Default::default();
    let mut scheduler = incremental_scheduler(&snapshot, &available_offerings, &none);
    let pod = &pods("p", shape("a", 1000, 1), 1)[0];
    assert!(!scheduler.take(pod, &Placement::Node(node("gone", 1, 2).name)));
}

/// The suggestion for a pod, as text.
fn suggestion_for(pools: Vec<NodePool>, shape: PodShape) -> String {
    let snapshot = cluster(pools);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let none = Default::default();
    let pod = &pods("p", shape, 1)[0];
    let Err(unschedulable) = incremental_scheduler(&snapshot, &available_offerings, &none).find(pod) else {
        return "fits".to_owned();
    };
    let Some(suggestion) = unschedulable.suggestion else { return "none".to_owned() };
    let words: Vec<String> = suggestion
        .changes
        .iter()
        .map(|change| match change {
            SuggestedChange::AddToleration(taint) => format!("tolerate {}", taint.key),
            SuggestedChange::DropRequirement(key) => format!("drop {key}"),
            SuggestedChange::DropNodeAffinity => "drop affinity".to_owned(),
            SuggestedChange::LowerRequest(name, most) => format!("request {name} {most}"),
            SuggestedChange::RaiseLimit(name, to) => format!("raise {name} {to}"),
            SuggestedChange::RaiseQuota(short) => short.to_string(),
            SuggestedChange::RaiseReservation(short) => short.to_string(),
            SuggestedChange::WidenSubnet(short) => short.to_string(),
            SuggestedChange::AllowLabel(..) | SuggestedChange::MakePreferred(_) => change.to_string(),
        })
        .collect();
    format!("{}: {}", suggestion.pool, words.join(", "))
}

#[test]
fn the_suggestion_is_the_smallest_change_in_the_nearest_pool() {
    let d8 = || requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D8s_v5"])]);
    let taint = |key: &str| Taint { key: Arc::from(key), value: Arc::from(""), effect: TaintEffect::NoSchedule };
    let general = NodePool { requirements: d8(), ..pool("general") };
    let requiring =
        |key: &str, value: &str| PodShape { selector: requirements_in(&[(key, &[value])]), ..shape("a", 1000, 1) };
    assert_eq!(suggestion_for(vec![general.clone()], shape("a", 1000, 1)), "fits");
    assert_eq!(suggestion_for(vec![], shape("a", 1000, 1)), "none");

    let tainted = NodePool { taints: vec![taint("batch"), taint("night")], ..general.clone() };
    assert_eq!(suggestion_for(vec![tainted], shape("a", 1000, 1)), "general: tolerate batch, tolerate night");
    assert_eq!(suggestion_for(vec![general.clone()], requiring("team", "ml")), "general: drop team");
    assert_eq!(
        suggestion_for(vec![general.clone()], requiring(labels::ARCH, "arm64")),
        format!("general: drop {}", labels::ARCH)
    );
    // Beside the right label in a pool with a taint, a line in the pod is less than doing without the label.
    let ml = NodePool {
        labels: [(Arc::from("team"), Arc::from("ml"))].into(),
        taints: vec![taint("ml")],
        ..NodePool { requirements: d8(), ..pool("ml") }
    };
    assert_eq!(suggestion_for(vec![general.clone(), ml.clone()], requiring("team", "ml")), "ml: tolerate ml");

    // The pod capacity of a D8s_v5 is less than its eight cores.
    let large = suggestion_for(vec![general.clone()], shape("a", 9_000, 1));
    let most: i64 = large.strip_prefix("general: request cpu ").unwrap().parse().unwrap();
    assert!((7_000..8_000).contains(&most), "{large}");
    assert_eq!(suggestion_for(vec![general.clone()], shape("a", most, 1)), "fits");
    let mut gpu = shape("a", 1000, 1);
    gpu.requests.set_extended(crate::fixtures::GPU, 1);
    assert_eq!(suggestion_for(vec![general.clone()], gpu), format!("general: request {} 0", crate::fixtures::GPU));

    let mut limited = general;
    limited.limits.resources.insert(Arc::from("cpu"), 4_000);
    limited.limits.nodes = Some(0);
    assert_eq!(suggestion_for(vec![limited.clone()], shape("a", 1000, 1)), "general: raise nodes 1, raise cpu 8000");
    limited.limits.nodes = None;
    assert_eq!(suggestion_for(vec![limited.clone(), ml], shape("a", 1000, 1)), "ml: tolerate ml");
    assert_eq!(suggestion_for(vec![limited], requiring("team", "ml")), "general: drop team, raise cpu 8000");
}
