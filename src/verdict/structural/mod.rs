//! Does a value have the form that its schema asks for?
//!
//! In the order of the API server: unknown fields as given, then defaults and the pruning of nulls, then the schema.

mod check;
mod defaults;
mod unknown;

use crate::finding::Issue;
use crate::patterns::Patterns;
use napkeeper_api::path::Path;
use serde_json::Value;

/// The value as it would be stored, and all that is wrong with its form.
pub(crate) fn check(value: &Value, schema: &Value, patterns: &Patterns) -> (Value, Vec<Issue>) {
    let mut found = Vec::new();
    unknown::check(value, schema, &Path::root(), &mut found);
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        // The API server drops the status of what is created.
        map.shift_remove("status");
    }
    defaults::apply(&mut value, schema);
    check::Check { patterns, found: &mut found }.value(&value, schema, &Path::root());
    (value, found)
}
