//! Finds duplicate items in lists of type set and map.
//!
//! Sets compare whole items, maps compare their keys. Integers and floats are never the same here.

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::fault::{Fault, Faults, Reason};
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::node::{ListType, SchemaNode};
use serde_json::Value;
use std::collections::HashMap;

/// Notes what repeats in a value and below it.
pub(crate) fn check(value: &Value, node: &SchemaNode, path: &FieldPath<'_>, faults: &mut Faults) {
    if !node.deep.lists {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let found = node.find(key);
                if let Some(schema) = found.node() {
                    check(child, schema, &found.child_path(path, key), faults);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => repeated(&items.iter().map(key_of).collect::<Vec<_>>(), path, faults),
                ListType::Map(keys) => map(items, keys, path, faults),
            }
            let Some(schema) = &node.items else { return };
            items.iter().enumerate().for_each(|(i, item)| check(item, schema, &path.index(i), faults));
        }
        _ => {}
    }
}

fn map(items: &[Value], keys: &[String], path: &FieldPath<'_>, faults: &mut Faults) {
    let stranger = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(i) = stranger {
        let at = path.index(i);
        let field = at.bracketed();
        let message = "must be a map: list items are identified by keys";
        let issue = Some(Issue::new(&rules::TYPE, &at.to_path(), message));
        faults.add(|| Fault { field, reason: Reason::Invalid, issue, secondary: true });
        return;
    }
    // One key is compared by its value; several make a map of their own.
    let of = |item: &Value| match keys {
        [key] => item.get(key).map_or_else(|| ABSENT.to_owned(), key_of),
        keys => {
            let given = keys.iter().filter_map(|key| Some(format!("{key}: {}", text_of(item.get(key)?))));
            given.collect::<Vec<_>>().join(", ")
        }
    };
    repeated(&items.iter().map(of).collect::<Vec<_>>(), path, faults);
}

/// Represents a missing key.
const ABSENT: &str = "an item without a key";

/// The identity of a value: an integer and a float are never equal, except inside of lists and maps.
fn key_of(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => text_of(value),
        scalar => scalar.to_string(),
    }
}

/// A value as Go writes it: whole floats lose their point, and keys are in order.
fn text_of(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(k, v)| format!("{k:?}:{}", text_of(v))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(text_of).collect::<Vec<_>>().join(",")),
        Value::Number(n) => match n.as_f64().filter(|f| n.is_f64() && f.fract() == 0.0 && f.abs() < 9.2e18) {
            Some(whole) => format!("{:.0}", whole + 0.0),
            None => n.to_string(),
        },
        scalar => scalar.to_string(),
    }
}

/// The second of equal keys is a fault; the API server does not mention a third.
fn repeated(keys: &[String], path: &FieldPath<'_>, faults: &mut Faults) {
    let mut seen: HashMap<&str, (usize, usize)> = HashMap::new();
    for (i, key) in keys.iter().enumerate() {
        let (first, times) = seen.entry(key).or_insert((i, 0));
        *times += 1;
        if *times != 2 {
            continue;
        }
        let at = path.index(i);
        let message = format!("duplicate item {key}: same as item {first}");
        let issue = Some(Issue::new(&rules::LIST, &at.to_path(), message));
        faults.add(|| Fault { field: at.bracketed(), reason: Reason::Duplicate, issue, secondary: false });
    }
}
