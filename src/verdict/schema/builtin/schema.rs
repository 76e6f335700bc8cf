//! Makes schemas of built-in kinds from the types of `k8s-openapi`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Fields that hold a number or a text with another meaning than a quantity.
const INT_OR_STRING: [&str; 5] = ["port", "targetPort", "maxSurge", "maxUnavailable", "minAvailable"];

/// Enumerated fields; the empty string is the default.
const ENUMS: [(&str, &[&str]); 9] = [
    ("restartPolicy", &["Always", "OnFailure", "Never", ""]),
    ("imagePullPolicy", &["Always", "IfNotPresent", "Never", ""]),
    ("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    ("effect", &["NoSchedule", "PreferNoSchedule", "NoExecute", ""]),
    ("concurrencyPolicy", &["Allow", "Forbid", "Replace", ""]),
    ("podManagementPolicy", &["OrderedReady", "Parallel", ""]),
    ("dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", ""]),
    ("protocol", &["TCP", "UDP", "SCTP", ""]),
    ("completionMode", &["NonIndexed", "Indexed", ""]),
];

/// Restart policies on a resize of a container: another field named `restartPolicy`.
const RESIZE_RESTART_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];

/// The schema of a type, without references.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    adapt(&mut schema, "");
    schema
}

/// Drops descriptions, and adds constraints that the types do not express.
fn adapt(schema: &mut Value, name: &str) {
    let Some(map) = schema.as_object_mut() else { return };
    map.shift_remove("description");
    map.shift_remove("title");
    if map.shift_remove("x-kubernetes-int-or-string").is_some() {
        let either = if INT_OR_STRING.contains(&name) { "x-kubernetes-int-or-string" } else { "x-napkeeper-quantity" };
        map.insert(either.to_owned(), json!(true));
    }
    if let Some((_, words)) = ENUMS.iter().find(|(field, _)| *field == name)
        && map.get("type") == Some(&json!("string"))
        && !map.contains_key("enum")
    {
        map.insert("enum".to_owned(), json!(words));
    }
    if let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) {
        // It has a default where it is required (`onPodConditions`), and is otherwise written by controllers.
        required.retain(|field| field != "status");
    }
    if map.get("properties").is_some_and(|p| p["resourceName"].is_object() && p["restartPolicy"].is_object()) {
        map["properties"]["restartPolicy"] = json!({ "type": "string", "enum": RESIZE_RESTART_POLICIES });
    }
    let has_fields = map.contains_key("properties") || map.contains_key("additionalProperties");
    if map.get("type") == Some(&json!("object")) && !has_fields {
        map.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    if let Some(item) = map.get_mut("items").and_then(Value::as_object_mut)
        && item.get("type") == Some(&json!("string"))
    {
        // It is read as an empty text.
        item.insert("nullable".to_owned(), json!(true));
    }
    below(map, name);
}

fn below(map: &mut Map<String, Value>, name: &str) {
    for (field, child) in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        adapt(child, field);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(keyword) {
            adapt(child, name);
        }
    }
}
