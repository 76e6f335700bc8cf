//! Writes to an API server that answers from a list.

use super::Writer;
use crate::fake;
use crate::preconditions::lease::LeaseHandle;
use napkeeper_core::model::cluster::claim::ClaimRef;
use napkeeper_core::model::cluster::node_record::{NodeRemoval, RecordedNode, RemovedBy};
use napkeeper_core::model::cluster::status::{ConditionType, Conditions, PoolStatus, StatusCondition};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{ClaimName, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, Uid};
use napkeeper_core::plan::{
    ClaimUpdate, ClassReport, ClusterWrite, NodeRecordChange, NodeUpdate, OverlayReport, PoolRelease, PoolReport,
    RecordChange, Reply,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn refusal(code: u16, cause: &str) -> (u16, Value) {
    (code, fake::refusal(code, json!({ "causes": [{ "reason": cause }] })))
}

async fn perform(
    write: ClusterWrite,
    answers: impl IntoIterator<Item = (u16, Value)>,
) -> (Outcome, Vec<(String, Value)>) {
    let (client, requests) = fake::scripted(answers);
    let writer = Writer::new(client, Arc::new(fake::Real));
    let outcome = writer.perform(&write).await;
    let requests = requests.lock().unwrap().clone();
    (outcome, requests)
}

type Outcome = Result<Reply, EffectError>;

fn failed(error: ClusterError) -> Outcome {
    Err(EffectError::Cluster(error))
}

fn claim() -> ClaimRef {
    ClaimRef { name: ClaimName::new("a-1").unwrap(), uid: Uid::new("u-1").unwrap() }
}

fn claim_object(uid: &str, version: &str) -> (u16, Value) {
    let reference = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "c" });
    let object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "a-1", "uid": uid, "resourceVersion": version,
            "finalizers": ["karpenter.sh/termination", "others.example/x"],
        },
        "spec": { "nodeClassRef": reference, "requirements": [] },
    });
    (200, object)
}

#[tokio::test]
async fn an_eviction_names_the_incarnation_and_a_budget_differs_from_overload() {
    let pod = ObjectKey {
        namespace: napkeeper_core::model::names::Namespace::new("shop").unwrap(),
        name: napkeeper_core::model::names::ObjectName::new("web-0").unwrap(),
    };
    let evict = || ClusterWrite::Evict(pod.clone(), Uid::new("p-1").unwrap());
    let pod_with = |uid: &str| {
        let metadata = json!({ "name": "web-0", "namespace": "shop", "uid": uid });
        (200, json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata }))
    };
    let done = (201, json!({ "kind": "Status", "status": "Success" }));
    let (outcome, requests) = perform(evict(), [pod_with("p-1"), done]).await;
    assert_eq!(outcome, Ok(Reply::Done));
    assert_eq!(requests[1].0, "POST /api/v1/namespaces/shop/pods/web-0/eviction");
    assert_eq!(requests[1].1["deleteOptions"]["preconditions"]["uid"], "p-1");
    assert_eq!(requests[1].1["apiVersion"], "policy/v1");
    let (outcome, requests) = perform(evict(), [pod_with("p-2")]).await;
    assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 1));
    for (answer, error) in [
        (refusal(429, "DisruptionBudget"), ClusterError::Budget { retry_after: 0 }),
        (refusal(429, ""), ClusterError::Overloaded { retry_after: 1 }),
        (refusal(404, ""), ClusterError::NotFound),
        (refusal(409, ""), ClusterError::Conflict),
    ] {
        assert_eq!(perform(evict(), [pod_with("p-1"), answer]).await.0, failed(error));
    }
}

#[tokio::test]
async fn a_write_that_another_overtook_is_done_again_upon_the_new_version() {
    let step = ClusterWrite::UpdateClaim(claim(), ClaimUpdate::Initialized);
    let answers = [claim_object("u-1", "7"), refusal(409, ""), claim_object("u-1", "8"), claim_object("u-1", "9")];
    let (done, requests) = perform(step, answers).await;
    assert_eq!(done, Ok(Reply::Done));
    let versions: Vec<&Value> = requests.iter().map(|(_, body)| &body["metadata"]["resourceVersion"]).collect();
    assert_eq!(versions, [&Value::Null, &json!("7"), &Value::Null, &json!("8")]);
    assert_eq!(requests[3].0, "PATCH /apis/karpenter.sh/v1/nodeclaims/a-1/status");
    assert_eq!(requests[3].1["metadata"]["uid"], "u-1");
}

#[tokio::test]
async fn nothing_is_written_once_another_may_lead() {
    let evict = ClusterWrite::Evict(
        ObjectKey {
            namespace: napkeeper_core::model::names::Namespace::new("shop").unwrap(),
            name: napkeeper_core::model::names::ObjectName::new("web-0").unwrap(),
        },
        Uid::new("p-1").unwrap(),
    );
    let metadata = json!({ "name": "web-0", "namespace": "shop", "uid": "p-1" });
    let pod = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata });
    for (write, read) in [
        (ClusterWrite::UpdateClaim(claim(), ClaimUpdate::Initialized), claim_object("u-1", "7")),
        (ClusterWrite::RemoveFinalizer(claim()), claim_object("u-1", "7")),
        (evict, (200, pod)),
    ] {
        for (age, sent) in [(1, 2), (11, 1)] {
            let done = (200, json!({ "kind": "Status", "status": "Success" }));
            let answer = if matches!(write, ClusterWrite::Evict(..)) { done } else { claim_object("u-1", "8") };
            let (client, requests) = fake::scripted([read.clone(), answer]);
            let lease = LeaseHandle::renewed_before(Some(Duration::from_secs(age)));
            let outcome = Writer::new(client, Arc::new(fake::Real)).with_lease(lease).perform(&write).await;
            let expected = if sent == 2 { Ok(Reply::Done) } else { failed(ClusterError::NotLeader) };
            assert_eq!((outcome, requests.lock().unwrap().len()), (expected, sent), "{write:?}");
        }
    }
}

#[tokio::test]
async fn no_kind_of_write_is_sent_once_another_may_lead() {
    let (node, uid) = (NodeName::new("n").unwrap(), Uid::new("n-1").unwrap());
    let metadata = json!({ "name": "n", "uid": "n-1", "resourceVersion": "3" });
    let node_object = (200, json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }));
    let records = RecordChange { inventory_at: Some(jiff::Timestamp::UNIX_EPOCH), ..RecordChange::default() };
    let no_records = json!({
        "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanRecordList", "metadata": {}, "items": [],
    });
    let pool = PoolReport {
        pool: NodePoolName::new("general").unwrap(),
        uid: Uid::new("general").unwrap(),
        status: Default::default(),
    };
    let reference = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "c" });
    let pool_object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "general", "uid": "general", "resourceVersion": "3" },
        "spec": { "template": { "spec": { "nodeClassRef": reference, "requirements": [] } } },
    });
    let class = ClassReport {
        class: NodeClassName::new("c").unwrap(),
        uid: Uid::new("c-1").unwrap(),
        conditions: Conditions {
            by_type: [(ConditionType::Ready, StatusCondition::holding("Ready"))].into(),
            observed_generation: None,
        },
    };
    let metadata = json!({ "name": "c", "uid": "c-1", "resourceVersion": "3" });
    let class_object =
        json!({ "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": metadata });
    let overlay = OverlayReport {
        overlay: ObjectName::new("c").unwrap(),
        uid: class.uid.clone(),
        conditions: class.conditions.clone(),
    };
    let overlay_object = json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": metadata });
    for (write, found) in [
        (ClusterWrite::DeleteClaim(claim()), claim_object("u-1", "7")),
        (ClusterWrite::UpdateNode(node.clone(), uid.clone(), NodeUpdate::Initialize), node_object.clone()),
        (ClusterWrite::DeleteNode(node, uid), node_object),
        (ClusterWrite::WriteRecords(Box::new(records)), (200, no_records)),
        (ClusterWrite::HoldPool(pool.pool.clone(), pool.uid.clone()), (200, pool_object.clone())),
        (ClusterWrite::DisownClaim(claim()), owned_claim()),
        (ClusterWrite::ReportPool(Box::new(pool)), (200, pool_object)),
        (ClusterWrite::ReportClass(Box::new(class)), (200, class_object)),
        (ClusterWrite::ReportOverlay(Box::new(overlay)), (200, overlay_object)),
        (ClusterWrite::RecordRemovals(Box::new(removal("u-1"))), node_record(json!([]))),
    ] {
        for (age, is_written) in [(1, true), (11, false)] {
            let (client, requests) = fake::scripted((0..20).map(|_| found.clone()));
            let lease = LeaseHandle::renewed_before(Some(Duration::from_secs(age)));
            drop(Writer::new(client, Arc::new(fake::Real)).with_lease(lease).perform(&write).await);
            let requests = requests.lock().unwrap();
            let written = requests.iter().any(|(request, _)| !request.starts_with("GET "));
            assert_eq!(written, is_written, "{write:?}: {requests:?}");
        }
    }
}

/// A NodeClaim that its NodePool owns, and something else too.
fn owned_claim() -> (u16, Value) {
    let (code, mut object) = claim_object("u-1", "7");
    let owner = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind, "name": "o", "uid": "o-1" });
    object["metadata"]["ownerReferences"] =
        json!([owner("karpenter.sh/v1", "NodePool"), owner("v1", "ConfigMap"), owner("example.com/v1", "NodePool")]);
    (code, object)
}

fn pool_object(finalizers: &[&str], is_deleting: bool) -> (u16, Value) {
    let mut metadata = json!({ "name": "general", "uid": "p-1", "resourceVersion": "3", "finalizers": finalizers });
    if is_deleting {
        metadata["deletionTimestamp"] = json!("2026-08-01T00:00:00Z");
    }
    // A spec that cannot be read is not looked at.
    (200, json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": 7 }))
}

fn claim_list(annotations: &[Value]) -> (u16, Value) {
    let item = |annotations: &Value| json!({ "metadata": { "name": "a-1", "annotations": annotations } });
    let items: Vec<Value> = annotations.iter().map(item).collect();
    (
        200,
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items }),
    )
}

const OURS: &str = "napkeeper.io/nodes";

#[tokio::test]
async fn only_the_finalizers_of_a_pool_are_written_upon_the_version_that_was_read() {
    let (name, uid) = (NodePoolName::new("general").unwrap(), Uid::new("p-1").unwrap());
    let hold = || ClusterWrite::HoldPool(name.clone(), uid.clone());
    let (done, requests) = perform(hold(), [pool_object(&["a/b"], false), pool_object(&["a/b", OURS], false)]).await;
    assert_eq!(done, Ok(Reply::Done));
    assert_eq!(requests[1].0, "PATCH /apis/karpenter.sh/v1/nodepools/general");
    let metadata = json!({ "finalizers": ["a/b", OURS], "uid": "p-1", "resourceVersion": "3" });
    assert_eq!(requests[1].1, json!({ "metadata": metadata }));
    let (done, requests) = perform(hold(), [pool_object(&[OURS], false)]).await;
    assert_eq!((done, requests.len()), (Ok(Reply::Done), 1), "it is there");
    for finalizers in [&[][..], &[OURS]] {
        let (refused, requests) = perform(hold(), [pool_object(finalizers, true)]).await;
        assert_eq!((refused, requests.len()), (failed(ClusterError::NotFound), 1), "no NodeClaim is created for it");
    }
}

#[tokio::test]
async fn a_pool_is_released_once_no_claim_of_ours_is_left() {
    let release = |keeps_nodes| {
        let (pool, uid) = (NodePoolName::new("general").unwrap(), Uid::new("p-1").unwrap());
        ClusterWrite::ReleasePool(Box::new(PoolRelease { pool, uid, keeps_nodes }))
    };
    let ours = json!({ "napkeeper.io/launch-intent": "{}" });
    let (refused, requests) = perform(release(false), [claim_list(&[json!(null), ours])]).await;
    assert_eq!((refused, requests.len()), (failed(ClusterError::Conflict), 1));
    assert_eq!(requests[0].0, "GET /apis/karpenter.sh/v1/nodeclaims");
    let gone = || pool_object(&[], true);
    let foreign = claim_list(&[json!(null)]);
    let (done, requests) = perform(release(false), [foreign, pool_object(&[OURS, "a/b"], true), gone()]).await;
    assert_eq!(done, Ok(Reply::Done));
    assert_eq!(requests[2].1["metadata"], json!({ "finalizers": ["a/b"], "uid": "p-1", "resourceVersion": "3" }));
    let (done, requests) = perform(release(true), [pool_object(&[OURS], true), gone()]).await;
    assert_eq!((done, requests.len()), (Ok(Reply::Done), 2), "its NodeClaims are not looked at");
    for (found, outcome) in [
        (pool_object(&["a/b"], true), Ok(Reply::Done)),
        (refusal(404, ""), Ok(Reply::Done)),
        (pool_object(&[OURS], false), failed(ClusterError::Conflict)),
    ] {
        let (done, requests) = perform(release(true), [found]).await;
        assert_eq!((done, requests.len()), (outcome, 1));
    }
}

#[tokio::test]
async fn a_claim_loses_no_owner_but_pools() {
    let (done, requests) = perform(ClusterWrite::DisownClaim(claim()), [owned_claim(), claim_object("u-1", "8")]).await;
    assert_eq!(done, Ok(Reply::Done));
    let owners = requests[1].1["metadata"]["ownerReferences"].as_array().unwrap();
    let kinds: Vec<_> = owners.iter().map(|owner| (owner["apiVersion"].as_str().unwrap(), &owner["kind"])).collect();
    assert_eq!(kinds, [("v1", &json!("ConfigMap")), ("example.com/v1", &json!("NodePool"))]);
    let (done, requests) = perform(ClusterWrite::DisownClaim(claim()), [claim_object("u-1", "7")]).await;
    assert_eq!((done, requests.len()), (Ok(Reply::Done), 1));
}

#[tokio::test]
async fn retries_of_a_conflict_end() {
    let answers = (0..5).flat_map(|_| [claim_object("u-1", "7"), refusal(409, "")]);
    let (outcome, requests) = perform(ClusterWrite::UpdateClaim(claim(), ClaimUpdate::Initialized), answers).await;
    assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 10));
}

#[tokio::test]
async fn recreated_objects_are_not_written_and_deleted_ones_are_released() {
    for effect in [ClusterWrite::RemoveFinalizer(claim()), ClusterWrite::UpdateClaim(claim(), ClaimUpdate::Initialized)]
    {
        let (outcome, requests) = perform(effect, [claim_object("u-2", "7")]).await;
        assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 1));
    }
    assert_eq!(perform(ClusterWrite::RemoveFinalizer(claim()), [refusal(404, "")]).await.0, Ok(Reply::Done));
    let (done, requests) =
        perform(ClusterWrite::RemoveFinalizer(claim()), [claim_object("u-1", "7"), claim_object("u-1", "8")]).await;
    assert_eq!((done, &requests[1].1["metadata"]["finalizers"]), (Ok(Reply::Done), &json!(["others.example/x"])));
}

#[tokio::test]
async fn a_node_is_deleted_by_uid_and_then_freed() {
    let (name, uid) = (NodeName::new("n").unwrap(), Uid::new("n-1").unwrap());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "uid": "n-1", "resourceVersion": "3", "finalizers": ["karpenter.sh/termination"],
            "deletionTimestamp": "2026-03-01T00:00:00Z",
        },
    });
    let delete = || ClusterWrite::DeleteNode(name.clone(), uid.clone());
    let (done, requests) = perform(delete(), [(200, node.clone()), (200, node.clone()), (200, node.clone())]).await;
    assert_eq!(done, Ok(Reply::Done));
    assert_eq!(requests[0].0, "DELETE /api/v1/nodes/n");
    assert_eq!(requests[0].1["preconditions"]["uid"], "n-1");
    assert_eq!(requests[2].1["metadata"]["finalizers"], json!([]));
    assert_eq!(perform(delete(), [refusal(404, "")]).await.0, Ok(Reply::Done));
    assert_eq!(perform(delete(), [refusal(409, "")]).await.0, failed(ClusterError::Conflict));
    let register = NodeUpdate::Register { labels: Default::default(), annotations: Default::default(), taints: vec![] };
    let (outcome, requests) =
        perform(ClusterWrite::UpdateNode(name.clone(), uid.clone(), register), [(200, node)]).await;
    assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 1), "it is being deleted");
}

/// A condition Ready that is True, about this generation.
fn ready(generation: i64) -> Conditions {
    let by_type = [(ConditionType::Ready, StatusCondition::holding("Ready"))].into();
    Conditions { by_type, observed_generation: Some(generation) }
}

/// A condition of another controller.
fn audited() -> Value {
    json!({ "type": "example.com/Audited", "status": "True", "reason": "a", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

#[tokio::test]
async fn the_status_of_a_pool_is_applied_to_the_generation_that_it_is_about_even_if_its_spec_cannot_be_read() {
    let report = |generation| {
        let status = PoolStatus { conditions: ready(generation), nodes: Some(3), ..PoolStatus::default() };
        let (pool, uid) = (NodePoolName::new("general").unwrap(), Uid::new("u-1").unwrap());
        ClusterWrite::ReportPool(Box::new(PoolReport { pool, uid, status }))
    };
    let object = |uid: &str| {
        let metadata = json!({ "name": "general", "uid": uid, "generation": 4, "resourceVersion": "3" });
        let status = json!({ "conditions": [audited()] });
        (200, json!({ "metadata": metadata, "spec": "nonsense", "status": status }))
    };
    let (done, requests) = perform(report(4), [object("u-1"), object("u-1")]).await;
    assert_eq!(done, Ok(Reply::Done));
    let (request, body) = &requests[1];
    assert_eq!(request, "PATCH /apis/karpenter.sh/v1/nodepools/general/status");
    assert_eq!((&body["metadata"]["uid"], &body["status"]["nodes"]), (&json!("u-1"), &json!(3)));
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "the condition of another is not claimed");
    assert_eq!((&conditions[0]["type"], &conditions[0]["observedGeneration"]), (&json!("Ready"), &json!(4)));
    for (write, found) in [(report(3), object("u-1")), (report(4), object("u-2"))] {
        let (outcome, requests) = perform(write, [found]).await;
        assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 1));
    }
}

#[tokio::test]
async fn conditions_of_classes_and_overlays_keep_what_is_not_ours_and_are_written_once() {
    let class = |generation| {
        let (class, uid) = (NodeClassName::new("c").unwrap(), Uid::new("u-1").unwrap());
        ClusterWrite::ReportClass(Box::new(ClassReport { class, uid, conditions: ready(generation) }))
    };
    let overlay = |generation| {
        let (overlay, uid) = (ObjectName::new("c").unwrap(), Uid::new("u-1").unwrap());
        ClusterWrite::ReportOverlay(Box::new(OverlayReport { overlay, uid, conditions: ready(generation) }))
    };
    let object = |conditions: Vec<Value>| {
        let metadata = json!({ "name": "c", "uid": "u-1", "generation": 2, "resourceVersion": "3" });
        let status = json!({ "kubernetesVersion": "1.34.1", "conditions": conditions });
        (200, json!({ "metadata": metadata, "spec": "nonsense", "status": status }))
    };
    let kinds: [(&dyn Fn(i64) -> ClusterWrite, &str); 2] = [
        (&class, "/apis/karpenter.azure.com/v1beta1/aksnodeclasses/c/status"),
        (&overlay, "/apis/karpenter.sh/v1alpha1/nodeoverlays/c/status"),
    ];
    for (report, path) in kinds {
        let (done, requests) = perform(report(2), [object(vec![audited()]), object(vec![])]).await;
        assert_eq!(done, Ok(Reply::Done));
        let (request, body) = &requests[1];
        assert_eq!(*request, format!("PATCH {path}"));
        assert_eq!(body["metadata"]["resourceVersion"], "3");
        assert_eq!(body["status"].as_object().map(|status| status.len()), Some(1), "all else in the status stays");
        let written = body["status"]["conditions"].as_array().unwrap().clone();
        assert_eq!((written.len(), &written[0]), (2, &audited()));
        assert_eq!(perform(report(2), [object(written)]).await.1.len(), 1, "nothing is to be changed");
        let (outcome, requests) = perform(report(1), [object(vec![])]).await;
        assert_eq!((outcome, requests.len()), (failed(ClusterError::Conflict), 1));
    }
}

/// The removal of a node, to be added to a NodeRecord.
fn removal(uid: &str) -> NodeRecordChange {
    let removed = RecordedNode { claim: ClaimName::new("a").unwrap(), node: None, offering: None, price: None };
    let entry = NodeRemoval {
        uid: Uid::new(uid).unwrap(),
        removed,
        pool: None,
        replacements: Vec::new(),
        by: RemovedBy::Napkeeper,
        reason: Arc::from("Empty"),
        cause: Arc::from(""),
        started: jiff::Timestamp::UNIX_EPOCH,
        ended: None,
        pods: 0,
    };
    NodeRecordChange { shard: entry.shard(), removals: vec![entry] }
}

fn node_record(removals: Value) -> (u16, Value) {
    let name = removal("u-1").shard.to_string();
    let metadata = json!({ "name": name, "uid": "r-1", "resourceVersion": "3" });
    let mut spec = json!({ "removals": removals });
    if removals != json!([]) {
        spec["lastRemoval"] = json!("1970-01-01T00:00:00Z");
    }
    (200, json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "NodeRecord", "metadata": metadata, "spec": spec }))
}

#[tokio::test]
async fn a_removal_is_added_once_to_what_others_have_written() {
    let entry = |uid: &str| {
        json!({
            "by": "napkeeper", "pods": 0, "reason": "Empty", "removed": { "nodeClaim": "a" },
            "started": "1970-01-01T00:00:00Z", "uid": uid,
        })
    };
    let write = || ClusterWrite::RecordRemovals(Box::new(removal("u-1")));
    // Somebody else writes in between.
    let answers =
        [node_record(json!([])), refusal(409, ""), node_record(json!([entry("u-0")])), node_record(json!([]))];
    let (done, requests) = perform(write(), answers).await;
    assert_eq!((done, requests.len()), (Ok(Reply::Done), 4));
    assert_eq!(
        requests[3].0.split('?').next(),
        Some(&*format!("PUT /apis/napkeeper.io/v1alpha1/noderecords/{}", removal("u-1").shard))
    );
    let sent = &requests[3].1;
    assert_eq!(sent["metadata"]["resourceVersion"], "3", "only if it is as it was read");
    assert_eq!(sent["spec"]["removals"], json!([entry("u-0"), entry("u-1")]));
    // It is there already.
    let (done, requests) = perform(write(), [node_record(json!([entry("u-1")]))]).await;
    assert_eq!((done, requests.len()), (Ok(Reply::Done), 1));
    // What cannot be read is not overwritten.
    let (failed_write, requests) = perform(write(), [node_record(json!([{ "uid": "u-2" }]))]).await;
    assert!(failed_write.is_err());
    assert_eq!(requests.len(), 1);
}
