//! The probes of the shipped Deployments, and who can reach their port.

use super::{objects, policy_of};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

fn find<'o>(objects: &'o [Value], kind: &str) -> Result<&'o Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

/// Who reaches a process that may change the webhook configurations must be nobody.
#[test]
fn the_process_with_the_ca_key_has_no_port() -> Result<()> {
    let all = objects("base/certificates.yaml")?;
    ensure!(!all.iter().any(|object| object["kind"] == "Service"), "it has a Service");
    let template = &find(&all, "Deployment")?["spec"]["template"];
    let containers = template["spec"]["containers"].as_array().context("no containers")?;
    for container in containers {
        for key in ["ports", "startupProbe", "livenessProbe", "readinessProbe"] {
            ensure!(container[key].is_null(), "it has {key}: {container}");
        }
    }
    let policies = objects("base/network-policy.yaml")?;
    let spec = &policy_of(&policies, &template["metadata"]["labels"])?["spec"];
    let types = spec["policyTypes"].as_array().context("no types")?;
    ensure!(types.iter().any(|one| one == "Ingress") && spec["ingress"].is_null(), "others reach it: {spec}");
    Ok(())
}

/// A slow machine or a busy process is not restarted: a probe has 5 s, and none is sent before the start.
#[test]
fn probes_have_time_and_a_port_of_their_own() -> Result<()> {
    let policies = objects("base/network-policy.yaml")?;
    for file in ["base/webhook.yaml", "base/controller.yaml"] {
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
        let policy = policy_of(&policies, &template["metadata"]["labels"])?;
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
