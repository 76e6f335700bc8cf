//! Decodes JSON values into types, and says which field is wrong.
//!
//! The decoders of Kubernetes' types are large, and generic in where their data come from. `ValueDecoder` is the one
//! source of all of them: the decoder of a type is compiled once, and what finds the path costs nothing per type.

use crate::field_path::{Path, Segment};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};
use std::slice;

/// A value is not what a type says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct DecodeError {
    /// Where.
    pub path: Path,
    /// What was expected there.
    pub message: String,
}

/// Decodes a value.
///
/// # Errors
/// [`DecodeError`] for the first field that is not as the type has it.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    let mut failed = Vec::new();
    T::deserialize(ValueDecoder { value, failed: &mut failed }).map_err(|error| {
        failed.reverse();
        DecodeError { path: Path::root().join(&failed), message: error.to_string() }
    })
}

/// Decodes from a value. When that fails, every level above adds its segment to `failed`, from the field to the root.
struct ValueDecoder<'de, 'p> {
    value: &'de Value,
    failed: &'p mut Vec<Segment>,
}

impl<'de> Deserializer<'de> for ValueDecoder<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(list) => {
                let mut items = Items { rest: list.iter().enumerate(), failed: self.failed };
                let decoded = visitor.visit_seq(&mut items)?;
                match items.rest.len() {
                    0 => Ok(decoded),
                    _ => Err(Error::invalid_length(list.len(), &"fewer elements in array")),
                }
            }
            Value::Object(object) => {
                let mut fields = Fields { rest: object.iter(), next: None, failed: self.failed };
                let decoded = visitor.visit_map(&mut fields)?;
                match fields.rest.len() {
                    0 => Ok(decoded),
                    _ => Err(Error::invalid_length(object.len(), &"fewer elements in map")),
                }
            }
            // Not by the decoder of `Value`, or that of lists and objects would be compiled for each visitor as well.
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(value) => value.deserialize_any(visitor),
            Value::String(value) => visitor.visit_borrowed_str(value),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = self.value.as_object().into_iter().flatten();
        match (fields.next(), fields.next()) {
            (Some((variant, value)), None) => {
                visitor.visit_enum(Variant { variant, content: ValueDecoder { value, failed: self.failed } })
            }
            _ => self.value.deserialize_enum(name, variants, visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The items of a list.
struct Items<'de, 'p> {
    rest: std::iter::Enumerate<slice::Iter<'de, Value>>,
    failed: &'p mut Vec<Segment>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.rest.next() else { return Ok(None) };
        let decoded = seed.deserialize(ValueDecoder { value, failed: self.failed });
        decoded.map(Some).inspect_err(|_| self.failed.push(Segment::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The fields of an object.
struct Fields<'de, 'p> {
    rest: map::Iter<'de>,
    next: Option<(&'de String, &'de Value)>,
    failed: &'p mut Vec<Segment>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.rest.next();
        let Some((key, _)) = self.next else { return Ok(None) };
        let decoded = seed.deserialize(BorrowedStrDeserializer::new(key));
        decoded.map(Some).inspect_err(|_: &Error| self.failed.push(Segment::Key(key.as_str().into())))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((key, value)) = self.next.take() else { return Err(Error::custom("value is missing")) };
        let decoded = seed.deserialize(ValueDecoder { value, failed: self.failed });
        decoded.inspect_err(|_| self.failed.push(Segment::Key(key.as_str().into())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A variant with its content: `{variant: content}`.
struct Variant<'de, 'p> {
    variant: &'de str,
    content: ValueDecoder<'de, 'p>,
}

impl<'de> EnumAccess<'de> for Variant<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let variant = seed.deserialize(BorrowedStrDeserializer::<Error>::new(self.variant));
        variant.map(|variant| (variant, self))
    }
}

impl<'de> Variant<'de, '_> {
    /// Decodes the content, below the variant's name.
    fn content<T>(self, decode: impl FnOnce(ValueDecoder<'de, '_>) -> Result<T, Error>) -> Result<T, Error> {
        let ValueDecoder { value, failed } = self.content;
        decode(ValueDecoder { value, failed }).inspect_err(|_| failed.push(Segment::Key(self.variant.into())))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.content(|content| Deserialize::deserialize(content))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.content(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content(|content| content.deserialize_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content(|content| content.deserialize_any(visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Sample {
        name: Option<String>,
        count: u8,
        rate: f64,
        list: Vec<(u8, bool)>,
        map: BTreeMap<String, i64>,
        action: Action,
        any: Value,
        #[serde(default)]
        unit: (),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    enum Action {
        Stop,
        Scale(u32),
        Move { to: String },
        Pair(u8, u8),
    }

    fn action() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!("stop")),
            Just(json!({ "stop": null })),
            Just(json!({ "scale": 3 })),
            Just(json!({ "move": { "to": "zone" } })),
            Just(json!({ "pair": [1, 2] })),
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            Just(json!(true)),
            Just(json!(-1)),
            Just(json!(300)),
            Just(json!(1.5)),
            Just(json!("text")),
            Just(json!([])),
            Just(json!([1, true, 2])),
            Just(json!({})),
            Just(json!({ "a": 1, "b": 2 })),
            action(),
        ]
    }

    proptest! {
        #[test]
        fn values_and_messages_match_serde_json(
            action in action(),
            at in prop::sample::select(vec![
                "", "/name", "/count", "/rate", "/list", "/list/0", "/list/0/1", "/map", "/map/a", "/action",
                "/action/move/to", "/action/pair/1", "/action/scale", "/any", "/unit",
            ]),
            other in any_value(),
            unknown in any::<bool>(),
        ) {
            let mut value = json!({
                "name": "n", "count": 1, "rate": 1, "list": [[1, true]], "map": { "a": -1 }, "action": action,
                "any": { "x": [1, "y"] }, "unit": null,
            });
            if let Some(field) = value.pointer_mut(at) {
                *field = other;
            }
            if unknown && let Some(fields) = value.as_object_mut() {
                fields.insert("more".to_owned(), json!(1));
            }
            let expected = Sample::deserialize(&value).map_err(|error| error.to_string());
            prop_assert_eq!(decode::<Sample>(&value).map_err(|error| error.message), expected);
        }
    }

    #[test]
    fn an_error_has_the_path_of_its_field() {
        let sample = json!({
            "count": 1, "rate": 1, "list": [[1, true], [2, false]], "map": { "a.b": 1 }, "action": "stop", "any": null,
        });
        assert!(decode::<Sample>(&sample).is_ok());
        for (at, wrong, expected) in [
            ("/count", json!(300), "count"),
            ("/list/1/1", json!("no"), "list[1][1]"),
            ("/list/1", json!([1]), "list[1]"),
            ("/list/1", json!([1, true, 2]), "list[1]"),
            ("/map/a.b", json!("x"), "map[a.b]"),
            ("/action", json!({ "move": { "to": 1 } }), "action.move.to"),
            ("/action", json!({ "pair": [1, "x"] }), "action.pair[1]"),
            ("/action", json!({ "fly": 1 }), "action"),
            ("", json!({}), ""),
        ] {
            let mut value = sample.clone();
            *value.pointer_mut(at).unwrap() = wrong;
            let error = decode::<Sample>(&value).unwrap_err();
            assert_eq!(error.path.to_string(), expected, "{at}");
            assert_eq!(error.message, Sample::deserialize(&value).unwrap_err().to_string(), "{at}");
        }
        let mut value = sample;
        value["more"] = json!(1);
        assert_eq!(decode::<Sample>(&value).unwrap_err().path.to_string(), "more");
    }
}
