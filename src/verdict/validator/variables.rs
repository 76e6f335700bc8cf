//! Variables such as `${name}`, which Flux or envsubst replaces before an object is applied. What depends on one is left open.

use serde_json::{Map, Value};

/// True for a value with a variable in it.
pub(super) fn is_open(value: &Value) -> bool {
    match value {
        Value::String(text) => has_variable(text),
        Value::Array(items) => items.iter().any(is_open),
        Value::Object(map) => map.values().any(is_open),
        _ => false,
    }
}

/// How many texts within a value have variables.
pub(super) fn count(value: &Value) -> usize {
    match value {
        Value::String(text) => usize::from(has_variable(text)),
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The object with what is known of it, for rules that compare objects: names have the names of their variables in them, so that
/// references still match, and other values with variables are left out.
pub(super) fn known_part(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if has_variable(text) => None,
        Value::Array(items) => {
            let known: Vec<Value> = items.iter().filter_map(known_part).collect();
            (known.len() == items.len() || !known.is_empty()).then_some(Value::Array(known))
        }
        Value::Object(map) => {
            let mut known = Map::new();
            for (key, child) in map {
                // A requirement with some of its values would be another one.
                if key == "values" && is_open(child) {
                    return None;
                }
                let child = match child.as_str().filter(|text| key == "name" && has_variable(text)) {
                    Some(name) => Some(Value::String(plain(name))),
                    None => known_part(child),
                };
                if let Some(child) = child {
                    known.insert(key.clone(), child);
                }
            }
            Some(Value::Object(known))
        }
        other => Some(other.clone()),
    }
}

fn has_variable(text: &str) -> bool {
    first_variable(text).is_some()
}

/// What stands between the braces of the first variable of a text: its name, and a default if there is one.
#[must_use]
pub fn first_variable(text: &str) -> Option<&str> {
    let begins_name = |inner: &&str| inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    // Two dollar signs stand for one, and begin no variable.
    let signs = text.match_indices("${").filter(|(at, _)| !text[..*at].ends_with('$'));
    signs.filter_map(|(at, sign)| Some(text[at + sign.len()..].split_once('}')?.0)).find(begins_name)
}

/// A name in which each variable is its own name, as far as names of objects have such characters.
fn plain(name: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    name.chars().filter(allowed).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_variable_has_a_name_in_braces() {
        for text in ["${a}", "x-${A_b1}", "${_x:=5}", "$${a} ${b}"] {
            assert!(has_variable(text), "{text}");
        }
        for text in ["$a", "$(a)", "${}", "${1}", "$${a}", "${a", "{{ .a }}"] {
            assert!(!has_variable(text), "{text}");
        }
    }

    #[test]
    fn what_is_known_keeps_names_and_loses_open_values() {
        let value = json!({ "metadata": { "name": "${Cluster_1}-a", "labels": { "x": "${y}", "z": "1" } }, "spec": {
            "weight": "${w}", "requirements": [{ "key": "a", "values": ["${b}"] }, { "key": "c", "values": ["d", "${e}"] }, { "key": "f", "values": ["g"] }] } });
        let known = json!({ "metadata": { "name": "cluster1-a", "labels": { "z": "1" } }, "spec": {
            "requirements": [{ "key": "f", "values": ["g"] }] } });
        assert_eq!(known_part(&value), Some(known));
        assert_eq!((count(&value), is_open(&value)), (5, true));
    }
}
