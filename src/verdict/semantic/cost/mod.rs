//! NK5xxx: what may it cost, and what is bought first?

mod limits;
mod order;
#[cfg(test)]
mod tests;

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use napkeeper_api::manifests::Object;

pub(super) fn object(subject: &Subject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    if let Object::NodePool(pool) = subject.object {
        limits::check(pool, subject.value, facts, found);
    }
}

pub(super) fn render(render: &Render, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    order::check(render, facts, found);
}
