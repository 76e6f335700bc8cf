//! Tests of NodeOverlays: which nodes they apply to, which of them wins, and what is launched then.

use crate::catalog::CapacityType::{OnDemand, Spot};
use crate::fixtures::{claim, cluster, offering, pods, pool, requirements_in, shape, start, zone};
use crate::model::cluster::pod::PodShape;
use crate::model::names::{ClaimName, Uid, Zone};
use crate::model::requirements::Operator;
use crate::scheduling::offerings::node_overlays::*;
use crate::scheduling::tests::solve;
use proptest::prelude::*;

const D2: &str = "Standard_D2s_v5";
const D4: &str = "Standard_D4s_v5";
const FPGA: &str = "example.com/fpga";

fn overlay(name: &str, weight: i32, requirements: &[(&str, &[&str])], change: &str) -> Overlay {
    let price = match change {
        "" => None,
        signed if signed.starts_with(['+', '-']) => Some(PriceAdjustment::parse_adjustment(signed).unwrap()),
        fixed => Some(PriceAdjustment::parse_price(fixed).unwrap()),
    };
    Overlay {
        name: ObjectName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        weight,
        requirements: requirements_in(requirements),
        price,
        capacity: BTreeMap::new(),
        generation: 1,
        conditions: Default::default(),
    }
}

fn cluster_with_overlays(overlays: impl IntoIterator<Item = Overlay>) -> Snapshot {
    let mut snapshot = cluster([pool("a"), pool("b")]);
    for overlay in overlays {
        snapshot.put_overlay(overlay.name.clone(), overlay);
    }
    snapshot
}

/// What an offering costs in a pool.
fn price(
    snapshot: &Snapshot,
    pool: &str,
    size: &str,
    (zone, capacity_type): (Zone, crate::catalog::CapacityType),
) -> i64 {
    let pool = NodePoolName::new(pool).unwrap();
    let key = OfferingKey { size: VmSize::new(size).unwrap(), zone, capacity_type };
    let overlaid = OverlaidInstanceTypes::of(snapshot);
    let types = overlaid.instance_types(snapshot, snapshot.pools().get(&pool).unwrap()).unwrap();
    let instance = types.iter().find(|t| t.facts.name == key.size).unwrap();
    let same = |o: &&Offering| o.zone == key.zone && o.capacity_type == key.capacity_type;
    let shown = instance.offerings.iter().find(same).unwrap();
    assert!(overlaid.price(&pool, &key).is_none_or(|price| price == instance.node_price(shown)));
    assert!(instance.offerings.is_sorted_by_key(|o| o.price), "cheapest first");
    shown.price.nanos()
}

fn list_price(size: &str, capacity_type: crate::catalog::CapacityType) -> i64 {
    price(&cluster_with_overlays([]), "a", size, (zone(1), capacity_type))
}

#[test]
fn only_offerings_that_satisfy_every_requirement_change() {
    let requirements: &[(&str, &[&str])] =
        &[(labels::INSTANCE_TYPE, &[D2]), (labels::ZONE, &["westeurope-2"]), (labels::CAPACITY_TYPE, &["on-demand"])];
    let snapshot = cluster_with_overlays([overlay("o", 1, requirements, "-50%")]);
    for (size, zone_number, capacity_type, halved) in
        [(D2, 2, OnDemand, true), (D2, 1, OnDemand, false), (D2, 2, Spot, false), (D4, 2, OnDemand, false)]
    {
        let expected = list_price(size, capacity_type) / if halved { 2 } else { 1 };
        assert_eq!(
            price(&snapshot, "a", size, (zone(zone_number), capacity_type)),
            expected,
            "{size} {zone_number} {capacity_type}"
        );
    }
}

#[test]
fn an_overlay_may_name_a_pool_and_the_labels_of_its_template() {
    let own: &[(&str, &[&str])] = &[(labels::NODEPOOL, &["a"])];
    let team: &[(&str, &[&str])] = &[("team", &["x"])];
    let mut snapshot = cluster_with_overlays([overlay("pool", 1, own, "+100%"), overlay("team", 2, team, "1.5")]);
    let mut labelled = pool("b");
    labelled.labels.insert("team".into(), "x".into());
    snapshot.put_pool(labelled.name.clone(), labelled);
    let at = (zone(1), OnDemand);
    assert_eq!(price(&snapshot, "a", D2, at.clone()), 2 * list_price(D2, OnDemand));
    assert_eq!(price(&snapshot, "b", D2, at), 1_500_000_000);
}

#[test]
fn a_label_that_nodes_may_lack_is_no_match() {
    let mut may_lack = overlay("o", 1, &[], "+100%");
    may_lack.requirements.add_entry("team", Operator::NotIn, &["x"]).unwrap();
    let mut must_have = overlay("p", 1, &[], "9.9");
    must_have.requirements.add_entry("team", Operator::Exists, &[] as &[&str]).unwrap();
    let snapshot = cluster_with_overlays([may_lack, must_have]);
    assert_eq!(price(&snapshot, "a", D2, (zone(1), OnDemand)), 2 * list_price(D2, OnDemand));
}

#[test]
fn the_greatest_weight_decides_by_itself_for_each_price_and_resource() {
    let mut wide = overlay("wide", 1, &[], "+100%");
    wide.capacity = BTreeMap::from([(Arc::from(FPGA), 1), (Arc::from("example.com/nic"), 7)]);
    let mut narrow = overlay("narrow", 2, &[(labels::INSTANCE_TYPE, &[D2])], "");
    narrow.capacity = BTreeMap::from([(Arc::from(FPGA), 4)]);
    let snapshot = cluster_with_overlays([wide, narrow]);
    let overlaid = OverlaidInstanceTypes::of(&snapshot);
    let types = overlaid.instance_types(&snapshot, snapshot.pools().values().next().unwrap()).unwrap();
    for (size, fpgas) in [(D2, 4), (D4, 1)] {
        let instance = types.iter().find(|t| t.facts.name.as_str() == size).unwrap();
        let both =
            [&instance.capacity, &instance.allocatable].map(|r| (r.extended(FPGA), r.extended("example.com/nic")));
        assert_eq!(both, [(fpgas, 7); 2], "{size}");
    }
    assert_eq!(
        price(&snapshot, "a", D2, (zone(1), OnDemand)),
        2 * list_price(D2, OnDemand),
        "narrow says nothing of it"
    );
    assert_eq!(overlaid.conflicts, []);
}

#[test]
fn of_two_overlays_that_set_the_same_field_at_one_weight_the_first_by_name_is_ignored() {
    let all: &[(&str, &[&str])] = &[];
    let snapshot = cluster_with_overlays([
        overlay("z", 5, &[(labels::INSTANCE_TYPE, &[D2])], "+100%"),
        overlay("y", 5, all, "-50%"),
    ]);
    assert_eq!(price(&snapshot, "a", D2, (zone(1), OnDemand)), 2 * list_price(D2, OnDemand));
    assert_eq!(
        price(&snapshot, "a", D4, (zone(1), OnDemand)),
        list_price(D4, OnDemand),
        "y is ignored for this size too"
    );
    let conflicts = OverlaidInstanceTypes::of(&snapshot).conflicts;
    assert_eq!(conflicts.len(), 1);
    let message = conflicts[0].to_string();
    assert_eq!(conflicts[0].overlay.as_str(), "y");
    assert!(
        message.contains("NodeOverlay z has the same weight and also sets price of Standard_D2s_v5 in NodePool a"),
        "{message}"
    );
}

#[test]
fn one_of_no_weight_beside_one_of_another_is_no_conflict() {
    let snapshot = cluster_with_overlays([overlay("z", 5, &[], "+100%"), overlay("y", 0, &[], "-50%")]);
    assert_eq!(OverlaidInstanceTypes::of(&snapshot).conflicts, []);
    let mut memory = OverlayMemory::default();
    memory.refresh(&snapshot);
    assert_eq!(memory.conflicts, []);
    let mut snapshot = snapshot;
    snapshot.put_overlay(ObjectName::new("y").unwrap(), overlay("y", 5, &[], "-50%"));
    memory.refresh(&snapshot);
    assert_eq!(memory.conflicts.len(), 1, "it looks again when an overlay has changed");
}

#[test]
fn launched_offerings_follow_overlays() {
    let plain = cluster_with_overlays([]);
    let waiting = pods("p", shape("app", 1_000, 1), 1);
    let best = |snapshot: &Snapshot| solve(snapshot, &waiting).new_nodes[0].offerings[0].clone();
    let before = best(&plain);
    let expensive: &[(&str, &[&str])] = &[(labels::INSTANCE_TYPE, &[before.key.size.as_str()])];
    let after = best(&cluster_with_overlays([overlay("o", 1, expensive, "+900%")]));
    assert_ne!(after.key.size, before.key.size);
    let cheap: &[(&str, &[&str])] = &[(labels::INSTANCE_TYPE, &["Standard_D16s_v5"]), (labels::NODEPOOL, &["a"])];
    let node = solve(&cluster_with_overlays([overlay("o", 1, cheap, "0.0001")]), &waiting).new_nodes.remove(0);
    // Its OS disk costs $0.027 as before.
    assert_eq!((node.pool.as_str(), node.offerings[0].price.nanos()), ("a", 27_100_000));
    assert_eq!(node.offerings[0].key.size.as_str(), "Standard_D16s_v5");
}

#[test]
fn pods_that_request_an_added_resource_get_nodes_and_wait_for_claims_in_flight() {
    let mut with_fpga = overlay("o", 1, &[(labels::INSTANCE_TYPE, &[D4])], "");
    with_fpga.capacity = BTreeMap::from([(Arc::from(FPGA), 2)]);
    let mut snapshot = cluster_with_overlays([with_fpga]);
    let mut requesting: PodShape = shape("app", 100, 1);
    requesting.requests.set_extended(FPGA, 1);
    let waiting = pods("p", requesting, 4);
    let result = solve(&snapshot, &waiting);
    assert_eq!((result.new_nodes.len(), result.unschedulable_pods()), (2, 0));
    assert!(result.new_nodes.iter().all(|node| node.offerings.iter().all(|o| o.key.size.as_str() == D4)));
    for n in 0..2 {
        let mut launched = claim(&format!("c{n}"), &pool("a"), vec![offering(D4, 1, OnDemand)]);
        launched.name = ClaimName::new(format!("c{n}")).unwrap();
        snapshot.put_claim(launched);
    }
    let result = solve(&snapshot, &waiting);
    assert_eq!((result.new_nodes.len(), result.unschedulable_pods()), (0, 0), "{result:?}");
    assert_eq!(
        solve(&cluster_with_overlays([]), &waiting).unschedulable_pods(),
        4,
        "no size has it without the overlay"
    );
}

#[test]
fn a_discount_on_all_offerings_does_not_make_a_node_more_expensive_than_its_replacement() {
    use crate::disruption::{DisruptionMemory, disrupt};
    let on_demand = crate::model::cluster::pool::NodePool {
        requirements: requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]),
        ..pool("a")
    };
    let mut snapshot = cluster([on_demand.clone()]);
    // The cheapest size by list price.
    let small = pods("p", shape("app", 100, 1), 1);
    let best = solve(&snapshot, &small).new_nodes[0].offerings[0].clone();
    let (claim, node) = crate::fixtures::managed("c", &on_demand, best);
    snapshot.put_pod(crate::fixtures::running("p", &small[0].shape, &node));
    crate::fixtures::put(&mut snapshot, (claim, node));
    let discount = overlay("o", 1, &[], "-20%");
    snapshot.put_overlay(discount.name.clone(), discount);
    let mut memory = DisruptionMemory::default();
    for now in (0..120).step_by(10) {
        let at = start() + jiff::SignedDuration::from_secs(now);
        let plan = disrupt(&snapshot, &mut memory, &Default::default(), &crate::fixtures::settings(), at, 1);
        assert!(plan.commands.is_empty(), "{plan:?}");
    }
}

proptest! {
    /// In any order and number, effects of overlays are never mixed.
    #[test]
    fn each_price_is_the_list_price_or_that_of_one_overlay(
        generated in prop::collection::vec((0_i32..3, prop::sample::select(vec!["", "D", "E"]), 1_i64..300), 0..6),
    ) {
        let overlays: Vec<Overlay> = generated.iter().enumerate().map(|(n, (weight, family, percent))| {
            let family = [*family];
            let requirements: Vec<(&str, &[&str])> =
                if family[0].is_empty() { Vec::new() } else { vec![(labels::SKU_FAMILY, &family)] };
            overlay(&format!("o{n}"), *weight, &requirements, &format!("+{percent}%"))
        }).collect();
        let forward = cluster_with_overlays(overlays.clone());
        let backward = cluster_with_overlays(overlays.iter().rev().cloned());
        let now = price(&forward, "a", D2, (zone(1), OnDemand));
        prop_assert_eq!(now, price(&backward, "a", D2, (zone(1), OnDemand)));
        let base = HourlyPrice::from_nanos(list_price(D2, OnDemand));
        let about = |o: &&Overlay| o.requirements.is_empty() || o.requirements.allows(labels::SKU_FAMILY, Some("D"));
        let conflict = !OverlaidInstanceTypes::of(&forward).conflicts.is_empty();
        let heaviest = overlays.iter().filter(about).map(|o| o.weight).max();
        let allowed: Vec<i64> = overlays.iter().filter(about).filter_map(|o| o.price.map(|p| p.apply(base).nanos())).collect();
        prop_assert!(allowed.contains(&now) || now == base.nanos() && (heaviest.is_none() || conflict), "{now} of {allowed:?}");
    }
}
