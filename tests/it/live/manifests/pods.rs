//! What every pod that an overlay installs must have. No control plane is started.

use super::overlays::with_components;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Every overlay, alone and with the components that change its pods.
const RENDERED: [(&str, &[&str]); 6] = [
    ("audit", &[]),
    ("companion", &[]),
    ("companion", &["fail-closed"]),
    ("companion", &["cert-manager"]),
    ("companion", &["argocd", "alerts"]),
    ("provisioner", &[]),
];
/// ServiceAccounts that sign in to Azure.
const IN_AZURE: [&str; 2] = ["napkeeper-audit", "napkeeper-controller"];
/// On it a pod gets a token for Azure.
const USES_IDENTITY: &str = "azure.workload.identity/use";
/// On a ServiceAccount: which identity.
const CLIENT_ID: &str = "azure.workload.identity/client-id";

/// A Deployment or CronJob, with its pods' template.
struct Workload<'o> {
    object: &'o Value,
    template: &'o Value,
}

impl<'o> Workload<'o> {
    fn all(objects: &'o [Value]) -> Vec<Self> {
        let template = |object: &'o Value| match object["kind"].as_str()? {
            "Deployment" => Some(&object["spec"]["template"]),
            "CronJob" => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
            _ => None,
        };
        objects.iter().filter_map(|object| Some(Self { object, template: template(object)? })).collect()
    }

    fn pod(&self) -> &'o Value {
        &self.template["spec"]
    }

    fn containers(&self) -> impl Iterator<Item = &'o Value> {
        let kinds = ["containers", "initContainers"].map(|kind| self.pod()[kind].as_array());
        kinds.into_iter().flatten().flatten()
    }

    /// Whether a selector of labels selects its pods.
    fn is_selected(&self, selector: &Value) -> bool {
        let labels = &self.template["metadata"]["labels"];
        selector["matchLabels"].as_object().is_some_and(|all| all.iter().all(|(key, value)| labels[key] == *value))
    }
}

/// The pod security standard `restricted`, and a root filesystem that nothing can write to.
fn is_confined(workload: &Workload<'_>, _: &[Value]) -> Result<()> {
    let security = &workload.pod()["securityContext"];
    ensure!(security["runAsNonRoot"] == true && security["runAsUser"].as_i64() > Some(0), "{security}");
    ensure!(security["seccompProfile"] == json!({ "type": "RuntimeDefault" }), "{security}");
    for container in workload.containers() {
        let found = &container["securityContext"];
        let wanted = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        });
        ensure!(*found == wanted, "{found}");
    }
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        ensure!(workload.pod()[key].is_null(), "it has {key}");
    }
    Ok(())
}

/// Memory has a limit; the CPU has none, so that a review or a decision is not slowed down on an idle node.
fn has_requests_and_limits(workload: &Workload<'_>, _: &[Value]) -> Result<()> {
    for container in workload.containers() {
        let resources = &container["resources"];
        let has = |kind: &str, what: &str| resources[kind][what].is_string();
        ensure!(has("requests", "cpu") && has("requests", "memory") && has("limits", "memory"), "{resources}");
        ensure!(resources["limits"]["cpu"].is_null(), "{resources}");
    }
    Ok(())
}

/// Linux, no node that NAP may remove, and system node pools.
fn has_a_node_that_stays(workload: &Workload<'_>, _: &[Value]) -> Result<()> {
    let required = &workload.pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let wanted = json!([{ "matchExpressions": [
        { "key": "karpenter.sh/nodepool", "operator": "DoesNotExist" },
        { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
    ] }]);
    ensure!(required["nodeSelectorTerms"] == wanted, "{required}");
    let tolerations = &workload.pod()["tolerations"];
    ensure!(*tolerations == json!([{ "key": "CriticalAddonsOnly", "operator": "Exists" }]), "{tolerations}");
    Ok(())
}

/// What runs always is not displaced by other pods, nor by the drain of a node with all its pods. A report may wait.
fn is_available(workload: &Workload<'_>, objects: &[Value]) -> Result<()> {
    let (pod, spec) = (workload.pod(), &workload.object["spec"]);
    let budgets = objects.iter().filter(|o| o["kind"] == "PodDisruptionBudget");
    let budgets: Vec<_> = budgets.filter(|budget| workload.is_selected(&budget["spec"]["selector"])).collect();
    let spread = pod["topologySpreadConstraints"].as_array().cloned().unwrap_or_default();
    if workload.object["kind"] == "CronJob" {
        ensure!(pod["priorityClassName"].is_null() && budgets.is_empty(), "a report displaces pods or holds up drains");
        return Ok(());
    }
    ensure!(pod["priorityClassName"] == "system-cluster-critical", "{}", pod["priorityClassName"]);
    let replicas = spec["replicas"].as_i64().context("a number of replicas")?;
    if replicas == 1 {
        ensure!(budgets.is_empty(), "its node cannot be drained");
        return Ok(());
    }
    let [budget] = budgets[..] else { bail!("{} PodDisruptionBudgets", budgets.len()) };
    ensure!(budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "{budget}");
    let needed = budget["spec"]["minAvailable"].as_i64().context("a number of pods")?;
    ensure!((1..replicas).contains(&needed), "{needed} of {replicas} must remain");
    let keys: Vec<_> = spread.iter().map(|one| &one["topologyKey"]).collect();
    ensure!(keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{keys:?}");
    for one in &spread {
        ensure!(one["maxSkew"] == 1 && one["labelSelector"] == spec["selector"], "{one}");
        ensure!(one["matchLabelKeys"] == json!(["pod-template-hash"]), "old pods count in an update: {one}");
    }
    Ok(())
}

/// A container with ports is probed.
fn is_probed(workload: &Workload<'_>, _: &[Value]) -> Result<()> {
    for container in workload.containers().filter(|container| container["ports"].is_array()) {
        let path = |probe: &str| container[probe]["httpGet"]["path"].as_str().unwrap_or_default();
        let found = ["startupProbe", "livenessProbe", "readinessProbe"].map(path);
        ensure!(found == ["/healthz", "/healthz", "/readyz"], "{found:?}");
    }
    Ok(())
}

/// One NetworkPolicy is about its pods, in both directions.
fn is_isolated(workload: &Workload<'_>, objects: &[Value]) -> Result<()> {
    let policies = objects.iter().filter(|o| o["kind"] == "NetworkPolicy");
    let policies: Vec<_> = policies.filter(|policy| workload.is_selected(&policy["spec"]["podSelector"])).collect();
    let [policy] = policies[..] else { bail!("{} NetworkPolicies", policies.len()) };
    ensure!(policy["spec"]["policyTypes"] == json!(["Ingress", "Egress"]), "{policy}");
    Ok(())
}

/// Only what signs in to Azure gets a token for it, and its ServiceAccount has a place for the identity.
fn has_its_identity(workload: &Workload<'_>, objects: &[Value]) -> Result<()> {
    let name = workload.pod()["serviceAccountName"].as_str().context("no ServiceAccount")?;
    let account = objects.iter().find(|o| o["kind"] == "ServiceAccount" && o["metadata"]["name"] == name);
    let account = account.with_context(|| format!("no ServiceAccount {name}"))?;
    ensure!(account["metadata"]["namespace"] == workload.object["metadata"]["namespace"], "{account}");
    let in_azure = IN_AZURE.contains(&name);
    let used = &workload.template["metadata"]["labels"][USES_IDENTITY];
    let identity = &account["metadata"]["annotations"][CLIENT_ID];
    ensure!((*used == "true") == in_azure && identity.is_string() == in_azure, "{used}, {identity}");
    let args = workload.containers().flat_map(|container| container["args"].as_array().into_iter().flatten());
    let args: Vec<_> = args.filter_map(Value::as_str).collect();
    let signs_in = args.windows(2).any(|pair| pair == ["--azure-credential", "workload-identity"]);
    ensure!(signs_in == in_azure, "{args:?}");
    Ok(())
}

/// Checks a workload, among the objects of its overlay.
type Check = fn(&Workload<'_>, &[Value]) -> Result<()>;

#[tokio::test]
async fn every_pod_of_every_overlay_is_confined_available_and_has_its_identity() -> Result<()> {
    let checks: [(&str, Check); 7] = [
        ("confined", is_confined),
        ("requests and limits", has_requests_and_limits),
        ("a node that stays", has_a_node_that_stays),
        ("available", is_available),
        ("probed", is_probed),
        ("isolated", is_isolated),
        ("its identity", has_its_identity),
    ];
    for (overlay, components) in RENDERED {
        let objects = with_components(overlay, components).await?;
        let workloads = Workload::all(&objects);
        let expected = match (overlay, components) {
            ("audit", _) => 1,
            (_, ["cert-manager"]) => 2,
            _ => 3,
        };
        ensure!(workloads.len() == expected, "{overlay} with {components:?} has {} kinds of pods", workloads.len());
        for workload in &workloads {
            let name = &workload.object["metadata"]["name"];
            for (what, check) in checks {
                check(workload, &objects).with_context(|| format!("{overlay} with {components:?}, {name}: {what}"))?;
            }
        }
        let namespace = objects.iter().find(|o| o["kind"] == "Namespace").context("no Namespace")?;
        let labels = &namespace["metadata"]["labels"];
        ensure!(labels["pod-security.kubernetes.io/enforce"] == "restricted", "{overlay}: {labels}");
    }
    Ok(())
}
