//! `history`: removed nodes, from NodeRecords and from what managed NAP leaves behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::{assert_golden, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SINCE: &[&str] = &["--since", "2026-08-01T00:00:00Z"];

fn history(items: &[Value], args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()).unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
        .current_dir(folder.path())
        .args(["history", "--from", "cluster.json"])
        .args(args)
        .output();
    program.unwrap()
}

/// Compares the output in a format with a golden file.
fn golden(case: &str, items: &[Value], args: &[&str]) {
    let output = history(items, &[SINCE, args].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", stdout(&output));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/history");
    assert_golden(&folder.join(case), &stdout(&output));
}

fn meta(name: &str, labels: &Value) -> Value {
    json!({
        "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-08-03T06:00:00Z", "resourceVersion": "1",
        "labels": labels,
    })
}

fn pool(name: &str) -> Value {
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta(name, &json!({})),
            "spec": { "template": { "spec": { "nodeClassRef": class, "requirements": [] } } } })
}

/// A NodeClaim of managed NAP.
fn claim(name: &str, pool: &str, size: &str) -> Value {
    let labels = json!({
        "karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": size, "karpenter.sh/capacity-type": "on-demand",
        "topology.kubernetes.io/zone": "westeurope-1",
    });
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta(name, &labels),
            "spec": { "nodeClassRef": class, "requirements": [] }, "status": { "nodeName": format!("aks-{name}") } })
}

fn event(reason: &str, claim: &str, message: &str, at: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{claim}.{reason}"), "namespace": "default", "uid": format!("{claim}.{reason}") },
        "involvedObject": { "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": claim, "uid": format!("uid-{claim}") },
        "reason": reason, "message": message, "type": "Normal", "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    })
}

fn recorded_node(claim: &str, size: &str, price: i64) -> Value {
    json!({ "nodeClaim": claim, "node": format!("aks-{claim}"), "size": size, "zone": "westeurope-1",
            "capacityType": "on-demand", "price": price })
}

/// A cluster in which napkeeper has replaced a drifted node, a user has deleted one, and one of another NodePool is on its way.
fn recorded() -> Vec<Value> {
    let drifted = json!({
        "uid": "u-1", "by": "napkeeper", "reason": "Drifted", "nodePool": "general", "pods": 12,
        "cause": "NodePoolDrifted: NodePool spec.template.metadata.labels[team]: \"payments\" is now \"checkout\"",
        "removed": recorded_node("general-x2k9q", "Standard_D4s_v5", 230_000_000),
        "replacements": [recorded_node("general-b7c2d", "Standard_D2s_v5", 115_000_000)],
        "started": "2026-08-03T10:00:00Z", "ended": "2026-08-03T10:04:12Z",
    });
    let deleted = json!({
        "uid": "u-2", "by": "other", "reason": "Deleted", "nodePool": "general", "pods": 1,
        "removed": { "nodeClaim": "general-zzzzz" }, "started": "2026-08-03T11:00:00Z",
    });
    let leaving = json!({
        "uid": "uid-batch-aaaaa", "by": "Azure", "reason": "Preempted", "nodePool": "batch", "pods": 3,
        "cause": "VMEventScheduled: Preempt", "removed": recorded_node("batch-aaaaa", "Standard_D8s_v5", 90_000_000),
        "started": "2026-08-03T12:00:00Z",
    });
    let record = |name: &str, removals: Vec<Value>| {
        json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "NodeRecord", "metadata": meta(name, &json!({})),
                "spec": { "removals": removals } })
    };
    let mut going = claim("batch-aaaaa", "batch", "Standard_D8s_v5");
    going["metadata"]["deletionTimestamp"] = json!("2026-08-03T12:00:00Z");
    let (mut general, mut batch) = (pool("general"), pool("batch"));
    general["metadata"]["annotations"] =
        json!({ "argocd.argoproj.io/tracking-id": "nodes:karpenter.sh/NodePool:argocd/general" });
    batch["metadata"]["labels"] =
        json!({ "kustomize.toolkit.fluxcd.io/name": "batch", "kustomize.toolkit.fluxcd.io/namespace": "flux-system" });
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": { "name": "nodes", "namespace": "argocd" },
        "status": { "sync": { "revision": "9f8e7d6" }, "history": [
            { "revision": "1a2b3c4", "deployedAt": "2026-08-03T09:55:00Z" },
            { "revision": "9f8e7d6", "deployedAt": "2026-08-03T13:00:00Z" },
        ] },
    });
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": "batch", "namespace": "flux-system" }, "status": { "lastAppliedRevision": "main@sha1:5d4c3b2" },
    });
    vec![
        general,
        batch,
        going,
        record("napkeeper-history-1", vec![drifted, deleted]),
        record("napkeeper-history-4", vec![leaving]),
        application,
        kustomization,
    ]
}

/// Managed NAP has replaced a drifted node, and is consolidating one.
fn managed() -> Vec<Value> {
    let mut going = claim("general-ccccc", "general", "Standard_D8s_v5");
    going["metadata"]["deletionTimestamp"] = json!("2026-08-03T12:00:00Z");
    vec![
        pool("general"),
        claim("general-bbbbb", "general", "Standard_D4s_v5"),
        going,
        event("DisruptionLaunching", "general-bbbbb", "Launching NodeClaim: Drifted", "2026-08-03T09:58:00Z"),
        event("DisruptionTerminating", "general-aaaaa", "Disrupting NodeClaim: Drifted", "2026-08-03T10:00:00Z"),
        event("Unconsolidatable", "general-bbbbb", "Can't replace with a cheaper node", "2026-08-03T10:05:00Z"),
        event("DisruptionTerminating", "general-ccccc", "Disrupting NodeClaim: Underutilized", "2026-08-03T12:00:01Z"),
    ]
}

#[test]
fn records_are_shown_in_every_format() {
    let items = recorded();
    for (format, end) in [("text", "txt"), ("json", "json"), ("markdown", "md")] {
        golden(&format!("recorded.{end}"), &items, &["-o", format]);
    }
}

#[test]
fn what_managed_nap_leaves_behind_is_shown_in_every_format() {
    let items = managed();
    for (format, end) in [("text", "txt"), ("json", "json"), ("markdown", "md")] {
        golden(&format!("reconstructed.{end}"), &items, &["-o", format]);
    }
}

/// The NodeClaims of the removals that are shown.
fn shown(items: &[Value], args: &[&str]) -> Vec<String> {
    let output = history(items, &[&["-o", "json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let claims = report["removals"].as_array().unwrap().iter();
    claims.map(|removal| removal["nodeClaim"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_name_selects_a_node_pool_a_node_or_a_replacement_and_since_the_time() {
    let items = recorded();
    let of = |name: &str| shown(&items, &[&[name], SINCE].concat());
    assert_eq!(of("general"), ["general-zzzzz", "general-x2k9q"]);
    assert_eq!(of("batch"), ["batch-aaaaa"]);
    assert_eq!(of("aks-general-x2k9q"), ["general-x2k9q"]);
    assert_eq!(of("general-b7c2d"), ["general-x2k9q"], "what it replaced");
    assert_eq!(shown(&items, &["--since", "2026-08-03T11:30:00Z"]), ["batch-aaaaa"]);
    assert!(shown(&items, &["general", "--since", "1h"]).is_empty(), "it was long ago");
    let text = stdout(&history(&items, &["general", "--since", "1h"]));
    assert!(!text.lines().next().unwrap().contains('.'), "no fractions of a second: {text}");
    assert_eq!(shown(&managed(), &[&["general"], SINCE].concat()).len(), 2, "by the names of NodeClaims that are gone");
}

#[test]
fn wrong_arguments_and_input_are_errors_with_a_remedy() {
    for (items, args, expected) in [
        (
            recorded(),
            &["generl"][..],
            "cluster.json: no NodePool, Node or NodeClaim generl is known; did you mean general?",
        ),
        (vec![], &[], "no nodepools found; list everything with: kubectl get noderecords,nodepools"),
        (recorded(), &["--since", "soon"], "invalid value 'soon' for '--since <TIME>'"),
        (recorded(), &["--since", "0s"], "must be greater than 0"),
    ] {
        let output = history(&items, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
    let mut items = recorded();
    items[3]["spec"]["removals"][0]["by"] = json!("me");
    let output = history(&items, SINCE);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("napkeeper-history-1"), "{}", stderr(&output));
    // Without events and records only what is being removed is known, which is told.
    let output = history(&[pool("general"), claim("general-a", "general", "Standard_D4s_v5")], SINCE);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("neither noderecords nor events found"), "{}", stderr(&output));
}
