//! Reviews as the API server sends them: of 5,000 pods in 200 shapes, and of pools and classes.

use anyhow::Result;
use napkeeper_tests::manifests::quickstart_object;
use napkeeper_tests::webhook::hooks::review;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PODS: usize = 5_000;
const SHAPES: usize = 200;
const POOLS: usize = 1_000;

/// A file with one body a line.
pub(crate) struct Bodies {
    pub(crate) file: PathBuf,
    pub(crate) count: usize,
    /// Bytes of one on average.
    pub(crate) size: usize,
}

/// Reviews of pods.
pub(crate) fn of_pods(folder: &Path) -> Result<Bodies> {
    write(&folder.join("pods.jsonl"), (0..PODS).map(|i| review("CREATE", &pod(i), &Value::Null)))
}

/// Reviews of NodePools and AKSNodeClasses, half of them updates, one in ten with a mistake.
pub(crate) fn of_pools(folder: &Path) -> Result<Bodies> {
    let files = ["nodepool-general-purpose", "nodepool-gpu", "nodepool-spot-preferred"];
    let pools = files.into_iter().map(quickstart_object).collect::<Result<Vec<_>>>()?;
    let class = quickstart_object("aksnodeclass")?;
    write(&folder.join("pools.jsonl"), (0..POOLS).map(|i| pool_review(i, &pools, &class)))
}

fn pool_review(i: usize, pools: &[Value], class: &Value) -> Value {
    let from = if i % 4 == 3 { class } else { &pools[i % 4] };
    let mut object = from.clone();
    object["metadata"]["name"] = json!(format!("measured-{i}"));
    object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{i:012}"));
    object["metadata"]["managedFields"] = managed_fields();
    let old = object.clone();
    if i % 4 == 3 {
        object["spec"]["tags"] = json!({ "team": format!("team-{}", i % 7) });
    } else {
        object["spec"]["weight"] = json!(1 + i % 100);
        object["spec"]["limits"]["cpu"] = json!((100 + i).to_string());
        if i.is_multiple_of(10) {
            object["spec"]["disruption"]["budgets"] =
                json!([{ "nodes": "10%", "schedule": "99 8 * * *", "duration": "1h" }]);
        }
    }
    match i % 2 {
        0 => review("CREATE", &object, &Value::Null),
        _ => review("UPDATE", &object, &old),
    }
}

fn write(file: &Path, bodies: impl Iterator<Item = Value>) -> Result<Bodies> {
    let (mut text, mut count) = (String::new(), 0);
    for body in bodies {
        writeln!(text, "{body}")?;
        count += 1;
    }
    std::fs::write(file, &text)?;
    Ok(Bodies { file: file.to_owned(), count, size: text.len() / count.max(1) })
}

/// A pod of a ReplicaSet, as it comes to a hook. Pods of a shape differ in name only.
pub(crate) fn pod(i: usize) -> Value {
    let shape = i % SHAPES;
    let app = format!("app-{shape}");
    let cpu = [100, 250, 500, 1000, 1500, 2000, 4000, 7000][shape % 8];
    let memory = [128, 512, 1024, 2048, 3072, 8192, 16_384][shape % 7];
    let mut spec = json!({
        "containers": [container("main", cpu, memory), container("proxy", 50, 64)],
        "volumes": [
            { "name": "config", "configMap": { "name": "config", "defaultMode": 420 } },
            { "name": "kube-api-access-x7k2p", "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            ] } },
        ],
        "tolerations": [
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
        ],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default", "schedulerName": "default-scheduler",
        "securityContext": {}, "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "enableServiceLinks": true,
    });
    match shape % 5 {
        1 => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": app } },
            }]);
        }
        2 => spec["nodeSelector"] = json!({ "kubernetes.io/arch": "amd64" }),
        3 => {
            let zones = ["westeurope-1", "westeurope-2"];
            spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "topology.kubernetes.io/zone", "operator": "In", "values": zones },
                ] }],
            } } });
        }
        _ => {}
    }
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5d4f8c7b9"), "controller": true,
        "uid": format!("00000000-0000-4000-8000-{shape:012}"), "blockOwnerDeletion": true,
    }]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{app}-5d4f8c7b9-{i:05}"), "namespace": "shop", "creationTimestamp": null,
            "labels": { "app": app, "pod-template-hash": "5d4f8c7b9" },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "9090" },
            "ownerReferences": owner, "managedFields": managed_fields(),
        },
        "spec": spec, "status": {},
    })
}

fn container(name: &str, cpu: usize, memory: usize) -> Value {
    let env: Vec<Value> =
        (0..8).map(|i| json!({ "name": format!("SETTING_{i}"), "value": format!("value-{i}") })).collect();
    let probe = json!({
        "httpGet": { "path": "/healthz", "port": 8080, "scheme": "HTTP" },
        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
    });
    json!({
        "name": name, "image": "registry.example.com/shop/app:1.2.3", "env": env, "imagePullPolicy": "IfNotPresent",
        "ports": [{ "containerPort": 8080, "name": "http", "protocol": "TCP" }],
        "resources": {
            "requests": { "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") },
            "limits": { "memory": format!("{memory}Mi") },
        },
        "volumeMounts": [
            { "name": "config", "mountPath": "/etc/app", "readOnly": true },
            { "name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
        ],
        "livenessProbe": probe, "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

/// Managed fields, about half of a review.
fn managed_fields() -> Value {
    let leaf = json!({ ".": {}, "f:name": {}, "f:value": {} });
    let env: serde_json::Map<String, Value> =
        (0..8).map(|i| (format!("k:{{\"name\":\"SETTING_{i}\"}}"), leaf.clone())).collect();
    let probe = json!({
        ".": {}, "f:failureThreshold": {}, "f:httpGet": { ".": {}, "f:path": {}, "f:port": {}, "f:scheme": {} },
        "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {},
    });
    let container = json!({
        ".": {}, "f:env": env, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": probe, "f:name": {},
        "f:ports": { ".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } },
        "f:readinessProbe": probe, "f:resources": { ".": {}, "f:limits": {}, "f:requests": {} },
        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}, "f:volumeMounts": {},
    });
    json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-08-03T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": { "f:annotations": {}, "f:generateName": {}, "f:labels": {}, "f:ownerReferences": {} },
            "f:spec": {
                "f:containers": { "k:{\"name\":\"main\"}": container, "k:{\"name\":\"proxy\"}": container },
                "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:volumes": {},
            },
        },
    }])
}
