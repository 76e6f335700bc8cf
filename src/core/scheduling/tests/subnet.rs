//! Tests of subnets: no node is planned that would find no address, and the reason is given.

use crate::catalog::CapacityType::OnDemand;
use crate::catalog::live::{Fact, InfrastructureFacts, STALE_AFTER, SubnetAddresses};
use crate::fixtures::{at, claim, class, cluster, offering, pods, pool, shape, spread, start};
use crate::model::cluster::pod::{HostPort, PodShape};
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::labels;
use crate::model::names::{ArmId, NodeClassName};
use crate::scheduling::tests::solve;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

fn id(name: &str) -> ArmId {
    let network = "/subscriptions/s/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v";
    ArmId::new(format!("{network}/subnets/{name}")).unwrap()
}

/// Azure's numbers: used and usable, by subnet; nodes are in the first unless their class says otherwise.
fn set_subnets(snapshot: &mut Snapshot, as_of: Timestamp, numbers: &[(&str, u64, u64)]) {
    let numbers = numbers.iter().enumerate();
    let subnet = |(n, &(name, used, usable))| SubnetAddresses { id: id(name), used, usable, is_default: n == 0 };
    let subnets = Some(Fact { as_of, value: numbers.map(subnet).collect() });
    snapshot.set_infrastructure(Arc::new(InfrastructureFacts { subnets, ..Default::default() }));
}

/// A pool whose class names a subnet, in different case.
fn pool_in_subnet(snapshot: &mut Snapshot, subnet: &str) -> NodePool {
    let name = NodeClassName::new("elsewhere").unwrap();
    let own = NodeClass { name: name.clone(), subnet: Some(id(subnet).as_str().to_uppercase().into()), ..class() };
    let types = Arc::clone(&snapshot.instance_types[&class().name]);
    snapshot.instance_types.insert(name.clone(), types);
    snapshot.put_class(name.clone(), own);
    let pool = NodePool { class: name, ..pool("elsewhere") };
    snapshot.put_pool(pool.name.clone(), pool.clone());
    pool
}

/// One pod on each node.
fn apart() -> PodShape {
    PodShape { spread: vec![spread(labels::HOSTNAME, "a", 1)], ..shape("a", 500, 1) }
}

/// How many nodes are planned for pods that need a node each, and why the others are unschedulable.
fn new_nodes_and_reason(snapshot: &Snapshot, count: usize) -> (usize, String) {
    let outcome = solve(snapshot, &pods("p", apart(), count));
    let reasons = outcome.unschedulable.iter().flat_map(|u| &u.reasons).map(|(_, reason)| reason.to_string());
    (outcome.new_nodes.len(), reasons.collect::<Vec<_>>().join("; "))
}

#[test]
fn a_full_subnet_is_reported_with_launches_in_flight() {
    let mut snapshot = cluster([pool("general")]);
    set_subnets(&mut snapshot, start(), &[("nodes", 248, 251)]);
    let shortage = |used: &str| format!("subnet nodes: 248 of 251 IP addresses used, {used} launching, 1 needed");
    assert_eq!(new_nodes_and_reason(&snapshot, 3), (3, String::new()));
    assert_eq!(new_nodes_and_reason(&snapshot, 5), (3, shortage("3")));
    // It has the node of one pod; two more are left.
    let mut in_flight = claim("general-a", &pool("general"), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
    in_flight.status.node_name = None;
    snapshot.put_claim(in_flight.clone());
    assert_eq!(new_nodes_and_reason(&snapshot, 5), (2, shortage("3")));
    // Launched before Azure counted: it is in the numbers.
    in_flight.status.launched = Some(start());
    snapshot.put_claim(in_flight);
    assert_eq!(new_nodes_and_reason(&snapshot, 5), (3, shortage("3")));
}

#[test]
fn the_subnet_of_the_class_counts_and_another_pool_takes_the_rest() {
    let mut snapshot = cluster([pool("general")]);
    pool_in_subnet(&mut snapshot, "far");
    set_subnets(&mut snapshot, start(), &[("nodes", 250, 251), ("far", 0, 2)]);
    let (nodes, reason) = new_nodes_and_reason(&snapshot, 4);
    assert_eq!(nodes, 3, "{reason}");
    assert!(reason.contains("subnet nodes: 250") && reason.contains("subnet far: 0 of 2"), "{reason}");
    // A subnet that could not be read does not limit anything.
    set_subnets(&mut snapshot, start(), &[("nodes", 250, 251)]);
    assert_eq!(new_nodes_and_reason(&snapshot, 4), (4, String::new()));
}

#[test]
fn unconstrained_pods_are_packed_on_the_addresses_that_are_left() {
    let mut snapshot = cluster([pool("general")]);
    set_subnets(&mut snapshot, start(), &[("nodes", 249, 251)]);
    let outcome = solve(&snapshot, &pods("p", shape("a", 1500, 1), 10));
    assert!(
        outcome.new_nodes.len() <= 2 && outcome.unschedulable_pods() == 0,
        "larger nodes do: {:?}",
        outcome.unschedulable
    );
}

#[test]
fn a_node_that_has_its_address_may_still_become_larger() {
    let mut snapshot = cluster([pool("general")]);
    set_subnets(&mut snapshot, start(), &[("nodes", 250, 251)]);
    let with_port = |app: &str, port| PodShape {
        ports: vec![HostPort { port, protocol: Arc::from("TCP"), address: None }],
        ..shape(app, 1500, 1)
    };
    let mut all = pods("a", with_port("a", 80), 1);
    all.extend(pods("b", with_port("b", 81), 1));
    let outcome = solve(&snapshot, &all);
    assert_eq!((outcome.new_nodes.len(), outcome.unschedulable_pods()), (1, 0), "{:?}", outcome.unschedulable);
}

#[test]
fn stale_subnet_facts_are_ignored() {
    let mut snapshot = cluster([pool("general")]);
    let old = start() - STALE_AFTER;
    set_subnets(&mut snapshot, old, &[("nodes", 251, 251)]);
    assert_eq!(new_nodes_and_reason(&snapshot, 1).0, 0);
    set_subnets(&mut snapshot, old - SignedDuration::from_secs(1), &[("nodes", 251, 251)]);
    assert_eq!(new_nodes_and_reason(&snapshot, 1).0, 1);
}

#[test]
fn new_numbers_are_news_and_new_ages_are_none() {
    let mut snapshot = cluster([pool("general")]);
    let before = snapshot.facts_generation();
    set_subnets(&mut snapshot, start(), &[("nodes", 251, 251)]);
    let full = snapshot.facts_generation();
    set_subnets(&mut snapshot, at(180), &[("nodes", 251, 251)]);
    assert!(full > before && snapshot.facts_generation() == full);
    set_subnets(&mut snapshot, at(360), &[("nodes", 100, 251)]);
    assert!(snapshot.facts_generation() > full, "unschedulable pods are tried again");
}
