//! Fills in the defaults that the API server sets on workloads.
//!
//! Policies see objects as they would be stored. The kinds here are those that make pods, with the defaults that
//! Kubernetes documents for them in its API reference; a live test compares them with a server's answer.

use serde_json::{Map, Value, json};

/// The object with its defaults, if its kind is one that has any here.
pub(crate) fn with_defaults(object: &Value) -> Option<Value> {
    let fill: fn(&mut Value) = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("v1", "Pod") => pod,
        ("apps/v1", "Deployment") => deployment,
        ("apps/v1", "StatefulSet") => stateful_set,
        ("apps/v1", "DaemonSet") => daemon_set,
        ("apps/v1", "ReplicaSet") => replica_set,
        ("batch/v1", "Job") => job,
        ("batch/v1", "CronJob") => cron_job,
        _ => return None,
    };
    let mut object = object.clone();
    without_nulls(&mut object);
    fill(object.get_mut("spec").filter(|spec| spec.is_object())?);
    Some(object)
}

/// A null is as good as absent.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Adds the fields of `defaults` that are absent, recursively in objects that exist.
fn add(value: &mut Value, defaults: Value) {
    let (Some(map), Value::Object(defaults)) = (value.as_object_mut(), defaults) else { return };
    for (key, default) in defaults {
        map.entry(key).or_insert(default);
    }
}

/// The value of a field, if it is set.
fn at(value: &mut Value, field: &str, fill: impl FnOnce(&mut Value)) {
    if let Some(inner) = value.get_mut(field) {
        fill(inner);
    }
}

/// Each item of a list, if it is set.
fn each(value: &mut Value, field: &str, fill: impl Fn(&mut Value)) {
    if let Some(items) = value.get_mut(field).and_then(Value::as_array_mut) {
        items.iter_mut().for_each(fill);
    }
}

fn pod(spec: &mut Value) {
    pod_spec(spec);
    add(spec, json!({ "enableServiceLinks": true }));
    for field in ["containers", "initContainers"] {
        each(spec, field, requests_from_limits);
    }
}

/// In a pod, though not yet in a pod template, missing requests default to the limits.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else { return };
    at(container, "resources", |resources| {
        add(resources, json!({ "requests": {} }));
        at(resources, "requests", |requests| add(requests, Value::Object(limits)));
    });
}

fn deployment(spec: &mut Value) {
    add(spec, json!({ "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "strategy": {} }));
    rolling(spec, "strategy", &json!({ "maxUnavailable": "25%", "maxSurge": "25%" }));
    at(spec, "template", template);
}

fn stateful_set(spec: &mut Value) {
    let keep = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
    add(
        spec,
        json!({
            "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady", "updateStrategy": {},
            "persistentVolumeClaimRetentionPolicy": {},
        }),
    );
    at(spec, "persistentVolumeClaimRetentionPolicy", |policy| add(policy, keep));
    rolling(spec, "updateStrategy", &json!({ "partition": 0 }));
    at(spec, "template", template);
}

fn daemon_set(spec: &mut Value) {
    add(spec, json!({ "revisionHistoryLimit": 10, "updateStrategy": {} }));
    rolling(spec, "updateStrategy", &json!({ "maxUnavailable": 1, "maxSurge": 0 }));
    at(spec, "template", template);
}

fn replica_set(spec: &mut Value) {
    add(spec, json!({ "replicas": 1 }));
    at(spec, "template", template);
}

/// The defaults of a rolling update.
fn rolling(spec: &mut Value, field: &str, defaults: &Value) {
    at(spec, field, |strategy| {
        add(strategy, json!({ "type": "RollingUpdate" }));
        if strategy["type"] == "RollingUpdate" {
            add(strategy, json!({ "rollingUpdate": {} }));
            at(strategy, "rollingUpdate", |rolling| add(rolling, defaults.clone()));
        }
    });
}

fn job(spec: &mut Value) {
    at(spec, "template", template);
    // Without both it is one pod; with a parallelism alone it is a queue, which has no number of completions.
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        add(spec, json!({ "completions": 1 }));
    }
    add(spec, json!({ "parallelism": 1, "completionMode": "NonIndexed", "suspend": false, "manualSelector": false }));
    let replacement = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    add(spec, json!({ "podReplacementPolicy": replacement }));
    let by_index = spec.get("backoffLimitPerIndex").is_some();
    add(spec, json!({ "backoffLimit": if by_index { i32::MAX } else { 6 } }));
}

fn cron_job(spec: &mut Value) {
    add(
        spec,
        json!({
            "concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        }),
    );
    at(spec, "jobTemplate", |job| {
        add(job, json!({ "metadata": {} }));
        at(job, "spec", |spec| at(spec, "template", template));
    });
}

fn template(template: &mut Value) {
    add(template, json!({ "metadata": {} }));
    at(template, "spec", pod_spec);
}

fn pod_spec(spec: &mut Value) {
    add(
        spec,
        json!({
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        }),
    );
    // The older name of the same field.
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        add(spec, json!({ "serviceAccount": name }));
    }
    for field in ["containers", "initContainers"] {
        each(spec, field, container);
    }
    each(spec, "volumes", volume);
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let pull = if is_latest(image) { "Always" } else { "IfNotPresent" };
    add(
        container,
        json!({
            "imagePullPolicy": pull, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "resources": {},
        }),
    );
    each(container, "ports", |port| add(port, json!({ "protocol": "TCP" })));
    each(container, "env", |env| {
        at(env, "valueFrom", |from| at(from, "fieldRef", |field| add(field, json!({ "apiVersion": "v1" }))));
    });
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        at(container, field, probe);
    }
    at(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            at(lifecycle, hook, |hook| at(hook, "httpGet", http_get));
        }
    });
}

/// An image without a tag, or with the tag latest; a digest is one image for ever.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn probe(probe: &mut Value) {
    add(probe, json!({ "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 }));
    at(probe, "httpGet", http_get);
    at(probe, "grpc", |grpc| add(grpc, json!({ "service": "" })));
}

fn http_get(get: &mut Value) {
    add(get, json!({ "path": "/", "scheme": "HTTP" }));
}

fn volume(volume: &mut Value) {
    let sources = ["emptyDir", "hostPath", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim"];
    let others = volume.as_object().is_some_and(|v: &Map<String, Value>| v.len() > 1);
    if !others && !sources.iter().any(|source| volume.get(source).is_some()) {
        add(volume, json!({ "emptyDir": {} }));
    }
    // 0644.
    for field in ["configMap", "secret", "projected", "downwardAPI"] {
        at(volume, field, |source| add(source, json!({ "defaultMode": 420 })));
    }
    at(volume, "hostPath", |path| add(path, json!({ "type": "" })));
    at(volume, "projected", |projected| {
        each(projected, "sources", |source| {
            at(source, "serviceAccountToken", |token| add(token, json!({ "expirationSeconds": 3600 })));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_request_in_a_pod_and_not_in_a_template() {
        let spec = json!({ "containers": [{ "name": "a", "image": "a", "resources": { "limits": { "cpu": "1" } } }] });
        let pod = with_defaults(&json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec })).unwrap();
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({ "cpu": "1" }));
        let template = json!({ "template": { "spec": spec } });
        let set = with_defaults(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": template })).unwrap();
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"], json!({ "limits": { "cpu": "1" } }));
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(with_defaults(&set), Some(set), "what is filled stays as it is");
    }

    #[test]
    fn other_kinds_and_objects_without_a_form_are_left_alone() {
        assert_eq!(with_defaults(&json!({ "apiVersion": "v1", "kind": "ConfigMap" })), None);
        assert_eq!(with_defaults(&json!({ "apiVersion": "v1", "kind": "Pod", "spec": "x" })), None);
        assert_eq!(with_defaults(&json!({ "apiVersion": "v1", "kind": "Pod" })), None);
    }
}
