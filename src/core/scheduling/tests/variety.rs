//! Variety (`minValues`): how many different values remain on offer for a new node?

use super::*;
use crate::model::cluster::pool::Limits;
use crate::model::requirements::Requirement;
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::{Fate, NewNode, StepWhat, account};
use proptest::prelude::*;

/// A pool that asks for so many values of a label.
fn varied(name: &str, key: &str, least: u32) -> NodePool {
    let mut pool = pool(name);
    pool.requirements.add(key, Requirement::exists().with_min_values(Some(least)));
    pool
}

fn solve_as(policy: MinValuesPolicy, snapshot: &Snapshot, pods: &[Arc<Pod>]) -> Outcome {
    let market = Market::new(snapshot, &Unavailable::default(), start()).with_min_values(policy);
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    schedule(
        Input { snapshot, market: &market, without: &without, new_nodes: MOST_NEW_NODES, promised: &promised },
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
fn a_node_keeps_as_many_families_on_offer_as_its_pool_asks_for() {
    // Filled to the brim nodes of the fixtures would be D, with nothing beside them.
    for least in 2..=4 {
        let snapshot = cluster([varied("general", labels::SKU_FAMILY, least)]);
        let outcome = solve(&snapshot, &pods("p", shape("a", 1000, 3), 20));
        assert_eq!(outcome.unplaced_pods(), 0, "{least}");
        for node in &outcome.new {
            let found = families(&snapshot, node);
            assert!(found >= least as usize, "{found} of {least}: {:?}", node.offerings);
        }
    }
}

#[test]
fn pods_that_leave_too_little_variety_have_no_place_and_are_told_so() {
    let snapshot = cluster([varied("general", labels::INSTANCE_TYPE, 40)]);
    let pods = pods("p", shape("a", 1000, 1), 3);
    let outcome = solve(&snapshot, &pods);
    let why = &outcome.unplaced[0].why;
    let [(Some(_), WhyNot::MinValues { key, found: 8, least: 40 })] = &why[..] else { panic!("{why:?}") };
    assert_eq!(&**key, labels::INSTANCE_TYPE);
    assert_eq!(
        why[0].1.to_string(),
        "the matching instance types have 8 values of node.kubernetes.io/instance-type, minValues requires 40"
    );
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input { snapshot: &snapshot, market: &market, without: &without, new_nodes: 9, promised: &promised };
    let told = account(input, &pods, |_| true);
    let Fate::Nowhere(stuck) = &told.accounts[0].fate else { panic!("{told:?}") };
    assert_eq!(stuck.waterfalls[0].steps.last().map(|step| &step.what), Some(&StepWhat::Variety));
    let relaxed = solve_as(MinValuesPolicy::BestEffort, &snapshot, &pods);
    assert_eq!(relaxed.unplaced_pods(), 0);
    // Two of them on one node would leave fewer sizes than one of them has.
    assert!(relaxed.new.iter().all(|node| sizes(node) == 8 && node.pods.len() == 1));
}

#[test]
fn by_best_effort_the_first_pod_says_how_much_variety_there_is_to_keep() {
    let snapshot = cluster([varied("general", labels::INSTANCE_TYPE, 40)]);
    // One such pod fits on 8 sizes, so that each node holds what all 8 hold: three with 1,900m and daemons.
    let outcome = solve_as(MinValuesPolicy::BestEffort, &snapshot, &pods("p", shape("a", 300, 1), 20));
    assert_eq!(outcome.unplaced_pods(), 0);
    assert!(outcome.new.iter().all(|node| sizes(node) == 8), "{:?}", outcome.new.iter().map(sizes).collect::<Vec<_>>());
}

#[test]
fn a_pool_that_lacks_variety_leaves_pods_to_the_next() {
    let heavy = NodePool { weight: 10, ..varied("varied", labels::INSTANCE_TYPE, 40) };
    let outcome = solve(&cluster([heavy, pool("plain")]), &pods("p", shape("a", 1000, 1), 3));
    assert_eq!(outcome.unplaced_pods(), 0);
    assert!(outcome.new.iter().all(|node| node.pool.as_str() == "plain"));
}

#[test]
fn variety_counts_what_limits_leave() {
    // With 8 cores at the most, sizes of 16 are no choice, and none has more than the chosen one.
    let limits = Limits { nodes: None, resources: BTreeMap::from([(Arc::from("cpu"), 8_000)]) };
    let pool = NodePool { limits, ..varied("general", labels::INSTANCE_TYPE, 5) };
    let outcome = solve(&cluster([pool]), &pods("p", shape("a", 500, 1), 2));
    assert_eq!(outcome.unplaced_pods(), 0);
    let node = &outcome.new[0];
    assert!(sizes(node) >= 5, "{:?}", node.offerings);
    assert!(node.offerings.iter().all(|o| !o.key.size.as_str().contains("16")), "{:?}", node.offerings);
}

#[test]
fn zones_and_capacity_types_are_values_too() {
    for (key, least) in [(labels::ZONE, 3), (labels::CAPACITY_TYPE, 2)] {
        let snapshot = cluster([varied("general", key, least)]);
        let free = solve(&snapshot, &pods("p", shape("a", 1000, 1), 3));
        assert_eq!(free.unplaced_pods(), 0, "{key}");
        let pinned = crate::model::cluster::pod::PodShape {
            selector: requirements_in(&[(labels::ZONE, &[zone(1).as_str()]), (labels::CAPACITY_TYPE, &["spot"])]),
            ..shape("a", 1000, 1)
        };
        assert_eq!(solve(&snapshot, &pods("p", pinned, 3)).unplaced_pods(), 3, "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_bought_has_the_variety_asked_for_or_is_not_bought(
        least in 1_u32..9,
        cpu in prop::collection::vec(100_i64..7_000, 1..12),
        spread_by in prop::sample::select(vec![None, Some(labels::ZONE), Some(labels::HOSTNAME)]),
    ) {
        let snapshot = cluster([varied("general", labels::INSTANCE_TYPE, least)]);
        let mut waiting = Vec::new();
        for (n, cpu) in cpu.iter().enumerate() {
            let mut asked = shape("a", *cpu, 1);
            asked.spread.extend(spread_by.map(|key| spread(key, "a", 1)));
            waiting.extend(pods(&format!("p{n}"), asked, 3));
        }
        let outcome = solve(&snapshot, &waiting);
        for node in &outcome.new {
            prop_assert!(sizes(node) >= least as usize, "{} of {least}", sizes(node));
        }
        let relaxed = solve_as(MinValuesPolicy::BestEffort, &snapshot, &waiting);
        prop_assert!(relaxed.unplaced_pods() <= outcome.unplaced_pods());
    }
}
