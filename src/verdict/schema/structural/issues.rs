//! Selects the faults to report, each mistake once.

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::ValidationResult;
use napkeeper_api::field_path::Path;
use napkeeper_core::model::support::spelling::nearest;

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

/// All issues, in the order of the API server's checks.
///
/// The API server reports one mistake several times: a string instead of a list has the wrong type, is not an allowed
/// value, and is too long. Only the first is useful.
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
    // Secondary issues are reported only if nothing at or below their path is.
    for issue in result.faults.iter().filter(|fault| fault.secondary).filter_map(|fault| fault.issue.as_ref()) {
        if !reported.iter().any(|other| other.path.segments().starts_with(issue.path.segments())) {
            reported.push(issue.clone());
        }
    }
    reported
}
