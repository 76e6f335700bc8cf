//! JSON Schemas of definitions that reject nothing that the API server accepts.
//!
//! The API server accepts null for an absent field, sets defaults before it checks required fields, and drops the status
//! of a created object. What JSON Schema cannot express, or another dialect of regular expressions, is left out: an
//! editor that marks correct manifests is worse than one that misses mistakes.

use serde_json::{Map, Value, json};

/// Keywords that mean the same in both.
const KEPT: [&str; 10] = [
    "description",
    "default",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];
/// What editors' regular expressions do not know, or know otherwise than Go.
const FOREIGN: [&str; 6] = ["(?i", "(?s", "(?P", r"\A", r"\z", "[[:"];

/// The schema of a kind, in all its versions that are served, by the `spec` of its definition.
pub(super) fn kind(spec: &Value) -> Value {
    let group = spec["group"].as_str().unwrap_or_default();
    let kind = &spec["names"]["kind"];
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    // The stored version comes last and is the one to write.
    let names: Vec<String> =
        versions.iter().rev().map(|v| format!("{group}/{}", v["name"].as_str().unwrap_or_default())).collect();
    let original = versions.last().map_or(&Value::Null, |version| &version["schema"]["openAPIV3Schema"]);
    let mut whole = schema(original);
    whole["title"] = kind.clone();
    whole["type"] = json!("object");
    whole["properties"]["apiVersion"] = json!({ "type": "string", "enum": names });
    whole["properties"]["kind"] = json!({ "type": "string", "const": kind });
    whole["properties"]["metadata"] = metadata();
    if !original["properties"]["status"].is_null() {
        // A created object has no status, even if its manifest does.
        whole["properties"]["status"] = json!({ "description": "Written by the controller." });
    }
    whole["additionalProperties"] = json!(false);
    let required = whole["required"].as_array().into_iter().flatten().cloned();
    let mut required: Vec<Value> = required.collect();
    for field in ["apiVersion", "kind", "metadata"] {
        if !required.iter().any(|name| name == field) {
            required.push(json!(field));
        }
    }
    whole["required"] = json!(required);
    whole
}

fn metadata() -> Value {
    let map = json!({ "type": ["object", "null"], "additionalProperties": { "type": ["string", "null"] } });
    json!({
        "type": "object",
        "properties": {
            "name": { "type": ["string", "null"], "description": "Name of the object." },
            "labels": map,
            "annotations": map,
        },
    })
}

/// A structural schema in the words of JSON Schema.
pub(super) fn schema(original: &Value) -> Value {
    let mut made = Map::new();
    for keyword in KEPT {
        if let Some(value) = original.get(keyword) {
            made.insert(keyword.to_owned(), value.clone());
        }
    }
    if let Some(kinds) = types(original) {
        made.insert("type".to_owned(), kinds);
    }
    if let Some(allowed) = original["enum"].as_array() {
        let with_null = allowed.iter().filter(|value| !value.is_null()).cloned().chain([Value::Null]);
        made.insert("enum".to_owned(), with_null.collect());
    }
    let is_portable = |pattern: &&str| !FOREIGN.iter().any(|foreign| pattern.contains(foreign));
    if let Some(pattern) = original["pattern"].as_str().filter(is_portable) {
        made.insert("pattern".to_owned(), json!(pattern));
    }
    if let Some(items) = original.get("items") {
        made.insert("items".to_owned(), schema(items));
    }
    object(original, &mut made);
    Value::Object(made)
}

fn types(original: &Value) -> Option<Value> {
    if original["x-kubernetes-int-or-string"] == true {
        return Some(json!(["integer", "string", "null"]));
    }
    match &original["type"] {
        Value::String(name) => Some(json!([name, "null"])),
        Value::Array(names) => {
            let names = names.iter().filter(|name| *name != "null").cloned();
            Some(names.chain([json!("null")]).collect())
        }
        _ => None,
    }
}

fn object(original: &Value, made: &mut Map<String, Value>) {
    let properties = original["properties"].as_object();
    if let Some(properties) = properties {
        let each = properties.iter().map(|(name, property)| (name.clone(), schema(property)));
        made.insert("properties".to_owned(), Value::Object(each.collect()));
        let has_default = |name: &Value| {
            let property = name.as_str().and_then(|name| properties.get(name));
            property.is_some_and(|property| property.get("default").is_some())
        };
        let required = original["required"].as_array().into_iter().flatten();
        let required: Vec<Value> = required.filter(|name| !has_default(name)).cloned().collect();
        if !required.is_empty() {
            made.insert("required".to_owned(), json!(required));
        }
    }
    let open = original["x-kubernetes-preserve-unknown-fields"] == true;
    match &original["additionalProperties"] {
        Value::Object(values) => drop(made.insert("additionalProperties".to_owned(), schema(&json!(values)))),
        Value::Null | Value::Bool(false) if properties.is_some() && !open => {
            made.insert("additionalProperties".to_owned(), json!(false));
        }
        _ => {}
    }
}
