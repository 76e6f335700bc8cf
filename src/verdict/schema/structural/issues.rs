//! Selects what is reported of all faults, each mistake once.

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::ValidationResult;
use napkeeper_api::field_path::Path;
use napkeeper_core::model::support::spelling::nearest;

/// Fields that older versions had elsewhere: where they stood, and where they stand.
const MOVED: [(&str, &str); 4] = [
    ("spec.disruption.expireAfter", "spec.template.spec.expireAfter"),
    ("spec.template.spec.kubelet", "spec.kubelet of the AKSNodeClass"),
    ("spec.ttlSecondsAfterEmpty", "spec.disruption.consolidateAfter"),
    ("spec.ttlSecondsUntilExpired", "spec.template.spec.expireAfter"),
];

/// What is said about an unknown field, where these names are known.
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

/// All that a person is told, in the order in which the API server looks.
///
/// The API server says several things of one mistake: a text where a list is wanted is of the wrong type, none of those
/// allowed, and too long. A person wants to know the first.
pub(crate) fn issues(result: &ValidationResult) -> Vec<Issue> {
    let mut reported: Vec<Issue> = Vec::new();
    let is_type = |issue: &Issue| *issue.rule == rules::TYPE || *issue.rule == rules::UNQUOTED;
    let strong = result.faults.iter().filter(|fault| !fault.secondary).filter_map(|fault| fault.issue.as_ref());
    let all: Vec<&Issue> = result.unreadable.iter().chain(strong).collect();
    let mistyped: Vec<&Path> = all.iter().filter(|issue| is_type(issue)).map(|issue| &issue.path).collect();
    let is_inside = |path: &Path| {
        let inside = |outer: &&&Path| {
            outer.segments().len() < path.segments().len() && path.segments().starts_with(outer.segments())
        };
        mistyped.iter().any(|outer| inside(&outer))
    };
    reported.extend(result.unknown.iter().map(|unknown| &unknown.issue).filter(|i| !is_inside(&i.path)).cloned());
    for issue in all {
        let hidden = !is_type(issue) && mistyped.contains(&&issue.path);
        let repeated = reported.iter().any(|other| other.path == issue.path && other.rule == issue.rule);
        let same = repeated && (is_type(issue) || reported.iter().any(|other| other.message == issue.message));
        if !hidden && !same {
            reported.push(issue.clone());
        }
    }
    // What is secondary is said when nothing at or below its place is.
    for issue in result.faults.iter().filter(|fault| fault.secondary).filter_map(|fault| fault.issue.as_ref()) {
        if !reported.iter().any(|other| other.path.segments().starts_with(issue.path.segments())) {
            reported.push(issue.clone());
        }
    }
    reported
}
