//! Defaults of PlacementPolicies: what is written to pods, that it always applies, and that it is idempotent.

use crate::tests::{PATIENT, Rig, UID, any_json, hint_of, pod, review, world};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_api::manifests::{Object, object};
use napkeeper_core::admission::placement_policy::{NamespaceFacts, PlacementPolicies, PlacementPolicy};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn policy(name: &str, spec: &Value) -> (Arc<str>, Arc<PlacementPolicy>) {
    let manifest = json!({
        "apiVersion": "napkeeper.io/v1alpha1", "kind": "PlacementPolicy", "metadata": { "name": name }, "spec": spec,
    });
    match object(&manifest) {
        Ok(Object::PlacementPolicy(policy)) => (Arc::from(name), Arc::from(policy)),
        other => panic!("{other:?}"),
    }
}

/// The namespace `shop`, selected by `balanced`; `arm` must be named by the pod.
fn placement(percent: u8) -> PlacementPolicies {
    let balanced = json!({
        "namespaceSelector": { "matchLabels": { "placement": "balanced" } },
        "defaults": {
            "topologySpread": [{ "topologyKey": "topology.kubernetes.io/zone" }],
            "spot": { "onDemandPercent": percent },
            "jobs": { "doNotDisruptFor": "4h" },
        },
    });
    let arm = json!({ "defaults": { "architecture": "arm64" } });
    let shop =
        NamespaceFacts { labels: [(Arc::from("placement"), Arc::from("balanced"))].into(), placement_annotation: None };
    PlacementPolicies {
        policies: [policy("balanced", &balanced), policy("arm", &arm)].into(),
        namespaces: [(Arc::from("shop"), Arc::new(shop)), (Arc::from("free"), Arc::default())].into(),
    }
}

fn rig(percent: u8) -> Rig {
    Rig::placing(Some(world()), PATIENT, placement(percent))
}

/// The pod as it is created, checked against the API server's rules for patches.
async fn create(rig: &Rig, pod: &Value) -> Value {
    let answer = rig.ask("/mutate", &review("CREATE", "", pod, &Value::Null)).await;
    let mut object = pod.clone();
    apply_any(&mut object, &answer);
    object
}

fn apply_any(object: &mut Value, answer: &Value) {
    let Some(patch) = answer["patch"].as_str() else { return };
    let operations: Vec<PatchOperation> = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    json_patch::patch(object, &operations).unwrap();
}

#[tokio::test]
async fn a_pod_gets_the_defaults_of_its_policy_and_a_hint_for_the_result() {
    let rig = rig(0);
    let object = create(&rig, &pod("1")).await;
    assert_eq!(
        object["spec"]["topologySpreadConstraints"],
        json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app": "web" } },
        }])
    );
    let tolerations = object["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 2, "beside the one that it has");
    assert_eq!(tolerations[1]["key"], "kubernetes.azure.com/scalesetpriority");
    let preferred = &object["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0]["preference"]["matchExpressions"][0]["values"], json!(["spot"]));
    assert_eq!(object["metadata"]["annotations"]["napkeeper.io/placed-by"], "balanced");
    assert!(object["metadata"]["annotations"].get("karpenter.sh/do-not-disrupt").is_none(), "it is of no Job");
    assert_eq!(hint_of(&object)["fits"], "newNode");
    let again = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
    assert_eq!(again, json!({ "uid": UID, "allowed": true }));
}

#[tokio::test]
async fn the_floor_keeps_pods_off_spot_whatever_else_they_ask_for() {
    let rig = rig(100);
    let key = "requiredDuringSchedulingIgnoredDuringExecution";
    let keys = |term: &Value| -> Vec<String> {
        let expressions = term["matchExpressions"].as_array().unwrap();
        expressions
            .iter()
            .map(|e| format!("{} {}", e["key"].as_str().unwrap(), e["operator"].as_str().unwrap()))
            .collect()
    };
    let floor = ["karpenter.sh/capacity-type NotIn", "kubernetes.azure.com/scalesetpriority NotIn"];
    let object = create(&rig, &pod("1")).await;
    let terms = &object["spec"]["affinity"]["nodeAffinity"][key]["nodeSelectorTerms"];
    assert_eq!(keys(&terms[0]), floor);
    assert_eq!(object["spec"]["tolerations"].as_array().unwrap().len(), 1);

    // Of several terms one must hold, so each of them gets it.
    let mut chosen = pod("1");
    chosen["spec"]["affinity"] = json!({ "nodeAffinity": { key: { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "a", "operator": "Exists" }] },
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] },
    ] } } });
    let object = create(&rig, &chosen).await;
    let terms = &object["spec"]["affinity"]["nodeAffinity"][key]["nodeSelectorTerms"];
    assert_eq!(keys(&terms[0]), ["a Exists", floor[0], floor[1]]);
    assert_eq!(keys(&terms[1]), floor);
}

#[tokio::test]
async fn a_share_runs_on_demand_and_named_pods_always_the_same_way() {
    let rig = Rig::placing(None, PATIENT, placement(30));
    let mut stay = 0;
    for n in 0..300 {
        let mut named = pod("1");
        named["metadata"]["name"] = json!(format!("db-{n}"));
        let (one, two) = (create(&rig, &named).await, create(&rig, &named).await);
        assert_eq!(one["spec"], two["spec"]);
        stay += usize::from(one["spec"]["tolerations"].as_array().unwrap().len() == 1);
    }
    assert!((60..=120).contains(&stay), "{stay} of 300 for 30 %");
}

#[tokio::test]
async fn policies_by_name_by_none_and_by_an_unknown_name() {
    let rig = rig(0);
    let in_namespace = |namespace: &str, policy: Option<&str>| {
        let mut pod = pod("1");
        pod["metadata"]["namespace"] = json!(namespace);
        if let Some(name) = policy {
            pod["metadata"]["annotations"] = json!({ "napkeeper.io/placement": name });
        }
        pod
    };
    let by =
        |object: &Value| object["metadata"]["annotations"]["napkeeper.io/placed-by"].as_str().map(ToOwned::to_owned);
    assert_eq!(by(&create(&rig, &in_namespace("free", None)).await), None);
    let arm = create(&rig, &in_namespace("free", Some("arm"))).await;
    assert_eq!(by(&arm).as_deref(), Some("arm"));
    let preferred = &arm["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0]["preference"]["matchExpressions"][0]["values"], json!(["arm64"]));
    assert_eq!(by(&create(&rig, &in_namespace("shop", Some("none"))).await), None);
    for system in ["kube-system", "aks-istio-system", "napkeeper-system"] {
        assert_eq!(create(&rig, &in_namespace(system, Some("arm"))).await, in_namespace(system, Some("arm")));
    }
    let unknown = in_namespace("shop", Some("gone"));
    let answer = rig.ask("/mutate", &review("CREATE", "", &unknown, &Value::Null)).await;
    assert!(answer["warnings"][0].as_str().unwrap().contains("PlacementPolicy \"gone\", named by"), "{answer}");
    assert!(answer["patch"].is_string(), "it has its hint all the same");
}

#[tokio::test]
async fn pods_of_jobs_finish_and_pods_of_daemon_sets_are_left_alone() {
    let rig = rig(0);
    let owned = |kind: &str| {
        let mut pod = pod("1");
        pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
        pod
    };
    let of_job = create(&rig, &owned("Job")).await;
    assert_eq!(of_job["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"], "4h");
    assert_eq!(create(&rig, &owned("DaemonSet")).await, owned("DaemonSet"));
    let mut own = owned("Job");
    own["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "false" });
    assert_eq!(create(&rig, &own).await["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"], "false");
}

#[tokio::test]
async fn without_a_cluster_or_time_for_a_hint_the_defaults_still_apply() {
    let unknown = Rig::placing(None, PATIENT, placement(0));
    let object = create(&unknown, &pod("1")).await;
    assert_eq!(object["metadata"]["annotations"], json!({ "napkeeper.io/placed-by": "balanced" }));
    let hurried = crate::Limits { hint_timeout: std::time::Duration::from_millis(5), ..PATIENT };
    let late = Rig::placing(Some(world()), hurried, placement(0));
    late.clock.slow(1_000);
    let answer = late.ask("/mutate", &review("CREATE", "", &pod("1"), &Value::Null)).await;
    assert_eq!(answer["warnings"], json!(["napkeeper: this pod has no placement hint: timed out"]));
    assert!(answer["patch"].is_string());
    assert!(late.metrics().contains(r#"admission_failures_total{path="/mutate",reason="deadline"} 1"#));
}

#[tokio::test]
async fn a_policy_that_is_wrong_is_refused() {
    let rig = rig(0);
    let judged = async |spec: Value| {
        let manifest = json!({
            "apiVersion": "napkeeper.io/v1alpha1", "kind": "PlacementPolicy", "metadata": { "name": "a" }, "spec": spec,
        });
        rig.ask("/validate", &review("CREATE", "napkeeper.io", &manifest, &Value::Null)).await
    };
    let good = judged(json!({ "namespaceSelector": {}, "defaults": { "spot": { "onDemandPercent": 20 } } })).await;
    assert_eq!(good, json!({ "uid": UID, "allowed": true }));
    for (spec, path) in [
        (json!({ "defaults": { "spot": { "onDemandPercent": 101 } } }), "spec.defaults.spot.onDemandPercent"),
        (json!({ "defaults": { "jobs": { "doNotDisruptFor": "25h" } } }), "spec.defaults.jobs.doNotDisruptFor"),
        (json!({ "defaults": { "topologySpread": [{ "topologyKey": "a b" }] } }), "spec.defaults.topologySpread[0]"),
    ] {
        let answer = judged(spec).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        assert!(answer["status"]["message"].as_str().unwrap().contains(path), "{answer}");
    }
}

/// A pod with optional parts, and lists and maps that may be empty.
fn any_pod() -> impl Strategy<Value = Value> {
    let expressions = prop_oneof![
        Just(json!([])),
        Just(json!([{ "key": "a", "operator": "Exists" }])),
        Just(json!([{ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }])),
    ];
    let terms = prop::collection::vec(expressions.prop_map(|e| json!({ "matchExpressions": e })), 0..3);
    let affinity = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({ "nodeAffinity": {} })),
        Just(json!({ "nodeAffinity": null })),
        terms.prop_map(|terms| json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
            "preferredDuringSchedulingIgnoredDuringExecution": [],
        } })),
    ];
    let annotations = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        prop::sample::select(vec!["arm", "none", "gone", "balanced"])
            .prop_map(|n| json!({ "napkeeper.io/placement": n })),
        Just(json!({ "a~/b": "c", "napkeeper.io/placement-hint": "old" })),
    ];
    let list = prop_oneof![Just(Value::Null), Just(json!([])), Just(json!([{ "key": "a", "operator": "Exists" }]))];
    let kind = prop::sample::select(vec!["Job", "ReplicaSet", "DaemonSet"]);
    let spread = prop_oneof![Just(Value::Null), Just(json!([]))];
    (affinity, annotations, list, kind, spread).prop_map(|(affinity, annotations, tolerations, kind, spread)| {
        let mut pod = pod("1");
        pod["metadata"]["annotations"] = annotations;
        pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
        pod["spec"]["affinity"] = affinity;
        pod["spec"]["tolerations"] = tolerations;
        pod["spec"]["topologySpreadConstraints"] = spread;
        pod
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn defaults_apply_keep_pods_valid_and_are_idempotent(
        pods in prop::collection::vec((any_pod(), 0_u8..=100), 40),
        stray in any_json(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = rig(pods[0].1);
            for (pod, _) in &pods {
                let object = create(&rig, pod).await;
                let read: Result<WirePod, _> = serde_json::from_value(object.clone());
                assert!(read.is_ok(), "{object}");
                let again = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
                assert!(again["patch"].is_null(), "{object}\n{again}");
            }
            // An object that is not a pod gets no defaults.
            let mut bent = pods[0].0.clone();
            bent["spec"]["affinity"] = stray;
            let answer = rig.ask("/mutate", &review("CREATE", "", &bent, &Value::Null)).await;
            apply_any(&mut bent, &answer);
            assert!(!rig.metrics().contains("internal"), "{}", rig.metrics());
        });
    }
}
