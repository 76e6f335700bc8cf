//! NK3xxx: disruption of nodes.

mod annotations;
mod budgets;
mod consolidation;
mod lifetime;
#[cfg(test)]
mod tests;

use crate::finding::Issue;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ValidObject};
pub(super) use budgets::unreadable_schedule;
use napkeeper_api::manifests::Object;
use serde_json::Value;

pub(super) fn check_object(manifest: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    annotations::check(manifest, found);
    if let Object::NodePool(pool) = manifest.object {
        budgets::check(pool, manifest.value, found);
        lifetime::check(pool, manifest.value, found);
        consolidation::check(pool, manifest, facts, found);
    }
}

pub(super) fn check_set(set: &ManifestSet, _facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    annotations::check_set(set, found);
}

/// A field that a person set. Objects from an API server have all defaults, so this is unknown for them.
fn given<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    let stored = value["metadata"]["uid"].is_string();
    let at = |value: &'v Value, key: &str| value.get(key);
    let found = field.split('.').try_fold(value, at)?.as_str();
    found.filter(|_| !stored)
}
