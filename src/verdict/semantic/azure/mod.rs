//! NK2xxx: what Azure would not launch.

mod class;
mod exclusions;
mod keys;
mod kubelet;
mod limits;
mod network;
mod other_clouds;
mod requirements;
mod sizes;
#[cfg(test)]
mod tests;
mod values;

use crate::finding::Issue;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ValidObject};
use napkeeper_api::manifests::Object;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Operator, Requirements};
pub(crate) use requirements::DeclaredRequirement;
use requirements::RequirementEntries;
pub(super) use requirements::declared_requirements;
pub(crate) use sizes::SizeGroups;

pub(super) fn check_object(manifest: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    match manifest.object {
        Object::NodePool(pool) => {
            limits::pool_name(pool.name.as_str(), found);
            requirements(&RequirementEntries::of_pool(manifest.value), &pool.requirements, facts, found);
        }
        Object::NodeClaim(claim) => {
            requirements(&RequirementEntries::of_claim(manifest.value), &claim.spec.requirements, facts, found);
        }
        Object::NodeClass(class) => class::check(class, manifest.stored, facts, found),
        _ => limits::check_object(manifest, found),
    }
}

pub(super) fn check_set(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    sizes::check(set, facts, found);
    network::check(set, facts, found);
    limits::autoscalers(set, found);
}

fn requirements(entries: &RequirementEntries<'_>, together: &Requirements, facts: &Facts, found: &mut Vec<Issue>) {
    for entry in entries.iter() {
        let key = labels::normalize(entry.key);
        let domain = values::domain(key);
        keys::check(&entry, domain, entries, found);
        match entry.operator {
            Operator::In => values::check(&entry, facts, entries, found),
            Operator::NotIn => exclusions::check(&entry, facts, entries, found),
            // Bounds and existence name no values that a label could have.
            _ => {}
        }
    }
    for (key, value) in entries.labels() {
        keys::check_label(key, found);
        values::check_label(key, value, facts, found);
    }
    // Most do not contradict themselves, which the domain knows without looking at each entry again.
    let linux = together.get(labels::OS).is_none_or(|os| os.allows(Some("linux")));
    if !linux || together.first_empty().is_some() {
        keys::contradictions(entries, found);
    }
}
