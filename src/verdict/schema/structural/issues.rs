//! Selects the faults to report, each mistake once.

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::ValidationResult;
use napkeeper_api::field_path::{Path, Segment};
use napkeeper_core::model::support::spelling::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// Fields that have moved: the old path and the new one.
const MOVED: [(&str, &str); 4] = [
    ("spec.disruption.expireAfter", "spec.template.spec.expireAfter"),
    ("spec.template.spec.kubelet", "spec.kubelet of the AKSNodeClass"),
    ("spec.ttlSecondsAfterEmpty", "spec.disruption.consolidateAfter"),
    ("spec.ttlSecondsUntilExpired", "spec.template.spec.expireAfter"),
];

/// The issue of an unknown field, given the known names.
pub(crate) fn unknown<'n>(at: &Path, names: impl Iterator<Item = &'n str>) -> Issue {
    let key = at.last_key().unwrap_or_default();
    let shown = at.to_string();
    let moved = MOVED.iter().find(|(old, _)| *old == shown);
    let fix = match moved {
        Some((_, now)) => Some(format!("moved to {now}")),
        None => nearest(key, names).map(|k| format!("did you mean {k}?")),
    };
    Issue::new(&rules::UNKNOWN_FIELD, at, format!("unknown field {key}")).at_key().fix(fix)
}

/// Issues to report, and indices by which those that repeat them are found: an object may have 100,000 of them.
#[derive(Default)]
struct Reported<'r> {
    issues: Vec<&'r Issue>,
    rules_by_path: BTreeMap<&'r [Segment], BTreeSet<&'static str>>,
    messages: BTreeSet<&'r str>,
}

impl<'r> Reported<'r> {
    fn add(&mut self, issue: &'r Issue) {
        self.rules_by_path.entry(issue.path.segments()).or_default().insert(issue.rule.id);
        self.messages.insert(&issue.message);
        self.issues.push(issue);
    }

    /// True when the rule of an issue is reported for the same path; with the same message, if the types are right.
    fn has(&self, issue: &Issue) -> bool {
        let rules = self.rules_by_path.get(issue.path.segments());
        rules.is_some_and(|rules| rules.contains(issue.rule.id))
            && (is_type(issue) || self.messages.contains(&*issue.message))
    }

    /// True when something at or below a path is reported.
    fn concerns(&self, path: &'r [Segment]) -> bool {
        // What is below a path follows it in order.
        self.rules_by_path.range(path..).next().is_some_and(|(next, _)| next.starts_with(path))
    }
}

fn is_type(issue: &Issue) -> bool {
    *issue.rule == rules::TYPE || *issue.rule == rules::UNQUOTED
}

/// All issues, in the order of the API server's checks.
///
/// The API server reports one mistake several times: a string instead of a list has the wrong type, is not an allowed
/// value, and is too long. Only the first is useful.
pub(crate) fn issues(result: &ValidationResult) -> Vec<Issue> {
    let strong = result.faults.iter().filter(|fault| !fault.secondary).filter_map(|fault| fault.issue.as_ref());
    let all: Vec<&Issue> = result.unreadable.iter().chain(strong).collect();
    let mistyped: BTreeSet<&[Segment]> =
        all.iter().filter(|issue| is_type(issue)).map(|issue| issue.path.segments()).collect();
    let is_inside = |path: &[Segment]| (0..path.len()).any(|outer| mistyped.contains(&path[..outer]));
    let mut reported = Reported::default();
    let unknown = result.unknown.iter().map(|unknown| &unknown.issue);
    unknown.filter(|issue| !is_inside(issue.path.segments())).for_each(|issue| reported.add(issue));
    for issue in all {
        let hidden = !is_type(issue) && mistyped.contains(issue.path.segments());
        if !hidden && !reported.has(issue) {
            reported.add(issue);
        }
    }
    // Secondary issues are reported only if nothing at or below their path is.
    for issue in result.faults.iter().filter(|fault| fault.secondary).filter_map(|fault| fault.issue.as_ref()) {
        if !reported.concerns(issue.path.segments()) {
            reported.add(issue);
        }
    }
    reported.issues.into_iter().cloned().collect()
}
