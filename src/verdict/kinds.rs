//! Is this a kind that we know, in a version that is served?

use crate::definitions::{Definitions, Kind, Version};
use crate::finding::Issue;
use crate::natives::{self, Native};
use crate::rules::structure as rules;
use napkeeper_api::path::Path;
use napkeeper_core::suggest::nearest;
use serde_json::Value;

/// Kinds of known groups without a schema here: upstream's, and the scenarios of `simulate`, which reads them strictly
/// by itself.
const PASSED_OVER: [(&str, &str); 2] = [("karpenter.sh", "NodeOverlay"), ("napkeeper.io", "Scenario")];

/// Kinds that are gone, and what stands in their place.
const GONE: [(&str, &str, &str); 2] =
    [("karpenter.sh", "Provisioner", "NodePool"), ("karpenter.sh", "Machine", "NodeClaim")];

/// What a reader of old manifests must know, by group.
const CHANGES: [(&str, &str); 2] = [
    (
        "karpenter.sh",
        "since v1 nodeClassRef takes group, kind and name, expireAfter stands in spec.template.spec, \
         and consolidationPolicy WhenUnderutilized is WhenEmptyOrUnderutilized",
    ),
    ("karpenter.azure.com", "all versions have the same fields"),
];

/// What is to be done with an object.
pub(crate) enum Standing<'s> {
    /// Check it against this schema.
    Known(&'s Kind, &'s Version),
    /// It is a workload.
    Native(&'static Native),
    /// It is of another group, or of a kind without a schema.
    Foreign(String),
    /// Its kind is unknown: nothing more can be said.
    Lost,
}

/// Finds the schema of an object, noting what is wrong with its kind.
pub(crate) fn identify<'s>(definitions: &'s Definitions, value: &Value, found: &mut Vec<Issue>) -> Standing<'s> {
    let Some(map) = value.as_object() else {
        found.push(Issue::new(&rules::NO_KIND, &Path::root(), "a manifest is a map with apiVersion and kind"));
        return Standing::Lost;
    };
    let looks_like_one = ["apiVersion", "kind", "metadata", "spec"].iter().any(|k| map.contains_key(*k));
    if !looks_like_one {
        return Standing::Foreign("not a manifest".to_owned());
    }
    let mut text = |field: &str| match map.get(field).and_then(Value::as_str).filter(|t| !t.is_empty()) {
        Some(text) => Some(text),
        None => {
            let message = format!("{field} is missing: a manifest has apiVersion and kind");
            let fix = (field == "apiVersion").then(|| "for a NodePool write apiVersion: karpenter.sh/v1".to_owned());
            found.push(Issue::new(&rules::NO_KIND, &Path::of(field), message).fix(fix));
            None
        }
    };
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Standing::Lost;
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(native) = natives::find(value) {
        return Standing::Native(native);
    }
    let known = definitions.group(group);
    if known.is_empty() || PASSED_OVER.contains(&(group, kind)) {
        return Standing::Foreign(format!("{api_version} {kind}"));
    }
    match known.iter().find(|k| k.name == kind) {
        Some(kind) => served(kind, version, found),
        None => {
            found.push(unknown_kind(group, kind, &known));
            Standing::Lost
        }
    }
}

fn served<'s>(kind: &'s Kind, version: &str, found: &mut Vec<Issue>) -> Standing<'s> {
    let path = Path::of("apiVersion");
    let Some(current) = kind.versions.last() else {
        return Standing::Lost;
    };
    let write = format!("write apiVersion: {}/{}", kind.group, current.name);
    let Some(given) = kind.versions.iter().find(|v| v.name == version) else {
        let message =
            format!("{}/{version} does not exist or is not served: {} is {}", kind.group, kind.name, current.name);
        let changes = CHANGES.iter().find(|(g, _)| *g == kind.group);
        let fix = changes.map_or_else(|| write.clone(), |(_, change)| format!("{write}; {change}"));
        found.push(Issue::new(&rules::VERSION, &path, message).fix(fix));
        // What else is wrong is judged by the current version, so that one run shows it all.
        return Standing::Known(kind, current);
    };
    if let Some(warning) = &given.deprecated {
        found.push(Issue::new(&rules::DEPRECATED, &path, warning.clone()).fix(write));
    }
    Standing::Known(kind, given)
}

fn unknown_kind(group: &str, kind: &str, known: &[&Kind]) -> Issue {
    let names: Vec<&str> = known.iter().map(|k| k.name.as_str()).collect();
    let message = format!("{group} has no kind {kind}: it has {}", names.join(", "));
    let gone = GONE.iter().find(|(g, k, _)| (*g, *k) == (group, kind));
    let meant = gone.map(|(_, _, now)| *now).or_else(|| nearest(kind, names));
    let fix = meant.map(|m| format!("write kind: {m}"));
    Issue::new(&rules::KIND, &Path::of("kind"), message).fix(fix)
}
