//! `explain pod`: the explanations of placed and pending pods.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::{assert_golden, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const ZONE: &str = "topology.kubernetes.io/zone";

fn explain(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(["explain", "pod"]).args(args).output().unwrap()
}

fn quickstart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart").display().to_string()
}

fn meta(name: &str) -> Value {
    json!({ "name": name, "uid": name, "creationTimestamp": "2026-08-03T06:00:00Z", "resourceVersion": "1" })
}

/// A pool of D sizes of version 5 with requirements of its own.
fn pool(name: &str, requirements: &[(&str, &[&str])]) -> Value {
    let all = [
        ("kubernetes.io/arch", &["amd64"][..]),
        ("karpenter.azure.com/sku-family", &["D"]),
        ("karpenter.azure.com/sku-version", &["5"]),
    ];
    let all = all.iter().chain(requirements);
    let all: Vec<Value> = all.map(|(key, values)| json!({ "key": key, "operator": "In", "values": values })).collect();
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta(name),
        "spec": {
            "template": { "spec": { "nodeClassRef": class, "requirements": all } },
            "disruption": { "consolidateAfter": "30s" },
        },
    })
}

/// An unmanaged node.
fn node(name: &str, zone: &str, cpu: &str, taints: &Value) -> Value {
    let mut metadata = meta(name);
    metadata["labels"] =
        json!({ ZONE: zone, "topology.kubernetes.io/region": "westeurope", "kubernetes.io/hostname": name });
    let room = json!({ "cpu": cpu, "memory": "16Gi", "pods": "110" });
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-08-03T06:00:00Z" });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": { "taints": taints },
        "status": { "capacity": room, "allocatable": room, "conditions": [ready] },
    })
}

/// The system pool, which takes nothing else.
fn system(name: &str, zone: &str) -> Value {
    node(name, zone, "4", &json!([{ "key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule" }]))
}

/// A pending pod of app `web`, with additions to its spec.
fn pod(name: &str, cpu: &str, spec: Value) -> Value {
    let mut metadata = meta(name);
    metadata["namespace"] = json!("shop");
    metadata["labels"] = json!({ "app": "web" });
    metadata["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": true }]);
    let mut all = json!({ "containers": [{ "name": "a", "image": "a", "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } } }] });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    let waits = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": all,
        "status": { "phase": "Pending", "conditions": [waits] },
    })
}

fn on_zone_1() -> Value {
    pool("zonal", &[(ZONE, &["westeurope-1"]), ("karpenter.sh/capacity-type", &["on-demand"])])
}

fn general() -> Value {
    pool("general", &[("karpenter.sh/capacity-type", &["on-demand"])])
}

/// What kubectl would have listed, in a file.
fn saved(folder: &Path, objects: Vec<Value>) -> PathBuf {
    let class = json!({
        "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": meta("default"), "spec": {},
    });
    let mut items = vec![class, system("system-1", "westeurope-1")];
    items.extend(objects);
    let file = folder.join("cluster.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()).unwrap();
    file
}

/// Runs the program on a cluster; compares what it prints with the committed file of that name, and how it ends.
fn golden(case: &str, (pod, code): (&str, i32), objects: Vec<Value>, more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(folder.path(), objects);
    let args = [&[pod, "-n", "shop", "--from", file.to_str().unwrap()], more].concat();
    let output = explain(&args);
    assert_eq!((output.status.code(), stderr(&output)), (Some(code), String::new()), "{case}: {}", stdout(&output));
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/explain").join(format!("{case}.txt"));
    assert_golden(&expected, &stdout(&output));
    let json = explain(&[&args[..], &["-o", "json"]].concat());
    assert_eq!(json.status.code(), Some(code));
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["allPlaced"], json!(code == 0), "{case}: {report:#}");
}

fn term(app: &str, key: &str) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } })
}

fn required(kind: &str, app: &str) -> Value {
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term(app, ZONE)] } } })
}

#[test]
fn a_taint_is_named_with_the_toleration_that_helps() {
    let mut tainted = general();
    tainted["spec"]["template"]["spec"]["taints"] = json!([{ "key": "team", "value": "ml", "effect": "NoSchedule" }]);
    golden("taint", ("web-0", 1), vec![tainted, pod("web-0", "1", json!({}))], &[]);
}

#[test]
fn the_label_that_removed_the_last_size_is_named() {
    let spec =
        json!({ "nodeSelector": { ZONE: "westeurope-1", "node.kubernetes.io/instance-type": "Standard_E4s_v5" } });
    golden("label", ("web-0", 1), vec![general(), pod("web-0", "1", spec)], &[]);
}

#[test]
fn a_pod_that_is_too_large_is_compared_with_the_largest_size() {
    golden("too-large", ("web-0", 1), vec![general(), pod("web-0", "500", json!({}))], &[]);
}

#[test]
fn a_limit_is_named_with_the_one_that_would_do() {
    let mut limited = general();
    limited["spec"]["limits"] = json!({ "cpu": "1" });
    golden("limit", ("web-0", 1), vec![limited, pod("web-0", "2", json!({}))], &[]);
}

#[test]
fn a_quota_is_named_with_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let quota = json!({ "asOf": "2026-08-03T06:00:00Z", "value": { "cores": [100, 101] } }).to_string();
    let facts = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "napkeeper-facts" },
        "data": { "version": "1", "region": "westeurope", "quota": quota },
    });
    let file = folder.path().join("facts.json");
    fs::write(&file, facts.to_string()).unwrap();
    let facts = ["--facts", file.to_str().unwrap()];
    golden("quota", ("web-0", 1), vec![general(), pod("web-0", "1", json!({}))], &facts);
}

#[test]
fn a_spread_that_leaves_no_zone_is_named() {
    let spread = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } });
    let spec = json!({ "topologySpreadConstraints": [spread] });
    let mut all = vec![on_zone_1(), system("system-2", "westeurope-2")];
    all.extend((0..3).map(|n| pod(&format!("web-{n}"), "1", spec.clone())));
    golden("spread", ("statefulset/web", 1), all, &[]);
}

#[test]
fn missing_and_conflicting_pods_of_affinity_terms_are_named() {
    let near = pod("web-0", "1", required("podAffinity", "nobody"));
    golden("affinity", ("web-0", 1), vec![general(), near], &[]);
    let apart = (0..2).map(|n| pod(&format!("web-{n}"), "1", required("podAntiAffinity", "web")));
    golden("anti-affinity", ("web", 1), [on_zone_1()].into_iter().chain(apart).collect(), &[]);
}

/// A disk in a zone, and the claim that has it.
fn disk(zone: &str) -> [Value; 2] {
    let mut claim = meta("data");
    claim["namespace"] = json!("shop");
    claim["annotations"] = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    let in_zone = json!({ "key": "topology.disk.csi.azure.com/zone", "operator": "In", "values": [zone] });
    let csi = json!({ "driver": "disk.csi.azure.com", "volumeHandle":
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pv-data" });
    [
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim,
            "spec": { "volumeName": "pv-data" }, "status": { "phase": "Bound" } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta("pv-data"), "spec": {
            "csi": csi, "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "namespace": "shop", "name": "data", "uid": "data" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [in_zone] }] } },
        } }),
    ]
}

#[test]
fn a_volume_in_another_zone_needs_a_pool_in_that_zone() {
    let spec = json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] });
    let all = [on_zone_1(), pod("web-0", "1", spec.clone())].into_iter().chain(disk("westeurope-2"));
    golden("volume-zone", ("web-0", 1), all.collect(), &[]);
    let all = [general(), pod("web-0", "1", spec)].into_iter().chain(disk("westeurope-2"));
    golden("volume-placed", ("web-0", 0), all.collect(), &[]);
}

#[test]
fn resource_claims_are_reported_as_unsupported() {
    let spec = json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }] });
    golden("devices", ("web-0", 1), vec![general(), pod("web-0", "1", spec)], &[]);
}

#[test]
fn existing_nodes_are_used_first() {
    let all = vec![general(), node("spare", "westeurope-3", "8", &json!([])), pod("web-0", "1", json!({}))];
    golden("existing-node", ("web-0", 0), all, &[]);
}

#[test]
fn a_new_node_is_shown_with_its_price_and_the_sizes_that_were_too_small() {
    let mut first = pool("first", &[("karpenter.sh/capacity-type", &["spot"])]);
    first["spec"]["weight"] = json!(10);
    first["spec"]["template"]["spec"]["taints"] = json!([{ "key": "spot", "effect": "NoSchedule" }]);
    let all = vec![first, general(), pod("web-0", "3", json!({})), pod("web-1", "300m", json!({}))];
    golden("new-node", ("web-1", 0), all, &[]);
}

#[test]
fn beside_another_karpenter_the_answer_says_that_it_decides() {
    let mut claim = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta("general-x2k9q") });
    let class = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    claim["spec"] = json!({ "nodeClassRef": class, "requirements": [] });
    claim["metadata"]["labels"] = json!({ "karpenter.sh/nodepool": "general" });
    claim["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    golden("beside-karpenter", ("web-0", 0), vec![general(), pod("web-0", "1", json!({})), claim], &[]);
}

#[test]
fn an_impossible_preference_is_reported_as_relaxed() {
    let expression =
        |key: &str, value: &str| json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] });
    let spec = json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 100, "preference": expression("kubernetes.io/arch", "arm64") },
        { "weight": 1, "preference": expression(ZONE, "westeurope-2") },
    ] } } });
    golden("preference", ("web-0", 0), vec![general(), pod("web-0", "1", spec)], &[]);
}

#[test]
fn a_running_pod_is_shown_with_its_node_and_a_new_placement() {
    let mut running = pod("web-0", "1", json!({ "nodeName": "spare" }));
    running["status"] = json!({ "phase": "Running" });
    let all = vec![general(), node("spare", "westeurope-3", "8", &json!([])), running];
    golden("running", ("web-0", 0), all, &[]);
}

#[test]
fn a_folder_is_played_until_such_pods_wait() {
    let printed = |args: &[&str], code: i32| {
        let output = explain(args);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        stdout(&output)
    };
    let inflate = printed(&["deployment/inflate", &quickstart()], 0);
    for words in ["default/inflate-", " and 8 more can be scheduled", "in NodePool ", "cheapest of ", "requests"] {
        assert!(inflate.contains(words), "{words:?} is not in\n{inflate}");
    }
    assert!(!inflate.contains('\u{1b}'), "no colours in a pipe");
    assert!(printed(&["training", &quickstart()], 0).contains("new node"), "it waits for the step that starts it");
    let at = printed(&["inflate", &quickstart(), "--at", "30m"], 0);
    assert!(at.contains(" on node aks-"), "{at}");
    assert_eq!(printed(&["inflate", &quickstart()], 0), inflate);
}

#[test]
fn a_bare_pod_of_a_folder_is_explained_too() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["aksnodeclass.yaml", "nodepool-general-purpose.yaml"] {
        fs::copy(Path::new(&quickstart()).join(name), folder.path().join(name)).unwrap();
    }
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: huge, namespace: shop}\nspec:\n  containers:\n  - name: \
                a\n    image: a\n    resources: {requests: {cpu: \"64\"}}\n";
    fs::write(folder.path().join("pod.yaml"), text).unwrap();
    let output = explain(&["huge", folder.path().to_str().unwrap(), "-n", "shop"]);
    let printed = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(printed.contains("shop/huge cannot be scheduled") && printed.contains("request at most 15"), "{printed}");
}

#[test]
fn an_unknown_pod_exits_with_2_and_the_nearest_name() {
    let refused = |args: &[&str], words: &str| {
        let output = explain(args);
        let error = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{error}");
        assert!(error.contains(words), "{words:?} is not in\n{error}");
    };
    let path = quickstart();
    refused(&["inflat", &path], "no pod or workload inflat found in namespace default; did you mean inflate?");
    refused(&["inflate", &path, "-n", "shop"], "found one in namespace default: use -n default");
    refused(&["shop/web", &path], "unsupported kind \"shop\"");
    refused(&["inflate", &path, "--at", "90d"], "ends after");
    refused(&["inflate", &path, "-n", "Shop"], "--namespace");
    refused(&["inflate", &path, "--region", "westeuorpe"], "did you mean westeurope?");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.json");
    fs::write(&empty, "{\"items\": []}").unwrap();
    refused(&["web", "--from", empty.to_str().unwrap()], "no pods found; list everything with: kubectl get pods,nodes");
    fs::write(&empty, "{\"items\": [").unwrap();
    refused(&["web", "--from", empty.to_str().unwrap()], "is neither JSON nor YAML");
    refused(
        &["pod/inflate", &path],
        "no pod is named inflate in namespace default, but a workload is: use inflate without kind",
    );
    let file = saved(folder.path(), vec![general(), pod("web-0", "1", json!({}))]);
    refused(&["wep-0", "-n", "shop", "--from", file.to_str().unwrap()], "did you mean web-0?");
    refused(&["web-0", "--kubeconfig", "/nowhere/config"], "reading kubeconfig /nowhere/config");
}

#[test]
fn ten_thousand_unschedulable_pods_are_reported_briefly_and_fast() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["aksnodeclass.yaml", "nodepool-general-purpose.yaml"] {
        fs::copy(Path::new(&quickstart()).join(name), folder.path().join(name)).unwrap();
    }
    let mut text = String::new();
    for n in 0..50 {
        text += &format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: huge-{n}}}\nspec:\n  replicas: 200\n  selector: \
             {{matchLabels: {{app: huge}}}}\n  template:\n    metadata: {{labels: {{app: huge}}}}\n    spec:\n      \
             containers:\n      - name: a\n        image: a\n        resources: {{requests: {{cpu: \"{}\"}}}}\n---\n",
            500 + n
        );
    }
    fs::write(folder.path().join("huge.yaml"), text).unwrap();
    let path = folder.path().to_str().unwrap();
    let began = Instant::now();
    let simulate = |more: &[&str]| {
        let args = [&["simulate", path, "--for", "2m", "-v"], more].concat();
        Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).output().unwrap()
    };
    let text = stdout(&simulate(&[]));
    let section = text.split("pending      at the end").nth(1).unwrap();
    assert!(section.contains("and 40 more groups of identical pods (8000 pods)"), "{section}");
    assert_eq!(section.matches("cannot be scheduled").count(), 10);
    assert!(section.len() < 8_000, "{} bytes", section.len());
    let json: Value = serde_json::from_slice(&simulate(&["-o", "json"]).stdout).unwrap();
    let pending = &json["reasons"]["pending"];
    assert_eq!((pending["groups"].as_array().unwrap().len(), &pending["omitted"]["pods"]), (32, &json!(3_600)));
    assert!(pending.to_string().len() < 64_000, "{} bytes", pending.to_string().len());
    let one = explain(&["huge-7", path]);
    assert_eq!(one.status.code(), Some(1), "{}", stderr(&one));
    assert!(
        stdout(&one).contains(" and 199 more cannot be scheduled") && stdout(&one).len() < 1_500,
        "{}",
        stdout(&one)
    );
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[test]
fn launches_are_shown_with_their_cost_above_the_lower_bound() {
    let simulate = |more: &[&str]| {
        let args = [&["simulate", "--for", "10m", "-v"], more].concat();
        Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).output().unwrap()
    };
    let text = stdout(&simulate(&[]));
    let section = text.split("launched     by NodePool").nth(1).unwrap();
    assert!(section.contains("% above the lower bound"), "{section}");
    let json: Value = serde_json::from_slice(&simulate(&["-o", "json"]).stdout).unwrap();
    let planned = |field: &str| json["reasons"]["planned"][field].as_i64().unwrap();
    assert!(0 < planned("bound") && planned("bound") <= planned("price"), "{}", json["reasons"]["planned"]);
}

#[test]
fn prices_include_node_overlays() {
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": meta("contract"),
        "spec": { "price": "0.0123", "requirements": [
            { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["Standard_D4s_v5"] },
        ] },
    });
    let folder = tempfile::tempdir().unwrap();
    let file = saved(folder.path(), vec![general(), overlay, pod("web-0", "1", json!({}))]);
    let output = explain(&["web-0", "-n", "shop", "--from", file.to_str().unwrap()]);
    assert!(
        stdout(&output).contains("Standard_D4s_v5") && stdout(&output).contains("$0.0393/h (VM and OS disk)"),
        "{}",
        stdout(&output)
    );
}
