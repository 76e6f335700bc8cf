//! Decodes JSON values into wire types, and says which field is wrong.
//!
//! The decoders of Kubernetes' types are large, and generic in where their data come from. Here that is one type, a
//! trait object, so each decoder is compiled once.

use crate::field_path::Path;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Deserializer, Segment, Track};

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
    let mut track = Track::new();
    let decoded = {
        let mut from = <dyn erased_serde::Deserializer<'_>>::erase(Deserializer::new(value, &mut track));
        erased_serde::deserialize(&mut from)
    };
    decoded
        .map_err(|error: erased_serde::Error| DecodeError { path: path_of(&track.path()), message: error.to_string() })
}

/// The path of a decoding error.
fn path_of(path: &serde_path_to_error::Path) -> Path {
    path.iter().fold(Path::root(), |path, segment| match segment {
        Segment::Seq { index } => path.index(*index),
        Segment::Map { key } => path.key(key),
        Segment::Enum { .. } | Segment::Unknown => path,
    })
}
