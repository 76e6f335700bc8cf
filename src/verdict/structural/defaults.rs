//! What does the API server put in, and leave out, before it checks?

use serde_json::Value;

/// Puts in defaults and drops nulls, top-down: the walk goes on into what was put in. Nothing is put in below an
/// absent parent. None of our fields may be null, so a null is as good as absent; null items of a list stay.
pub(super) fn apply(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            if schema["x-kubernetes-preserve-unknown-fields"] != true {
                map.retain(|_, v| !v.is_null());
            }
            let properties = schema["properties"].as_object();
            for (key, schema) in properties.into_iter().flatten() {
                if let Some(default) = schema.get("default").filter(|_| !map.contains_key(key)) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, child) in map.iter_mut() {
                let known = properties.and_then(|p| p.get(key));
                apply(child, known.unwrap_or_else(|| &schema["additionalProperties"]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| apply(item, &schema["items"])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_go_into_what_was_put_in_and_not_below_what_is_absent() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "object", "default": {}, "properties": { "b": { "default": 1 } } },
            "c": { "type": "object", "properties": { "d": { "default": 2 } } },
            "e": { "type": "array", "items": { "type": "object", "properties": { "f": { "default": 3 } } } },
        } });
        let mut value = json!({ "e": [{}, { "f": null }, null] });
        apply(&mut value, &schema);
        assert_eq!(value, json!({ "a": { "b": 1 }, "e": [{ "f": 3 }, { "f": 3 }, null] }));
    }
}
