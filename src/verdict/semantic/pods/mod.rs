//! NK6xxx: will the pods be placed, and can they be moved?

mod eviction;
mod placement;
#[cfg(test)]
mod tests;
mod workload;

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use crate::rules::pods as rules;
use workload::Workload;

/// What a workload asks of its node must not contradict itself.
pub(super) fn object(subject: &Subject<'_>, _facts: &Facts, found: &mut Vec<Issue>) {
    let Some(workload) = Workload::of(subject.object) else { return };
    if let Some(key) = workload.contradiction() {
        let message = format!("no node can satisfy this: the constraints on {key} contradict each other");
        let fix = "make nodeSelector and required node affinity consistent, or remove one of them".to_owned();
        found.push(Issue::new(&rules::CONTRADICTION, &workload.spec(), message).fix(fix));
    }
}

pub(super) fn render(render: &Render, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    placement::check(render, facts, found);
    eviction::check(render, found);
}
