//! NK2xxx: would Azure launch what is asked for?

mod class;
mod entries;
mod exclusions;
mod keys;
mod kubelet;
mod limits;
mod network;
mod sizes;
#[cfg(test)]
mod tests;
mod values;

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use entries::Entries;
pub(crate) use entries::Said;
pub(super) use entries::asked;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Operator, Requirements};
pub(crate) use sizes::Kinds;

pub(super) fn object(subject: &Subject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    match subject.object {
        Object::NodePool(pool) => {
            requirements(&Entries::of_pool(subject.value), &pool.requirements, facts, found);
        }
        Object::NodeClaim(claim) => {
            requirements(&Entries::of_claim(subject.value), &claim.spec.requirements, facts, found);
        }
        Object::NodeClass(class) => class::judge(class, subject.stored, facts, found),
        _ => limits::object(subject, found),
    }
}

pub(super) fn render(render: &Render, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    sizes::judge(render, facts, found);
    network::judge(render, facts, found);
    limits::autoscalers(render, found);
}

fn requirements(entries: &Entries<'_>, together: &Requirements, facts: &Facts, found: &mut Vec<Issue>) {
    for entry in entries.iter() {
        let key = labels::normalize(entry.key);
        let domain = values::domain(key);
        keys::judge(&entry, domain, entries, found);
        match entry.operator {
            Operator::In => values::judge(&entry, facts, entries, found),
            Operator::NotIn => exclusions::judge(&entry, facts, entries, found),
            // Bounds and existence name no values that a label could have.
            _ => {}
        }
    }
    for (key, value) in entries.labels() {
        keys::judge_label(key, found);
        values::judge_label(key, value, facts, found);
    }
    // Most do not contradict themselves, which the domain knows without looking at each entry again.
    let linux = together.get(labels::OS).is_none_or(|os| os.allows(Some("linux")));
    if !linux || together.first_empty().is_some() {
        keys::contradictions(entries, found);
    }
}
