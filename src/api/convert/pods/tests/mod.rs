//! Tests of the conversion of pods.

mod requests;

use super::*;
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_core::model::cluster::pod::{HostPort, Labels, PodTerm, Spread};
use napkeeper_core::model::requirements::Requirements;
use serde_json::{Value, json};

/// A pod in namespace `own` with the labels `app: a` and `version: "1"`.
fn wire(spec: Value, status: Value) -> WirePod {
    let metadata = json!({ "name": "a", "namespace": "own", "labels": { "app": "a", "version": "1" } });
    let mut object = json!({ "metadata": metadata, "spec": { "containers": [] }, "status": status });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

pub(super) fn shape(spec: Value) -> Arc<PodShape> {
    pod(&wire(spec, json!({}))).unwrap().shape
}

fn paths(spec: Value) -> Vec<String> {
    let Err(Violations(found)) = pod(&wire(spec, json!({}))) else { return Vec::new() };
    found.iter().map(|v| v.path.to_string()).collect()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect()
}

fn space(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn near(term: Value) -> Value {
    json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
}

fn apart(term: Value) -> Value {
    json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
}

fn only_near(term: Value) -> PodTerm {
    let shape = shape(near(term));
    let [term] = shape.affinity.as_ref().unwrap().near.as_slice() else { panic!("{shape:?}") };
    term.clone()
}

#[test]
fn a_pod_without_pod_affinity_allocates_no_terms() {
    let shape = shape(json!({}));
    assert_eq!((&shape.affinity, &shape.preferences), (&None, &None));
    assert!(shape.ports.is_empty() && shape.spread.is_empty());
}

#[test]
fn what_is_told_of_a_pod_is_as_karpenter_tells_it() {
    let limited = |cpu: &str| json!({ "name": "a", "resources": { "limits": { "cpu": cpu, "memory": "1Gi" } } });
    let at = |time: &str| json!({ "lastTransitionTime": time, "status": "True" });
    let (mut scheduled, mut ready) = (at("2026-08-03T10:00:01Z"), at("2026-08-03T10:00:09Z"));
    (scheduled["type"], ready["type"]) = (json!("PodScheduled"), json!("Ready"));
    let spec = json!({ "containers": [limited("1"), limited("2"), { "name": "b" }], "initContainers": [limited("4")] });
    let mut object = wire(spec, json!({ "conditions": [scheduled, ready] }));
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u" }]);
    object.metadata.owner_references = serde_json::from_value(owner).unwrap();
    let details = pod(&object).unwrap().details;
    assert_eq!(&*details.owner, "/apis/apps/v1/namespaces/own/replicasets/web-1");
    let limits = &details.limits;
    assert_eq!((limits.cpu_millis, limits.memory, limits.pods), (4_000, 2 << 30, 1), "the start takes most CPU");
    let times = [details.scheduled_at, details.ready_at].map(|time| time.unwrap().to_string());
    assert_eq!(times, ["2026-08-03T10:00:01Z", "2026-08-03T10:00:09Z"]);
    let bare = pod(&wire(json!({}), json!({ "conditions": [{ "type": "Ready", "status": "False" }] }))).unwrap();
    assert_eq!((&*bare.details.owner, bare.details.ready_at), ("", None));
}

fn term_of(more: Value) -> PodTerm {
    let mut term = json!({ "topologyKey": "failure-domain.beta.kubernetes.io/zone" });
    term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    only_near(term)
}

#[test]
fn a_term_means_the_pods_of_namespaces() {
    let app = json!({ "matchLabels": { "app": "a" } });
    let loud = json!({ "matchLabels": { "volume": "11" } });
    let rows = [
        ("own namespace by default", json!({ "labelSelector": app }), "own", true),
        ("and no other", json!({ "labelSelector": app }), "other", false),
        ("an empty list names none", json!({ "labelSelector": app, "namespaces": [] }), "own", true),
        ("a named one", json!({ "labelSelector": app, "namespaces": ["other"] }), "other", true),
        ("then not the own", json!({ "labelSelector": app, "namespaces": ["other"] }), "own", false),
        ("all by an empty selector", json!({ "labelSelector": app, "namespaceSelector": {} }), "other", true),
        ("some by selector", json!({ "labelSelector": app, "namespaceSelector": loud }), "loud", true),
        ("not the own by selector", json!({ "labelSelector": app, "namespaceSelector": loud }), "own", false),
        (
            "a named one beside those of the selector",
            json!({ "labelSelector": app, "namespaces": ["other"], "namespaceSelector": loud }),
            "other",
            true,
        ),
    ];
    for (case, wire, namespace, means) in rows {
        let of_namespace = if namespace == "loud" { labels(&[("volume", "11")]) } else { Labels::new() };
        let means_it = term_of(wire).means(&space(namespace), Some(&of_namespace), &labels(&[("app", "a")]));
        assert_eq!(means_it, means, "{case}");
    }
}

#[test]
fn a_term_means_pods_by_labels_and_the_pods_own_values() {
    let app = json!({ "matchLabels": { "app": "a" } });
    let (this, that) = (&[("app", "a"), ("version", "1")][..], &[("app", "a"), ("version", "2")][..]);
    let own = json!({ "labelSelector": app, "matchLabelKeys": ["version", "absent"] });
    let others = json!({ "labelSelector": app, "mismatchLabelKeys": ["version", "absent"] });
    let rows = [
        ("by its selector", json!({ "labelSelector": app }), that, true),
        ("not by another", json!({ "labelSelector": app }), &[("app", "b")], false),
        ("an empty selector means all pods", json!({ "labelSelector": {} }), &[("app", "b")], true),
        ("no selector means none", json!({}), this, false),
        ("the pod's own value", own.clone(), this, true),
        ("another value than the pod's own", own, that, false),
        ("all but the pod's own value", others.clone(), that, true),
        ("the pod's own value does not do", others, this, false),
    ];
    for (case, wire, pod, means) in rows {
        let term = term_of(wire);
        assert_eq!(term.means(&space("own"), None, &labels(pod)), means, "{case}");
        assert_eq!(&*term.topology_key, napkeeper_core::model::labels::ZONE, "{case}");
    }
}

#[test]
fn to_be_apart_from_no_pods_is_always_so_and_to_be_near_them_never() {
    let term = json!({ "topologyKey": "rack" });
    assert_eq!(shape(apart(term.clone())).affinity, None);
    assert_eq!(only_near(term).selector, Requirements::unsatisfiable());
    let shape = shape(apart(json!({ "topologyKey": "rack", "labelSelector": {} })));
    assert_eq!(shape.affinity.as_ref().unwrap().apart.len(), 1);
}

#[test]
fn preferences_are_heaviest_first() {
    let key = |weight: i32, key: &str| {
        let term = json!({ "topologyKey": key, "labelSelector": {} });
        json!({ "weight": weight, "podAffinityTerm": term })
    };
    let node = |weight: i32, key: &str| {
        let preference = json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
        json!({ "weight": weight, "preference": preference })
    };
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let shape = shape(json!({
        "affinity": {
            "nodeAffinity": { preferred: [
                node(1, "n1"), node(7, "n7"), node(100, "beta.kubernetes.io/arch"), { "weight": 50, "preference": {} },
            ] },
            "podAffinity": { preferred: [key(1, "b"), key(2, "a"), key(2, "c")] },
            "podAntiAffinity": { preferred: [key(3, "x"), { "weight": 9, "podAffinityTerm": { "topologyKey": "y" } }] },
        },
        "topologySpreadConstraints": [
            { "maxSkew": 3, "topologyKey": "hard", "whenUnsatisfiable": "DoNotSchedule" },
            { "maxSkew": 1, "topologyKey": "late", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {} },
            { "maxSkew": 2, "topologyKey": "early", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {} },
        ],
    }));
    assert_eq!(shape.affinity, None, "what is preferred is not required");
    let likes = shape.preferences.as_ref().unwrap();
    let nodes: Vec<_> = likes.node.iter().map(|(w, r)| (*w, r.to_string())).collect();
    assert_eq!(nodes, [(100, "kubernetes.io/arch Exists".into()), (7, "n7 Exists".into()), (1, "n1 Exists".into())]);
    let keys =
        |terms: &[(i32, PodTerm)]| terms.iter().map(|(w, t)| format!("{w}{}", t.topology_key)).collect::<Vec<_>>();
    assert_eq!(keys(&likes.near), ["2a", "2c", "1b"], "equal weights keep their order");
    assert_eq!(keys(&likes.apart), ["3x"], "a term that means no pods is no wish");
    let spread = |list: &[Spread]| list.iter().map(|s| s.topology_key.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (spread(&shape.spread), spread(&likes.spread)),
        (vec!["hard".into()], vec!["late".into(), "early".into()])
    );
}

#[test]
fn all_of_a_spread_constraint_is_read() {
    let spread = |more: Value| {
        let mut wire = json!({ "maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule" });
        wire.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        shape(json!({ "topologySpreadConstraints": [wire] })).spread[0].clone()
    };
    let app = json!({ "matchLabels": { "app": "a" } });
    let selector = || Requirements::from_labels(&labels(&[("app", "a")]));
    let plain = || Spread::over("rack", 2, selector());
    let rows = [
        ("defaults", json!({ "labelSelector": app }), plain()),
        ("domains", json!({ "labelSelector": app, "minDomains": 3 }), Spread { min_domains: 3, ..plain() }),
        (
            "policies other than the defaults",
            json!({ "labelSelector": app, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor" }),
            Spread { honors_affinity: false, honors_taints: true, ..plain() },
        ),
        (
            "policies as the defaults",
            json!({ "labelSelector": app, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore" }),
            plain(),
        ),
        (
            "own values of keys",
            json!({ "labelSelector": app, "matchLabelKeys": ["version", "absent"] }),
            Spread { selector: Requirements::from_labels(&labels(&[("app", "a"), ("version", "1")])), ..plain() },
        ),
        ("no selector counts nothing", json!({}), Spread { selector: Requirements::unsatisfiable(), ..plain() }),
        (
            "an empty one counts all",
            json!({ "labelSelector": {} }),
            Spread { selector: Requirements::new(), ..plain() },
        ),
    ];
    for (case, wire, expected) in rows {
        assert_eq!(spread(wire), expected, "{case}");
    }
}

#[test]
fn host_ports_are_ports_of_the_node() {
    let port = |port: u16, protocol: &str, address: Option<&str>| HostPort {
        port,
        protocol: protocol.into(),
        address: address.map(Arc::from),
    };
    let container = |ports: Value| json!({ "containers": [{ "name": "a", "ports": ports }] });
    let rows = [
        ("a port of the pod alone", container(json!([{ "containerPort": 80 }])), vec![]),
        ("zero is none", container(json!([{ "containerPort": 80, "hostPort": 0 }])), vec![]),
        (
            "any address",
            container(json!([
                { "containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0" },
                { "containerPort": 81, "hostPort": 8080, "hostIP": "::" },
                { "containerPort": 82, "hostPort": 8080, "hostIP": "", "protocol": "UDP" },
            ])),
            vec![port(8080, "TCP", None), port(8080, "UDP", None)],
        ),
        (
            "one address",
            container(json!([{ "containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1", "protocol": "SCTP" }])),
            vec![port(8080, "SCTP", Some("127.0.0.1"))],
        ),
        (
            "the host's network",
            json!({ "hostNetwork": true, "containers": [{ "name": "a", "ports": [{ "containerPort": 9100 }] }] }),
            vec![port(9100, "TCP", None)],
        ),
        (
            "init containers that go on",
            json!({ "initContainers": [
                { "name": "a", "ports": [{ "containerPort": 1, "hostPort": 1 }] },
                { "name": "b", "restartPolicy": "Always", "ports": [{ "containerPort": 2, "hostPort": 2 }] },
            ] }),
            vec![port(2, "TCP", None)],
        ),
    ];
    for (case, spec, expected) in rows {
        assert_eq!(shape(spec).ports, expected, "{case}");
    }
}

#[test]
fn malformed_fields_are_reported_with_their_path() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let no_values = json!({ "key": "a", "operator": "In" });
    let likes = |kind: &str, wire: Value| json!({ "affinity": { kind: { preferred: [wire] } } });
    let rows = [
        (near(json!({ "labelSelector": {} })), format!("spec.affinity.podAffinity.{required}[0].topologyKey")),
        (
            apart(json!({ "topologyKey": "a", "namespaces": ["ok", "Not OK"] })),
            format!("spec.affinity.podAntiAffinity.{required}[0].namespaces[1]"),
        ),
        (
            near(json!({ "topologyKey": "a", "labelSelector": { "matchExpressions": [no_values] } })),
            format!("spec.affinity.podAffinity.{required}[0].labelSelector.matchExpressions[0].values"),
        ),
        (
            likes("podAffinity", json!({ "weight": 0, "podAffinityTerm": { "topologyKey": "a" } })),
            format!("spec.affinity.podAffinity.{preferred}[0].weight"),
        ),
        (
            likes("podAntiAffinity", json!({ "weight": 1, "podAffinityTerm": {} })),
            format!("spec.affinity.podAntiAffinity.{preferred}[0].podAffinityTerm.topologyKey"),
        ),
        (
            likes("nodeAffinity", json!({ "weight": 101, "preference": {} })),
            format!("spec.affinity.nodeAffinity.{preferred}[0].weight"),
        ),
        (
            likes("nodeAffinity", json!({ "weight": 1, "preference": { "matchFields": [no_values] } })),
            format!("spec.affinity.nodeAffinity.{preferred}[0].preference.matchFields[0].key"),
        ),
    ];
    for (spec, path) in rows {
        assert_eq!(paths(spec), [path]);
    }
}

#[test]
fn malformed_spreads_and_ports_are_reported_with_their_path() {
    let spread = |field: &str, value: Value| {
        let mut wire = json!({ "maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule" });
        wire[field] = value;
        json!({ "topologySpreadConstraints": [wire] })
    };
    let port = |number: i32, protocol: &str| {
        let port = json!({ "containerPort": 1, "hostPort": number, "protocol": protocol });
        json!({ "containers": [{ "name": "a", "ports": [port] }] })
    };
    let rows = [
        (spread("whenUnsatisfiable", json!("Perhaps")), "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
        (spread("topologyKey", json!("")), "spec.topologySpreadConstraints[0].topologyKey"),
        (spread("maxSkew", json!(0)), "spec.topologySpreadConstraints[0].maxSkew"),
        (spread("minDomains", json!(0)), "spec.topologySpreadConstraints[0].minDomains"),
        (spread("nodeTaintsPolicy", json!("x")), "spec.topologySpreadConstraints[0].nodeTaintsPolicy"),
        (port(65_536, "TCP"), "spec.containers[0].ports[0].hostPort"),
        (port(-1, "TCP"), "spec.containers[0].ports[0].hostPort"),
        (port(1, "IP"), "spec.containers[0].ports[0].protocol"),
    ];
    for (spec, path) in rows {
        assert_eq!(paths(spec), [path]);
    }
}

#[test]
fn a_new_node_is_launched_only_for_pods_that_lack_capacity() {
    let unschedulable = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    let gated = json!({ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" });
    let rows = [
        ("no node fits", json!({}), json!({ "conditions": [unschedulable] }), true),
        ("nothing is said yet", json!({}), json!({}), false),
        ("a gate", json!({ "schedulingGates": [{ "name": "g" }] }), json!({ "conditions": [gated] }), false),
        (
            "a gate, whatever the condition says",
            json!({ "schedulingGates": [{ "name": "g" }] }),
            json!({ "conditions": [unschedulable] }),
            false,
        ),
        ("no gates any more", json!({ "schedulingGates": [] }), json!({ "conditions": [unschedulable] }), true),
        (
            "room is being made by preemption",
            json!({}),
            json!({ "conditions": [unschedulable], "nominatedNodeName": "n" }),
            false,
        ),
        ("no node is nominated", json!({}), json!({ "conditions": [unschedulable], "nominatedNodeName": "" }), true),
    ];
    for (case, spec, status, provisionable) in rows {
        assert_eq!(pod(&wire(spec, status)).unwrap().is_provisionable(), provisionable, "{case}");
    }
    let nominated = pod(&wire(json!({}), json!({ "nominatedNodeName": "n" }))).unwrap().nominated;
    assert_eq!(nominated.as_ref().map(NodeName::as_str), Some("n"));
}

#[test]
fn devices_are_claimed_by_resource_claims() {
    let claims = |spec: Value| pod(&wire(spec, json!({}))).unwrap().claims_devices;
    assert!(!claims(json!({})) && !claims(json!({ "resourceClaims": [] })));
    assert!(claims(json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimName": "mine" }] })));
}
