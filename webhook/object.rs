//! Objects of a review: how are they read without what nobody here looks at?
//!
//! `metadata.managedFields`, who wrote which field, is half of what the API server sends. It is skipped while reading.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

const MANAGED_FIELDS: &str = "managedFields";

/// How the object of a review is kept.
pub(crate) trait Content: Default {
    /// Reads it.
    ///
    /// # Errors
    /// Where it is none.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// An object, or null, without its managed fields.
impl Content for Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Part::Object)
    }
}

/// The text, to be read by whoever knows what is needed of it; none for null.
pub(crate) type Text = Option<Box<RawValue>>;

impl Content for Text {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

/// Reads the text of an object without its managed fields.
///
/// # Errors
/// Where it is none.
pub(crate) fn lean(text: &RawValue) -> Result<Value, serde_json::Error> {
    Value::read(&mut serde_json::Deserializer::from_str(text.get()))
}

/// What is being read.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "an object of Kubernetes",
            Self::Metadata => "the metadata of an object",
        })
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (self, &*key) {
                (Self::Metadata, MANAGED_FIELDS) => {
                    map.next_value::<IgnoredAny>()?;
                }
                (Self::Object, "metadata") => {
                    let metadata = map.next_value_seed(Self::Metadata)?;
                    all.insert(key, metadata);
                }
                _ => {
                    let value = map.next_value()?;
                    all.insert(key, value);
                }
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(object: &Value) -> Result<Value, serde_json::Error> {
        lean(&RawValue::from_string(object.to_string())?)
    }

    #[test]
    fn only_the_managed_fields_of_the_metadata_are_left_out() {
        let fields = json!([{ "manager": "kubectl" }]);
        let object = json!({
            "kind": "Pod", "managedFields": fields,
            "metadata": { "name": "a", "managedFields": fields, "labels": { "managedFields": "b" } },
            "spec": { "metadata": { "managedFields": fields } },
        });
        let mut lean = object.clone();
        lean["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read(&object).unwrap(), lean);
        assert_eq!(read(&Value::Null).unwrap(), Value::Null);
        assert_eq!(read(&json!({ "metadata": null })).unwrap(), json!({ "metadata": null }));
        let error = read(&json!(["a"])).unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected an object of Kubernetes"), "{error}");
    }
}
