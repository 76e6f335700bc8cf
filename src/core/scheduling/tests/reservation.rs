//! Reserved capacity: it comes first, no more of it is planned than there is, and the reason is given.

use crate::catalog::CapacityType;
use crate::catalog::CapacityType::{OnDemand, Reserved, Spot};
use crate::catalog::live::{Quota, QuotaUsage, STALE_AFTER};
use crate::fixtures::{
    at, claim, cluster, intent, offering, pods, pool, pool_with_capacity_types, reservation_group, reserve, shape,
    spread, start, zone,
};
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::PodShape;
use crate::model::errors::{CloudError, CloudErrorCode, LaunchRefusal};
use crate::model::labels;
use crate::model::requirements::Operator;
use crate::scheduling::tests::solve;
use crate::scheduling::{AvailableOfferings, Input, UnavailableOfferings, explain, schedule};
use crate::snapshot::Snapshot;
use jiff::SignedDuration;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const D2: &str = "Standard_D2s_v5";
const D4: &str = "Standard_D4s_v5";
const D8: &str = "Standard_D8s_v5";
const EVERY: &[&str] = &["reserved", "spot", "on-demand"];

/// One pod on each node, which wants most of two cores.
fn apart() -> PodShape {
    PodShape { spread: vec![spread(labels::HOSTNAME, "a", 1)], ..shape("a", 1500, 1) }
}

/// The first offering of each node.
fn first_offerings(snapshot: &Snapshot, shape: PodShape, count: usize) -> Vec<PlannedOffering> {
    let outcome = solve(snapshot, &pods("p", shape, count));
    assert_eq!(outcome.unschedulable_pods(), 0, "{:?}", outcome.unschedulable);
    outcome.new_nodes.iter().map(|node| node.offerings[0].clone()).collect()
}

/// How many nodes are tried first in each way.
fn count_by_capacity_type(snapshot: &Snapshot, shape: PodShape, count: usize) -> BTreeMap<CapacityType, usize> {
    let mut ways = BTreeMap::new();
    first_offerings(snapshot, shape, count).iter().for_each(|o| *ways.entry(o.key.capacity_type).or_default() += 1);
    ways
}

/// Why one pod is unschedulable.
fn reason(snapshot: &Snapshot) -> String {
    let outcome = solve(snapshot, &pods("p", apart(), 1));
    let reasons = outcome.unschedulable.iter().flat_map(|u| &u.reasons).map(|(_, reason)| reason.to_string());
    reasons.collect::<Vec<_>>().join("; ")
}

#[test]
fn reserved_comes_first_and_the_rest_is_launched_in_the_same_pass() {
    let mut snapshot = cluster([pool_with_capacity_types("general", EVERY)]);
    reserve(&mut snapshot, start(), &[(D2, 1, 1, 3), (D2, 2, 0, 1)]);
    assert_eq!(count_by_capacity_type(&snapshot, apart(), 3), [(Reserved, 3)].into());
    assert_eq!(count_by_capacity_type(&snapshot, apart(), 5), [(Reserved, 3), (Spot, 2)].into());
    let mut snapshot = cluster([pool_with_capacity_types("general", &["reserved", "on-demand"])]);
    reserve(&mut snapshot, start(), &[(D2, 1, 1, 3), (D2, 2, 0, 1)]);
    let offerings = first_offerings(&snapshot, apart(), 5);
    let reserved: Vec<_> = offerings.iter().filter(|o| o.key.capacity_type == Reserved).map(|o| &o.key.zone).collect();
    assert_eq!(reserved.iter().filter(|z| ***z == zone(1)).count(), 2, "each zone has its own: {reserved:?}");
    assert_eq!((reserved.len(), offerings.len()), (3, 5));
}

#[test]
fn a_node_is_planned_for_one_reservation_and_for_on_demand_and_spot() {
    let mut snapshot = cluster([pool_with_capacity_types("general", EVERY)]);
    reserve(&mut snapshot, start(), &[(D2, 1, 0, 1), (D4, 1, 0, 1), (D8, 2, 0, 1)]);
    let outcome = solve(&snapshot, &pods("p", apart(), 1));
    let planned = &outcome.new_nodes[0].offerings;
    assert_eq!(planned[0].key, offering(D2, 1, Reserved).key, "the smallest costs least");
    assert!(planned[0].price < planned[1].price && planned[0].price > Default::default());
    assert!(
        planned[1..].iter().all(|o| o.key.capacity_type != Reserved),
        "other reservations are not counted: {planned:?}"
    );
    assert!(planned.len() > 5);
}

#[test]
fn a_pool_uses_reservations_only_if_its_requirements_say_so() {
    for (pool, group) in [(pool("general"), true), (pool_with_capacity_types("general", EVERY), false)] {
        let mut snapshot = cluster([pool]);
        reserve(&mut snapshot, start(), &[(D2, 1, 0, 9)]);
        if !group {
            snapshot.put_class(crate::fixtures::class().name, crate::fixtures::class());
        }
        let ways = count_by_capacity_type(&snapshot, apart(), 3);
        assert!(!ways.contains_key(&Reserved), "{ways:?}");
    }
}

#[test]
fn a_used_up_reservation_is_reported_with_launches_in_flight() {
    let paid = pool_with_capacity_types("paid", &["reserved"]);
    let mut snapshot = cluster([paid.clone()]);
    reserve(&mut snapshot, start(), &[(D2, 1, 2, 5)]);
    let planned = |snapshot: &Snapshot| {
        let outcome = solve(snapshot, &pods("p", apart(), 9));
        (outcome.new_nodes.len(), outcome.unschedulable[0].reason())
    };
    let short =
        "paid: capacity reservation for Standard_D2s_v5 in westeurope-1 in group paid: 2 of 5 VMs used, 3 launching";
    assert_eq!(planned(&snapshot), (3, short.to_owned()));
    // One of the pods goes to it; two more are left.
    let mut in_flight = claim("paid-a", &paid, vec![offering(D2, 1, Reserved)]);
    in_flight.status.node_name = None;
    let mut with = |in_flight: &crate::model::cluster::claim::Claim| {
        snapshot.put_claim(in_flight.clone());
        planned(&snapshot).0
    };
    assert_eq!(with(&in_flight), 2);
    // Its group is that of its intent, whatever its class names now.
    in_flight.intent = Some(intent(&in_flight, offering(D2, 1, Reserved)));
    assert_eq!(with(&in_flight), 2);
    let elsewhere =
        crate::catalog::live::parse_reservation_group(&reservation_group().as_str().replace("paid", "free")).unwrap();
    in_flight.intent.as_mut().unwrap().reservation = Some(elsewhere);
    assert_eq!(with(&in_flight), 3);
    // It has come to be an on-demand node, or one that Azure has counted.
    in_flight.intent = Some(intent(&in_flight, offering(D2, 1, OnDemand)));
    assert_eq!(with(&in_flight), 3);
    in_flight.intent = Some(intent(&in_flight, offering(D2, 1, Reserved)));
    in_flight.status.launched = Some(start());
    assert_eq!(with(&in_flight), 3);
}

#[test]
fn filter_steps_and_suggestion_name_reservations() {
    let mut snapshot = cluster([pool_with_capacity_types("paid", &["reserved"])]);
    reserve(&mut snapshot, start(), &[(D2, 1, 3, 3)]);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = Default::default();
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 9,
        claim_of_pod: &claim_of_pod,
    };
    let explained = explain(input, &pods("p", apart(), 1), |_| true);
    let crate::scheduling::ExplainedResult::Unschedulable(unschedulable) = &explained.explanations[0].result else {
        panic!("{explained:?}")
    };
    assert_eq!(unschedulable.filter_steps[0].to_string(), "paid: 1 size available, 0 after capacity reservations");
    assert_eq!(
        unschedulable.suggestion.as_ref().unwrap().to_string(),
        "for NodePool paid: increase the capacity reservation for Standard_D2s_v5 in westeurope-1 in group paid: 3 \
         of 3 VMs used, 0 launching; or allow on-demand in the NodePool"
    );
}

#[test]
fn a_pool_of_reserved_capacity_without_any_reports_the_reason() {
    let mut snapshot = cluster([pool_with_capacity_types("paid", &["reserved"])]);
    let message = reason(&snapshot);
    assert!(
        message.contains("AKSNodeClass default has no annotation") && message.contains(labels::RESERVATION_GROUP),
        "{message}"
    );
    reserve(&mut snapshot, start() - STALE_AFTER - SignedDuration::from_secs(1), &[(D2, 1, 0, 3)]);
    assert!(reason(&snapshot).contains("group paid is unknown"), "old numbers are none");
    reserve(&mut snapshot, start() - STALE_AFTER, &[(D2, 1, 0, 3)]);
    assert_eq!(reason(&snapshot), "");
    reserve(&mut snapshot, start(), &[("Standard_D2ps_v5", 1, 0, 3)]);
    assert!(reason(&snapshot).contains("no reservation in group paid satisfies"), "the pool is for amd64");
}

#[test]
fn reserved_capacity_takes_no_quota() {
    let mut snapshot = cluster([pool_with_capacity_types("general", &["reserved", "on-demand"])]);
    reserve(&mut snapshot, start(), &[(D2, 1, 0, 2)]);
    let full = QuotaUsage { name: Arc::from("cores"), used: 100, limit: 100 };
    snapshot.quota = Some(Arc::new(Quota::new(start(), [full])));
    assert_eq!(count_by_capacity_type(&snapshot, apart(), 2), [(Reserved, 2)].into());
    let outcome = solve(&snapshot, &pods("p", apart(), 3));
    let reason = outcome.unschedulable[0].reason();
    assert!(reason.contains("regional vCPU quota: 100 of 100"), "a larger quota would help: {reason}");
}

#[test]
fn a_reservation_in_no_zone_serves_and_new_numbers_are_news() {
    let mut snapshot = cluster([pool_with_capacity_types("paid", &["reserved"])]);
    reserve(&mut snapshot, start(), &[(D4, 0, 1, 1)]);
    assert!(reason(&snapshot).contains("capacity reservation for Standard_D4s_v5 in group paid: 1 of 1"));
    let before = snapshot.facts_generation();
    reserve(&mut snapshot, at(120), &[(D4, 0, 1, 1)]);
    assert_eq!(snapshot.facts_generation(), before);
    reserve(&mut snapshot, at(120), &[(D4, 0, 0, 1)]);
    assert!(snapshot.facts_generation() > before, "unschedulable pods are tried again");
    assert!(first_offerings(&snapshot, apart(), 1)[0].key.zone.is_regional());
}

#[test]
fn reservations_without_a_zone_are_regional_and_other_offerings_are_not() {
    let scoped = |scope: &str, ways: &[&str]| {
        let mut pool = pool_with_capacity_types("general", ways);
        pool.requirements.add_entry(labels::PLACEMENT_SCOPE, Operator::In, &[scope]).unwrap();
        let mut snapshot = cluster([pool]);
        reserve(&mut snapshot, start(), &[(D4, 0, 0, 1)]);
        snapshot
    };
    assert_eq!(
        count_by_capacity_type(&scoped("zonal", &["reserved", "on-demand"]), apart(), 1),
        [(OnDemand, 1)].into()
    );
    assert_eq!(count_by_capacity_type(&scoped("regional", EVERY), apart(), 1), [(Reserved, 1)].into());
    let outcome = solve(&scoped("regional", EVERY), &pods("p", apart(), 2));
    assert_eq!(
        (outcome.new_nodes.len(), outcome.unschedulable_pods()),
        (1, 1),
        "zonal offerings of the size are not regional"
    );
    let for_sale = ["spot", "on-demand"];
    assert_eq!(solve(&scoped("regional", &for_sale), &pods("p", apart(), 1)).unschedulable_pods(), 1);
    // Pods can require it too.
    let in_scope = |scope: &str| PodShape {
        selector: crate::fixtures::requirements_in(&[(labels::PLACEMENT_SCOPE, &[scope])]),
        ..apart()
    };
    let mut snapshot = cluster([pool_with_capacity_types("general", EVERY)]);
    reserve(&mut snapshot, start(), &[(D4, 0, 0, 1)]);
    assert_eq!(count_by_capacity_type(&snapshot, in_scope("regional"), 1), [(Reserved, 1)].into());
    assert_eq!(count_by_capacity_type(&snapshot, in_scope("zonal"), 1), [(Spot, 1)].into());
}

#[test]
fn a_claim_in_flight_has_the_scope_of_its_offerings() {
    let general = pool_with_capacity_types("general", EVERY);
    let mut snapshot = cluster([general.clone()]);
    reserve(&mut snapshot, start(), &[(D4, 0, 0, 1)]);
    snapshot.put_claim(claim("coming", &general, vec![offering(D4, 1, OnDemand), offering(D4, 2, OnDemand)]));
    for key in [labels::PLACEMENT_SCOPE, labels::CAPACITY_TYPE] {
        let shape = PodShape { spread: vec![spread(key, "a", 1)], ..shape("a", 1500, 1) };
        let outcome = solve(&snapshot, &pods("p", shape, 1));
        assert_eq!((outcome.new_nodes.len(), outcome.placements.len()), (0, 1), "{key}: {:?}", outcome.unschedulable);
    }
}

#[test]
fn a_refusal_of_one_group_says_nothing_of_another() {
    let mut snapshot = cluster([pool_with_capacity_types("general", &["reserved", "on-demand"])]);
    reserve(&mut snapshot, start(), &[(D2, 1, 0, 1)]);
    let elsewhere =
        crate::catalog::live::parse_reservation_group(&reservation_group().as_str().replace("paid", "free")).unwrap();
    for (group, expected) in [(reservation_group(), OnDemand), (elsewhere, Reserved)] {
        let error = CloudError::new(CloudErrorCode::Permission, "may not deploy");
        let (offering, reservation) = (offering(D2, 1, Reserved).key, Some(group));
        let refusal = LaunchRefusal { offering, reservation, error, applies_to_all_offerings: false, at: start() };
        let mut unavailable = UnavailableOfferings::default();
        unavailable.record(&refusal, None);
        let available_offerings = AvailableOfferings::new(&snapshot, &unavailable, start());
        let (excluded_nodes, claim_of_pod) = Default::default();
        let input = Input {
            snapshot: &snapshot,
            available: &available_offerings,
            excluded_nodes: &excluded_nodes,
            max_new_nodes: 9,
            claim_of_pod: &claim_of_pod,
        };
        let outcome = schedule(input, &pods("p", apart(), 1));
        assert_eq!(outcome.new_nodes[0].offerings[0].key.capacity_type, expected, "{refusal:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any pods and reservations, no more is planned than reserved, and in the zone of the reservation.
    #[test]
    fn no_more_nodes_are_planned_than_reserved(
        reservations in proptest::collection::btree_map((0..4_usize, 1..4_u8), (0..3_u64, 0..5_u64), 1..5),
        demand in proptest::collection::vec((1..7_i64, 1..9_usize, 0..3_u8), 1..4),
        alone in any::<bool>(),
    ) {
        const SIZES: [&str; 4] = [D2, D4, D8, "Standard_E4s_v5"];
        let ways = if alone { &["reserved"] } else { EVERY };
        let mut snapshot = cluster([pool_with_capacity_types("general", ways)]);
        let reserved: Vec<_> = reservations.iter().map(|((s, z), (used, most))| (SIZES[*s], *z, *used, *most)).collect();
        reserve(&mut snapshot, start(), &reserved);
        let waiting: Vec<_> = demand.iter().enumerate().flat_map(|(i, (cpus, n, how))| {
            let name = format!("a{i}");
            let by = match how { 0 => vec![], 1 => vec![spread(labels::ZONE, &name, 1)], _ => vec![spread(labels::HOSTNAME, &name, 1)] };
            pods(&format!("p{i}"), PodShape { spread: by, ..shape(&name, cpus * 900, 1) }, *n)
        }).collect();
        let outcome = solve(&snapshot, &waiting);
        let mut taken: BTreeMap<(String, String), u64> = BTreeMap::new();
        for node in &outcome.new_nodes {
            let reserved: Vec<_> = node.offerings.iter().filter(|o| o.key.capacity_type == Reserved).collect();
            prop_assert!(reserved.len() <= 1, "{:?}", node.offerings);
            for o in reserved {
                *taken.entry((o.key.size.to_string(), o.key.zone.to_string())).or_default() += 1;
            }
        }
        for ((size, zone), taken) in taken {
            let reservations = &snapshot.infrastructure.reservations.as_ref().unwrap().value;
            let found = reservations.iter().find(|r| r.size.as_str() == size && r.zone.as_str() == zone).unwrap();
            prop_assert!(taken <= found.free(), "{size} {zone}: {taken} of {}", found.free());
        }
        if !alone {
            prop_assert_eq!(outcome.unschedulable_pods(), 0, "{:?}", outcome.unschedulable);
        }
    }
}
