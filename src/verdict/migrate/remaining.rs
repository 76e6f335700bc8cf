//! What a text has of older versions after its migration: it stays as it is, for a person to change.

use super::selector::{MIGRATED, Selector};
use super::{may_need, migrate};
use napkeeper_api::field_path::Path;
use napkeeper_api::yaml;
use serde_json::Value;

/// Keys of selectors, in lower case: of kustomizations, and of the patches of Flux and Argo CD.
const SELECTORS: [&str; 4] = ["target", "source", "select", "reject"];
/// The owners of an object are the cluster's to write.
const OWNERS: &str = "ownerReferences";

/// What stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remaining {
    /// Its path.
    pub path: Path,
    /// What it is, as a predicate.
    pub what: &'static str,
}

/// What of older versions a migrated text has: selectors, manifests in texts, and objects or references within other objects.
#[must_use]
pub fn remaining(text: &str) -> Vec<Remaining> {
    let mut found = Vec::new();
    if may_need(text) {
        for document in &yaml::read("", text).documents {
            collect(&document.value, &Path::root(), None, &mut found);
        }
    }
    found
}

/// `key` is the nearest one above a value.
fn collect(value: &Value, at: &Path, key: Option<&str>, found: &mut Vec<Remaining>) {
    if let Some(what) = what(value, key) {
        found.push(Remaining { path: at.clone(), what });
        return;
    }
    match value {
        Value::Object(map) => {
            let children = map.iter().filter(|(key, _)| *key != OWNERS);
            children.for_each(|(key, child)| collect(child, &at.key(key), Some(key), found));
        }
        Value::Array(list) => list.iter().enumerate().for_each(|(i, child)| collect(child, &at.index(i), key, found)),
        _ => {}
    }
}

fn what(value: &Value, key: Option<&str>) -> Option<&'static str> {
    let is_key = |names: &[&str]| key.is_some_and(|key| names.iter().any(|name| key.eq_ignore_ascii_case(name)));
    match value {
        Value::Object(_) if is_key(&SELECTORS) && Selector::of(value).is_some_and(|selector| selector.is_old()) => {
            Some("selects an older version, and nothing once that is migrated")
        }
        Value::Object(_) if is_old(value) => Some("is or names an object of an older version"),
        Value::String(text) if text.contains(['\n', '{', '[']) => match migrate(text) {
            Ok(migration) => (migration.text != *text).then_some("is a text with a manifest of an older version"),
            Err(_) if is_key(&["patch", "patchesStrategicMerge"]) => Some("is a patch that cannot be read or edited"),
            Err(_) => None,
        },
        _ => None,
    }
}

/// True for an object of an older version, or a reference to one.
fn is_old(value: &Value) -> bool {
    let version = value["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    version.is_some_and(|(group, version)| {
        MIGRATED.iter().any(|(g, old, kind, ..)| (*g, *old) == (group, version) && value["kind"] == *kind)
    })
}
