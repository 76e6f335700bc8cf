//! NK3xxx: may nodes be replaced, and when?

mod annotations;
mod budgets;
mod consolidation;
mod lifetime;
#[cfg(test)]
mod tests;

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
pub(super) use budgets::unreadable_schedule;
use napkeeper_api::manifests::Object;
use serde_json::Value;

pub(super) fn object(subject: &Subject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    annotations::check(subject, found);
    if let Object::NodePool(pool) = subject.object {
        budgets::check(pool, subject.value, found);
        lifetime::check(pool, subject.value, found);
        consolidation::check(pool, subject, facts, found);
    }
}

pub(super) fn render(render: &Render, _facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    annotations::render(render, found);
}

/// A field that a person gave. What an API server hands out has all defaults filled in, so of that nobody can tell.
fn given<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    let stored = value["metadata"]["uid"].is_string();
    let at = |value: &'v Value, key: &str| value.get(key);
    let found = field.split('.').try_fold(value, at)?.as_str();
    found.filter(|_| !stored)
}
