//! Objects of our kinds, sound and broken in many ways: what the judges of objects are held against.

pub(crate) mod bases;
pub(crate) mod cases;
mod changes;
pub(crate) mod fields;
mod keys;
mod random;
pub(crate) mod rule_breaks;
mod values;

use anyhow::Result;
use serde_json::Value;

/// The definitions that ship.
pub(crate) fn definitions() -> Result<Vec<Value>> {
    Ok(napkeeper_api::crds::all()?.into_iter().map(|crd| crd.definition).collect())
}
