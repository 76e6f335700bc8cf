//! What the definition of NodePools allows, and Karpenter refuses when it looks at them.
//!
//! The checks are those of `RuntimeValidate` in `pkg/apis/v1/nodepool_validation.go` and `nodeclaim_validation.go` of
//! `kubernetes-sigs/karpenter` that the rules of the definition do not repeat.

use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::karpenter::{NodePool, Taint};
use napkeeper_core::model::support::name_syntax::{is_label_value, is_qualified_name};
use std::collections::BTreeMap;

/// Notes all that Karpenter refuses of a NodePool.
pub(super) fn check(object: &NodePool, found: &mut Violations) {
    let template = &object.spec.template;
    let at = Path::from_dotted("spec.template");
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    for key in labels.into_iter().flatten().map(|(key, _)| key).filter(|key| !is_qualified_name(key)) {
        let message = format!("{key:?} is not a label key such as example.com/name: Karpenter refuses it");
        found.add(&at.key("metadata").key("labels").key(key), message);
    }
    let at = at.key("spec");
    for (i, requirement) in template.spec.requirements.iter().enumerate() {
        let values = requirement.values.iter().flatten().enumerate();
        for (j, value) in values.filter(|(_, value)| !is_label_value(value)) {
            let message = format!(
                "{value:?} is not a label value (at most 63 letters, digits, '-', '_' and '.'): Karpenter refuses it"
            );
            found.add(&at.key("requirements").index(i).key("values").index(j), message);
        }
    }
    let mut seen = BTreeMap::new();
    taints(template.spec.taints.as_deref(), &at.key("taints"), &mut seen, found);
    taints(template.spec.startup_taints.as_deref(), &at.key("startupTaints"), &mut seen, found);
}

/// Taints and startup taints together may have each key and effect once.
fn taints<'t>(
    taints: Option<&'t [Taint]>,
    at: &Path,
    seen: &mut BTreeMap<(&'t str, &'t str), Path>,
    found: &mut Violations,
) {
    for (i, taint) in taints.into_iter().flatten().enumerate() {
        let path = at.index(i);
        let texts =
            [("key", Some(taint.key.as_str())), ("value", taint.value.as_deref().filter(|text| !text.is_empty()))];
        for (field, text) in texts {
            if let Some(text) = text.filter(|text| !is_qualified_name(text)) {
                let message =
                    format!("{text:?} has more than 63 characters, or others than a label has: Karpenter refuses it");
                found.add(&path.key(field), message);
            }
        }
        let (key, effect) = (taint.key.as_str(), taint.effect.as_str());
        if let Some(first) = seen.get(&(key, effect)) {
            let message = format!(
                "taint {key}:{effect} is already in {first}: Karpenter refuses a second one, remove one of them"
            );
            found.add(&path, message);
        } else {
            seen.insert((key, effect), path);
        }
    }
}
