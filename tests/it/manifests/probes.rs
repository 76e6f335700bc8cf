//! The probes of the shipped Deployments, and who can reach their port.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use serde_json::Value;

/// The objects of a file of the base.
fn objects(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository("kustomize/base").join(file))?;
    yaml::read(file, &text).documents.iter().map(|one| Ok(serde_json::to_value(&one.value)?)).collect()
}

fn find<'o>(objects: &'o [Value], kind: &str) -> Result<&'o Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

/// Who reaches a process that may change the webhook configurations must be nobody.
#[test]
fn the_process_with_the_ca_key_has_no_port() -> Result<()> {
    let all = objects("certificates.yaml")?;
    ensure!(!all.iter().any(|object| object["kind"] == "Service"), "it has a Service");
    let template = &find(&all, "Deployment")?["spec"]["template"];
    let containers = template["spec"]["containers"].as_array().context("no containers")?;
    for container in containers {
        for key in ["ports", "startupProbe", "livenessProbe", "readinessProbe"] {
            ensure!(container[key].is_null(), "it has {key}: {container}");
        }
    }
    let labels = &template["metadata"]["labels"];
    let policies = objects("network-policy.yaml")?;
    let policy = policies.iter().find(|policy| policy["spec"]["podSelector"]["matchLabels"] == *labels);
    let spec = &policy.context("no NetworkPolicy")?["spec"];
    let types = spec["policyTypes"].as_array().context("no types")?;
    ensure!(types.iter().any(|one| one == "Ingress") && spec["ingress"].is_null(), "others reach it: {spec}");
    Ok(())
}

/// A slow machine or a busy process is not restarted: a probe has 5 s, and none is sent before the start.
#[test]
fn probes_have_time_and_a_port_of_their_own() -> Result<()> {
    let policies = objects("network-policy.yaml")?;
    for file in ["webhook.yaml", "controller.yaml"] {
        let all = objects(file)?;
        let (deployment, service) = (find(&all, "Deployment")?, find(&all, "Service")?);
        let template = &deployment["spec"]["template"];
        let container = &template["spec"]["containers"][0];
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let found = &container[probe];
            ensure!(found["timeoutSeconds"] == 5 && found["httpGet"]["port"] == "health", "{file}: {probe} is {found}");
        }
        let ports = container["ports"].as_array().context("no ports")?;
        let number = |name: &str| ports.iter().find(|port| port["name"] == name).map(|port| &port["containerPort"]);
        let (health, metrics) = (number("health").context("no port")?, number("metrics").context("no port")?);
        ensure!(health != metrics, "{file}: probes and metrics share a port");
        let text = service["spec"]["ports"].to_string();
        ensure!(!text.contains("health") && !text.contains(&health.to_string()), "{file}: a Service has it: {text}");
        ensure!(text.contains("metrics"), "{file}: {text}");
        let labels = &template["metadata"]["labels"];
        let selects = |policy: &&Value| {
            let wanted = policy["spec"]["podSelector"]["matchLabels"].as_object();
            wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        let policy = policies.iter().find(selects).with_context(|| format!("{file}: no NetworkPolicy"))?;
        let types = policy["spec"]["policyTypes"].as_array().context("no types")?;
        ensure!(types.iter().any(|one| one == "Ingress"), "{file}: any pod reaches every port: {policy}");
        let rules = policy["spec"]["ingress"].as_array().context("no rules")?;
        for rule in rules {
            let ports = rule["ports"].as_array().context("a rule for all ports")?;
            ensure!(ports.iter().all(|port| port["port"] != "health" && port["port"] != *health), "{file}: {rule}");
        }
        ensure!(rules.iter().any(|rule| rule["ports"][0]["port"] == "metrics"), "{file}: nobody reads metrics");
    }
    Ok(())
}
