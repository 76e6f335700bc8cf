//! NK5xxx: cost, and the order in which NodePools are tried.

mod limits;
mod order;
#[cfg(test)]
mod tests;

use crate::finding::Issue;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ValidObject};
use napkeeper_api::manifests::Object;

pub(super) fn check_object(manifest: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    if let Object::NodePool(pool) = manifest.object {
        limits::check(pool, manifest.value, facts, found);
    }
}

pub(super) fn check_set(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    order::check(set, facts, found);
}
