//! Findings on writes and deletes while nodes run.

use crate::tests::{HandClock, PATIENT, Rig, UID, class, good_pool, node, pod, review, world};
use crate::{DELETE_ACKNOWLEDGED_ANNOTATION, DeletionProtection, Webhook, router};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_api::convert;
use napkeeper_api::types::karpenter::NodeClaim;
use napkeeper_core::admission::pdb_blockers::{BlockingPdb, ClusterBlockers, NodeClassNotReady};
use napkeeper_core::model::names::{Namespace, NodeClassName, ObjectName, ProviderId};
use napkeeper_core::model::requirements::Requirements;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::metrics;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;
use tower::ServiceExt;

/// Adds a node of the pool `general`, an on-demand D4s_v5, with this many pods.
pub(super) fn run(snapshot: &mut Snapshot, name: &str, pods: usize) {
    let id = format!("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{name}");
    let claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "uid": format!("{name}-claim"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "karpenter.sh/nodepool": "general" },
        },
        "spec": {
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
            "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["general"] }],
        },
        "status": { "providerID": id, "nodeName": name, "capacity": { "cpu": "4", "memory": "16Gi" } },
    }))
    .unwrap();
    let claim = convert::claim(&claim).unwrap();
    snapshot.put_claim(claim);
    let mut node = node(name);
    node.provider_id = Some(ProviderId::parse(&id).unwrap());
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "Standard_D4s_v5"),
        ("topology.kubernetes.io/zone", "westeurope-1"),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("karpenter.sh/nodepool", "general"),
    ] {
        node.labels.insert(Arc::from(key), Arc::from(value));
    }
    snapshot.put_node(node);
    for n in 0..pods {
        let mut wire = pod("500m");
        wire["metadata"]["name"] = json!(format!("{name}-{n}"));
        wire["metadata"]["uid"] = json!(format!("{name}-{n}"));
        wire["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        wire["spec"]["nodeName"] = json!(name);
        wire["status"] = json!({ "phase": "Running" });
        snapshot.put_pod(convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap());
    }
}

/// Two nodes of the pool `general` with five pods.
fn busy() -> Snapshot {
    let mut snapshot = world();
    run(&mut snapshot, "aks-general-a", 3);
    run(&mut snapshot, "aks-general-b", 2);
    snapshot
}

fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn annotated(mut object: Value, value: &str) -> Value {
    object["metadata"]["annotations"] = json!({ DELETE_ACKNOWLEDGED_ANNOTATION: value });
    object
}

#[tokio::test]
async fn a_pool_with_nodes_is_not_deleted_unless_their_number_is_acknowledged() {
    let rig = Rig::new(Some(busy()), PATIENT);
    let ask = async |old: Value| rig.ask("/validate", &review("DELETE", "karpenter.sh", &Value::Null, &old)).await;
    let refused = ask(good_pool()).await;
    assert_eq!(refused["allowed"], false);
    assert_eq!(
        refused["status"]["message"],
        "The delete is denied, 1 finding:\n\
         NK9505: NodePool general has 2 nodes with 5 pods, and 5 cannot be rescheduled; to delete it anyway, \
         acknowledge this first: kubectl annotate --overwrite nodepool general napkeeper.io/delete-acknowledged=2\n\
         More: docs/rules/NK9505.md, or napkeeper rules NK9505"
    );
    let silence = json!({ "uid": UID, "allowed": true });
    assert_eq!(ask(annotated(good_pool(), "2")).await, silence);
    assert_eq!(ask(annotated(good_pool(), "10")).await, silence);
    for wrong in ["1", "true", "-2"] {
        let answer = ask(annotated(good_pool(), wrong)).await;
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("is {wrong:?}, which must be at least the number of nodes")), "{message}");
    }
    let mut going = good_pool();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(ask(going).await, silence);
    let mut empty = good_pool();
    empty["metadata"]["name"] = json!("empty");
    assert_eq!(ask(empty).await, silence);
}

#[tokio::test]
async fn pods_that_another_pool_can_run_are_reported_as_reschedulable() {
    let mut snapshot = busy();
    let mut other = good_pool();
    other["metadata"]["name"] = json!("other");
    match napkeeper_api::manifests::object(&other).unwrap() {
        napkeeper_api::manifests::Object::NodePool(pool) => snapshot.put_pool(pool.name.clone(), *pool),
        other => panic!("{other:?}"),
    }
    let rig = Rig::new(Some(snapshot), PATIENT);
    let answer = rig.ask("/validate", &review("DELETE", "karpenter.sh", &Value::Null, &good_pool())).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("with 5 pods, and all of them can be rescheduled"), "{message}");
    let old = class("v1beta1", &json!({}));
    let answer = rig.ask("/validate", &review("DELETE", "karpenter.azure.com", &Value::Null, &old)).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("AKSNodeClass default has 2 nodes with 5 pods, and 5 cannot be rescheduled"), "{message}");
}

#[tokio::test]
async fn deletion_protection_can_warn_or_be_off_and_needs_a_known_cluster() {
    let ask = async |protection: DeletionProtection, snapshot: Option<Snapshot>| {
        let mut registry = metrics::registry();
        let snapshots = watch::channel(snapshot.map(Arc::new)).1;
        let webhook =
            Webhook::new("napkeeper-system", snapshots, Arc::new(HandClock::default()), PATIENT, &mut registry)
                .unwrap()
                .with_deletion_protection(protection);
        let body = review("DELETE", "karpenter.sh", &Value::Null, &good_pool()).to_string();
        let request = Request::post("/validate").body(Body::from(body)).unwrap();
        let response = router(Arc::new(webhook)).oneshot(request).await.unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["response"].take()
    };
    let warned = ask(DeletionProtection::Warn, Some(busy())).await;
    assert_eq!(warned["allowed"], true);
    assert!(warnings(&warned)[0].starts_with("NK9505: NodePool general has 2 nodes with 5 pods"), "{warned}");
    let silence = json!({ "uid": UID, "allowed": true });
    assert_eq!(ask(DeletionProtection::Off, Some(busy())).await, silence);
    assert_eq!(ask(DeletionProtection::Deny, None).await, silence);
}

#[tokio::test]
async fn a_change_that_replaces_nodes_says_how_many() {
    let rig = Rig::new(Some(busy()), PATIENT);
    let ask = async |new: &Value| rig.ask("/validate", &review("UPDATE", "karpenter.sh", new, &good_pool())).await;
    let mut tainted = good_pool();
    tainted["spec"]["template"]["spec"]["taints"] = json!([{ "key": "team", "value": "a", "effect": "NoSchedule" }]);
    let answer = ask(&tainted).await;
    assert_eq!(answer["allowed"], true);
    let warning = warnings(&answer)[0];
    assert!(
        warning.starts_with(
            "NK9504 spec.template: 2 nodes will be replaced within the disruption budgets, affecting 5 pods: "
        ),
        "{warning}"
    );
    assert!(warning.contains("they cost $0."), "{warning}");

    let mut narrower = good_pool();
    narrower["spec"]["template"]["spec"]["requirements"] =
        json!([{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] }]);
    let answer = ask(&narrower).await;
    assert!(warnings(&answer).iter().any(|w| w.contains("2 nodes") && w.contains("no longer satisfy")), "{answer}");
    let mut wider = good_pool();
    wider["spec"]["template"]["spec"]["requirements"] =
        json!([{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] }]);
    wider["spec"]["limits"]["cpu"] = json!("50");
    assert!(!warnings(&ask(&wider).await).iter().any(|w| w.starts_with("NK9")));
}

#[tokio::test]
async fn a_class_that_changes_replaces_its_nodes_but_not_for_its_tags() {
    let rig = Rig::new(Some(busy()), PATIENT);
    let old = class("v1beta1", &json!({ "osDiskSizeGB": 128 }));
    let ask = async |spec: Value| {
        let new = class("v1beta1", &spec);
        rig.ask("/validate", &review("UPDATE", "karpenter.azure.com", &new, &old)).await
    };
    let answer = ask(json!({ "osDiskSizeGB": 256 })).await;
    assert!(warnings(&answer)[0].starts_with("NK9504 spec: 2 nodes will be replaced"), "{answer}");
    let tags = ask(json!({ "osDiskSizeGB": 128, "tags": { "team": "a" } })).await;
    assert_eq!(warnings(&tags), Vec::<&str>::new());
}

/// A class that is not ready, and a budget that keeps the pods of `run`.
fn hindered() -> ClusterBlockers {
    let not_ready =
        NodeClassNotReady { reason: Arc::from("UnhealthyDependents"), message: Arc::from("SubnetsReady=False") };
    let budget = BlockingPdb { name: ObjectName::new("web").unwrap(), selector: Requirements::default() };
    ClusterBlockers {
        unready_classes: [(NodeClassName::new("default").unwrap(), Arc::new(not_ready))].into(),
        blocking_pdbs: [(Namespace::new("shop").unwrap(), vec![budget])].into(),
    }
}

#[tokio::test]
async fn blocked_launches_are_reported() {
    let known = watch::channel(Arc::new(hindered())).1;
    let rig = Rig::with(Some(busy()), PATIENT, |webhook| webhook.with_blockers(known));
    let mut new = good_pool();
    new["metadata"]["name"] = json!("new");
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &new, &Value::Null)).await;
    let lines = warnings(&answer);
    assert_eq!(
        lines[0],
        "NK9506 spec.template.spec.nodeClassRef.name: AKSNodeClass default is not ready (UnhealthyDependents: \
         SubnetsReady=False): the pool cannot launch nodes until it is; see kubectl describe aksnodeclass default"
    );
    let mut changed = good_pool();
    changed["spec"]["template"]["spec"]["taints"] = json!([{ "key": "team", "effect": "NoSchedule" }]);
    let answer = rig.ask("/validate", &review("UPDATE", "karpenter.sh", &changed, &good_pool())).await;
    let lines = warnings(&answer);
    let of_pods = "affecting 5 pods, 5 currently blocked by a PodDisruptionBudget (such as shop/web): the node";
    assert!(lines.iter().any(|line| line.starts_with("NK9504") && line.contains(of_pods)), "{lines:?}");
    assert!(lines.iter().all(|line| !line.starts_with("NK9506")), "the class is the same as before: {lines:?}");
}

#[tokio::test]
async fn pools_are_checked_against_limits_classes_and_other_pools() {
    let rig = Rig::new(Some(busy()), PATIENT);
    let mut lower = good_pool();
    lower["spec"]["limits"]["cpu"] = json!("4");
    let answer = rig.ask("/validate", &review("UPDATE", "karpenter.sh", &lower, &good_pool())).await;
    assert!(
        warnings(&answer)[0].starts_with("NK9503 spec.limits.cpu: the nodes of this pool use 8000 cpu"),
        "{answer}"
    );

    let mut twin = good_pool();
    twin["metadata"]["name"] = json!("twin");
    twin["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("defualt");
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &twin, &Value::Null)).await;
    let lines = warnings(&answer);
    assert!(
        lines[0].starts_with("NK9501 spec.template.spec.nodeClassRef.name: AKSNodeClass \"defualt\" not found"),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("use one that exists: default"), "{lines:?}");
    assert!(lines[1].starts_with("NK9502 spec.weight: general can create the same nodes"), "{lines:?}");
    twin["spec"]["weight"] = json!(10);
    twin["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("default");
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &twin, &Value::Null)).await;
    assert!(!warnings(&answer).iter().any(|w| w.starts_with("NK9")), "{answer}");
}

#[tokio::test]
async fn a_sweep_is_judged_by_the_rules_of_its_definition() {
    let rig = Rig::new(None, PATIENT);
    let sweep = |spec: Value| {
        json!({
            "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep",
            "metadata": { "name": "nightly", "uid": "s1", "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec,
        })
    };
    let ask =
        async |spec: Value| rig.ask("/validate", &review("CREATE", "napkeeper.io", &sweep(spec), &Value::Null)).await;
    assert_eq!(ask(json!({ "mode": "Report", "kinds": ["Nic"] })).await["allowed"], true);
    let wrong = ask(json!({ "mode": "Report", "kinds": "Nic" })).await;
    assert_eq!(wrong["allowed"], false, "{wrong}");
    assert!(wrong["status"]["message"].as_str().unwrap().contains("NK1011 spec.kinds"), "{wrong}");
}
