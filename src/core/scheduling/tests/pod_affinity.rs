//! Rules of affinity, anti-affinity, preferences, ports and other topology keys, by example.

use crate::model::cluster::pod::{HostPort, PodAffinity, PodShape, PodTerm, Preferences, Spread};
use crate::model::names::Namespace;
use crate::model::requirements::Requirements;
use crate::scheduling::tests::*;
use crate::scheduling::{ExplainedResult, explain};

fn term(key: &str, app: &str) -> PodTerm {
    PodTerm {
        topology_key: labels::interned(key),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector: requirements_in(&[("app", &[app])]),
    }
}

fn with_pod_affinity(shape: PodShape, key: &str, app: &str) -> PodShape {
    PodShape { affinity: Some(Box::new(PodAffinity { near: vec![term(key, app)], apart: Vec::new() })), ..shape }
}

fn with_pod_anti_affinity(shape: PodShape, key: &str, app: &str) -> PodShape {
    PodShape { affinity: Some(Box::new(PodAffinity { near: Vec::new(), apart: vec![term(key, app)] })), ..shape }
}

/// Nodes of a pool of one size, so that numbers of nodes mean something.
fn small() -> NodePool {
    let only_d2 = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D2s_v5"])]);
    NodePool { requirements: only_d2, ..pool("small") }
}

fn zones_of(outcome: &SchedulingResult) -> BTreeSet<String> {
    outcome.new_nodes.iter().map(|node| node.zone().map_or_else(|| "any".to_owned(), |zone| zone.to_string())).collect()
}

fn reasons(outcome: &SchedulingResult) -> Vec<String> {
    outcome.unschedulable.iter().flat_map(|group| &group.reasons).map(|(_, reason)| reason.to_string()).collect()
}

#[test]
fn zonal_pod_affinity_gathers_pods_in_one_zone() {
    let outcome = solve(&cluster([small()]), &pods("p", with_pod_affinity(shape("a", 1000, 1), labels::ZONE, "a"), 6));
    assert_eq!((outcome.unschedulable_pods(), zones_of(&outcome).len()), (0, 1), "{:?}", zones_of(&outcome));
}

#[test]
fn affinity_to_pods_placed_later_is_met_by_a_retry() {
    let general = pool("general");
    // The followers are larger, so they are placed first, when no leader exists.
    let followers = with_pod_affinity(shape("follower", 1500, 1), labels::ZONE, "leader");
    let mut leader = shape("leader", 100, 1);
    leader.selector = requirements_in(&[(labels::ZONE, &[zone(3).as_str()])]);
    let mut all = pods("f", followers, 4);
    all.extend(pods("l", leader, 1));
    let outcome = solve(&cluster([general]), &all);
    assert_eq!(outcome.unschedulable_pods(), 0, "{:?}", reasons(&outcome));
    assert_eq!(zones_of(&outcome), [zone(3).to_string()].into());
}

#[test]
fn unmet_pod_affinity_is_unschedulable_with_its_reason() {
    let outcome =
        solve(&cluster([small()]), &pods("p", with_pod_affinity(shape("a", 1000, 1), labels::ZONE, "ghost"), 2));
    assert_eq!(reasons(&outcome), ["no node satisfies the pod affinity"]);
}

#[test]
fn anti_affinity_by_hostname_and_by_zone() {
    let outcome = solve(
        &cluster([pool("general")]),
        &pods("p", with_pod_anti_affinity(shape("a", 100, 1), labels::HOSTNAME, "a"), 5),
    );
    assert_eq!((outcome.new_nodes.len(), outcome.unschedulable_pods()), (5, 0));
    let outcome = solve(
        &cluster([pool("general")]),
        &pods("p", with_pod_anti_affinity(shape("a", 100, 1), labels::ZONE, "a"), 5),
    );
    assert_eq!((zones_of(&outcome).len(), outcome.unschedulable_pods()), (3, 2), "there are three zones");
    assert_eq!(reasons(&outcome), ["pod anti-affinity excludes every node and zone"]);
}

#[test]
fn anti_affinity_of_running_pods_is_inverse() {
    let mut snapshot = cluster([small()]);
    let host = node("here", 1, 8);
    snapshot.put_node(host.clone());
    let grumpy = Arc::new(with_pod_anti_affinity(shape("grumpy", 100, 1), labels::HOSTNAME, "a"));
    snapshot.put_pod(running("grumpy", &grumpy, &host));
    let outcome = solve(&snapshot, &pods("p", shape("a", 100, 1), 1));
    assert_eq!(outcome.new_nodes.len(), 1, "the node that is there is not for app a");
    let outcome = solve(&snapshot, &pods("p", shape("b", 100, 1), 1));
    assert_eq!(outcome.new_nodes.len(), 0);
}

#[test]
fn namespaces_count_by_name_and_by_their_labels() {
    let mut snapshot = cluster([small()]);
    let host = node("here", 1, 8);
    snapshot.put_node(host.clone());
    let other = Namespace::new("other").unwrap();
    let lodger = Arc::new(PodShape { namespace: other.clone(), ..shape("lodger", 100, 1) });
    snapshot.put_pod(running("lodger", &lodger, &host));
    let avoiding = |term: PodTerm| {
        let affinity = PodAffinity { near: Vec::new(), apart: vec![term] };
        pods("p", PodShape { affinity: Some(Box::new(affinity)), ..shape("a", 100, 1) }, 1)
    };
    let by_default = term(labels::HOSTNAME, "lodger");
    assert_eq!(solve(&snapshot, &avoiding(by_default.clone())).new_nodes.len(), 0, "another namespace");
    let by_name = PodTerm { namespaces: [other.clone()].into(), ..by_default.clone() };
    assert_eq!(solve(&snapshot, &avoiding(by_name)).new_nodes.len(), 1);
    let everywhere = PodTerm { namespace_selector: Some(Requirements::new()), ..by_default.clone() };
    assert_eq!(solve(&snapshot, &avoiding(everywhere)).new_nodes.len(), 1);
    let labelled = PodTerm { namespace_selector: Some(requirements_in(&[("team", &["x"])])), ..by_default };
    assert_eq!(solve(&snapshot, &avoiding(labelled.clone())).new_nodes.len(), 0, "no such label is known");
    snapshot.put_namespace(
        other,
        [(Arc::from("team"), Arc::from("x"))].into_iter().collect::<crate::model::cluster::pod::Labels>(),
    );
    assert_eq!(solve(&snapshot, &avoiding(labelled)).new_nodes.len(), 1);
}

#[test]
fn preferences_are_met_where_possible_and_relaxed_otherwise() {
    let preferring = |node: &[(&str, &[&str])]| {
        let apart = vec![(10, term(labels::ZONE, "a")), (1, term(labels::HOSTNAME, "a"))];
        let preferences = Preferences { node: vec![(1, requirements_in(node))], apart, ..Preferences::default() };
        PodShape { preferences: Some(Box::new(preferences)), ..shape("a", 100, 1) }
    };
    // At most three pods can have a zone of their own, but each can have a host of its own.
    let outcome = solve(&cluster([pool("general")]), &pods("p", preferring(&[(labels::ZONE, &[zone(1).as_str()])]), 6));
    assert_eq!((outcome.new_nodes.len(), outcome.unschedulable_pods()), (6, 0));
    assert_eq!(zones_of(&outcome), [zone(1).to_string()].into());
    let mut one = pool("one");
    one.limits.nodes = Some(1);
    let outcome = solve(&cluster([one]), &pods("p", preferring(&[]), 6));
    assert_eq!(
        (outcome.new_nodes.len(), outcome.unschedulable_pods()),
        (1, 0),
        "a preference leaves no pod unschedulable"
    );
    let outcome = solve(&cluster([pool("general")]), &pods("p", preferring(&[("team", &["none"])]), 2));
    assert_eq!(outcome.unschedulable_pods(), 0);
}

#[test]
fn existing_nodes_ignore_preferences() {
    let mut snapshot = cluster([pool("general")]);
    snapshot.put_node(node("here", 2, 8));
    let node = vec![(1, requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]))];
    let preferences = Preferences { node, ..Preferences::default() };
    let preferring = PodShape { preferences: Some(Box::new(preferences)), ..shape("a", 100, 1) };
    assert_eq!(solve(&snapshot, &pods("p", preferring, 1)).new_nodes.len(), 0, "kube-scheduler would put it there");
}

#[test]
fn prefer_no_schedule_is_respected_while_another_pool_fits() {
    let soft = Taint { key: Arc::from("old"), value: Arc::from(""), effect: TaintEffect::PreferNoSchedule };
    let cheap = NodePool { taints: vec![soft.clone()], weight: 10, ..pool("cheap") };
    let outcome = solve(&cluster([cheap.clone(), pool("general")]), &pods("p", shape("a", 1000, 1), 3));
    assert!(outcome.new_nodes.iter().all(|node| node.pool.as_str() == "general"), "{:?}", outcome.new_nodes);
    let outcome = solve(&cluster([cheap]), &pods("p", shape("a", 1000, 1), 3));
    assert_eq!(outcome.unschedulable_pods(), 0);
}

#[test]
fn a_host_port_is_used_once_per_node() {
    let mut server = shape("a", 100, 1);
    let port =
        |address: Option<&str>| HostPort { port: 80, protocol: Arc::from("TCP"), address: address.map(Arc::from) };
    server.ports = vec![port(None)];
    assert_eq!(solve(&cluster([pool("general")]), &pods("p", server.clone(), 3)).new_nodes.len(), 3);
    let mut snapshot = cluster([pool("general")]);
    let host = node("here", 1, 8);
    snapshot.put_node(host.clone());
    let mut other = shape("b", 100, 1);
    other.ports = vec![port(Some("10.0.0.1"))];
    snapshot.put_pod(running("other", &Arc::new(other.clone()), &host));
    assert_eq!(solve(&snapshot, &pods("p", server, 1)).new_nodes.len(), 1, "all addresses are one of them too");
    other.ports = vec![port(Some("10.0.0.2"))];
    assert_eq!(solve(&snapshot, &pods("p", other, 1)).new_nodes.len(), 0);
    let daemon = Arc::new(PodShape { ports: vec![port(None)], ..shape("daemon", 100, 1) });
    let mut with_daemon = cluster([pool("general")]);
    with_daemon.put_daemon_set(pod("daemon", &daemon).key, crate::model::cluster::pool::DaemonSet { shape: daemon });
    let mut server = shape("a", 100, 1);
    server.ports = vec![port(None)];
    assert_eq!(solve(&with_daemon, &pods("p", server, 1)).unschedulable_pods(), 1, "its DaemonSet takes that port");
}

#[test]
fn pods_spread_over_any_label_that_nodes_have() {
    let over = |key: &str| PodShape { spread: vec![spread(key, "a", 1)], ..shape("a", 1000, 1) };
    let outcome = solve(&cluster([pool("general")]), &pods("p", over(labels::CAPACITY_TYPE), 4));
    let spot =
        outcome.new_nodes.iter().filter(|n| n.offerings[0].key.capacity_type == Spot).flat_map(|n| &n.pods).count();
    assert_eq!((spot, outcome.unschedulable_pods()), (2, 0), "{:?}", reasons(&outcome));
    assert!(
        outcome
            .new_nodes
            .iter()
            .all(|n| n.offerings.iter().all(|o| o.key.capacity_type == n.offerings[0].key.capacity_type))
    );
    let outcome = solve(&cluster([pool("general")]), &pods("p", over("example.com/rack"), 2));
    assert_eq!(reasons(&outcome), ["no node has label example.com/rack, the topologyKey of a constraint"]);
    let racks = ["r1", "r2"].map(|rack| {
        let rack: (Arc<str>, Arc<str>) = (Arc::from("example.com/rack"), Arc::from(rack));
        NodePool { labels: [rack.clone()].into(), ..pool(&rack.1) }
    });
    let outcome = solve(&cluster(racks), &pods("p", over("example.com/rack"), 4));
    let first = outcome.new_nodes.iter().filter(|n| n.pool.as_str() == "r1").flat_map(|n| &n.pods).count();
    assert_eq!((first, outcome.unschedulable_pods()), (2, 0));
}

#[test]
fn fewer_domains_than_min_domains_count_as_zero() {
    let zonal = NodePool { requirements: requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]), ..pool("zonal") };
    let spread_over = |min_domains: u32| {
        let spread = Spread { min_domains, ..spread(labels::ZONE, "a", 2) };
        pods("p", PodShape { spread: vec![spread], ..shape("a", 100, 1) }, 5)
    };
    assert_eq!(solve(&cluster([zonal.clone()]), &spread_over(1)).unschedulable_pods(), 0, "one zone is even");
    assert_eq!(solve(&cluster([zonal]), &spread_over(3)).unschedulable_pods(), 3);
}

#[test]
fn filter_steps_show_the_remaining_sizes_after_each_criterion() {
    let mut requesting = shape("a", 3000, 1);
    requesting.selector = requirements_in(&[(labels::ARCH, &["amd64"]), (labels::ZONE, &[zone(1).as_str()])]);
    requesting.requests.set_extended(crate::fixtures::GPU, 8);
    let snapshot = cluster([pool("general")]);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 10,
        claim_of_pod: &claim_of_pod,
    };
    let explained = explain(input, &pods("p", requesting, 2), |_| true);
    let ExplainedResult::Unschedulable(group) = &explained.explanations[0].result else { panic!("{explained:?}") };
    let lines: Vec<String> = group.filter_steps.iter().map(ToString::to_string).collect();
    let zone = zone(1);
    let expected =
        format!("general: 8 sizes available, 8 after topology.kubernetes.io/zone In [{zone}], 0 after pod requests");
    assert_eq!(lines, [expected]);
    assert!(group.suggestion.is_some());
}

#[test]
fn a_disk_decides_the_zone_and_volume_limits_hold() {
    use crate::fixtures::bound_claim;
    use crate::model::cluster::volume::{DISK_DRIVER, ReclaimPolicy, Volume, driver};
    use crate::model::names::{ObjectKey, ObjectName, Uid};
    let mut snapshot = cluster([small()]);
    let mut waiting = Vec::new();
    let requesting = Arc::new(shape("a", 10, 1));
    for i in 0..6 {
        let name = ObjectName::new(format!("data-{i}")).unwrap();
        let key = ObjectKey { namespace: Namespace::new("default").unwrap(), name: name.clone() };
        snapshot.put_volume(
            name.clone(),
            Volume {
                name: name.clone(),
                uid: Uid::new(name.as_str()).unwrap(),
                handle: None,
                reclaim: ReclaimPolicy::Delete,
                claim: Some(key.clone()),
                affinity: vec![requirements_in(&[(labels::ZONE, &[zone(2).as_str()])])],
                driver: Some(driver(DISK_DRIVER)),
                deleting: false,
            },
        );
        let claim = bound_claim(&key, &name);
        snapshot.put_volume_claim(key, claim);
        waiting.push(Arc::new(Pod { volumes: vec![name], ..pod(&format!("p-{i}"), &requesting) }));
    }
    let outcome = solve(&snapshot, &waiting);
    assert_eq!((outcome.unschedulable_pods(), zones_of(&outcome)), (0, [zone(2).to_string()].into()));
    let types = &snapshot.instance_types[&crate::fixtures::class().name];
    let most = types.iter().find(|t| t.facts.name.as_str() == "Standard_D2s_v5").unwrap().facts.max_data_disks;
    assert_eq!(outcome.new_nodes.len(), 6_usize.div_ceil(most as usize), "{most} disks on each");
    let lost = Arc::new(Pod { volumes: vec![ObjectName::new("gone").unwrap()], ..pod("lost", &requesting) });
    assert!(reasons(&solve(&snapshot, &[lost]))[0].starts_with("PersistentVolumeClaim default/gone not found"));
}
