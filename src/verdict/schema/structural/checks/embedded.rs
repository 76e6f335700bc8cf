//! Checks objects inside of an object (`x-kubernetes-embedded-resource`).

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::fault::{Fault, Faults, Reason};
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::metadata::{self, MetadataOwner};
use crate::schema::structural::node::SchemaNode;
use napkeeper_core::model::support::name_syntax::is_label;
use serde_json::{Map, Value};

/// Errors in reading the objects in a value, and unknown fields of their metadata.
#[derive(Debug, Default)]
pub(crate) struct EmbeddedProblems {
    pub(crate) issues: Vec<Issue>,
    pub(crate) unknown: Vec<(String, Issue)>,
}

/// Reads apiVersion, kind and metadata of all objects in a value, and prunes their metadata.
pub(crate) fn read(value: &mut Value, node: &SchemaNode, path: &FieldPath<'_>, found: &mut EmbeddedProblems) {
    if !node.deep.embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                read_object(map, path, found);
            }
            for (key, child) in map {
                let below = node.find(key);
                if let Some(schema) = below.node() {
                    read(child, schema, &below.child_path(path, key), found);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for (i, item) in items.iter_mut().enumerate() {
                read(item, schema, &path.index(i), found);
            }
        }
        _ => {}
    }
}

fn read_object(map: &mut Map<String, Value>, path: &FieldPath<'_>, found: &mut EmbeddedProblems) {
    for key in ["apiVersion", "kind"] {
        if map.get(key).is_some_and(|value| !value.is_string()) {
            let at = path.field(key);
            found.issues.push(Issue::new(&rules::TYPE, &at.to_path(), format!("{key} must be a string")));
        }
    }
    if let Some(meta) = map.get_mut("metadata") {
        let reading = metadata::read(meta, &path.field("metadata"));
        *meta = reading.meta;
        found.issues.extend(reading.unreadable);
        found.unknown.extend(reading.unknown);
    }
}

/// Checks all objects in a value.
pub(crate) fn check(value: &Value, node: &SchemaNode, path: &FieldPath<'_>, faults: &mut Faults) {
    if !node.deep.embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                object(map, path, faults);
            }
            for (key, child) in map {
                let below = node.find(key);
                if let Some(schema) = below.node() {
                    check(child, schema, &below.child_path(path, key), faults);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            items.iter().enumerate().for_each(|(i, item)| check(item, schema, &path.index(i), faults));
        }
        _ => {}
    }
}

fn object(map: &Map<String, Value>, path: &FieldPath<'_>, faults: &mut Faults) {
    for key in ["apiVersion", "kind"] {
        let at = path.field(key);
        let Some(value) = map.get(key) else {
            faults.add(|| {
                let message = format!("an embedded object needs apiVersion and kind: {key} is missing");
                let issue = Some(Issue::new(&rules::REQUIRED, &at.to_path(), message));
                Fault { field: at.bracketed(), reason: Reason::Required, issue, secondary: false }
            });
            continue;
        };
        let text = value.as_str().unwrap_or_default();
        let fits = if key == "kind" {
            let lower = text.to_lowercase();
            lower.starts_with(|c: char| c.is_ascii_lowercase()) && is_label(&lower)
        } else {
            !text.is_empty() && text.matches('/').count() < 2
        };
        if !fits {
            faults.add(|| {
                let issue = Some(Issue::new(&rules::NO_KIND, &at.to_path(), format!("{value} is not a valid {key}")));
                Fault { field: at.bracketed(), reason: Reason::Invalid, issue, secondary: false }
            });
        }
    }
    if let Some(meta) = map.get("metadata") {
        metadata::check(meta, MetadataOwner::Embedded, &path.field("metadata"), faults);
    }
}
