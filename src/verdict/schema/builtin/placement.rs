//! Checks of where pods may run, and of selectors of labels, that the API server makes in code.

use crate::finding::Issue;
use crate::rules::structure as rules;
use napkeeper_api::field_path::Path;
use serde_json::Value;

/// Checks the selectors and terms of node affinity in an object, wherever they are, and tolerations.
pub(super) fn check(value: &Value, at: &Path, found: &mut Vec<Issue>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = at.key(name);
                let each = value.as_array().into_iter().flatten().enumerate();
                match name.as_str() {
                    "matchExpressions" => each.for_each(|(i, one)| values(one, &at.index(i), found)),
                    "matchFields" => each.for_each(|(i, one)| {
                        values(one, &at.index(i), found);
                        field_key(one, &at.index(i).key("key"), found);
                    }),
                    "topologyKey" if value.as_str() == Some("") => {
                        let fix = "name a label of nodes, such as topology.kubernetes.io/zone".to_owned();
                        found.push(Issue::new(&rules::REQUIRED, &at, "topologyKey must not be empty").fix(fix));
                    }
                    "tolerations" => each.for_each(|(i, one)| toleration(one, &at.index(i), found)),
                    _ => check(value, &at, found),
                }
            }
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| check(item, &at.index(i), found)),
        _ => {}
    }
}

/// Nodes are matched by one field alone.
fn field_key(expression: &Value, at: &Path, found: &mut Vec<Issue>) {
    let key = expression["key"].as_str().unwrap_or_default();
    if key != "metadata.name" {
        let message = format!("{key:?} is not a field that nodes are matched by");
        found.push(Issue::new(&rules::MEANING, at, message).fix("use metadata.name, or matchExpressions".to_owned()));
    }
}

/// How many values an expression needs.
fn values(expression: &Value, at: &Path, found: &mut Vec<Issue>) {
    let operator = expression["operator"].as_str().unwrap_or_default();
    let values = expression["values"].as_array().map_or(&[][..], |values| values);
    let at = at.key("values");
    let message = match operator {
        "In" | "NotIn" if values.is_empty() => format!("operator {operator} needs at least one value"),
        "Exists" | "DoesNotExist" if !values.is_empty() => format!("operator {operator} takes no values"),
        "Gt" | "Lt" if values.len() != 1 => format!("operator {operator} needs one value"),
        _ => return,
    };
    found.push(Issue::new(&rules::MEANING, &at, message));
}

fn toleration(toleration: &Value, at: &Path, found: &mut Vec<Issue>) {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    if text("operator") == "Exists" && !text("value").is_empty() {
        let message = "operator Exists takes no value";
        let fix = "remove the value, or use operator: Equal".to_owned();
        found.push(Issue::new(&rules::MEANING, &at.key("value"), message).fix(fix));
    }
    if text("operator") != "Exists" && text("key").is_empty() {
        let message = "without a key the operator must be Exists, which tolerates every taint";
        found
            .push(Issue::new(&rules::MEANING, &at.key("operator"), message).fix("add the key of the taint".to_owned()));
    }
    if !toleration["tolerationSeconds"].is_null() && text("effect") != "NoExecute" {
        let message = "tolerationSeconds needs effect: NoExecute";
        found.push(Issue::new(&rules::MEANING, &at.key("effect"), message));
    }
}
