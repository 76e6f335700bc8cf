//! `explain node`: what has drifted, and what keeps a node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::{stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/aks-general-x2k9q";
const CREATED: &str = "2026-08-03T06:00:00Z";

fn explain(name: &str, file: &Path, more: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_napkeeper");
    let args = ["explain", "node", name, "--from", file.to_str().unwrap()];
    Command::new(program).args(args).args(more).output().unwrap()
}

fn meta(name: &str, labels: &Value) -> Value {
    json!({ "name": name, "uid": name, "creationTimestamp": CREATED, "resourceVersion": "1", "labels": labels })
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": CREATED })
}

/// A NodeClaim as managed NAP has it, with its Node and NodePool; a pod on it is protected by a PodDisruptionBudget.
fn cluster(folder: &Path) -> PathBuf {
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    let requirements = json!([{ "key": "karpenter.azure.com/sku-family", "operator": "In", "values": ["D"] }]);
    let template = json!({ "nodeClassRef": class, "requirements": requirements, "expireAfter": "87600h" });
    let labels = json!({
        "karpenter.sh/nodepool": "general", "team": "payments", "topology.kubernetes.io/region": "westeurope",
    });
    let provider = format!("azure://{VM}");
    let room = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    let mut pod = meta("web-0", &json!({ "app": "web" }));
    pod["namespace"] = json!("shop");
    pod["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": true }]);
    let mut budget = meta("web", &json!({}));
    budget["namespace"] = json!("shop");
    let container = json!({ "name": "a", "image": "a", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } });
    let items = json!([
        { "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": meta("default", &json!({})), "spec": {} },
        { "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta("general", &json!({})), "spec": {
            "template": { "metadata": { "labels": { "team": "checkout" } }, "spec": template },
            "disruption": { "consolidateAfter": "5m", "budgets": [{ "nodes": "1" }] },
        } },
        { "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta("general-x2k9q", &labels), "spec": template,
          "status": { "providerID": provider, "nodeName": "aks-general-x2k9q", "capacity": room, "allocatable": room,
                      "conditions": [condition("Launched"), condition("Registered"), condition("Initialized")] } },
        { "apiVersion": "v1", "kind": "Node", "metadata": meta("aks-general-x2k9q", &labels),
          "spec": { "providerID": provider },
          "status": { "capacity": room, "allocatable": room, "conditions": [condition("Ready")] } },
        { "apiVersion": "v1", "kind": "Pod", "metadata": pod,
          "spec": { "nodeName": "aks-general-x2k9q", "containers": [container] },
          "status": { "phase": "Running", "startTime": CREATED, "conditions": [condition("Ready")] } },
        { "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": budget,
          "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } },
          "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2 } },
    ]);
    let file = folder.join("cluster.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()).unwrap();
    file
}

#[test]
fn the_changed_field_and_what_keeps_the_node_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = cluster(folder.path());
    for name in ["general-x2k9q", "aks-general-x2k9q"] {
        let output = explain(name, &file, &[]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", stdout(&output));
        let text = stdout(&output);
        for line in [
            "general-x2k9q is not disrupted now",
            "  drifted       not noted on the NodeClaim yet",
            "                NodePool spec.template.metadata.labels[team]: \"payments\" is now \"checkout\"",
            "  expires       at 2036-07-31T06:00:00Z",
            "  consolidation possible since 2026-08-03T06:05:00Z: its pods have not changed since 2026-08-03T06:00:00Z, \
             consolidateAfter is 5m",
            "  kept by       pod shop/web-0 cannot be evicted: PodDisruptionBudget shop/web allows no eviction now",
            "  budgets now   Drifted: 1 more, Underutilized: 1 more, Empty: 1 more",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
    let report: Value = serde_json::from_slice(&explain("general-x2k9q", &file, &["-o", "json"]).stdout).unwrap();
    assert_eq!(report["drifted"]["reason"], "NodePoolDrifted");
    assert_eq!(report["budgetsLeft"]["Drifted"], 1);
    assert_eq!(report["keptBy"].as_array().unwrap().len(), 1, "{report:#}");
}

#[test]
fn a_pause_of_its_node_pool_keeps_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = cluster(folder.path());
    let shown = |namespace: &str, data: Value| {
        let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let metadata =
            |name: &str| json!({ "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1" });
        let other = json!({ "kind": "ConfigMap", "metadata": metadata("other"), "data": { "disrupt": "true" } });
        let pause = json!({ "kind": "ConfigMap", "metadata": metadata("napkeeper-pause"), "data": data });
        saved["items"].as_array_mut().unwrap().extend([other, pause]);
        let file = folder.path().join("paused.json");
        fs::write(&file, saved.to_string()).unwrap();
        stdout(&explain("general-x2k9q", &file, &[]))
    };
    let until = json!({ "disrupt.nodepool.general": "until 2100-01-01T00:00:00Z" });
    let text = shown("napkeeper-system", until.clone());
    let line = "  kept by       its disruption is paused: disrupt.nodepool.general until 2100-01-01T00:00:00Z";
    assert!(text.lines().any(|shown| shown == line), "{text}");
    assert!(text.contains("budgets now   Drifted: 0 more, Underutilized: 0 more, Empty: 0 more"), "{text}");
    for (namespace, data) in [
        ("elsewhere", until),
        ("napkeeper-system", json!({ "disrupt.nodepool.other": "true" })),
        ("napkeeper-system", json!({ "disrupt": "until 2020-01-01T00:00:00Z" })),
    ] {
        let text = shown(namespace, data);
        assert!(!text.contains("paused"), "{namespace}: {text}");
    }
}

#[test]
fn a_name_that_is_not_found_is_an_error_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let output = explain("general-x2k9", &cluster(folder.path()), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no Node or NodeClaim general-x2k9 found; did you mean general-x2k9q?"));
}

#[test]
fn that_its_node_pool_is_being_deleted_is_told_of_a_node_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let file = cluster(folder.path());
    let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for item in saved["items"].as_array_mut().unwrap() {
        if item["kind"] == "NodePool" {
            item["metadata"]["deletionTimestamp"] = json!("2026-08-03T07:00:00Z");
            item["metadata"]["finalizers"] = json!(["napkeeper.io/nodes"]);
        }
        if item["kind"] == "NodeClaim" {
            let offering =
                json!([{ "size": "Standard_D4s_v5", "zone": "westeurope-1", "capacityType": "on-demand", "price": 1 }]);
            item["metadata"]["annotations"] = json!({ "napkeeper.io/planned-offerings": offering.to_string() });
        }
    }
    let deleted = folder.path().join("deleted.json");
    fs::write(&deleted, saved.to_string()).unwrap();
    let text = stdout(&explain("general-x2k9q", &deleted, &[]));
    for line in [
        "  NodePool      deletion requested at 2026-08-03T07:00:00Z; its nodes are taken away within budgets",
        "  consolidation never: its NodePool is being deleted",
        "  kept by       pod shop/web-0 cannot be evicted: PodDisruptionBudget shop/web allows no eviction now",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    let report: Value = serde_json::from_slice(&explain("general-x2k9q", &deleted, &["-o", "json"]).stdout).unwrap();
    assert_eq!(report["nodePoolDeletedAt"], "2026-08-03T07:00:00Z");
    let managed: Value = serde_json::from_slice(&explain("general-x2k9q", &file, &["-o", "json"]).stdout).unwrap();
    assert_eq!(managed["nodePoolDeletedAt"], Value::Null);
}

#[test]
fn saved_objects_may_be_yaml_or_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = cluster(folder.path());
    let text = fs::read_to_string(&file).unwrap();
    // One document an object, as several calls of kubectl write them.
    let list: Value = serde_json::from_str(&text).unwrap();
    let documents: String = list["items"].as_array().unwrap().iter().map(|item| format!("---\n{item}\n")).collect();
    let yaml = folder.path().join("cluster.yaml");
    fs::write(&yaml, documents).unwrap();
    let given = fs::File::open(&file).unwrap();
    let args = ["explain", "node", "general-x2k9q", "--from", "-", "-o", "json"];
    let piped = Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).stdin(given).output().unwrap();
    let [expected, of_yaml, of_input] =
        [explain("general-x2k9q", &file, &["-o", "json"]), explain("general-x2k9q", &yaml, &["-o", "json"]), piped]
            .map(|output| {
                let mut report: Value = serde_json::from_slice(&output.stdout).map_err(|_| stderr(&output)).unwrap();
                report["from"] = Value::Null;
                report
            });
    assert_eq!((&of_yaml, &of_input), (&expected, &expected));
}
