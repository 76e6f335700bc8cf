//! Deserializers for names and times in scenario files.

use jiff::SignedDuration;
use napkeeper_api::types::duration;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::model::names::{ArmId, Namespace, ObjectKey, ObjectName};
use napkeeper_core::model::settings::PauseKey;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// `15m`, `36h`, `2d`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse_with_days(&text).map_err(D::Error::custom)
}

/// Keys of the pause switch: `disrupt`, `disrupt.nodepool.general`.
pub(crate) fn pause_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PauseKey>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let read = |text: &String| {
        PauseKey::read(text).map_err(|(_, expected)| D::Error::custom(format!("unknown key {text:?}; {expected}")))
    };
    texts.iter().map(read).collect()
}

/// As [`duration`], for a field that may be absent.
pub(crate) fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SignedDuration>, D::Error> {
    duration(deserializer).map(Some)
}

/// The id of a group of capacity reservations.
pub(crate) fn group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ArmId, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_reservation_group(&text).map_err(D::Error::custom)
}

/// `default/inflate`, or `inflate` in the namespace `default`.
pub(crate) fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectKey, D::Error> {
    let text = String::deserialize(deserializer)?;
    let (namespace, name) = text.split_once('/').unwrap_or(("default", &text));
    let wrong = |e: napkeeper_core::model::names::NameError| D::Error::custom(format!("{e}; use namespace/name"));
    Ok(ObjectKey { namespace: Namespace::new(namespace).map_err(wrong)?, name: ObjectName::new(name).map_err(wrong)? })
}

/// As [`key`], for a field that may be absent.
pub(crate) fn some_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ObjectKey>, D::Error> {
    key(deserializer).map(Some)
}
