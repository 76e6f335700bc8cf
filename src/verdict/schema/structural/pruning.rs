//! Makes the object that would be stored: without unknown fields and nulls, with defaults.
//!
//! In the order of the API server: unknown fields and meaningless nulls are dropped, then defaults are added, top-down.
//! A default of the compiled schema includes the defaults of its fields, so one pass is enough.

use crate::schema::structural::fault::MAX_KEPT;
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::node::{FieldSchema, SchemaNode};
use napkeeper_api::field_path::Path;
use serde_json::{Map, Value};

/// Fields that every object has, whether or not its schema has them.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A field that the schema does not know.
#[derive(Debug)]
pub(crate) struct Unknown<'n> {
    pub(crate) path: Path,
    /// As the API server writes it.
    pub(crate) name: String,
    /// The schema of the object that has the field, where there is one.
    pub(crate) parent: Option<&'n SchemaNode>,
}

impl<'n> Unknown<'n> {
    /// The names of the fields that the object may have.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'n str> {
        self.parent.into_iter().flat_map(SchemaNode::names)
    }
}

/// The known fields of a value.
#[derive(Clone, Copy)]
enum KnownFields<'n> {
    /// This schema; `open` if a parent preserves unknown fields.
    Known { node: &'n SchemaNode, open: bool },
    /// None, so every field is unknown.
    Closed,
    /// None, and every field is preserved.
    Free,
}

/// Makes what would be stored.
pub(crate) struct Pruner<'n> {
    pub(crate) unknown: Vec<Unknown<'n>>,
}

/// The value as it would be stored, and the fields that are unknown.
pub(crate) fn prune<'n>(value: &Value, root: &'n SchemaNode) -> (Value, Vec<Unknown<'n>>) {
    let mut pruner = Pruner { unknown: Vec::new() };
    let stored = match value {
        Value::Object(map) => pruner.object(map, root, false, &FieldPath::ROOT),
        other => other.clone(),
    };
    (stored, pruner.unknown)
}

impl<'n> Pruner<'n> {
    fn value(&mut self, value: &Value, form: KnownFields<'n>, path: &FieldPath<'_>) -> Value {
        match (value, form) {
            (_, KnownFields::Free) | (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                value.clone()
            }
            (Value::Object(map), KnownFields::Closed) => {
                map.keys().for_each(|key| self.unknown(path, key, None));
                Value::Object(Map::new())
            }
            (Value::Array(items), KnownFields::Closed) => {
                let item = |(i, item)| self.value(item, KnownFields::Closed, &path.index(i));
                items.iter().enumerate().map(item).collect()
            }
            (Value::Object(map), KnownFields::Known { node, open }) => self.object(map, node, open, path),
            (Value::Array(items), KnownFields::Known { node, open }) => self.list(items, node, open, path),
        }
    }

    fn unknown(&mut self, path: &FieldPath<'_>, key: &str, parent: Option<&'n SchemaNode>) {
        if self.unknown.len() >= MAX_KEPT {
            return;
        }
        let at = path.field(key);
        self.unknown.push(Unknown { path: at.to_path(), name: at.dotted(), parent });
    }

    fn object(&mut self, map: &Map<String, Value>, node: &'n SchemaNode, open: bool, path: &FieldPath<'_>) -> Value {
        let mut stored = Map::with_capacity(map.len() + node.defaulted.len());
        let whole_object = path.is_root() || node.embedded;
        for (key, value) in map {
            let found = node.find(key);
            if let (Value::Null, Some(child)) = (value, found.node())
                && !child.nullable
            {
                if let Some(default) = &child.default {
                    stored.insert(key.clone(), default.clone());
                }
                continue;
            }
            let at = found.child_path(path, key);
            let pruned = match found {
                _ if whole_object && OBJECT_FIELDS.contains(&key.as_str()) => value.clone(),
                FieldSchema::Property(child) | FieldSchema::Additional(child) => {
                    self.value(value, KnownFields::Known { node: child, open: false }, &at)
                }
                FieldSchema::Anything => self.value(value, KnownFields::Closed, &at),
                FieldSchema::Nothing if open || node.preserve => value.clone(),
                FieldSchema::Nothing => {
                    self.unknown(path, key, Some(node));
                    continue;
                }
            };
            stored.insert(key.clone(), pruned);
        }
        if !node.defaulted.is_empty() {
            for (name, default) in node.missing_defaults(&stored) {
                stored.insert(name.to_owned(), default.clone());
            }
        }
        Value::Object(stored)
    }

    fn list(&mut self, items: &[Value], node: &'n SchemaNode, open: bool, path: &FieldPath<'_>) -> Value {
        let open = open || node.preserve;
        let form = match &node.items {
            Some(node) => KnownFields::Known { node, open },
            None if open => KnownFields::Free,
            None => KnownFields::Closed,
        };
        let default = node.items.as_ref().filter(|item| !item.nullable).and_then(|item| item.default.as_ref());
        let item = |(i, item): (usize, &Value)| match default {
            Some(default) if item.is_null() => default.clone(),
            _ => self.value(item, form, &path.index(i)),
        };
        items.iter().enumerate().map(item).collect()
    }
}

/// The same for a value that is no whole object.
pub(crate) fn prune_value<'n>(value: &Value, node: &'n SchemaNode) -> (Value, Vec<Unknown<'n>>) {
    let mut pruner = Pruner { unknown: Vec::new() };
    // Not at the root of an object, where apiVersion, kind and metadata are known to every schema.
    let inside = FieldPath::ROOT.field("default");
    let stored = pruner.value(value, KnownFields::Known { node, open: false }, &inside);
    (stored, pruner.unknown)
}
