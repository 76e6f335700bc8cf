//! NK2023 to NK2026 and NK2028: what node auto-provisioning does not support, and names that Azure refuses.
//!
//! The limits are those of Microsoft's overview of node auto-provisioning, and of Azure's naming rules.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::{ManifestSet, ValidObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::labels;
use serde_json::Value;

/// Longest name of a NodePool whose nodes can be named `aks-<NodePool>-<5 letters>`: the name of a Node is a label, of at
/// most 63 characters, and that of a Linux VM has at most 64
/// (<https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftcompute>).
const MAX_POOL_NAME: usize = 63 - "aks-".len() - "-abcde".len();

pub(super) fn pool_name(name: &str, found: &mut Vec<Issue>) {
    if name.len() > MAX_POOL_NAME {
        let message = format!(
            "VMs are named aks-{name}-xxxxx, which is longer than the 63 characters that the label of a Node may have"
        );
        let fix = format!("use a name of at most {MAX_POOL_NAME} characters");
        found.push(Issue::new(&rules::POOL_NAME, &Path::from_dotted("metadata.name"), message).fix(fix));
    }
}

pub(super) fn check_object(manifest: &ValidObject<'_>, found: &mut Vec<Issue>) {
    let value = manifest.value;
    match manifest.object {
        Object::Pod(_) => windows(&value["spec"], &Path::from_dotted("spec"), found),
        Object::Deployment(_) | Object::StatefulSet(_) | Object::DaemonSet(_) | Object::Job(_) => {
            windows(&value["spec"]["template"]["spec"], &Path::from_dotted("spec.template.spec"), found);
        }
        Object::Other { api_version, kind, .. } => match (group(api_version), &**kind) {
            ("", "Service") => service(&value["spec"], found),
            ("containerservice.azure.com", "ManagedCluster") => cluster(&value["spec"], found),
            _ => {}
        },
        _ => {}
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn windows(pod: &Value, path: &Path, found: &mut Vec<Issue>) {
    let by_selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let by_selector = by_selector.filter(|(key, _)| labels::normalize(key) == labels::OS);
    let selected = by_selector.filter(|(_, v)| v.as_str().is_some_and(|v| v.eq_ignore_ascii_case("windows")));
    let at = selected.map(|(key, _)| path.key("nodeSelector").key(key)).next();
    let by_os = || (pod["os"]["name"] == "windows").then(|| path.key("os").key("name"));
    if let Some(at) = at.or_else(by_os) {
        let message = "the pods require Windows, but node auto-provisioning only creates Linux nodes".to_owned();
        let fix = "run them on a cluster with a Windows node pool and the cluster autoscaler".to_owned();
        found.push(Issue::new(&rules::WINDOWS_POD, &at, message).fix(fix));
    }
}

fn service(spec: &Value, found: &mut Vec<Issue>) {
    let path = Path::from_dotted("spec");
    let families = spec["ipFamilies"].as_array().into_iter().flatten();
    let ipv6 = families.enumerate().find(|(_, f)| *f == "IPv6").map(|(i, _)| path.key("ipFamilies").index(i));
    let dual = || (spec["ipFamilyPolicy"] == "RequireDualStack").then(|| path.key("ipFamilyPolicy"));
    if let Some(at) = ipv6.or_else(dual) {
        let message =
            "the Service requires IPv6, but clusters with node auto-provisioning only support IPv4".to_owned();
        let fix = "set ipFamilyPolicy: SingleStack and ipFamilies: [IPv4]".to_owned();
        found.push(Issue::new(&rules::IPV6, &at, message).fix(fix));
    }
}

/// A cluster of Azure Service Operator with node auto-provisioning.
fn cluster(spec: &Value, found: &mut Vec<Issue>) {
    if spec["nodeProvisioningProfile"]["mode"] != "Auto" {
        return;
    }
    let path = Path::from_dotted("spec");
    let mut refuse = |at: Path, message: &str, fix: &str| {
        found.push(Issue::new(&rules::CLUSTER, &at, message).fix(fix.to_owned()));
    };
    let principal = &spec["servicePrincipalProfile"]["clientId"];
    if principal.as_str().is_some_and(|id| id != "msi") {
        let fix = "use identity: {type: SystemAssigned} or a user-assigned one";
        refuse(
            path.key("servicePrincipalProfile"),
            "node auto-provisioning does not work with a service principal",
            fix,
        );
    }
    let families = spec["networkProfile"]["ipFamilies"].as_array().into_iter().flatten();
    if let Some((i, _)) = families.enumerate().find(|(_, f)| *f == "IPv6") {
        let at = path.key("networkProfile").key("ipFamilies").index(i);
        refuse(at, "node auto-provisioning does not work with IPv6", "set ipFamilies: [IPv4]");
    }
    let pools = spec["agentPoolProfiles"].as_array().into_iter().flatten();
    for (i, pool) in pools.enumerate() {
        let at = path.key("agentPoolProfiles").index(i);
        if pool["enableAutoScaling"] == true {
            let message = "node auto-provisioning cannot be enabled together with the cluster autoscaler";
            refuse(at.key("enableAutoScaling"), message, "set enableAutoScaling: false and a count");
        }
        if pool["osType"] == "Windows" {
            let message = "clusters with node auto-provisioning cannot have Windows node pools";
            refuse(at.key("osType"), message, "remove the node pool");
        }
    }
}

/// A cluster-autoscaler beside NodePools: both would add nodes for the same pods.
pub(super) fn autoscalers(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    if !set.objects.iter().any(|d| matches!(d.object, Object::NodePool(_))) {
        return;
    }
    for (at, retained) in set.objects.iter().enumerate() {
        let Object::Deployment(deployment) = &retained.object else { continue };
        if deployment.key.name.as_str().contains("cluster-autoscaler") && deployment.replicas > 0 {
            let message = "cluster-autoscaler runs beside NodePools: both add nodes for the same pods".to_owned();
            let fix =
                "remove it: AKS does not allow node auto-provisioning together with the cluster autoscaler".to_owned();
            found.push((at, Issue::new(&rules::AUTOSCALER, &Path::from_dotted("metadata.name"), message).fix(fix)));
        }
    }
}
