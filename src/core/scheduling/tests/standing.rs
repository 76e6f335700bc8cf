//! Pods that come one at a time go where a simulation of each would put it.

use super::random::scene;
use super::*;
use crate::scheduling::{Spot, Standing};

fn standing<'a>(snapshot: &'a Snapshot, market: &'a Market<'a>, none: &'a (BTreeSet<crate::names::NodeName>, BTreeMap<crate::names::ObjectKey, crate::names::ClaimName>)) -> Standing<'a> {
    Standing::new(Input { snapshot, market, without: &none.0, new_nodes: MOST_NEW_NODES, promised: &none.1 })
}

/// A simulation's place for its only pod, as far as both can name it.
fn named(outcome: &Outcome) -> String {
    match outcome.placements.first().map(|p| &p.target) {
        Some(Target::Node(name)) => format!("node {name}"),
        Some(Target::Claim(name)) => format!("claim {name}"),
        Some(Target::New(_)) => format!("new {} {:?}", outcome.new[0].pool, outcome.new[0].offerings[0]),
        None => format!("nowhere {:?}", outcome.unplaced[0].why),
    }
}

fn spot_named(found: &Result<Spot, Vec<(Option<crate::names::NodePoolName>, WhyNot)>>) -> String {
    match found {
        Ok(Spot::Node(name)) => format!("node {name}"),
        Ok(Spot::Claim(name)) => format!("claim {name}"),
        Ok(Spot::New(bought)) => format!("new {} {:?}", bought.pool, bought.best),
        Err(why) => format!("nowhere {why:?}"),
    }
}

#[test]
fn a_pod_alone_goes_where_a_simulation_puts_it() {
    let (mut placed, mut total) = (0, 0);
    for seed in 1..200 {
        let (snapshot, pods) = scene(seed);
        let market = Market::new(&snapshot, &Unavailable::default(), start());
        let none = Default::default();
        let mut standing = standing(&snapshot, &market, &none);
        for pod in &pods {
            let outcome = solve(&snapshot, std::slice::from_ref(pod));
            let found = standing.find(pod);
            // A zone with no room for the limits is not the end here: the next one is tried.
            if outcome.placements.is_empty() && !pod.shape.spread.is_empty() {
                continue;
            }
            total += 1;
            placed += usize::from(found.is_ok());
            assert_eq!(spot_named(&found), named(&outcome), "seed {seed}, {}", pod.key);
        }
    }
    assert!(placed * 2 > total && placed < total, "{placed} of {total}");
}

#[test]
fn room_that_is_taken_is_not_given_again_and_limits_hold() {
    let mut small = pool("small");
    small.limits.resources.insert(Arc::from("cpu"), 16_000);
    small.requirements = only(&[(labels::INSTANCE_TYPE, &["Standard_D8s_v5"])]);
    let mut snapshot = cluster([small]);
    snapshot.put_node(node("here", 1, 4));
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let none = Default::default();
    let mut standing = standing(&snapshot, &market, &none);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods("p", shape("a", 1000, 1), 500) {
        let found = standing.find(&pod);
        assert_eq!(spot_named(&standing.find(&pod)), spot_named(&found), "to look takes nothing");
        if let Ok(spot) = &found {
            assert!(standing.take(&pod, spot));
        }
        let key = spot_named(&found);
        *counts.entry(key.split(' ').next().unwrap().to_owned()).or_insert(0) += 1;
    }
    // Four cores here; twice eight, of which a node keeps some for itself, in the pool.
    assert_eq!(counts, BTreeMap::from([("node".to_owned(), 4), ("new".to_owned(), 14), ("nowhere".to_owned(), 482)]));
}

#[test]
fn pods_spread_over_zones_go_round_them() {
    let mut snapshot = cluster([pool("general")]);
    for n in 1..=3 {
        snapshot.put_node(node(&format!("n{n}"), n, 8));
    }
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let none = Default::default();
    let mut standing = standing(&snapshot, &market, &none);
    let even = crate::cluster::pod::PodShape { spread: vec![spread(labels::ZONE, "a", 1)], ..shape("a", 1000, 1) };
    let mut nodes = BTreeMap::new();
    for pod in pods("p", even, 9) {
        let Ok(Spot::Node(name)) = standing.find(&pod) else { panic!("{pod:?}") };
        assert!(standing.take(&pod, &Spot::Node(name.clone())));
        *nodes.entry(name.to_string()).or_insert(0) += 1;
    }
    assert_eq!(nodes.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn what_is_no_more_there_takes_nothing() {
    let snapshot = cluster([pool("general")]);
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let none = Default::default();
    let mut standing = standing(&snapshot, &market, &none);
    let pod = &pods("p", shape("a", 1000, 1), 1)[0];
    assert!(!standing.take(pod, &Spot::Node(node("gone", 1, 2).name)));
}
