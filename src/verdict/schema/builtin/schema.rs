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

/// Operators, by a field beside which the list that has them is: a term of node affinity, a selector of labels.
const OPERATORS: [(&str, &[&str]); 2] = [
    ("matchFields", &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    ("matchLabels", &["In", "NotIn", "Exists", "DoesNotExist"]),
];

/// Operators of tolerations. Those that compare numbers need a feature gate.
const TOLERATES: [&str; 3] = ["Exists", "Equal", ""];

/// Fields that hold a number of pods or a share of them.
const SHARES: [&str; 3] = ["maxSurge", "maxUnavailable", "minAvailable"];

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
        if SHARES.contains(&name) {
            map.insert("pattern".to_owned(), json!("^[0-9]+%$"));
        }
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
    constrain_placement(map, name);
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

/// Adds what the API server demands of where pods may run.
fn constrain_placement(map: &mut Map<String, Value>, name: &str) {
    if name == "nodeSelectorTerms" {
        map.insert("minItems".to_owned(), json!(1));
    }
    let Some(fields) = map.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let operators = OPERATORS.iter().find(|(beside, _)| fields.contains_key(*beside)).map(|(_, operators)| operators);
    for list in ["matchExpressions", "matchFields"] {
        let operator = fields.get_mut(list).and_then(|list| list.pointer_mut("/items/properties/operator"));
        if let Some((operator, operators)) = operator.zip(operators) {
            operator["enum"] = json!(operators);
        }
    }
    if let Some(operator) = fields.get_mut("operator").filter(|_| name == "tolerations") {
        operator["enum"] = json!(TOLERATES);
    }
    if let Some(skew) = fields.get_mut("maxSkew") {
        skew["minimum"] = json!(1);
    }
    if let Some(weight) = fields.get_mut("weight").filter(|_| name == "preferredDuringSchedulingIgnoredDuringExecution")
    {
        weight["minimum"] = json!(1);
        weight["maximum"] = json!(100);
    }
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
