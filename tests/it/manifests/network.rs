//! The NetworkPolicies of what ships.

use super::{objects, policy_of};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Files with pods, and the file of their NetworkPolicies.
const PODS: [(&str, &str); 4] = [
    ("base/webhook.yaml", "base/network-policy.yaml"),
    ("base/certificates.yaml", "base/network-policy.yaml"),
    ("base/controller.yaml", "base/network-policy.yaml"),
    ("overlays/audit/cronjob.yaml", "overlays/audit/network-policy.yaml"),
];

/// The labels of a Deployment's or CronJob's pods.
fn pod_labels(objects: &[Value]) -> Option<&Value> {
    let templates =
        objects.iter().flat_map(|o| [&o["spec"]["template"], &o["spec"]["jobTemplate"]["spec"]["template"]]);
    templates.map(|template| &template["metadata"]["labels"]).find(|labels| !labels.is_null())
}

/// An ipBlock does not match pods with Cilium, and an IPv4 block no IPv6 address. The node's identity is for nobody here.
#[test]
fn egress_is_to_pods_and_both_families_and_never_to_the_identity_of_the_node() -> Result<()> {
    for (file, policies) in PODS {
        let (all, policies) = (objects(file)?, objects(policies)?);
        let labels = pod_labels(&all).with_context(|| format!("{file}: no pods"))?;
        let policy = policy_of(&policies, labels)?;
        ensure!(policy["spec"]["policyTypes"] == json!(["Ingress", "Egress"]), "{file}: {policy}");
        let blocked = ["169.254.169.254/32", "168.63.129.16/32"];
        let to = json!([{ "to": [
            { "namespaceSelector": {} },
            { "ipBlock": { "cidr": "0.0.0.0/0", "except": blocked } },
            { "ipBlock": { "cidr": "::/0" } },
        ] }]);
        ensure!(policy["spec"]["egress"] == to, "{file}: {}", policy["spec"]["egress"]);
    }
    Ok(())
}
