//! Reads the objects of a review without unused fields.
//!
//! `metadata.managedFields` is half of a review. It is skipped while parsing, unless it is malformed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

const MANAGED_FIELDS: &str = "managedFields";

/// The representation of the object of a review.
pub(crate) trait ReviewObject: Default {
    /// Reads it.
    ///
    /// # Errors
    /// If it is not an object.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// An object, or null, without its managed fields.
impl ReviewObject for Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectPart::Object)
    }
}

/// The unparsed text; `None` for null.
pub(crate) type RawObject = Option<Box<RawValue>>;

impl ReviewObject for RawObject {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

/// Reads the text of an object without its managed fields.
///
/// # Errors
/// If it is not an object.
pub(crate) fn without_managed_fields(text: &RawValue) -> Result<Value, serde_json::Error> {
    Value::read(&mut serde_json::Deserializer::from_str(text.get()))
}

/// Who wrote which fields, as the API server has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "they are read to be sure of their types")]
struct ManagedFieldsEntry {
    manager: Option<String>,
    operation: Option<String>,
    api_version: Option<String>,
    time: Option<Time>,
    fields_type: Option<String>,
    #[serde(rename = "fieldsV1")]
    fields: Option<AnyObject>,
    subresource: Option<String>,
}

/// Any object.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for AnyObject {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

/// Malformed managed fields, which the rules report.
fn malformed_managed_fields(text: &RawValue) -> Option<Value> {
    match serde_json::from_str::<Vec<ManagedFieldsEntry>>(text.get()) {
        Ok(_) => None,
        Err(_) => serde_json::from_str(text.get()).ok(),
    }
}

/// The part being parsed.
#[derive(Clone, Copy)]
enum ObjectPart {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for ObjectPart {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ObjectPart {
    /// Keeps metadata that is not an object, which the rules report.
    fn keep_malformed<E: Error>(self, found: Unexpected<'_>, value: impl Into<Value>) -> Result<Value, E> {
        match self {
            Self::Object => Err(E::invalid_type(found, &self)),
            Self::Metadata => Ok(value.into()),
        }
    }
}

impl<'de> Visitor<'de> for ObjectPart {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "a Kubernetes object",
            Self::Metadata => "the metadata of an object",
        })
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.keep_malformed(Unexpected::Bool(value), value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.keep_malformed(Unexpected::Signed(value), value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.keep_malformed(Unexpected::Unsigned(value), value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.keep_malformed(Unexpected::Float(value), value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.keep_malformed(Unexpected::Str(value), value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Value, A::Error> {
        match self {
            Self::Object => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            Self::Metadata => Value::deserialize(SeqAccessDeserializer::new(values)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (self, &*key) {
                (Self::Metadata, MANAGED_FIELDS) => {
                    if let Some(odd) = malformed_managed_fields(map.next_value::<&RawValue>()?) {
                        all.insert(key, odd);
                    }
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
        without_managed_fields(&RawValue::from_string(object.to_string())?)
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
        for odd in [json!(null), json!([]), json!([{}]), json!("a"), json!(true), json!(-1), json!(1), json!(0.5)] {
            let object = json!({ "metadata": odd });
            assert_eq!(read(&object).unwrap(), object);
        }
        for odd in [json!(null), json!("x"), json!([5]), json!([{ "manager": 5 }]), json!([{ "a": "b" }])] {
            let object = json!({ "metadata": { "managedFields": odd } });
            assert_eq!(read(&object).unwrap(), object, "what is odd is kept");
        }
        let error = read(&json!(["a"])).unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected a Kubernetes object"), "{error}");
    }
}
