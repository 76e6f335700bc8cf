//! Placement hints: bursts, dry-runs, and patches that would fail.

use crate::Limits;
use crate::tests::{PATIENT, Rig, UID, apply, hint_of, node, pod, review, world};
use k8s_openapi::api::core::v1::Pod as WirePod;
use napkeeper_api::convert;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Creates a pod, and returns it with its patch.
async fn create(rig: &Rig, pod: &Value) -> Value {
    let mut object = pod.clone();
    apply(&mut object, &rig.ask("/mutate", &review("CREATE", "", pod, &Value::Null)).await);
    object
}

/// Creates equal pods, and counts their hints by kind and node.
async fn burst(rig: &Rig, pods: usize, cpu: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..pods {
        let hint = hint_of(&create(rig, &pod(cpu)).await);
        let node = hint["node"].as_str().unwrap_or_default();
        *counts.entry(format!("{} {node}", hint["fits"].as_str().unwrap()).trim().to_owned()).or_insert(0) += 1;
    }
    counts
}

fn expect<const N: usize>(parts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    parts.map(|(hint, n)| (hint.to_owned(), n)).into()
}

/// Two nodes of four cores, and a NodePool with a limit of 100 cores.
fn small_world() -> Snapshot {
    let mut world = world();
    world.put_node(node("a"));
    world.put_node(node("b"));
    world
}

/// The pod as the cluster shows it once it runs.
fn running(rig: &Rig, n: usize, cpu: &str, on: &str) -> napkeeper_core::model::cluster::pod::Pod {
    let mut object = pod(cpu);
    object["metadata"]["name"] = json!(format!("web-6c5d8f7b9d-{n:05}"));
    object["metadata"]["creationTimestamp"] = json!(rig.clock.now().to_string());
    object["spec"]["nodeName"] = json!(on);
    object["status"] = json!({ "phase": "Running" });
    convert::pod(&serde_json::from_value::<WirePod>(object).unwrap()).unwrap()
}

#[tokio::test]
async fn five_hundred_equal_pods_do_not_all_fit_one_node() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    let hints = burst(&rig, 500, "1").await;
    assert_eq!((hints["existingNode a"], hints["existingNode b"]), (4, 4), "{hints:?}");
    // The pool's limit is 100 cores, and each pod alone would get the cheapest node.
    let (new, none) = (hints["newNode"], hints["unschedulable"]);
    assert!((40..=100).contains(&new), "{hints:?}");
    assert_eq!(8 + new + none, 500);
    let text = format!(r#"napkeeper_placement_hints_total{{kind="new_node"}} {new}"#);
    assert!(rig.metrics().contains(&text), "{}", rig.metrics());
    let last = hint_of(&create(&rig, &pod("1")).await);
    assert_eq!(last["reason"], "NodePool general: NodePool limits reached");
    assert!(
        last["change"].as_str().unwrap().starts_with("for NodePool general: raise spec.limits of cpu to at least ")
    );
}

#[tokio::test]
async fn an_admitted_pod_counts_until_the_cluster_shows_it_or_ten_seconds_pass() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    assert_eq!(burst(&rig, 3, "1").await, expect([("existingNode a", 3)]));
    // Another Snapshot, which shows one of them on the other node: two of the three still count.
    let mut world = small_world();
    world.put_pod(running(&rig, 1, "1", "b"));
    rig.show(world.clone()).await;
    assert_eq!(burst(&rig, 3, "1").await, expect([("existingNode a", 2), ("existingNode b", 1)]));
    // The same pod in a later snapshot does not count as another one.
    rig.show(world.clone()).await;
    assert_eq!(burst(&rig, 2, "1").await, expect([("existingNode b", 2)]));
    // After 10 s only the snapshot counts, even if it has not changed.
    rig.pass(11).await;
    assert_eq!(burst(&rig, 5, "1").await, expect([("existingNode a", 4), ("existingNode b", 1)]));
}

#[tokio::test]
async fn earlier_pods_do_not_count_as_newly_admitted_ones() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    let mut world = small_world();
    world.put_pod(running(&rig, 1, "1", "a"));
    rig.pass(60).await;
    rig.show(world.clone()).await;
    assert_eq!(burst(&rig, 3, "1").await, expect([("existingNode a", 3)]));
    rig.show(world).await;
    assert_eq!(burst(&rig, 1, "1").await, expect([("existingNode b", 1)]), "three let in and one from before are four");
}

#[tokio::test]
async fn a_pod_hinted_at_a_new_node_moves_to_the_claim_created_for_it() {
    let rig = Rig::new(Some(world()), PATIENT);
    assert_eq!(burst(&rig, 2, "1").await, expect([("newNode", 2)]));
    // A node has registered meanwhile: those two are expected there, and two more fit.
    let mut later = world();
    later.put_node(node("fresh"));
    rig.show(later).await;
    assert_eq!(burst(&rig, 3, "1").await, expect([("existingNode fresh", 2), ("newNode", 1)]));
}

#[tokio::test]
async fn pods_of_a_deleted_node_are_placed_elsewhere() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    assert_eq!(burst(&rig, 3, "1").await, expect([("existingNode a", 3)]));
    let mut later = world();
    later.put_node(node("c"));
    rig.show(later).await;
    assert_eq!(burst(&rig, 2, "1").await, expect([("existingNode c", 1), ("newNode", 1)]));
}

#[tokio::test]
async fn dry_runs_never_count() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    let mut dry = review("CREATE", "", &pod("3"), &Value::Null);
    dry["request"]["dryRun"] = json!(true);
    for _ in 0..10 {
        let mut object = pod("3");
        apply(&mut object, &rig.ask("/mutate", &dry).await);
        assert_eq!(hint_of(&object)["node"], "a");
    }
    assert_eq!(burst(&rig, 3, "3").await, expect([("existingNode a", 1), ("existingNode b", 1), ("newNode", 1)]));
}

#[tokio::test]
async fn a_repeated_review_is_the_same_pod() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    let silence = json!({ "uid": UID, "allowed": true });
    for node in ["a", "b"] {
        let object = create(&rig, &pod("3")).await;
        assert_eq!(hint_of(&object)["node"], node);
        let again = rig.ask("/mutate", &review("CREATE", "", &object, &Value::Null)).await;
        assert_eq!(again, silence, "another hook has changed it, and the API server asks once more");
    }
    // A manifest that carries the hint of a pod of long ago gets its own.
    let mut copied = pod("3");
    let old = r#"{"advisory":true,"fits":"existingNode","node":"a","reason":"it has enough free capacity"}"#;
    copied["metadata"]["annotations"] = json!({ "napkeeper.io/placement-hint": old });
    rig.pass(20).await;
    let first = create(&rig, &pod("3")).await;
    assert_eq!(hint_of(&first)["node"], "a");
    rig.pass(5).await;
    copied["metadata"]["generateName"] = json!("other-");
    assert_eq!(hint_of(&create(&rig, &copied).await)["node"], "b");
}

#[tokio::test]
async fn a_patch_that_would_be_refused_is_not_sent_and_counted() {
    let rig = Rig::new(Some(small_world()), PATIENT);
    let mut full = pod("1");
    full["metadata"]["annotations"] = json!({ "a": "b".repeat((256 << 10) - 10) });
    let answer = rig.ask("/mutate", &review("CREATE", "", &full, &Value::Null)).await;
    let warning = "napkeeper: this pod gets neither defaults nor a placement hint: the patch would have been rejected";
    assert_eq!(answer, json!({ "uid": UID, "allowed": true, "warnings": [warning] }));
    let metrics = rig.metrics();
    assert!(metrics.contains(r#"admission_failures_total{path="/mutate",reason="patch"} 1"#), "{metrics}");
}

#[tokio::test]
async fn the_hint_of_an_unschedulable_pod_says_what_to_change() {
    let mut world = world();
    let general = Arc::clone(world.pools().values().next().unwrap());
    let labels = [(Arc::from("team"), Arc::from("ml"))].into();
    world.put_pool(general.name.clone(), NodePool { labels, ..(*general).clone() });
    let rig = Rig::new(Some(world), PATIENT);
    let mut selecting = pod("1");
    selecting["spec"]["nodeSelector"] = json!({ "team": "web" });
    let hint = hint_of(&create(&rig, &selecting).await);
    assert_eq!(hint["fits"], "unschedulable");
    assert_eq!(hint["advisory"], true);
    let change = "for NodePool general: remove nodeSelector or node affinity `team`, or add the label to the NodePool \
                  template";
    assert_eq!(hint["change"], change, "{hint}");
    let wide = hint_of(&create(&rig, &pod("9999")).await);
    assert!(wide["change"].as_str().unwrap().contains("request at most "), "{wide}");
}

#[tokio::test]
async fn too_many_and_too_slow_are_let_in_without_a_hint_and_counted() {
    let hurried = Limits { max_concurrency: 1, hint_timeout: Duration::from_millis(50), ..PATIENT };
    let rig = Rig::new(Some(small_world()), hurried);
    rig.clock.slow(3_000);
    // One is being processed, one waits, and the queue is full for the others.
    let review = review("CREATE", "", &pod("1"), &Value::Null);
    let ask = || rig.ask("/mutate", &review);
    let (one, two, three, four) = tokio::join!(ask(), ask(), ask(), ask());
    for answer in [one, two, three, four] {
        assert_eq!(answer["allowed"], true);
        let warning = answer["warnings"][0].as_str().unwrap();
        assert!(warning.ends_with("timed out") || warning.ends_with("too many concurrent requests"), "{warning}");
    }
    let metrics = rig.metrics();
    for reason in ["deadline", "overload"] {
        let line = format!(r#"admission_failures_total{{path="/mutate",reason="{reason}"}} "#);
        let count =
            metrics.lines().find_map(|l| l.strip_prefix("napkeeper_")?.strip_prefix(&line)?.parse::<u32>().ok());
        assert!(count.is_some_and(|n| n > 0), "{reason}: {metrics}");
    }
    assert!(metrics.contains(r#"outcome="failed_open"} 4"#), "{metrics}");
}
