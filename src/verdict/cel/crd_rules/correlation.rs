//! Correlates the values of an update with the stored ones.
//!
//! The API server forgives a fault of a value that an update leaves as it was. Values are matched by field, by the key
//! of a map and by the keys of a list's items; items of other lists are not matched one by one.

use crate::cel::crd_rules::decl_type::keys_of;
use serde_json::Value;

/// A new value with what is stored in its place.
#[derive(Debug, Clone, Copy)]
pub struct OldAndNew<'v> {
    schema: &'v Value,
    new: &'v Value,
    old: &'v Value,
}

impl<'v> OldAndNew<'v> {
    /// A whole object, or a part of it, and what is stored in its place, by their schema.
    #[must_use]
    pub fn new(schema: &'v Value, new: &'v Value, old: &'v Value) -> Self {
        Self { schema, new, old }
    }

    /// The field or the value of a map, if both have it and the schema knows it.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<Self> {
        let schema = child_schema(self.schema, name)?;
        Some(Self { schema, new: self.new.get(name)?, old: self.old.get(name)? })
    }

    /// The item of a list whose items have keys, if there is one with the same keys.
    #[must_use]
    pub fn index(&self, at: usize) -> Option<Self> {
        let new = self.new.get(at)?;
        let old = correlated_item(self.schema, self.old, new)?;
        Some(Self { schema: self.schema.get("items")?, new, old })
    }

    /// Is the new value the old one, as the API server compares them for this?
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| self.key(key).is_some_and(|child| child.is_unchanged()))
            }
            (Value::Array(new), Value::Array(old)) if is_list_map(self.schema) => {
                let same = |at| self.index(at).is_some_and(|child: OldAndNew<'_>| child.is_unchanged());
                new.len() == old.len() && (0..new.len()).all(same)
            }
            (new, old) => new == old,
        }
    }
}

/// The schema of a field or of the values of a map.
pub(crate) fn child_schema<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let property = schema.get("properties").and_then(|p| p.get(name));
    property.or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()))
}

fn is_list_map(schema: &Value) -> bool {
    schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map")
}

/// The item of the stored list that has the keys of the new one.
pub(crate) fn correlated_item<'v>(schema: &Value, old: &'v Value, new: &Value) -> Option<&'v Value> {
    if !is_list_map(schema) {
        return None;
    }
    // An item without one of its keys, or with a key that is no scalar, is matched with nothing.
    let of = |item: &'_ Value, key: &str| {
        let value = item.as_object()?.get(key)?;
        (value.is_string() || value.is_number() || value.is_boolean()).then(|| value.clone())
    };
    let same =
        |item: &Value| keys_of(schema).all(|key| of(new, key).is_some_and(|wanted| of(item, key) == Some(wanted)));
    old.as_array()?.iter().find(|item| new.is_object() && item.is_object() && same(item))
}
