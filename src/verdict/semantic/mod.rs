//! What could not work, or is probably not meant, though the API server takes it?
//!
//! Each family looks at one object at a time ([`Subject`]), and at all objects of the input together ([`Render`]).
//! What is true of Azure or of scheduling is computed in the core; a family says where and why it matters.

mod azure;
mod cost;
mod disruption;
mod gitops;
#[cfg(test)]
mod judged;
mod pods;
mod policies;
mod render;
mod sweeps;

use crate::facts::Facts;
use crate::finding::Issue;
use crate::rules::structure::MEANING;
pub(crate) use azure::Kinds;
use napkeeper_api::path::Path;
pub(crate) use render::{Digest, Identity, Place, Render, Subject};

/// Looks at one object.
type ObjectCheck = fn(&Subject<'_>, &Facts, &mut Vec<Issue>);
/// Looks at all objects together. Each issue comes with the index of its object.
type RenderCheck = fn(&Render, &Facts, &mut Vec<(usize, Issue)>);

const OBJECT_CHECKS: [ObjectCheck; 7] =
    [azure::object, disruption::object, gitops::object, cost::object, pods::object, policies::object, sweeps::object];
const RENDER_CHECKS: [RenderCheck; 6] =
    [azure::render, disruption::render, gitops::render, cost::render, pods::render, policies::render];

/// All that is to be said of one object.
pub(crate) fn object(subject: &Subject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    OBJECT_CHECKS.iter().for_each(|check| check(subject, facts, found));
}

/// All that is to be said of the objects together.
pub(crate) fn render(render: &Render, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    RENDER_CHECKS.iter().for_each(|check| check(render, facts, &mut found));
    found
}

/// What is to be said of an object beside some that are there already. Not what matters only for files, nor how pools
/// compare with each other: not all of them are here.
pub(crate) fn among(render: &Render, facts: &Facts) -> Vec<(usize, Issue)> {
    let mut found = Vec::new();
    azure::render(render, facts, &mut found);
    found
}

/// What the domain cannot make sense of: a family may know more of it than that.
pub(crate) fn meaningless(path: &Path, message: String) -> Issue {
    match disruption::unreadable_schedule(path, &message) {
        Some(issue) => issue,
        None => Issue::new(&MEANING, path, message),
    }
}
