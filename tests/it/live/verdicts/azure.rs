//! What our definitions refuse that those of Karpenter itself take: the label rules of the Azure provider alone.

use super::server::{Answer, Response};
use crate::drawn_objects::cases::Case;
use napkeeper_api::crds::cel_rules::{KARPENTER_AZURE_KEYS, KUBERNETES_AZURE_KEYS, LEGACY_AKS_LABELS};
use std::collections::BTreeSet;

/// A label source and a rule.
pub(super) type Met = (&'static str, &'static str);

/// The sources of labels.
const LABEL_SOURCES: [&str; 3] = ["labels of a NodePool", "requirements of a NodePool", "requirements of a NodeClaim"];
/// The rules.
const RULES: [&str; 6] =
    ["karpenter.azure.com", "kubernetes.azure.com", "agentpool", "storageprofile", "storagetier", "accelerator"];

/// Every rule in every source: each must occur.
pub(super) fn every() -> BTreeSet<Met> {
    LABEL_SOURCES.iter().flat_map(|source| RULES.map(|rule| (*source, rule))).collect()
}

/// The rule that a key breaks.
fn broken(key: &str) -> Option<&'static str> {
    if let Some(legacy) = LEGACY_AKS_LABELS.iter().find(|legacy| **legacy == key) {
        return Some(legacy);
    }
    let domain = key.split('/').next().unwrap_or_default();
    for (reserved, known) in [(RULES[0], KARPENTER_AZURE_KEYS.as_slice()), (RULES[1], KUBERNETES_AZURE_KEYS.as_slice())]
    {
        let is_known = key
            .strip_prefix(reserved)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| known.contains(&name));
        if domain.ends_with(reserved) && !is_known {
            return Some(reserved);
        }
    }
    None
}

/// What our definitions should answer where Karpenter's own answer this, and the rules that make the difference.
pub(super) fn expected(case: &Case, upstream: &Response) -> (Answer, BTreeSet<Met>) {
    let mut answer = upstream.answer.clone();
    let mut met = BTreeSet::new();
    let unchecked = upstream.message.contains("some validation rules were not checked");
    if unchecked || ![200, 422].contains(&answer.code) || answer.fields.contains("kind") {
        return (answer, met);
    }
    let spec = &case.object["spec"];
    let labels = spec["template"]["metadata"]["labels"].as_object().into_iter().flatten();
    for rule in labels.filter(|(_, value)| !value.is_null()).filter_map(|(key, _)| broken(key)) {
        answer.fields.insert("spec.template.metadata.labels".to_owned());
        met.insert((LABEL_SOURCES[0], rule));
    }
    for (entries, at, source) in [
        (&spec["template"]["spec"]["requirements"], "spec.template.spec.requirements", LABEL_SOURCES[1]),
        (&spec["requirements"], "spec.requirements", LABEL_SOURCES[2]),
    ] {
        for (i, entry) in entries.as_array().into_iter().flatten().enumerate() {
            if let Some(rule) = entry["key"].as_str().and_then(broken) {
                answer.fields.insert(format!("{at}[{i}].key"));
                met.insert((source, rule));
            }
        }
    }
    if !met.is_empty() {
        answer.code = 422;
    }
    (answer, met)
}
