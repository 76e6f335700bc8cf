//! Rules on objects that the API server accepts, but that cannot work or are probably not intended.
//!
//! Each family checks one object at a time ([`ValidObject`]), and all objects of the input together ([`ManifestSet`]).
//! Facts of Azure and scheduling are computed in the core; a family reports their consequences.

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

/// Checks one object.
type ObjectCheck = fn(&ValidObject<'_>, &Facts, &mut Vec<Issue>);
/// Checks all objects together. Each issue comes with the index of its object.
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

/// Checks one object by all families.
pub(crate) fn check_object(object: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    OBJECT_CHECKS.iter().for_each(|check| check(object, facts, found));
}

/// Checks all objects together by all families.
pub(crate) fn check_set(set: &ManifestSet, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    SET_CHECKS.iter().for_each(|check| check(set, facts, &mut found));
    found
}

/// Checks an object beside existing ones. Rules for files only, and rules that compare all NodePools, do not apply.
pub(crate) fn check_beside(set: &ManifestSet, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    azure::check_set(set, facts, &mut found);
    found
}

/// A value that the domain rejects; a family may report it more precisely.
pub(crate) fn invalid_value(path: &Path, message: String) -> Issue {
    match disruption::unreadable_schedule(path, &message) {
        Some(issue) => issue,
        None => Issue::new(&MEANING, path, message),
    }
}
