//! NK1020: what the definitions of NodePools and NodeClaims allow, and Karpenter refuses when it looks at them.
//!
//! The checks are those of `RuntimeValidate` in `pkg/apis/v1/nodepool_validation.go` and `nodeclaim_validation.go` of
//! `kubernetes-sigs/karpenter` that the rules of the definitions do not repeat.

use crate::finding::Issue;
use crate::rules::structure::MEANING;
use crate::semantic::ValidObject;
use crate::semantic::facts::Facts;
use crate::text::names::{is_label_value, is_qualified_name};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check_object(manifest: &ValidObject<'_>, _facts: &Facts, found: &mut Vec<Issue>) {
    let (template, at) = match manifest.object {
        Object::NodePool(_) => (&manifest.value["spec"]["template"], Path::from_dotted("spec.template")),
        Object::NodeClaim(_) => (manifest.value, Path::root()),
        _ => return,
    };
    if matches!(manifest.object, Object::NodePool(_)) {
        labels(&template["metadata"]["labels"], &at.key("metadata").key("labels"), found);
    }
    let (spec, at) = (&template["spec"], at.key("spec"));
    values(&spec["requirements"], &at.key("requirements"), found);
    taints(spec, &at, found);
}

fn labels(labels: &Value, at: &Path, found: &mut Vec<Issue>) {
    for key in labels.as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| !is_qualified_name(key)) {
        let message = format!("{key:?} is not a label key such as example.com/name: Karpenter refuses it");
        found.push(Issue::new(&MEANING, &at.key(key), message).at_key());
    }
}

fn values(requirements: &Value, at: &Path, found: &mut Vec<Issue>) {
    for (i, requirement) in list(requirements) {
        for (j, value) in list(&requirement["values"]) {
            let Some(text) = value.as_str().filter(|text| !is_label_value(text)) else { continue };
            let message = format!(
                "{text:?} is not a label value (at most 63 letters, digits, '-', '_' and '.'): Karpenter refuses it"
            );
            found.push(Issue::new(&MEANING, &at.index(i).key("values").index(j), message));
        }
    }
}

/// Taints and startup taints together may have each key and effect once.
fn taints(spec: &Value, at: &Path, found: &mut Vec<Issue>) {
    let mut seen: BTreeMap<(&str, &str), Path> = BTreeMap::new();
    for field in ["taints", "startupTaints"] {
        for (i, taint) in list(&spec[field]) {
            let (Some(key), Some(effect)) = (taint["key"].as_str(), taint["effect"].as_str()) else { continue };
            let path = at.key(field).index(i);
            match seen.get(&(key, effect)) {
                Some(first) => {
                    let message = format!("taint {key}:{effect} is already in {first}: Karpenter refuses a second one");
                    found.push(Issue::new(&MEANING, &path, message).fix("remove one of them".to_owned()));
                }
                None => drop(seen.insert((key, effect), path)),
            }
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}
