//! JSON to values, where there is no schema, and back.

use crate::cel::library::time;
use crate::cel::value::{Key, Val};
use serde_json::{Map, Number, Value};
use std::sync::Arc;

/// A value without a schema: whole numbers are integers, others doubles.
pub(crate) fn from_json(json: &Value) -> Val {
    match json {
        Value::Null => Val::Null,
        Value::Bool(b) => Val::Bool(*b),
        Value::Number(n) => number(n),
        Value::String(text) => Val::text(text.as_str()),
        Value::Array(items) => Val::list(items.iter().map(from_json).collect()),
        Value::Object(map) => {
            Val::map(map.iter().map(|(k, v)| (Key::Text(Arc::from(k.as_str())), from_json(v))).collect())
        }
    }
}

fn number(n: &Number) -> Val {
    match (n.as_i64(), n.as_f64()) {
        (Some(i), _) => Val::Int(i),
        (None, Some(d)) => Val::Double(d),
        (None, None) => Val::Invalid(Arc::from(format!("the number {n} is too large"))),
    }
}

/// The value as JSON. `None` for what JSON has no form for.
pub(crate) fn to_json(value: &Val) -> Option<Value> {
    Some(match value {
        Val::Null => Value::Null,
        Val::Bool(b) => Value::Bool(*b),
        Val::Int(i) => Value::from(*i),
        Val::UInt(u) => Value::from(*u),
        Val::Double(d) => Value::Number(Number::from_f64(*d)?),
        Val::Text(text) => Value::String(text.to_string()),
        Val::Duration(d) => Value::String(time::print_duration(*d)),
        Val::Timestamp(at) => Value::String(at.to_string()),
        Val::List(list) => Value::Array(list.items.iter().map(to_json).collect::<Option<_>>()?),
        Val::Map(map) => {
            let mut object = Map::new();
            for (key, value) in map.entries() {
                let Key::Text(key) = key else { return None };
                object.insert(key.to_string(), to_json(value)?);
            }
            Value::Object(object)
        }
        Val::Bytes(_) | Val::Type(_) | Val::Optional(_) | Val::Opaque(_) | Val::Invalid(_) => return None,
    })
}
