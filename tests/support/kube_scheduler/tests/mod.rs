//! Held by example, one for each filter; scores are reckoned by hand.

mod volumes;

use super::{Cluster, Reason};
use k8s_openapi::api::core::v1::{Node, Pod};
use napkeeper_sim::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A node of 4 cores and 8 GiB in a zone; more of its spec besides.
fn node(name: &str, zone: &str, spec: Value) -> Node {
    let node = json!({
        "metadata": { "name": name, "labels": { HOSTNAME: name, ZONE: zone } },
        "spec": spec,
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } },
    });
    serde_json::from_value(node).unwrap()
}

/// A pod of an app that requests a core and a GiB, with additions to its spec.
fn pod(app: &str, spec: Value) -> Pod {
    let requests = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
    let mut all = json!({ "containers": [{ "name": "c", "resources": requests }] });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let pod = json!({ "metadata": { "name": "p", "namespace": "default", "labels": { "app": app } }, "spec": all });
    serde_json::from_value(pod).unwrap()
}

/// Three nodes `a`, `b`, `c`, in the zones 1, 1 and 2.
fn three() -> Cluster {
    let mut cluster = Cluster::new(1);
    for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2")] {
        cluster.add_node(&node(name, zone, json!({})));
    }
    cluster
}

/// Indices of the feasible nodes.
fn does(cluster: &mut Cluster, pod: &Pod) -> Vec<usize> {
    cluster.scores(pod).into_iter().map(|(node, _)| node).collect()
}

fn reasons(cluster: &mut Cluster, pod: &Pod) -> BTreeMap<Reason, usize> {
    cluster.schedule(pod).unwrap_err()
}

fn required(terms: Value) -> Value {
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms })
}

fn preferred(terms: Value) -> Value {
    json!({ "preferredDuringSchedulingIgnoredDuringExecution": terms })
}

fn term(key: &str, app: &str) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } })
}

fn near(key: &str, app: &str) -> Value {
    json!({ "affinity": { "podAffinity": required(json!([term(key, app)])) } })
}

fn apart(key: &str, app: &str) -> Value {
    json!({ "affinity": { "podAntiAffinity": required(json!([term(key, app)])) } })
}

/// A spread constraint over pods of an app, with additions.
fn spread(key: &str, app: &str, more: Value) -> Value {
    let mut constraint = json!({
        "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": app } },
    });
    constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "topologySpreadConstraints": [constraint] })
}

#[test]
fn a_cordoned_node_runs_only_pods_that_tolerate_it() {
    let mut cluster = Cluster::new(1);
    cluster.add_node(&node("a", "1", json!({ "unschedulable": true })));
    assert_eq!(reasons(&mut cluster, &pod("x", json!({}))), BTreeMap::from([(Reason::Cordoned, 1)]));
    assert_eq!(does(&mut cluster, &pod("x", json!({ "tolerations": [{ "operator": "Exists" }] }))), [0]);
}

#[test]
fn a_named_node_is_the_only_one() {
    assert_eq!(does(&mut three(), &pod("x", json!({ "nodeName": "b" }))), [1]);
}

#[test]
fn hard_taints_keep_away_and_soft_ones_cost_score() {
    let taint = |effect: &str| json!({ "taints": [{ "key": "k", "value": "v", "effect": effect }] });
    let mut cluster = Cluster::new(1);
    for (name, effect) in [("a", "NoSchedule"), ("b", "NoExecute"), ("c", "PreferNoSchedule")] {
        cluster.add_node(&node(name, "1", taint(effect)));
    }
    assert_eq!(does(&mut cluster, &pod("x", json!({}))), [2]);
    let tolerates = |more: Value| json!({ "tolerations": [more] });
    let same = tolerates(json!({ "key": "k", "value": "v", "effect": "NoSchedule" }));
    assert_eq!(cluster.scores(&pod("x", same)), [(0, 452), (2, 152)]);
    let other = tolerates(json!({ "key": "k", "value": "other" }));
    assert_eq!(does(&mut cluster, &pod("x", other)), [2]);
    assert_eq!(cluster.scores(&pod("x", tolerates(json!({ "key": "k", "operator": "Exists" })))).len(), 3);
}

#[test]
fn node_affinity_requires_all_of_one_term() {
    let expression = |key: &str, values: Value| json!({ "key": key, "operator": "In", "values": values });
    let terms = json!({ "nodeSelectorTerms": [
        { "matchExpressions": [expression(ZONE, json!(["1"])), expression(HOSTNAME, json!(["b", "c"]))] },
        { "matchFields": [expression("metadata.name", json!(["c"]))] },
        {},
    ] });
    let spec = json!({ "affinity": { "nodeAffinity": required(terms) } });
    assert_eq!(does(&mut three(), &pod("x", spec)), [1, 2]);
    let mut cluster = three();
    let unschedulable = pod("x", json!({ "nodeSelector": { "disk": "ssd" } }));
    assert_eq!(reasons(&mut cluster, &unschedulable), BTreeMap::from([(Reason::NodeAffinity, 3)]));
}

#[test]
fn ports_conflict_by_number_protocol_and_address() {
    let with = |port: Value| pod("x", json!({ "containers": [{ "name": "c", "ports": [port] }] }));
    let mut cluster = three();
    cluster.bind(&with(json!({ "containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1" })), 0);
    for (port, nodes) in [
        (json!({ "containerPort": 1, "hostPort": 80 }), 2),
        (json!({ "containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2" }), 3),
        (json!({ "containerPort": 1, "hostPort": 80, "protocol": "UDP" }), 3),
        (json!({ "containerPort": 80 }), 3),
    ] {
        assert_eq!(does(&mut cluster, &with(port.clone())).len(), nodes, "{port}");
    }
}

#[test]
fn room_runs_out_by_requests_and_by_number_of_pods() {
    let mut cluster = Cluster::new(1);
    cluster.add_node(&node("a", "1", json!({})));
    for _ in 0..4 {
        cluster.schedule(&pod("x", json!({}))).unwrap();
    }
    assert_eq!(reasons(&mut cluster, &pod("x", json!({}))), BTreeMap::from([(Reason::Resources, 1)]));
    let empty = pod("x", json!({ "containers": [{ "name": "c" }] }));
    for _ in 4..110 {
        cluster.schedule(&empty).unwrap();
    }
    assert_eq!(reasons(&mut cluster, &empty), BTreeMap::from([(Reason::Resources, 1)]));
    let late = cluster.add_node(&node("b", "1", json!({})));
    assert_eq!(cluster.schedule(&empty), Ok(late));
}

#[test]
fn spread_keeps_to_the_skew_over_the_lowest_domain() {
    let mut cluster = three();
    let spread_over_zones = pod("x", spread(ZONE, "x", json!({})));
    cluster.bind(&spread_over_zones, 0);
    assert_eq!(does(&mut cluster, &spread_over_zones), [2]);
    // A pod that does not count itself may run where the skew is reached, not where it is exceeded.
    let other = pod("y", spread(ZONE, "x", json!({})));
    assert_eq!(does(&mut cluster, &other), [0, 1, 2]);
    cluster.bind(&spread_over_zones, 1);
    assert_eq!(does(&mut cluster, &other), [2]);
    // A zone that no node with all labels is in does not count as the lowest.
    let mut only_one = Cluster::new(1);
    only_one.add_node(&node("a", "1", json!({})));
    only_one.bind(&spread_over_zones, 0);
    assert_eq!(does(&mut only_one, &spread_over_zones), [0]);
    let mut bare = node("d", "3", json!({}));
    bare.metadata.labels = None;
    only_one.add_node(&bare);
    assert_eq!(does(&mut only_one, &spread_over_zones), [0]);
    let wants_two = pod("x", spread(ZONE, "x", json!({ "minDomains": 2 })));
    let expected = BTreeMap::from([(Reason::Spread, 1), (Reason::SpreadLabel, 1)]);
    assert_eq!(reasons(&mut only_one, &wants_two), expected);
}

#[test]
fn an_empty_selector_counts_no_pods() {
    let mut cluster = three();
    let constraint = json!({ "labelSelector": {} });
    let all = pod("x", spread(ZONE, "x", constraint));
    cluster.bind(&all, 0);
    cluster.bind(&all, 0);
    assert_eq!(does(&mut cluster, &all), [0, 1, 2]);
}

#[test]
fn policies_say_which_nodes_are_domains() {
    let mut cluster = three();
    cluster.add_node(&node("d", "3", json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] })));
    let pod_of = |more: Value| {
        let mut spec = spread(ZONE, "x", more);
        spec["nodeSelector"] = json!({ ZONE: "1" });
        pod("x", spec)
    };
    cluster.bind(&pod_of(json!({})), 0);
    // Zone 2 does not suit the pod, so that it is no domain by default.
    assert_eq!(does(&mut cluster, &pod_of(json!({}))), [0, 1]);
    assert!(does(&mut cluster, &pod_of(json!({ "nodeAffinityPolicy": "Ignore" }))).is_empty());
    let anywhere = |more: Value| pod("x", spread(ZONE, "x", more));
    cluster.bind(&anywhere(json!({})), 2);
    // Zone 3 is empty, and its node is tainted.
    assert!(does(&mut cluster, &anywhere(json!({}))).is_empty());
    assert_eq!(does(&mut cluster, &anywhere(json!({ "nodeTaintsPolicy": "Honor" }))), [0, 1, 2]);
}

#[test]
fn the_first_of_mutually_affine_pods_runs_anywhere() {
    let mut cluster = three();
    let together = pod("x", near(ZONE, "x"));
    assert_eq!(does(&mut cluster, &together), [0, 1, 2]);
    assert_eq!(reasons(&mut cluster, &pod("y", near(ZONE, "x"))), BTreeMap::from([(Reason::Affinity, 3)]));
    cluster.bind(&together, 2);
    assert_eq!(does(&mut cluster, &together), [2]);
    assert_eq!(does(&mut cluster, &pod("y", near(ZONE, "x"))), [2]);
}

#[test]
fn anti_affinity_holds_in_both_directions() {
    let mut cluster = three();
    let alone = pod("x", apart(ZONE, "y"));
    cluster.bind(&alone, 0);
    let rejections = |cluster: &mut Cluster, zone: &str| {
        let spec = pod("y", json!({ "nodeSelector": { ZONE: zone } }));
        cluster.schedule(&spec).err().unwrap_or_default()
    };
    assert_eq!(rejections(&mut cluster, "1")[&Reason::OthersAntiAffinity], 2);
    assert_eq!(does(&mut cluster, &pod("y", json!({}))), [2]);
    cluster.bind(&pod("y", json!({})), 2);
    assert_eq!(does(&mut cluster, &alone), [0, 1]);
}

#[test]
fn terms_reach_the_namespaces_that_they_name_or_select() {
    let mut cluster = three();
    cluster.add_namespace("other", BTreeMap::from([("team".to_owned(), "blue".to_owned())]));
    let mut elsewhere = pod("y", json!({}));
    elsewhere.metadata.namespace = Some("other".to_owned());
    cluster.bind(&elsewhere, 0);
    let apart_in = |more: (&str, Value)| {
        let mut term = term(HOSTNAME, "y");
        term[more.0] = more.1;
        pod("x", json!({ "affinity": { "podAntiAffinity": required(json!([term])) } }))
    };
    assert_eq!(does(&mut cluster, &pod("x", apart(HOSTNAME, "y"))), [0, 1, 2]);
    for (key, value) in [
        ("namespaces", json!(["other"])),
        ("namespaceSelector", json!({})),
        ("namespaceSelector", json!({ "matchLabels": { "team": "blue" } })),
    ] {
        assert_eq!(does(&mut cluster, &apart_in((key, value))), [1, 2]);
    }
    let red = ("namespaceSelector", json!({ "matchLabels": { "team": "red" } }));
    assert_eq!(does(&mut cluster, &apart_in(red)), [0, 1, 2]);
}

#[test]
fn requests_are_scored_by_free_capacity_and_balance() {
    let mut cluster = three();
    let of_2_gib = json!({ "requests": { "cpu": "1", "memory": "2Gi" } });
    cluster.bind(&pod("y", json!({ "containers": [{ "name": "c", "resources": of_2_gib }] })), 0);
    // Node a: CPU 50, memory 62, so 56 is left. It was in balance (100) and will be at ½ and ⅜ (93): 50 + 43/2 = 71.
    // The others: CPU 75, memory 87, so 81 is left; ¼ and ⅛ are 93 again. Taints: 3 × 100.
    assert_eq!(cluster.scores(&pod("x", json!({}))), [(0, 56 + 71 + 300), (1, 81 + 71 + 300), (2, 81 + 71 + 300)]);
    // Without requests it is scored as 100m and 200Mi: 97 and 97; balance does not count.
    let nothing = pod("x", json!({ "containers": [{ "name": "c" }] }));
    assert_eq!(cluster.scores(&nothing)[1], (1, 97 + 300));
}

#[test]
fn preferences_add_up_by_weight() {
    let wants = |weight: i64, zone: &str| {
        let expression = json!({ "key": ZONE, "operator": "In", "values": [zone] });
        json!({ "weight": weight, "preference": { "matchExpressions": [expression] } })
    };
    let spec = json!({ "affinity": { "nodeAffinity": preferred(json!([wants(1, "1"), wants(4, "2")])) } });
    assert_eq!(three().scores(&pod("x", spec)), [(0, 452 + 2 * 25), (1, 452 + 2 * 25), (2, 452 + 2 * 100)]);
}

#[test]
fn pod_affinity_is_scored_from_both_sides() {
    let mut cluster = three();
    cluster.bind(&pod("y", near(HOSTNAME, "y")), 0);
    let scores = |cluster: &mut Cluster, spec: Value| {
        let scored = cluster.scores(&pod("y", spec));
        scored.into_iter().map(|(_, score)| score).collect::<Vec<_>>()
    };
    // The pod on a attracts others of its app: 100 × 2 for a. There 50 and 75 of CPU and memory remain, so 62; the
    // balance goes from 93 to 87, so 50 + 44/2.
    let requests = 62 + 72 + 300;
    assert_eq!(scores(&mut cluster, json!({})), [requests + 200, 452, 452]);
    let weighted = json!([{ "weight": 3, "podAffinityTerm": term(ZONE, "y") }]);
    let dislikes = json!({ "affinity": { "podAntiAffinity": preferred(weighted) } });
    // a: 1 - 3, b: -3, c: 0, so 33, 0 and 100.
    assert_eq!(scores(&mut cluster, dislikes), [requests + 66, 452, 652]);
}

#[test]
fn preferred_spread_is_scored_by_domain_and_by_node() {
    let mut cluster = three();
    let soft = |key: &str| spread(key, "y", json!({ "whenUnsatisfiable": "ScheduleAnyway" }));
    let light = json!({ "name": "c", "resources": { "requests": { "cpu": "0", "memory": "0" } } });
    cluster.bind(&pod("y", json!({ "containers": [light] })), 0);
    // Of two zones, one pod in zone 1: ln(2 + 2) rounds to 1; the lowest becomes 100, the highest 0.
    assert_eq!(cluster.scores(&pod("y", soft(ZONE))), [(0, 452), (1, 452), (2, 652)]);
    // By node: ln(3 + 2) rounds to 2.
    assert_eq!(cluster.scores(&pod("y", soft(HOSTNAME))), [(0, 452), (1, 652), (2, 652)]);
    let mut bare = node("d", "3", json!({}));
    bare.metadata.labels = None;
    cluster.add_node(&bare);
    assert_eq!(cluster.scores(&pod("y", soft(ZONE)))[3], (3, 452));
}

/// Pods of every sort that is counted.
fn sorts() -> Vec<Pod> {
    let soft = json!({ "whenUnsatisfiable": "ScheduleAnyway" });
    let strict = json!({ "nodeTaintsPolicy": "Honor", "minDomains": 2 });
    let likes = preferred(json!([{ "weight": 5, "podAffinityTerm": term(ZONE, "x") }]));
    let dislikes = preferred(json!([{ "weight": 7, "podAffinityTerm": term(HOSTNAME, "y") }]));
    let specs = [
        json!({}),
        spread(ZONE, "x", json!({})),
        spread(HOSTNAME, "y", strict),
        spread(ZONE, "y", soft.clone()),
        spread(HOSTNAME, "x", soft),
        near(ZONE, "x"),
        apart(HOSTNAME, "y"),
        apart(ZONE, "z"),
        json!({ "affinity": { "podAffinity": likes, "podAntiAffinity": dislikes } }),
        json!({ "tolerations": [{ "operator": "Exists" }], "nodeSelector": { ZONE: "1" } }),
    ];
    specs.iter().flat_map(|spec| ["x", "y", "z"].map(|app| pod(app, spec.clone()))).collect()
}

#[test]
fn incremental_state_equals_rebuilt_state() {
    let sorts = sorts();
    for seed in 0..20 {
        let mut chance = Random::new(seed);
        let (mut incremental, mut nodes, mut bound) = (Cluster::new(seed), Vec::new(), Vec::new());
        for step in 0..60 {
            if nodes.is_empty() || chance.one_in(5) {
                let taints = [json!([]), json!([{ "key": "k", "effect": "NoSchedule" }])];
                let soft = json!([{ "key": "k", "effect": "PreferNoSchedule" }]);
                let spec =
                    json!({ "taints": if chance.one_in(4) { &soft } else { &taints[usize::from(chance.one_in(5))] } });
                let mut node = node(&format!("n{step}"), &chance.between(1, 3).to_string(), spec);
                if chance.one_in(6) {
                    node.metadata.labels.as_mut().unwrap().remove(ZONE);
                }
                incremental.add_node(&node);
                nodes.push(node);
                continue;
            }
            let pod = chance.pick(&sorts).unwrap();
            let mut rebuilt = Cluster::new(seed);
            for node in &nodes {
                rebuilt.add_node(node);
            }
            bound.iter().for_each(|(pod, node)| rebuilt.bind(pod, *node));
            assert_eq!(incremental.scores(pod), rebuilt.scores(pod), "seed {seed}, step {step}");
            if let Ok(node) = incremental.schedule(pod) {
                bound.push((pod.clone(), node));
            }
        }
        assert!(bound.len() > 10, "seed {seed}: {}", bound.len());
    }
}
