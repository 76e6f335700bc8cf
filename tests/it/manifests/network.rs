//! The NetworkPolicies of what ships.

use super::{objects, policy_of};
use anyhow::{Context, Result, bail, ensure};
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

/// Reviews come from the API server and metrics go to Prometheus: a pod of any other namespace reaches nothing.
#[test]
fn ingress_names_its_callers() -> Result<()> {
    let namespaces = |from: &Value| -> Result<Vec<String>> {
        let selector = &from["namespaceSelector"];
        let one = &selector["matchLabels"]["kubernetes.io/metadata.name"];
        let several = &selector["matchExpressions"][0]["values"];
        let is_in = selector["matchExpressions"][0]["operator"] == "In";
        ensure!(one.is_string() != is_in && selector.as_object().is_some_and(|s| s.len() == 1), "{from}");
        let names = if one.is_string() { json!([one]) } else { several.clone() };
        Ok(serde_json::from_value(names)?)
    };
    for (file, policies) in PODS {
        let (all, policies) = (objects(file)?, objects(policies)?);
        let labels = pod_labels(&all).with_context(|| format!("{file}: no pods"))?;
        let policy = policy_of(&policies, labels)?;
        for rule in policy["spec"]["ingress"].as_array().into_iter().flatten() {
            let (ports, from) =
                (rule["ports"].as_array().context("ports")?, rule["from"].as_array().context("callers")?);
            let [port] = ports.as_slice() else { bail!("{file}: a rule for several ports: {ports:?}") };
            let port = &port["port"];
            let expected: &[&str] =
                if *port == "admission" { &["kube-system"] } else { &["kube-system", "monitoring"] };
            ensure!(namespaces(from.first().context("a caller")?)? == expected, "{file} {port}: {from:?}");
            let blocks = [
                json!({ "ipBlock": { "cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"] } }),
                json!({ "ipBlock": { "cidr": "::/0" } }),
            ];
            let addresses: &[Value] = if *port == "admission" { &blocks } else { &[] };
            ensure!(from[1..] == *addresses, "{file} {port}: {from:?}");
        }
    }
    Ok(())
}
