//! Looks up the schema of an object by its kind and version.

use crate::finding::Issue;
use crate::migrate;
use crate::rules::structure as rules;
use crate::schema::builtin::{self, BuiltinKind};
use crate::schema::crds::{CrdKind, CrdSchemas, CrdVersion};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::may_be_object;
use napkeeper_core::model::support::spelling::nearest;
use serde_json::Value;

/// napkeeper's kind without a schema: scenarios, which `simulate` parses strictly.
const KINDS_WITHOUT_SCHEMA: [(&str, &str); 1] = [("napkeeper.io", "Scenario")];

/// Removed kinds, and their replacements.
const RENAMED_KINDS: [(&str, &str, &str); 2] =
    [("karpenter.sh", "Provisioner", "NodePool"), ("karpenter.sh", "Machine", "NodeClaim")];

/// Hints on old versions, by group.
const VERSION_CHANGES: [(&str, &str); 2] = [
    (
        "karpenter.sh",
        "since v1 nodeClassRef has group, kind and name, expireAfter moved to spec.template.spec, consolidationPolicy \
         WhenUnderutilized is now WhenEmptyOrUnderutilized, and disruption requires consolidateAfter",
    ),
    ("karpenter.azure.com", "all versions have the same fields, except for imageVersion, which was removed"),
];

/// The schema of an object, if any.
pub(crate) enum SchemaLookup<'s> {
    /// Check it against this schema.
    Crd(&'s CrdKind, &'s CrdVersion),
    /// It is a workload.
    Builtin(&'static BuiltinKind),
    /// It is of another group, or of a kind without a schema.
    NotValidated(String),
    /// Its kind is unknown: nothing more can be checked.
    UnknownKind,
}

/// Finds the schema of an object, and reports problems of its kind.
pub(crate) fn look_up<'s>(definitions: &'s CrdSchemas, value: &Value, found: &mut Vec<Issue>) -> SchemaLookup<'s> {
    if !may_be_object(value) {
        return SchemaLookup::NotValidated("not a manifest".to_owned());
    }
    let Some(map) = value.as_object() else {
        found.push(Issue::new(&rules::NO_KIND, &Path::root(), "a manifest must be a map with apiVersion and kind"));
        return SchemaLookup::UnknownKind;
    };
    let mut text = |field: &str| match map.get(field).and_then(Value::as_str).filter(|t| !t.is_empty()) {
        Some(text) => Some(text),
        None => {
            let message = format!("{field} is missing: a manifest needs apiVersion and kind");
            let fix = (field == "apiVersion").then(|| "for a NodePool set apiVersion: karpenter.sh/v1".to_owned());
            found.push(Issue::new(&rules::NO_KIND, &Path::from_dotted(field), message).fix(fix));
            None
        }
    };
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return SchemaLookup::UnknownKind;
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(builtin) = builtin::find(value) {
        return SchemaLookup::Builtin(builtin);
    }
    let known = definitions.group(group);
    if known.is_empty() || KINDS_WITHOUT_SCHEMA.contains(&(group, kind)) {
        return SchemaLookup::NotValidated(format!("{api_version} {kind}"));
    }
    match known.iter().find(|k| k.name == kind) {
        Some(kind) => check_version(kind, version, found),
        None => {
            found.push(unknown_kind(api_version, kind, &known));
            SchemaLookup::UnknownKind
        }
    }
}

fn check_version<'s>(kind: &'s CrdKind, version: &str, found: &mut Vec<Issue>) -> SchemaLookup<'s> {
    let path = Path::from_dotted("apiVersion");
    let Some(current) = kind.versions.last() else {
        return SchemaLookup::UnknownKind;
    };
    let api_version = format!("{}/{version}", kind.group);
    let write = suggest_migrate(format!("set apiVersion: {}/{}", kind.group, current.name), &api_version, &kind.name);
    let Some(given) = kind.versions.iter().find(|v| v.name == version) else {
        let message =
            format!("{api_version} does not exist or is not served: {} is served as {}", kind.name, current.name);
        let changes = VERSION_CHANGES.iter().find(|(g, _)| *g == kind.group);
        let fix = changes.map_or_else(|| write.clone(), |(_, change)| format!("{write}; {change}"));
        found.push(Issue::new(&rules::VERSION, &path, message).fix(fix));
        // What else is wrong is judged by the current version, so that one run shows it all.
        return SchemaLookup::Crd(kind, current);
    };
    if let Some(warning) = &given.deprecated {
        found.push(Issue::new(&rules::DEPRECATED, &path, warning.clone()).fix(write));
    }
    SchemaLookup::Crd(kind, given)
}

/// Advice that names the command which follows it.
fn suggest_migrate(advice: String, api_version: &str, kind: &str) -> String {
    if migrate::can_migrate(api_version, kind) { advice + " (napkeeper migrate can do this)" } else { advice }
}

fn unknown_kind(api_version: &str, kind: &str, known: &[&CrdKind]) -> Issue {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let names: Vec<&str> = known.iter().map(|k| k.name.as_str()).collect();
    let message = format!("API group {group} has no kind {kind} (known: {})", names.join(", "));
    let renamed = RENAMED_KINDS.iter().find(|(g, k, _)| (*g, *k) == (group, kind));
    let suggestion = renamed.map(|(_, _, now)| *now).or_else(|| nearest(kind, names));
    let fix = suggestion.map(|m| suggest_migrate(format!("set kind: {m}"), api_version, kind));
    Issue::new(&rules::KIND, &Path::from_dotted("kind"), message).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fix for an object's kind.
    fn fix(api_version: &str, kind: &str) -> String {
        let mut found = Vec::new();
        let value = serde_json::json!({"apiVersion": api_version, "kind": kind});
        let definitions = CrdSchemas::embedded().unwrap();
        look_up(&definitions, &value, &mut found);
        found.remove(0).fix.unwrap()
    }

    #[test]
    fn versions_that_can_be_migrated_say_so() {
        let tool = "(napkeeper migrate can do this)";
        let changes = "; since v1 nodeClassRef has group, kind and name, expireAfter moved to spec.template.spec, \
                       consolidationPolicy WhenUnderutilized is now WhenEmptyOrUnderutilized, and disruption \
                       requires consolidateAfter";
        for (api_version, kind, expected) in [
            ("karpenter.sh/v1alpha5", "NodePool", format!("set apiVersion: karpenter.sh/v1 {tool}{changes}")),
            ("karpenter.sh/v1beta1", "NodeClaim", format!("set apiVersion: karpenter.sh/v1 {tool}{changes}")),
            ("karpenter.sh/v1beta2", "NodePool", format!("set apiVersion: karpenter.sh/v1{changes}")),
            ("karpenter.sh/v1alpha5", "Provisioner", format!("set kind: NodePool {tool}")),
            ("karpenter.sh/v1alpha5", "Machine", "set kind: NodeClaim".to_owned()),
            (
                "karpenter.azure.com/v1alpha2",
                "AKSNodeClass",
                format!("set apiVersion: karpenter.azure.com/v1beta1 {tool}"),
            ),
            (
                "karpenter.azure.com/v1",
                "AKSNodeClass",
                "set apiVersion: karpenter.azure.com/v1beta1; all versions have the same fields, except for \
                 imageVersion, which was removed"
                    .to_owned(),
            ),
        ] {
            assert_eq!(fix(api_version, kind), expected, "{api_version} {kind}");
        }
    }
}
