//! Which fields does the schema not know?

use crate::finding::Issue;
use crate::rules::structure as rules;
use napkeeper_api::path::Path;
use napkeeper_core::suggest::nearest;
use serde_json::Value;

/// Fields that older versions had elsewhere: where they stood, and where they stand.
const MOVED: [(&str, &str); 4] = [
    ("spec.disruption.expireAfter", "spec.template.spec.expireAfter"),
    ("spec.template.spec.kubelet", "spec.kubelet of the AKSNodeClass"),
    ("spec.ttlSecondsAfterEmpty", "spec.disruption.consolidateAfter"),
    ("spec.ttlSecondsUntilExpired", "spec.template.spec.expireAfter"),
];

/// Notes every field that the schema does not know.
pub(super) fn check(value: &Value, schema: &Value, path: &Path, found: &mut Vec<Issue>) {
    match value {
        Value::Object(map) => {
            let properties = schema["properties"].as_object();
            for (key, child) in map {
                let at = path.key(key);
                match properties.and_then(|p| p.get(key)) {
                    Some(schema) => check(child, schema, &at, found),
                    None if schema["additionalProperties"].is_object() => {
                        check(child, &schema["additionalProperties"], &at, found);
                    }
                    None if is_open(schema) => {}
                    None => found.push(unknown(key, &at, schema)),
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                check(item, &schema["items"], &path.index(i), found);
            }
        }
        _ => {}
    }
}

/// A value of another type than object has no fields; that is said elsewhere.
fn is_open(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["type"] != "object"
        || (schema["properties"].is_null() && schema["additionalProperties"].is_null())
}

fn unknown(key: &str, at: &Path, schema: &Value) -> Issue {
    let known = schema["properties"].as_object().into_iter().flatten();
    let shown = at.to_string();
    let moved = MOVED.iter().find(|(old, _)| *old == shown);
    let fix = match moved {
        Some((_, now)) => Some(format!("it moved to {now}")),
        None => nearest(key, known.map(|(k, _)| k.as_str())).map(|k| format!("did you mean {k}?")),
    };
    Issue::new(&rules::UNKNOWN_FIELD, at, format!("unknown field {key}")).at_key().fix(fix)
}
