//! `disruption`: the next moves, what each waits for, and what keeps each node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::{assert_golden, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CREATED: &str = "2026-08-03T06:00:00Z";
/// Four days later.
const NOW: &str = "2026-08-07T06:00:00Z";

fn disruption(file: &Path, more: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_napkeeper");
    let args = ["disruption", "--from", file.to_str().unwrap(), "--at", NOW];
    Command::new(program).args(args).args(more).output().unwrap()
}

fn object(kind: &str, name: &str, more: &Value) -> Value {
    let api = match kind {
        "AKSNodeClass" => "karpenter.azure.com/v1beta1",
        "NodePool" | "NodeClaim" => "karpenter.sh/v1",
        "PodDisruptionBudget" => "policy/v1",
        _ => "v1",
    };
    let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": {
        "name": name, "uid": format!("{kind}-{name}"), "creationTimestamp": CREATED, "resourceVersion": "1",
    } });
    merge(&mut object, more);
    object
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.iter().for_each(|(key, value)| merge(into.entry(key.clone()).or_insert(Value::Null), value));
        }
        (into, more) => *into = more.clone(),
    }
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": CREATED })
}

fn class_ref() -> Value {
    json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" })
}

fn pool(name: &str, disruption: &Value) -> Value {
    let requirements = json!([
        { "key": "karpenter.azure.com/sku-family", "operator": "In", "values": ["D"] },
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
    ]);
    let template = json!({ "nodeClassRef": class_ref(), "requirements": requirements, "expireAfter": "87600h" });
    object("NodePool", name, &json!({ "spec": { "template": { "spec": template }, "disruption": disruption } }))
}

/// A NodeClaim that napkeeper has launched, and its Node.
fn node(name: &str, pool: &str, size: &str, cpu: u32) -> Vec<Value> {
    let group = "/subscriptions/s/resourceGroups/g/providers";
    let vm = format!("{group}/Microsoft.Compute/virtualMachines/aks-{name}");
    let intent = json!({
        "offering": { "size": size, "zone": "westeurope-1", "capacityType": "on-demand", "price": 960_000_000 },
        "vm": vm, "nic": format!("{group}/Microsoft.Network/networkInterfaces/aks-{name}"),
        "osDisk": format!("{group}/Microsoft.Compute/disks/aks-{name}"),
        "writtenAt": CREATED, "refused": 0,
    });
    let labels = json!({
        "karpenter.sh/nodepool": pool, "topology.kubernetes.io/region": "westeurope", "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "westeurope-1", "kubernetes.io/arch": "amd64",
        "karpenter.sh/capacity-type": "on-demand", "node.kubernetes.io/instance-type": size,
    });
    let room = json!({ "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "110" });
    let provider = format!("azure://{vm}");
    let launched = ["Launched", "Registered", "Initialized"].map(condition);
    let spec = json!({ "nodeClassRef": class_ref(), "requirements": [], "expireAfter": "87600h" });
    let annotations = json!({ "napkeeper.io/launch-intent": intent.to_string() });
    vec![
        object(
            "NodeClaim",
            name,
            &json!({
                "metadata": { "labels": labels, "annotations": annotations }, "spec": spec,
                "status": { "providerID": provider, "nodeName": format!("aks-{name}"), "capacity": room, "allocatable": room,
                            "conditions": launched },
            }),
        ),
        object(
            "Node",
            &format!("aks-{name}"),
            &json!({
                "metadata": { "labels": labels }, "spec": { "providerID": provider },
                "status": { "capacity": room, "allocatable": room, "conditions": [condition("Ready")] },
            }),
        ),
    ]
}

fn pod(name: &str, node: &str, cpu: &str) -> Value {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true });
    let container = json!({ "name": "a", "image": "a", "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } } });
    object(
        "Pod",
        name,
        &json!({
            "metadata": { "namespace": "shop", "labels": { "app": name }, "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [container] },
            "status": { "phase": "Running", "startTime": CREATED, "conditions": [condition("Ready")] },
        }),
    )
}

fn save(folder: &Path, items: Vec<Value>) -> PathBuf {
    let file = folder.join("cluster.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()).unwrap();
    file
}

/// Two pools: in one an empty node, and one that is too large; in the other nodes that a budget, a PodDisruptionBudget and
/// `consolidateAfter` keep.
fn cluster(folder: &Path) -> PathBuf {
    let allowed = json!({ "consolidateAfter": "5m", "budgets": [{ "nodes": "2" }] });
    let nights = json!({ "nodes": "0", "schedule": "0 4 * * *", "duration": "8h" });
    let kept = json!({ "consolidateAfter": "120h", "budgets": [nights] });
    let mut items = vec![object("AKSNodeClass", "default", &json!({ "spec": {} }))];
    items.extend([pool("general", &allowed), pool("steady", &kept)]);
    items.extend(node("general-empty", "general", "Standard_D8s_v5", 8));
    items.extend(node("general-large", "general", "Standard_D16s_v5", 16));
    items.extend(node("steady-alone", "steady", "Standard_D8s_v5", 8));
    items.extend(node("steady-kept", "steady", "Standard_D4s_v5", 4));
    items.extend([pod("web", "aks-general-large", "500m"), pod("db", "aks-steady-kept", "3500m")]);
    items.push(object(
        "PodDisruptionBudget",
        "db",
        &json!({
            "metadata": { "namespace": "shop" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "db" } } },
            "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
        }),
    ));
    save(folder, items)
}

fn golden(name: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = disruption(&cluster(folder.path()), more);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", stdout(&output));
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/disruption").join(name);
    assert_golden(&expected, &stdout(&output));
    stdout(&output)
}

#[test]
fn the_next_moves_and_what_keeps_each_node_are_told() {
    let text = golden("all.txt", &[]);
    let wide: Vec<&str> = text.lines().filter(|line| !line.starts_with("     ") && line.len() > 100).collect();
    assert!(wide.is_empty(), "{wide:?}");
}

#[test]
fn one_node_pool_is_told_alone() {
    let text = golden("steady.txt", &["steady"]);
    assert!(!text.contains("general"), "{text}");
}

#[test]
fn json_has_the_same() {
    let report: Value = serde_json::from_str(&golden("all.json", &["-o", "json"])).unwrap();
    let first = &report["moves"][0];
    assert_eq!(
        (&first["reason"], &first["beginsNow"], &first["earliest"]),
        (&json!("Empty"), &json!(true), &json!(NOW))
    );
    let kept = report["nodes"].as_array().unwrap().iter().find(|node| node["nodeClaim"] == "steady-kept").unwrap();
    assert!(kept["keptBy"].to_string().contains("PodDisruptionBudget shop/db"), "{kept:#}");
}

/// A NodePool that may be disrupted for 16 hours a day, whose drains may take 20; its nodes have drifted and will expire.
#[test]
fn the_calendar_has_budgets_expiries_short_windows_and_drift() {
    let folder = tempfile::tempdir().unwrap();
    let nights = json!({ "nodes": "0", "schedule": "0 4 * * *", "duration": "8h" });
    let mut steady = pool("steady", &json!({ "consolidateAfter": "5m", "budgets": [nights, { "nodes": "1" }] }));
    let template = json!({
        "metadata": { "labels": { "team": "new" } }, "spec": { "terminationGracePeriod": "20h", "expireAfter": "240h" },
    });
    merge(&mut steady["spec"]["template"], &template);
    let mut items = vec![object("AKSNodeClass", "default", &json!({ "spec": {} })), steady];
    // Without any, the listing would seem to lack them.
    items.push(object(
        "PodDisruptionBudget",
        "other",
        &json!({
            "metadata": { "namespace": "shop" },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "other" } } },
        }),
    ));
    for name in ["steady-a", "steady-b"] {
        let mut nodes = node(name, "steady", "Standard_D4s_v5", 4);
        nodes[0]["spec"]["expireAfter"] = json!("120h");
        nodes[0]["spec"]["terminationGracePeriod"] = json!("20h");
        items.extend(nodes);
        items.push(pod(name, &format!("aks-{name}"), "3500m"));
    }
    let file = save(folder.path(), items);
    let output = disruption(&file, &["steady", "--calendar", "3d"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", stdout(&output));
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/disruption/calendar.txt");
    assert_golden(&expected, &stdout(&output));
    let output = disruption(&file, &["--calendar", "3d", "-o", "json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["nodePools"][0]["drifted"]["nodeCount"], 2, "{report:#}");
    let refused = disruption(&file, &["--calendar", "91d"]);
    assert!(stderr(&refused).contains("must be between 1h and 90d"), "{}", stderr(&refused));
}

#[test]
fn beside_managed_nap_it_says_who_decides() {
    let folder = tempfile::tempdir().unwrap();
    let mut items = vec![object("AKSNodeClass", "default", &json!({ "spec": {} }))];
    items.push(pool("general", &json!({ "consolidateAfter": "5m" })));
    items.extend(node("general-a", "general", "Standard_D8s_v5", 8));
    items.iter_mut().for_each(|item| item["metadata"]["annotations"] = json!({}));
    items.push(pod("web", "aks-general-a", "500m"));
    let output = disruption(&save(folder.path(), items), &[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.starts_with("1 node of managed NAP: its next moves are not predicted"), "{text}");
    assert!(text.contains("managed NAP or another Karpenter has created it"), "{text}");
}

#[test]
fn an_unknown_node_pool_is_an_error_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let output = disruption(&cluster(folder.path()), &["stead"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no NodePool stead found; did you mean steady?"), "{}", stderr(&output));
}
