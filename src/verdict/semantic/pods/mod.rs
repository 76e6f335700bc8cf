//! NK6xxx: scheduling and eviction of pods.

mod eviction;
mod placement;
mod small_amounts;
#[cfg(test)]
mod tests;
mod workload;

use crate::finding::Issue;
use crate::rules::pods as rules;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ValidObject};
use workload::Workload;

/// Reports contradictory node constraints of a workload, and amounts of memory that lack a unit.
pub(super) fn check_object(manifest: &ValidObject<'_>, _facts: &Facts, found: &mut Vec<Issue>) {
    small_amounts::check(manifest.stored, found);
    let Some(workload) = Workload::of(manifest.object) else { return };
    if let Some(key) = workload.contradiction() {
        let message = format!("no node can satisfy this: the constraints on {key} contradict each other");
        let fix = "make nodeSelector and required node affinity consistent, or remove one of them".to_owned();
        found.push(Issue::new(&rules::CONTRADICTION, &workload.spec(), message).fix(fix));
    }
}

pub(super) fn check_set(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    placement::check(set, facts, found);
    eviction::check(set, found);
}
