//! Keys of labels that are refused, and those that come closest.

use super::rule_breaks::Example;
use napkeeper_api::crds::cel_rules::{KARPENTER_AZURE_KEYS, KUBERNETES_AZURE_KEYS};
use serde_json::json;

/// Rejected keys of labels (in a NodePool, in a NodeClaim).
const KEYS: &[(&str, bool, bool)] = &[
    ("karpenter.sh/capacity-type", false, false),
    ("karpenter.sh/nodepool", true, false),
    ("karpenter.sh/initialized", true, true),
    ("sub.karpenter.sh/x", true, true),
    ("mykarpenter.sh/x", true, true),
    ("karpenter.sh", true, true),
    ("example.com/karpenter.sh", false, false),
    ("karpenter.sh.example.com/x", false, false),
    ("kubernetes.io/hostname", true, true),
    ("hostname", false, false),
    ("topology.kubernetes.io/zone", false, false),
    ("karpenter.azure.com/foo", true, true),
    ("karpenter.azure.com/sku-hyperv-generation", true, true),
    ("notkarpenter.azure.com/x", true, true),
    ("sub.karpenter.azure.com/x", true, true),
    ("karpenter.azure.com", true, true),
    ("example.com/karpenter.azure.com", false, false),
    ("kubernetes.azure.com/foo", true, true),
    ("kubernetes.azure.com/role", true, true),
    ("sub.kubernetes.azure.com/x", true, true),
    ("mykubernetes.azure.com/x", true, true),
    ("agentpool", true, true),
    ("storageprofile", true, true),
    ("storagetier", true, true),
    ("accelerator", true, true),
    ("kubernetes.azure.com/agentpool", true, true),
    ("example.com/agentpool", false, false),
    ("agentpools", false, false),
];

/// Each key as a label of a NodePool, and in the requirements of a NodePool and of a NodeClaim.
pub(crate) fn examples() -> Vec<Example> {
    let azure = KARPENTER_AZURE_KEYS.iter().map(|key| format!("karpenter.azure.com/{key}"));
    let aks = KUBERNETES_AZURE_KEYS.iter().map(|key| format!("kubernetes.azure.com/{key}"));
    let known = azure.chain(aks).map(|key| (key, false, false));
    let listed = KEYS.iter().map(|(key, pool, claim)| ((*key).to_owned(), *pool, *claim));
    let mut all = Vec::new();
    for (key, pool, claim) in listed.chain(known) {
        let requirement = json!({ "key": key, "operator": "Exists" });
        let fields = [
            (
                "pool-full",
                format!("spec.template.metadata.labels[\"{key}\"]"),
                json!("x"),
                pool,
                "spec.template.metadata.labels",
            ),
            (
                "pool-full",
                "spec.template.spec.requirements[0]".to_owned(),
                requirement.clone(),
                pool,
                "spec.template.spec.requirements[0].key",
            ),
            ("claim-full", "spec.requirements[0]".to_owned(), requirement, claim, "spec.requirements[0].key"),
        ];
        for (base, path, value, refused, field) in fields {
            all.push(Example { base, changes: vec![(path, value)], refused: refused.then_some(field) });
        }
    }
    all
}
