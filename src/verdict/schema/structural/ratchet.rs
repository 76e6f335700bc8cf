//! Ratcheting: compares an update with the stored value, by the keys of lists.
//!
//! An update is not refused for what was there before. Fields and keys are matched by name, items of a list only when
//! it is a map with keys; everything else is compared as a whole.

use crate::schema::structural::node::{ListType, SchemaNode};
use serde_json::Value;

/// A value as it was, with the schema that says how its parts are matched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldValue<'p> {
    pub(crate) value: &'p Value,
    pub(crate) shape: &'p SchemaNode,
}

impl<'p> OldValue<'p> {
    /// A field or key, where it was there and has a schema.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        let value = self.value.as_object()?.get(name)?;
        self.shape.find(name).node().map(|shape| Self { value, shape })
    }

    /// The item that has the same keys as this one.
    pub(crate) fn item(self, item: &Value) -> Option<Self> {
        let ListType::Map(keys) = &self.shape.list else { return None };
        let shape = self.shape.items.as_deref()?;
        // An item without one of its keys, or with a key that is no scalar, is matched with nothing.
        let of = |value: &Value| {
            let scalar = |key| value.as_object()?.get(key).filter(|v| v.is_string() || v.is_number() || v.is_boolean());
            keys.iter().map(|key| scalar(key).cloned()).collect::<Option<Vec<_>>>()
        };
        let wanted = of(item)?;
        let value = self.value.as_array()?.iter().find(|old| of(old).is_some_and(|keys| keys == wanted))?;
        Some(Self { value, shape })
    }

    /// True when nothing has changed.
    pub(crate) fn is(self, new: &Value) -> bool {
        match (new, self.value) {
            (Value::Array(new), Value::Array(old)) if matches!(self.shape.list, ListType::Map(_)) => {
                new.len() == old.len() && new.iter().all(|item| self.item(item).is_some_and(|past| past.is(item)))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.iter().all(|(k, v)| self.field(k).is_some_and(|past| past.is(v)))
            }
            (new, old) => new == old,
        }
    }
}

/// A stored value as it is read again: whole numbers have lost their point.
pub(crate) fn as_read(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(as_read),
        Value::Array(items) => items.iter_mut().for_each(as_read),
        Value::Number(n) if n.is_f64() => {
            let whole = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18);
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 64 bits")]
            if let Some(f) = whole {
                *value = Value::from(f as i64);
            }
        }
        _ => {}
    }
}
