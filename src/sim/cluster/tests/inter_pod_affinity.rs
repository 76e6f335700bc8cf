//! Tests of kube-scheduler's filters that depend on other pods: affinity both ways, spread, host ports.

use super::*;
use napkeeper_core::model::cluster::pod::{HostPort, PodAffinity, PodTerm};
use std::collections::BTreeSet;

/// Nodes `n1` to `n3` of a zone, a host and a rack each.
fn three_hosts() -> Cluster {
    let mut cluster = cluster();
    for n in 1..=3 {
        cluster.add_unmanaged_node(host(&format!("n{n}"), n), at(0));
    }
    cluster
}

fn host(name: &str, zone: u8) -> NewNode {
    let mut node = machine(name, 8, zone);
    node.labels.extend(labelled(&[(labels::HOSTNAME, name), ("rack", name)]));
    node
}

fn term(topology_key: &str, selector: Requirements) -> PodTerm {
    PodTerm {
        topology_key: Arc::from(topology_key),
        namespaces: BTreeSet::from([Namespace::new("default").unwrap()]),
        namespace_selector: None,
        selector,
    }
}

fn near(app: &str, terms: &[PodTerm]) -> PodShape {
    let affinity = PodAffinity { near: terms.to_vec(), apart: Vec::new() };
    PodShape { affinity: Some(Box::new(affinity)), ..shape(app, 100) }
}

fn apart(app: &str, terms: &[PodTerm]) -> PodShape {
    let affinity = PodAffinity { near: Vec::new(), apart: terms.to_vec() };
    PodShape { affinity: Some(Box::new(affinity)), ..shape(app, 100) }
}

fn on(shape: PodShape, key: &str, value: &str) -> PodShape {
    let mut shape = shape;
    shape.selector.add(key, Requirement::any_of([value]));
    shape
}

fn run(cluster: &mut Cluster, name: &str, shape: PodShape, replicas: u32) {
    let now = cluster.now;
    cluster.apply_workload(key(name), deployment(shape, replicas), now);
    cluster.advance(now);
}

#[test]
fn pods_with_anti_affinity_use_a_host_each() {
    let mut cluster = three_hosts();
    run(&mut cluster, "web", apart("web", &[term(labels::HOSTNAME, app_is("web"))]), 4);
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 1), ("n1", 1), ("n2", 1), ("n3", 1)]));
    cluster.add_unmanaged_node(host("n4", 1), at(1));
    cluster.advance(at(1));
    assert_eq!(by_node(&cluster, "web"), counts(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)]));
}

#[test]
fn a_pod_that_keeps_others_away_is_heeded_by_pods_that_ask_for_nothing() {
    let mut cluster = three_hosts();
    cluster.add_unmanaged_node(machine("nowhere", 8, 1), at(0));
    let lonely = on(apart("lonely", &[term(labels::HOSTNAME, app_is("web"))]), labels::ZONE, "westeurope-2");
    run(&mut cluster, "lonely", lonely, 1);
    assert_eq!(by_node(&cluster, "lonely"), counts(&[("n2", 1)]));
    run(&mut cluster, "web", shape("web", 100), 8);
    assert!(!by_node(&cluster, "web").contains_key("n2"), "{:?}", by_node(&cluster, "web"));
    run(&mut cluster, "other", shape("other", 100), 8);
    assert!(by_node(&cluster, "other").contains_key("n2"), "the term does not mean these");
    let tied = on(shape("web", 200), labels::HOSTNAME, "n2");
    run(&mut cluster, "tied", tied, 1);
    assert_eq!(by_node(&cluster, "web").get("-"), Some(&1));
    cluster.scale(&key("lonely"), 0, at(1));
    cluster.advance(at(120));
    assert_eq!(by_node(&cluster, "web").get("-"), None, "it waited until the other was gone");
}

#[test]
fn running_pods_repel_new_pods_by_anti_affinity() {
    let mut cluster = three_hosts();
    run(&mut cluster, "db", on(shape("db", 100), labels::HOSTNAME, "n1"), 1);
    cluster.add_unmanaged_node(host("n4", 1), at(0));
    run(&mut cluster, "web", apart("web", &[term(labels::ZONE, app_is("db"))]), 4);
    assert_eq!(by_node(&cluster, "web"), counts(&[("n2", 2), ("n3", 2)]));
}

#[test]
fn a_pod_waits_for_the_pods_of_its_affinity() {
    let mut cluster = three_hosts();
    run(&mut cluster, "web", near("web", &[term(labels::ZONE, app_is("db"))]), 3);
    run(&mut cluster, "never", near("never", &[term(labels::ZONE, Requirements::unsatisfiable())]), 1);
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 3)]));
    run(&mut cluster, "db", on(shape("db", 100), labels::ZONE, "westeurope-2"), 1);
    assert_eq!(by_node(&cluster, "web"), counts(&[("n2", 3)]));
    assert_eq!(by_node(&cluster, "never"), counts(&[("-", 1)]));
}

#[test]
fn the_first_of_mutually_affine_pods_runs_anywhere_and_the_rest_follow() {
    let mut cluster = three_hosts();
    cluster.add_unmanaged_node(machine("nowhere", 64, 1), at(0));
    let terms = [term("rack", app_is("web")), term(labels::ZONE, Requirements::new())];
    run(&mut cluster, "web", near("web", &terms), 5);
    assert_eq!(by_node(&cluster, "web"), counts(&[("n1", 5)]), "the largest node has no such label");
    // Another pod matches only one of the terms: it starts a domain of its own.
    let both = [term("rack", app_is("web")), term("rack", app_is("other"))];
    run(&mut cluster, "other", near("other", &both), 1);
    assert_eq!(by_node(&cluster, "other"), counts(&[("-", 1)]), "no pod is meant by both terms, itself neither");
}

#[test]
fn terms_reach_other_namespaces_by_selector() {
    let mut cluster = three_hosts();
    let mut named = Requirements::new();
    named.add("kubernetes.io/metadata.name", Requirement::any_of(["default"]));
    let mut far = near(
        "far",
        &[PodTerm {
            namespaces: BTreeSet::new(),
            namespace_selector: Some(named),
            ..term(labels::HOSTNAME, app_is("db"))
        }],
    );
    far.namespace = Namespace::new("far").unwrap();
    run(&mut cluster, "db", on(shape("db", 100), labels::HOSTNAME, "n3"), 1);
    let (now, own) = (cluster.now, ObjectKey { namespace: far.namespace.clone(), ..key("far") });
    cluster.apply_workload(own, deployment(far, 1), now);
    cluster.advance(now);
    assert_eq!(by_node(&cluster, "far"), counts(&[("n3", 1)]));
}

#[test]
fn all_of_a_spread_constraint_counts() {
    let plain = || Spread::over(labels::ZONE, 1, app_is("web"));
    let even: &[(&str, usize)] = &[("n1", 3), ("n2", 2)];
    let held_back: &[(&str, usize)] = &[("-", 3), ("n1", 1), ("n2", 1)];
    let rows = [
        ("two domains of two", Spread { min_domains: 2, ..plain() }, even),
        ("two domains of three", Spread { min_domains: 3, ..plain() }, held_back),
        ("where it cannot go is no domain", plain(), even),
        ("where it cannot go is one all the same", Spread { honors_affinity: false, ..plain() }, held_back),
        ("taints make no difference here", Spread { honors_taints: true, ..plain() }, even),
    ];
    for (case, spread, expected) in rows {
        let mut cluster = three_hosts();
        let mut web = shape("web", 100);
        web.selector.add(labels::ZONE, Requirement::any_of(["westeurope-1", "westeurope-2"]));
        web.spread = vec![spread];
        run(&mut cluster, "web", web, 5);
        assert_eq!(by_node(&cluster, "web"), counts(expected), "{case}");
    }
}

#[test]
fn nodes_with_taints_are_no_domains_where_the_constraint_honors_them() {
    for (honors_taints, expected) in
        [(true, counts(&[("n1", 3), ("n2", 2)])), (false, counts(&[("-", 3), ("n1", 1), ("n2", 1)]))]
    {
        let mut cluster = three_hosts();
        let taint = Taint { key: "a".into(), value: "".into(), effect: TaintEffect::NoSchedule };
        let name = NodeName::new("n3").unwrap();
        cluster.edit_node(
            &name,
            |node: &mut napkeeper_core::model::cluster::node::Node| node.taints.push(taint.clone()),
            at(0),
        );
        let spread = Spread { honors_taints, ..Spread::over(labels::ZONE, 1, app_is("web")) };
        run(&mut cluster, "web", PodShape { spread: vec![spread], ..shape("web", 100) }, 5);
        assert_eq!(by_node(&cluster, "web"), expected, "honors taints: {honors_taints}");
    }
}

#[test]
fn a_port_of_a_node_is_taken_once() {
    let port = |protocol: &str, address: Option<&str>| HostPort {
        port: 80,
        protocol: protocol.into(),
        address: address.map(Arc::from),
    };
    let with = |app: &str, ports: &[HostPort]| PodShape { ports: ports.to_vec(), ..shape(app, 100) };
    let mut cluster = three_hosts();
    run(&mut cluster, "web", with("web", &[port("TCP", None)]), 4);
    assert_eq!(by_node(&cluster, "web"), counts(&[("-", 1), ("n1", 1), ("n2", 1), ("n3", 1)]));
    run(&mut cluster, "local", with("local", &[port("TCP", Some("127.0.0.1"))]), 1);
    assert_eq!(by_node(&cluster, "local"), counts(&[("-", 1)]), "all addresses are taken");
    run(&mut cluster, "dns", with("dns", &[port("UDP", None)]), 3);
    assert_eq!(by_node(&cluster, "dns"), counts(&[("n1", 1), ("n2", 1), ("n3", 1)]), "of another protocol");
    cluster.scale(&key("web"), 2, at(1));
    cluster.advance(at(120));
    assert_eq!(by_node(&cluster, "local").get("-"), None, "a port that is given back is taken");
}
