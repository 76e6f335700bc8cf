//! Tests of `minValues`: how many different values the offerings of a new node keep.

use crate::model::cluster::pool::Limits;
use crate::model::requirements::Requirement;
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::tests::*;
use crate::scheduling::{ExplainedResult, FilterCriterion, NewNode, explain};
use proptest::prelude::*;

/// A pool with `minValues` for a label.
fn pool_with_min_values(name: &str, key: &str, least: u32) -> NodePool {
    let mut pool = pool(name);
    pool.requirements.add(key, Requirement::exists().with_min_values(Some(least)));
    pool
}

fn solve_with_policy(policy: MinValuesPolicy, snapshot: &Snapshot, pods: &[Arc<Pod>]) -> SchedulingResult {
    let available_offerings =
        AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), start()).with_min_values(policy);
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    schedule(
        Input {
            snapshot,
            available: &available_offerings,
            excluded_nodes: &excluded_nodes,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &claim_of_pod,
        },
        pods,
    )
}

fn families(snapshot: &Snapshot, node: &NewNode) -> usize {
    let types = &snapshot.instance_types[&node.class];
    let of = |o: &crate::model::cluster::claim::PlannedOffering| {
        let instance = types.iter().find(|t| t.facts.name == o.key.size).unwrap();
        instance.requirements.get(labels::SKU_FAMILY).unwrap().single().cloned()
    };
    node.offerings.iter().map(of).collect::<BTreeSet<_>>().len()
}

fn sizes(node: &NewNode) -> usize {
    node.offerings.iter().map(|o| &o.key.size).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_node_keeps_min_values_of_families() {
    // Full nodes of the fixtures would be of family D, without alternatives.
    for least in 2..=4 {
        let snapshot = cluster([pool_with_min_values("general", labels::SKU_FAMILY, least)]);
        let outcome = solve(&snapshot, &pods("p", shape("a", 1000, 3), 20));
        assert_eq!(outcome.unschedulable_pods(), 0, "{least}");
        for node in &outcome.new_nodes {
            let found = families(&snapshot, node);
            assert!(found >= least as usize, "{found} of {least}: {:?}", node.offerings);
        }
    }
}

#[test]
fn unmet_min_values_is_unschedulable_with_its_reason() {
    let snapshot = cluster([pool_with_min_values("general", labels::INSTANCE_TYPE, 40)]);
    let pods = pods("p", shape("a", 1000, 1), 3);
    let outcome = solve(&snapshot, &pods);
    let reasons = &outcome.unschedulable[0].reasons;
    let [(Some(_), UnschedulableReason::MinValues { key, found: 8, required: 40 })] = &reasons[..] else {
        panic!("{reasons:?}")
    };
    assert_eq!(&**key, labels::INSTANCE_TYPE);
    assert_eq!(
        reasons[0].1.to_string(),
        "the matching instance types have 8 values of node.kubernetes.io/instance-type, minValues requires 40"
    );
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 9,
        claim_of_pod: &claim_of_pod,
    };
    let explained = explain(input, &pods, |_| true);
    let ExplainedResult::Unschedulable(unschedulable) = &explained.explanations[0].result else {
        panic!("{explained:?}")
    };
    assert_eq!(
        unschedulable.filter_steps[0].steps.last().map(|step| &step.criterion),
        Some(&FilterCriterion::MinValues)
    );
    let relaxed = solve_with_policy(MinValuesPolicy::BestEffort, &snapshot, &pods);
    assert_eq!(relaxed.unschedulable_pods(), 0);
    // Two of them on one node would leave fewer sizes than one of them has.
    assert!(relaxed.new_nodes.iter().all(|node| sizes(node) == 8 && node.pods.len() == 1));
}

#[test]
fn best_effort_keeps_the_values_of_the_first_pod() {
    let snapshot = cluster([pool_with_min_values("general", labels::INSTANCE_TYPE, 40)]);
    // One such pod fits on 8 sizes, so each node holds what all 8 can: three with 1,900m and daemons.
    let outcome = solve_with_policy(MinValuesPolicy::BestEffort, &snapshot, &pods("p", shape("a", 300, 1), 20));
    assert_eq!(outcome.unschedulable_pods(), 0);
    assert!(
        outcome.new_nodes.iter().all(|node| sizes(node) == 8),
        "{:?}",
        outcome.new_nodes.iter().map(sizes).collect::<Vec<_>>()
    );
}

#[test]
fn unmet_min_values_leave_pods_to_the_next_pool() {
    let heavy = NodePool { weight: 10, ..pool_with_min_values("varied", labels::INSTANCE_TYPE, 40) };
    let outcome = solve(&cluster([heavy, pool("plain")]), &pods("p", shape("a", 1000, 1), 3));
    assert_eq!(outcome.unschedulable_pods(), 0);
    assert!(outcome.new_nodes.iter().all(|node| node.pool.as_str() == "plain"));
}

#[test]
fn min_values_count_within_limits() {
    // With a limit of 8 cores, sizes of 16 are excluded, and none has more than the chosen one.
    let limits = Limits { nodes: None, resources: BTreeMap::from([(Arc::from("cpu"), 8_000)]) };
    let pool = NodePool { limits, ..pool_with_min_values("general", labels::INSTANCE_TYPE, 5) };
    let outcome = solve(&cluster([pool]), &pods("p", shape("a", 500, 1), 2));
    assert_eq!(outcome.unschedulable_pods(), 0);
    let node = &outcome.new_nodes[0];
    assert!(sizes(node) >= 5, "{:?}", node.offerings);
    assert!(node.offerings.iter().all(|o| !o.key.size.as_str().contains("16")), "{:?}", node.offerings);
}

#[test]
fn zones_and_capacity_types_are_values_too() {
    for (key, least) in [(labels::ZONE, 3), (labels::CAPACITY_TYPE, 2)] {
        let snapshot = cluster([pool_with_min_values("general", key, least)]);
        let free = solve(&snapshot, &pods("p", shape("a", 1000, 1), 3));
        assert_eq!(free.unschedulable_pods(), 0, "{key}");
        let pinned = crate::model::cluster::pod::PodShape {
            selector: requirements_in(&[(labels::ZONE, &[zone(1).as_str()]), (labels::CAPACITY_TYPE, &["spot"])]),
            ..shape("a", 1000, 1)
        };
        assert_eq!(solve(&snapshot, &pods("p", pinned, 3)).unschedulable_pods(), 3, "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_new_node_meets_min_values(
        least in 1_u32..9,
        cpu in prop::collection::vec(100_i64..7_000, 1..12),
        spread_by in prop::sample::select(vec![None, Some(labels::ZONE), Some(labels::HOSTNAME)]),
    ) {
        let snapshot = cluster([pool_with_min_values("general", labels::INSTANCE_TYPE, least)]);
        let mut waiting = Vec::new();
        for (n, cpu) in cpu.iter().enumerate() {
            let mut pod_shape = shape("a", *cpu, 1);
            pod_shape.spread.extend(spread_by.map(|key| spread(key, "a", 1)));
            waiting.extend(pods(&format!("p{n}"), pod_shape, 3));
        }
        let outcome = solve(&snapshot, &waiting);
        for node in &outcome.new_nodes {
            prop_assert!(sizes(node) >= least as usize, "{} of {least}", sizes(node));
        }
        let relaxed = solve_with_policy(MinValuesPolicy::BestEffort, &snapshot, &waiting);
        prop_assert!(relaxed.unschedulable_pods() <= outcome.unschedulable_pods());
    }
}
