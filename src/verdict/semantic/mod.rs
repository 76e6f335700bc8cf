//! Rules on objects that the API server accepts, but that cannot work or are probably not intended.
//!
//! Each family looks at one object at a time ([`ValidObject`]), and at all objects of the input together ([`ManifestSet`]).
//! What is true of Azure or of scheduling is computed in the core; a family says where and why it matters.

mod azure;
mod cost;
mod disruption;
pub(crate) mod facts;
mod gitops;
mod manifest_set;
mod pods;
mod policies;
mod sweeps;
#[cfg(test)]
mod testing;

use crate::finding::Issue;
use crate::rules::structure::MEANING;
pub(crate) use azure::SizeGroups;
use facts::Facts;
pub(crate) use manifest_set::{DocumentLocation, ManifestSet, ObjectIdentity, RetainedObject, ValidObject};
use napkeeper_api::field_path::Path;

/// Looks at one object.
type ObjectCheck = fn(&ValidObject<'_>, &Facts, &mut Vec<Issue>);
/// Looks at all objects together. Each issue comes with the index of its object.
type SetCheck = fn(&ManifestSet, &Facts, &mut Vec<(usize, Issue)>);

const OBJECT_CHECKS: [ObjectCheck; 7] = [
    azure::check_object,
    disruption::check_object,
    gitops::check_object,
    cost::check_object,
    pods::check_object,
    policies::check_object,
    sweeps::check_object,
];
const SET_CHECKS: [SetCheck; 6] =
    [azure::check_set, disruption::check_set, gitops::check_set, cost::check_set, pods::check_set, policies::check_set];

/// All that is to be said of one object.
pub(crate) fn check_object(object: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    OBJECT_CHECKS.iter().for_each(|check| check(object, facts, found));
}

/// All that is to be said of the objects together.
pub(crate) fn check_set(set: &ManifestSet, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    SET_CHECKS.iter().for_each(|check| check(set, facts, &mut found));
    found
}

/// What is to be said of an object beside some that are there already. Not what matters only for files, nor how pools
/// compare with each other: not all of them are here.
pub(crate) fn check_beside(set: &ManifestSet, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    azure::check_set(set, facts, &mut found);
    found
}

/// What the domain cannot make sense of: a family may know more of it than that.
pub(crate) fn invalid_value(path: &Path, message: String) -> Issue {
    match disruption::unreadable_schedule(path, &message) {
        Some(issue) => issue,
        None => Issue::new(&MEANING, path, message),
    }
}
