//! Reviews in, answers out.

mod cluster;
mod cluster_view;
mod defaults;
mod deletes;
mod mutate;
mod policies;
mod unable;

use crate::{Limits, PLACEMENT_HINT_ANNOTATION, SourcedValidator, Webhook, router};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use napkeeper_api::manifests::{Object, object};
use napkeeper_core::admission::placement_policy::PlacementPolicies;
use napkeeper_core::catalog::live::{AzureFacts, Fact, SizeListing};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, instance_types};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::names::{NodeName, Region, Uid};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::metrics;
use napkeeper_serve::prometheus_client::encoding::text::encode;
use napkeeper_serve::prometheus_client::registry::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt;

pub(crate) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Time enough on a busy machine.
pub(crate) const PATIENT: Limits =
    Limits { max_concurrency: 8, validate_timeout: Duration::from_secs(30), hint_timeout: Duration::from_secs(30) };

/// A clock that only moves when it is advanced.
#[derive(Debug, Default)]
pub(crate) struct HandClock {
    seconds: AtomicI64,
    /// How long reading the time takes.
    delay: AtomicU64,
}

impl HandClock {
    /// Lets seconds pass.
    pub(crate) fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Delays reading the time.
    pub(crate) fn slow(&self, milliseconds: u64) {
        self.delay.store(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    #[expect(clippy::disallowed_methods, reason = "the thread of the hinter is to be held up")]
    fn now(&self) -> Timestamp {
        std::thread::sleep(Duration::from_millis(self.delay.load(Ordering::SeqCst)));
        Timestamp::from_second(1_790_000_000 + self.seconds.load(Ordering::SeqCst)).unwrap()
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

pub(crate) struct Rig {
    router: axum::Router,
    registry: Registry,
    webhook: Arc<Webhook>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    pub(crate) clock: Arc<HandClock>,
}

impl Rig {
    pub(crate) fn new(snapshot: Option<Snapshot>, limits: Limits) -> Self {
        Self::placing(snapshot, limits, PlacementPolicies::default())
    }

    pub(crate) fn placing(snapshot: Option<Snapshot>, limits: Limits, placement: PlacementPolicies) -> Self {
        let given = watch::channel(Arc::new(placement)).1;
        Self::with(snapshot, limits, |webhook| webhook.with_placement_policies(given))
    }

    /// With a configured webhook.
    pub(crate) fn with(snapshot: Option<Snapshot>, limits: Limits, more: impl FnOnce(Webhook) -> Webhook) -> Self {
        let mut registry = metrics::registry();
        let (snapshots, receiver) = watch::channel(snapshot.map(Arc::new));
        let clock = Arc::new(HandClock::default());
        let webhook = Webhook::new("napkeeper-system", receiver, clock.clone(), limits, &mut registry).unwrap();
        let webhook = Arc::new(more(webhook));
        Self { router: router(Arc::clone(&webhook)), webhook, registry, snapshots, clock }
    }

    /// Shows the webhook another cluster.
    pub(crate) async fn show(&self, snapshot: Snapshot) {
        self.snapshots.send(Some(Arc::new(snapshot))).unwrap();
        self.webhook.caught_up().await;
    }

    /// Lets seconds pass.
    pub(crate) async fn pass(&self, seconds: i64) {
        self.clock.pass(seconds);
        self.webhook.caught_up().await;
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
        let request = Request::post(path).body(body.into()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (status, to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
    }

    /// The `response` of a well-formed answer.
    pub(crate) async fn ask(&self, path: &str, review: &Value) -> Value {
        let mut response = self.ask_whole(path, review).await;
        // Every response names the facts used; in these tests they are always the same.
        if let Some(annotations) = response.as_object_mut().unwrap().remove("auditAnnotations") {
            assert_eq!(annotations, json!({ "facts": "catalogue: embedded, 2026-08; prices: embedded, 2026-08" }));
        }
        response
    }

    /// The same, with the notes for the audit log.
    pub(crate) async fn ask_whole(&self, path: &str, review: &Value) -> Value {
        let (status, body) = self.post(&format!("{path}?timeout=2s"), review.to_string()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        answer["response"].take()
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// A review as an API server sends it.
pub(crate) fn review(operation: &str, group: &str, object: &Value, old: &Value) -> Value {
    let any = if object.is_null() { old } else { object };
    let api_version = any["apiVersion"].as_str().unwrap();
    let version = api_version.rsplit('/').next().unwrap();
    let kind = any["kind"].as_str().unwrap();
    let gvk = json!({ "group": group, "version": version, "kind": kind });
    let gvr = json!({ "group": group, "version": version, "resource": format!("{}s", kind.to_lowercase()) });
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "name": any["metadata"]["name"], "operation": operation,
            "namespace": any["metadata"]["namespace"],
            "userInfo": { "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] },
            "object": object, "oldObject": old, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-client-side-apply" },
        },
    })
}

fn managed(fields: &Value) -> Value {
    json!([{
        "manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }])
}

fn pool(template: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {
            "name": "general", "uid": "b1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managed(&json!({ "f:spec": { ".": {}, "f:limits": {} } })),
        },
        "spec": {
            "template": { "spec": template },
            "limits": { "cpu": "100" },
            "disruption": { "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m" },
        },
    })
}

pub(crate) fn good_pool() -> Value {
    pool(&json!({
        "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
        "expireAfter": "720h",
        "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }],
    }))
}

pub(crate) fn class(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("karpenter.azure.com/{version}"), "kind": "AKSNodeClass",
        "metadata": { "name": "default", "uid": "c1", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
    })
}

/// A pod of a Deployment as the ReplicaSet controller creates it: without a name.
pub(crate) fn pod(cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "web-6c5d8f7b9d-", "namespace": "shop", "creationTimestamp": null,
            "labels": { "app": "web" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c5d8f7b9d", "uid": "r1",
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": managed(&json!({ "f:metadata": { "f:labels": {} } })),
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "nginx", "imagePullPolicy": "Always",
                "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } },
            }],
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "default",
            "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
        },
        "status": {},
    })
}

pub(crate) fn world() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class = match object(&class("v1beta1", &json!({}))).unwrap() {
        Object::NodeClass(class) => *class,
        other => panic!("{other:?}"),
    };
    let region = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
    let types = instance_types(&region, &class, &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    snapshot.put_class(class.name.clone(), class);
    match object(&good_pool()).unwrap() {
        Object::NodePool(pool) => snapshot.put_pool(pool.name.clone(), *pool),
        other => panic!("{other:?}"),
    }
    snapshot
}

pub(crate) fn node(name: &str) -> Node {
    let room = Resources { pods: 110, ..Resources::cpu_memory(4_000, 16 << 30) };
    Node {
        name: NodeName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        provider_id: None,
        labels: Labels::new(),
        taints: Vec::new(),
        capacity: room.clone(),
        allocatable: room,
        ready: true,
        ready_since: Timestamp::UNIX_EPOCH,
        created_at: Timestamp::UNIX_EPOCH,
        deleting_at: None,
        cordoned: false,
        has_finalizer: false,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    }
}

/// RFC 6902 for `add`, as the API server applies it: the parent must exist.
pub(crate) fn apply(object: &mut Value, response: &Value) {
    let Some(patch) = response["patch"].as_str() else {
        assert!(response["patchType"].is_null());
        return;
    };
    assert_eq!(response["patchType"], "JSONPatch");
    let operations: Vec<Value> = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    for operation in operations {
        assert_eq!(operation["op"], "add");
        let (parent, key) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(key, operation["value"].clone());
    }
}

pub(crate) fn hint_of(object: &Value) -> Value {
    serde_json::from_str(object["metadata"]["annotations"][PLACEMENT_HINT_ANNOTATION].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn valid_objects_are_allowed_without_warnings() {
    let rig = Rig::new(None, PATIENT);
    let silence = json!({ "uid": UID, "allowed": true });
    let good = good_pool();
    assert_eq!(rig.ask("/validate", &review("CREATE", "karpenter.sh", &good, &Value::Null)).await, silence);
    let class = class("v1beta1", &json!({ "imageFamily": "AzureLinux", "osDiskSizeGB": 128 }));
    assert_eq!(rig.ask("/validate", &review("CREATE", "karpenter.azure.com", &class, &Value::Null)).await, silence);
    assert!(rig.metrics().contains(r#"napkeeper_admission_requests_total{path="/validate",outcome="allowed"} 2"#));
}

#[tokio::test]
async fn by_live_facts_an_unavailable_size_is_a_warning_with_its_source() {
    let mut registry = metrics::registry();
    let webhook = Webhook::new(
        "napkeeper-system",
        watch::channel(None).1,
        Arc::new(HandClock::default()),
        PATIENT,
        &mut registry,
    )
    .unwrap();
    let catalog = Catalog::embedded().unwrap();
    let embedded = catalog.region(&Region::new("westeurope").unwrap()).unwrap();
    let as_of = Timestamp::now() - jiff::SignedDuration::from_mins(12);
    let mut sizes = embedded.sizes.clone();
    sizes.retain(|size| size.facts.name.as_str() != "Standard_D4s_v5");
    let listing = SizeListing::default().merge(sizes, &std::collections::BTreeSet::new(), 1, as_of).unwrap();
    let known = AzureFacts { sizes: Some(Fact { as_of, value: Arc::new(listing) }), ..AzureFacts::default() };
    let validator = SourcedValidator::live(&known, &embedded, catalog.as_of()).unwrap();
    let webhook = webhook.with_validator(watch::channel(Arc::new(validator)).1);
    let mut only = good_pool();
    only["spec"]["template"]["spec"]["requirements"] = json!([
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["Standard_D4s_v5"] },
    ]);
    let body = review("CREATE", "karpenter.sh", &only, &Value::Null).to_string();
    let request = Request::post("/validate").body(Body::from(body)).unwrap();
    let response = router(Arc::new(webhook)).oneshot(request).await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let answer = serde_json::from_slice::<Value>(&body).unwrap()["response"].take();
    let served = "catalogue: live, 12 min old; prices: embedded, 2026-08";
    assert_eq!(answer["auditAnnotations"]["facts"], served);
    assert_eq!(answer["allowed"], true, "what Azure offers may change: {answer}");
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("NK2") && warnings.contains(&format!("Azure data from: {served}")), "{warnings}");
}

#[tokio::test]
async fn invalid_objects_are_denied_with_rule_path_and_remedy() {
    let rig = Rig::new(None, PATIENT);
    let bad = class("v1beta1", &json!({ "maxPods": 9, "osDiskSizeGB": 1, "vnetSubnetId": "x" }));
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.azure.com", &bad, &Value::Null)).await;
    assert_eq!(
        answer,
        json!({
            "uid": UID, "allowed": false,
            "status": {
                "code": 422, "reason": "Invalid",
                "message": "AKSNodeClass is denied, 2 findings:\n\
                    NK1015 spec.maxPods: must be at least 10, got 9\n\
                    NK1015 spec.osDiskSizeGB: must be at least 30, got 1\n\
                    More: docs/rules/NK1015.md, or napkeeper rules NK1015",
            },
            "warnings": ["NK1010 spec.vnetSubnetId: unknown field vnetSubnetId; did you mean vnetSubnetID?"],
        })
    );
    assert!(rig.metrics().contains(r#"outcome="refused"} 1"#));
    assert!(rig.metrics().contains("napkeeper_admission_denials_total{rule=\"NK1015\"} 1\n"), "{}", rig.metrics());
}

#[tokio::test]
async fn where_napkeeper_launches_the_nodes_it_refuses_what_it_would_ignore() {
    let nodes = InstanceTypeOptions { self_managed: true, ..InstanceTypeOptions::default() };
    let validator = Arc::new(SourcedValidator::embedded().unwrap().for_nodes(nodes));
    let provisioner = Rig::with(None, PATIENT, |webhook| webhook.with_validator(watch::channel(validator).1));
    let refused = class("v1beta1", &json!({ "kubelet": { "cpuManagerPolicy": "static" } }));
    let created = review("CREATE", "karpenter.azure.com", &refused, &Value::Null);
    let answer = provisioner.ask("/validate", &created).await;
    let message = answer["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("NK2029 spec.kubelet.cpuManagerPolicy"), "{answer}");
    assert_eq!(Rig::new(None, PATIENT).ask("/validate", &created).await["allowed"], true, "NAP supports it");
    // A class from before the change of the mode can still be changed.
    let mut changed = refused.clone();
    changed["spec"]["maxPods"] = json!(60);
    let updated = review("UPDATE", "karpenter.azure.com", &changed, &refused);
    let answer = provisioner.ask("/validate", &updated).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert!(answer["warnings"].to_string().contains("NK2029"), "{answer}");
}

#[tokio::test]
async fn violations_that_a_newer_schema_may_allow_are_warnings() {
    let rig = Rig::new(None, PATIENT);
    let newer = class("v1beta1", &json!({ "imageFamily": "Ubuntu2604", "newField": { "a": 1 } }));
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.azure.com", &newer, &Value::Null)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let warnings = answer["warnings"].as_array().unwrap();
    let rule = |warning: &Value| warning.as_str().unwrap().split(' ').take(2).collect::<Vec<_>>().join(" ");
    let rules: Vec<_> = warnings.iter().map(rule).collect();
    assert_eq!(rules, ["NK1010 spec.newField:", "NK1013 spec.imageFamily:"]);
}

#[tokio::test]
async fn a_refusal_is_bounded() {
    let rig = Rig::new(None, PATIENT);
    let tags: serde_json::Map<_, _> =
        (0..500).map(|n| (format!("a{n}"), json!(format!("<{}>", "x".repeat(250))))).collect();
    let bad = class("v1beta1", &json!({ "tags": tags }));
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.azure.com", &bad, &Value::Null)).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains(", 500 findings:") && message.contains("\nand 490 more\n"), "{message}");
    assert!(message.chars().count() < 5_000);
}

#[tokio::test]
async fn existing_violations_are_warnings() {
    let rig = Rig::new(None, PATIENT);
    let old = class("v1beta1", &json!({ "maxPods": 9 }));
    let ask = |new: Value| {
        let review = review("UPDATE", "karpenter.azure.com", &new, &old);
        let rig = &rig;
        async move { rig.ask("/validate", &review).await }
    };
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(ask(labelled).await, json!({ "uid": UID, "allowed": true }));
    let grown = ask(class("v1beta1", &json!({ "maxPods": 9, "osDiskSizeGB": 200 }))).await;
    assert_eq!(grown["allowed"], true);
    assert!(grown["warnings"][0].as_str().unwrap().starts_with("NK1015 spec.maxPods"), "{grown}");
    assert_eq!(ask(class("v1beta1", &json!({ "maxPods": 8 }))).await["allowed"], false);
    let mut deleting = class("v1beta1", &json!({ "maxPods": 8 }));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(ask(deleting).await, json!({ "uid": UID, "allowed": true }));
}

#[tokio::test]
async fn warnings_are_as_short_as_the_api_server_shows_them() {
    let rig = Rig::new(None, PATIENT);
    let spec = |n: u32| json!({ "tags": { "a": format!("<{}>", "placeholder ".repeat(40)) }, "osDiskSizeGB": n });
    let (old, new) = (class("v1beta1", &spec(100)), class("v1beta1", &spec(200)));
    let answer = rig.ask("/validate", &review("UPDATE", "karpenter.azure.com", &new, &old)).await;
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("NK1021 spec.tags.a") && warning.chars().count() == 256, "{warning}");
}

#[tokio::test]
async fn deletes_and_other_kinds_are_allowed() {
    let rig = Rig::new(Some(world()), PATIENT);
    let silence = json!({ "uid": UID, "allowed": true });
    let bad = pool(&json!({}));
    let mut status = review("UPDATE", "karpenter.sh", &bad, &good_pool());
    status["request"]["subResource"] = json!("status");
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "b" } });
    for review in
        [review("DELETE", "karpenter.sh", &Value::Null, &bad), status, review("CREATE", "", &config, &Value::Null)]
    {
        assert_eq!(rig.ask("/validate", &review).await, silence);
        assert_eq!(rig.ask("/mutate", &review).await, silence);
    }
}

#[tokio::test]
async fn a_pod_that_fits_no_node_gets_the_offering_of_a_new_one() {
    let rig = Rig::new(Some(world()), PATIENT);
    let mut object = pod("3");
    let answer = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
    apply(&mut object, &answer);
    let hint = hint_of(&object);
    assert_eq!((&hint["fits"], &hint["pool"]), (&json!("newNode"), &json!("general")));
    assert_eq!(hint["capacityType"], "on-demand");
    assert!(hint["zone"].as_str().unwrap().starts_with("westeurope-"), "{hint}");
    assert!(hint["size"].as_str().unwrap().starts_with("Standard_") && hint["price"].as_i64().unwrap() > 0, "{hint}");
    // Called again, as the API server does when another hook has changed the pod, it has nothing to add.
    let again = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
    assert_eq!(again, json!({ "uid": UID, "allowed": true }));
}

#[tokio::test]
async fn hints_follow_the_cluster() {
    let rig = Rig::new(None, PATIENT);
    let mut object = pod("3");
    object["metadata"]["annotations"] = json!({ "a": "b" });
    let ask = review("CREATE", "", &object, &Value::Null);
    assert_eq!(rig.ask("/mutate", &ask).await, json!({ "uid": UID, "allowed": true }), "nothing is known yet");
    let mut world = world();
    world.put_node(node("here"));
    rig.show(world.clone()).await;
    apply(&mut object, &rig.ask("/mutate", &ask).await);
    assert_eq!(
        hint_of(&object),
        json!({ "advisory": true, "fits": "existingNode", "node": "here", "reason": "it has enough free capacity" })
    );
    assert_eq!(object["metadata"]["annotations"]["a"], "b");
    world.remove_node(&NodeName::new("here").unwrap());
    let general = world.pools().values().next().unwrap().name.clone();
    world.remove_pool(&general);
    rig.show(world).await;
    // Within 10 s it would count as a repeated review.
    rig.pass(20).await;
    let answer = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
    apply(&mut object, &answer);
    assert_eq!(hint_of(&object)["fits"], "unschedulable");
    assert_eq!(object["metadata"]["annotations"].as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn some_pods_are_left_alone() {
    let rig = Rig::new(Some(world()), PATIENT);
    let changed = |path: &str, value: Value| {
        let mut pod = pod("1");
        let (parent, key) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        pod
    };
    for object in [
        changed("/metadata/ownerReferences/0/kind", json!("DaemonSet")),
        changed("/metadata/annotations", json!({ "kubernetes.io/config.mirror": "abc" })),
        changed("/spec/nodeName", json!("n")),
        changed("/metadata/namespace", json!("kube-system")),
        changed("/metadata/namespace", json!("aks-istio-system")),
        changed("/metadata/namespace", json!("napkeeper-system")),
        changed("/metadata/generateName", json!("")),
        changed("/spec/containers/0/resources/requests/cpu", json!("much")),
    ] {
        let answer = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
        assert_eq!(answer, json!({ "uid": UID, "allowed": true }), "{object}");
    }
    let update = rig.ask("/mutate", &review("UPDATE", "", &pod("1"), &pod("1"))).await;
    assert_eq!(update, json!({ "uid": UID, "allowed": true }));
}

#[tokio::test]
async fn past_the_limits_everything_is_allowed_with_a_warning_and_counted() {
    let rig = Rig::new(None, Limits { max_concurrency: 0, ..PATIENT });
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &pool(&json!({})), &Value::Null)).await;
    let warnings = ["napkeeper: this object was not checked: too many concurrent requests"];
    assert_eq!(answer, json!({ "uid": UID, "allowed": true, "warnings": warnings }));
    let metrics = rig.metrics();
    assert!(metrics.contains(r#"admission_failures_total{path="/validate",reason="overload"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"outcome="failed_open"} 1"#), "{metrics}");
}

#[tokio::test]
async fn a_body_of_very_many_values_is_not_read() {
    let rig = Rig::new(None, PATIENT);
    let mut object = pool(&json!({}));
    object["spec"]["list"] = json!(vec![0; 200_000]);
    let body = review("CREATE", "karpenter.sh", &object, &Value::Null).to_string();
    for path in ["/validate", "/mutate"] {
        let (status, text) = rig.post(path, body.clone()).await;
        assert_eq!(status, 413);
        assert_eq!(String::from_utf8(text).unwrap(), "the request body has more than 200000 values\n");
    }
}

#[tokio::test]
async fn invalid_reviews_are_rejected() {
    let rig = Rig::new(None, PATIENT);
    let old = r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"a","operation":"CREATE","kind":{"version":"v1","kind":"Pod"}}}"#;
    for (body, part) in [
        ("", "not an AdmissionReview: EOF"),
        ("{}", "only admission.k8s.io/v1 AdmissionReview is supported"),
        (old, "admission.k8s.io/v1beta1"),
        (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "no request"),
        (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":7}"#, "invalid type"),
    ] {
        for path in ["/validate", "/mutate"] {
            let (status, text) = rig.post(path, body).await;
            let text = String::from_utf8(text).unwrap();
            assert_eq!(status, 400, "{body}");
            assert!(text.contains(part), "{text}");
        }
    }
    assert!(rig.metrics().contains(r#"outcome="malformed"} 5"#), "{}", rig.metrics());
}

/// Any JSON, small.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("99999999999999999999Ei")),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof!["\\PC{0,6}", Just("spec".to_owned()), Just("metadata".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A review of which one value is replaced by any other.
fn bent_review() -> impl Strategy<Value = Value> {
    let whole = prop_oneof![
        Just(review("CREATE", "", &pod("1"), &Value::Null)),
        Just(review("UPDATE", "karpenter.sh", &good_pool(), &pool(&json!({})))),
        Just(review("CREATE", "karpenter.azure.com", &class("v1alpha2", &json!({ "maxPods": 50 })), &Value::Null)),
    ];
    (whole, any::<prop::sample::Index>(), any_json()).prop_map(|(mut review, at, value)| {
        let mut paths = Vec::new();
        collect(&review, String::new(), &mut paths);
        if let Some(target) = review.pointer_mut(&paths[at.index(paths.len())]) {
            *target = value;
        }
        review
    })
}

fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    let child = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(map) => map.iter().for_each(|(key, v)| collect(v, child(key), paths)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| collect(v, child(&i.to_string()), paths)),
        _ => {}
    }
    paths.push(path);
}

/// Every body is answered: a 400 with a text, or a review with a verdict, and never by an internal error.
fn answers_well(bodies: &[Vec<u8>]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let rig = Rig::new(Some(world()), PATIENT);
        for body in bodies {
            for path in ["/validate", "/mutate"] {
                let (status, text) = rig.post(path, body.clone()).await;
                if status == 200 {
                    let answer: Value = serde_json::from_slice(&text).unwrap();
                    let response = &answer["response"];
                    assert!(response["uid"].is_string() && response["allowed"].is_boolean(), "{answer}");
                    let review: Value = serde_json::from_slice(body).unwrap();
                    assert_eq!(review["request"]["uid"], response["uid"]);
                    apply(&mut review["request"]["object"].clone(), response);
                } else {
                    assert_eq!(status, 400);
                    assert!(text.len() > 5);
                }
            }
        }
        assert!(!rig.metrics().contains("internal"), "{}", rig.metrics());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_answered(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 50)) {
        answers_well(&bodies);
    }

    #[test]
    fn random_json_is_answered(bodies in prop::collection::vec(any_json(), 50)) {
        answers_well(&bodies.iter().map(|v| v.to_string().into_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn bent_reviews_are_answered(bodies in prop::collection::vec(bent_review(), 50)) {
        answers_well(&bodies.iter().map(|v| v.to_string().into_bytes()).collect::<Vec<_>>());
    }
}
