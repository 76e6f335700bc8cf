//! NK2xxx: would Azure launch what is asked for?

mod class;
mod entries;
mod keys;
mod limits;
mod network;
mod sizes;
#[cfg(test)]
mod tests;
mod values;

pub(super) use entries::asked;

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use entries::Entries;
use napkeeper_api::manifests::Object;

pub(super) fn object(subject: &Subject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    match subject.object {
        Object::NodePool(_) => requirements(&Entries::of_pool(subject.value), facts, found),
        Object::NodeClaim(_) => requirements(&Entries::of_claim(subject.value), facts, found),
        Object::NodeClass(class) => class::judge(class, subject.stored, facts, found),
        _ => limits::object(subject, found),
    }
}

pub(super) fn render(render: &Render, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    sizes::judge(render, facts, found);
    network::judge(render, facts, found);
    limits::autoscalers(render, found);
}

fn requirements(entries: &Entries<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    keys::judge(entries, found);
    values::judge(entries, facts, found);
}
