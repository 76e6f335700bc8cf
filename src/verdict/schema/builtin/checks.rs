//! Checks of workloads that the API server makes in code.

use crate::finding::Issue;
use crate::rules::{Rule, structure as rules};
use crate::schema::builtin::path;
use crate::schema::structural::label_issues;
use napkeeper_api::field_path::Path;
use napkeeper_core::model::amounts::quantity::Quantity;
use napkeeper_core::model::support::name_syntax::is_label;
use serde_json::Value;

/// Checks an object that matches its schema.
pub(crate) fn check(kind: &str, pods: Option<&str>, value: &Value, found: &mut Vec<Issue>) {
    if value["spec"].is_null() && kind != "PodDisruptionBudget" {
        return report(&rules::REQUIRED, &Path::from_dotted("spec"), "required field spec is missing", found);
    }
    if let Some(at) = pods {
        let path_to_pod = path(at);
        let template = at.split('.').filter(|key| !key.is_empty()).fold(value, |value, key| &value[key]);
        if !at.is_empty() {
            label_issues(&template["metadata"], &path_to_pod.key("metadata"), found);
        }
        let claims = list(&value["spec"]["volumeClaimTemplates"]);
        let claims = claims.filter_map(|(_, claim)| claim["metadata"]["name"].as_str()).collect();
        pod(&template["spec"], claims, &path_to_pod.key("spec"), found);
        restarts(kind, &template["spec"], &path_to_pod.key("spec"), found);
    }
    match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => selects_its_pods(&value["spec"], found),
        "PodDisruptionBudget" => {
            let spec = &value["spec"];
            if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
                let message = "minAvailable and maxUnavailable are mutually exclusive";
                let issue = Issue::new(&rules::MEANING, &Path::from_dotted("spec.maxUnavailable"), message);
                found.push(issue.fix("keep one of them".to_owned()));
            }
        }
        "PersistentVolumeClaim" => claim(&value["spec"], &Path::from_dotted("spec"), found),
        _ => {}
    }
    for (i, template) in list(&value["spec"]["volumeClaimTemplates"]) {
        claim(&template["spec"], &Path::from_dotted("spec.volumeClaimTemplates").index(i).key("spec"), found);
    }
}

fn list(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn report(rule: &'static Rule, at: &Path, message: impl Into<String>, found: &mut Vec<Issue>) {
    found.push(Issue::new(rule, at, message));
}

fn claim(spec: &Value, at: &Path, found: &mut Vec<Issue>) {
    if list(&spec["accessModes"]).next().is_none() {
        let fix = "add accessModes: [ReadWriteOnce]".to_owned();
        let message = "at least one access mode is required";
        found.push(Issue::new(&rules::REQUIRED, &at.key("accessModes"), message).fix(fix));
    }
    if spec["resources"]["requests"]["storage"].is_null() {
        let at = at.key("resources").key("requests").key("storage");
        report(&rules::REQUIRED, &at, "required field storage is missing", found);
    }
}

/// The restart policies of a Deployment and of a Job.
fn restarts(kind: &str, spec: &Value, at: &Path, found: &mut Vec<Issue>) {
    let policy = spec["restartPolicy"].as_str().filter(|policy| !policy.is_empty());
    let at = at.key("restartPolicy");
    match (kind, policy) {
        ("Deployment" | "StatefulSet" | "DaemonSet", Some(policy)) if policy != "Always" => {
            let message = format!("restartPolicy of a {kind} must be Always, not {policy}");
            let fix = "set restartPolicy: Always, or omit it; for pods that run to completion use a Job".to_owned();
            found.push(Issue::new(&rules::MEANING, &at, message).fix(fix));
        }
        ("Job" | "CronJob", None | Some("Always")) => {
            let message = format!("restartPolicy of a {kind} must be OnFailure or Never");
            found.push(Issue::new(&rules::MEANING, &at, message).fix("set restartPolicy: Never".to_owned()));
        }
        _ => {}
    }
}

fn selects_its_pods(spec: &Value, found: &mut Vec<Issue>) {
    let selector = &spec["selector"];
    let at = Path::from_dotted("spec.selector");
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted: Vec<(&String, &Value)> = selector["matchLabels"].as_object().into_iter().flatten().collect();
    let conditions: Vec<(usize, &Value)> = list(&selector["matchExpressions"]).collect();
    if wanted.is_empty() && conditions.is_empty() {
        report(&rules::MEANING, &at, "an empty selector would select every pod, and is rejected", found);
        return;
    }
    for (key, value) in wanted {
        if labels[key] != *value {
            let has = labels[key].as_str().map_or_else(|| "no such label".to_owned(), |has| format!("{has:?}"));
            let message = format!("selector does not match the pod template labels: {key} must be {value}, got {has}");
            let path = Path::from_dotted("spec.template.metadata.labels");
            let shown = value.as_str().unwrap_or_default();
            found.push(
                Issue::new(&rules::MEANING, &path, message)
                    .fix(format!("add the label {key}: {shown} to the pod template")),
            );
        }
    }
    for (i, condition) in conditions {
        let key = condition["key"].as_str().unwrap_or_default();
        let label = labels[key].as_str();
        let among = || list(&condition["values"]).any(|(_, value)| value.as_str() == label);
        let holds = match condition["operator"].as_str() {
            Some("In") => label.is_some() && among(),
            Some("NotIn") => label.is_none() || !among(),
            Some("Exists") => label.is_some(),
            Some("DoesNotExist") => label.is_none(),
            _ => continue,
        };
        if !holds {
            let path = at.key("matchExpressions").index(i);
            report(&rules::MEANING, &path, "the pod template labels do not satisfy this expression", found);
        }
    }
}

/// `volumes` are additional volumes of the pod, such as volume claim templates.
fn pod<'v>(spec: &'v Value, mut volumes: Vec<&'v str>, at: &Path, found: &mut Vec<Issue>) {
    volumes.extend(list(&spec["volumes"]).filter_map(|(_, volume)| volume["name"].as_str()));
    let mut names: Vec<&str> = Vec::new();
    for field in ["containers", "initContainers"] {
        let at = at.key(field);
        if field == "containers" && list(&spec[field]).next().is_none() {
            report(&rules::REQUIRED, &at, "at least one container is required", found);
        }
        for (i, container) in list(&spec[field]) {
            let at = at.index(i);
            let name = container["name"].as_str().unwrap_or_default();
            if !is_label(name) {
                let message =
                    format!("{name:?} is not a valid container name: use at most 63 lowercase letters, digits and '-'");
                report(&rules::NAME, &at.key("name"), message, found);
            } else if names.contains(&name) {
                report(&rules::LIST, &at.key("name"), format!("duplicate container name {name:?}"), found);
            }
            names.push(name);
            if container["image"].as_str().is_none_or(|image| image.trim().is_empty()) {
                report(&rules::REQUIRED, &at.key("image"), "required field image is missing", found);
            }
            mounts(container, &volumes, &at, found);
            resources(&container["resources"], &at.key("resources"), found);
        }
    }
}

fn mounts(container: &Value, volumes: &[&str], at: &Path, found: &mut Vec<Issue>) {
    for (i, mount) in list(&container["volumeMounts"]) {
        let name = mount["name"].as_str().unwrap_or_default();
        if !volumes.contains(&name) {
            let path = at.key("volumeMounts").index(i).key("name");
            report(&rules::MEANING, &path, format!("no volume named {name:?}"), found);
        }
    }
}

/// No request may be more than its limit.
fn resources(resources: &Value, at: &Path, found: &mut Vec<Issue>) {
    let amount = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        let (Some(required), Some(most)) = (amount(request), amount(limit)) else { continue };
        if required > most {
            let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            let (request, limit) = (plain(request), plain(limit));
            let message = format!("the {name} request ({request}) exceeds the limit ({limit})");
            let fix = format!("raise the limit to {request}, or lower the request to {limit}");
            found.push(Issue::new(&rules::MEANING, &at.key("requests").key(name), message).fix(fix));
        }
    }
}
