//! Resource names and scopes of kinds.

use serde_json::Value;

/// Where requests for a kind go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// Version that the manifest is written in.
    pub(crate) version: String,
    /// The kind.
    pub(crate) kind: String,
    /// Its plural, as in URLs.
    pub(crate) plural: String,
    /// Whether it is namespaced; `None` for an unknown kind.
    pub(crate) namespaced: Option<bool>,
}

/// Namespaced kinds of Kubernetes and of common tools, by group.
const NAMESPACED_KINDS: &[(&str, &[&str])] = &[
    ("", &["ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolumeClaim", "Pod", "PodTemplate"]),
    ("", &["ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"]),
    ("apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("coordination.k8s.io", &["Lease"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("networking.k8s.io", &["Ingress", "NetworkPolicy"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["Role", "RoleBinding"]),
    ("storage.k8s.io", &["CSIStorageCapacity"]),
    ("argoproj.io", &["Application", "ApplicationSet", "AppProject"]),
    ("kustomize.toolkit.fluxcd.io", &["Kustomization"]),
    ("helm.toolkit.fluxcd.io", &["HelmRelease"]),
];

/// Cluster-scoped kinds, by group.
const CLUSTER_KINDS: &[(&str, &[&str])] = &[
    ("", &["Namespace", "Node", "PersistentVolume"]),
    ("admissionregistration.k8s.io", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    ("admissionregistration.k8s.io", &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("networking.k8s.io", &["IngressClass"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    ("storage.k8s.io", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
    ("karpenter.azure.com", &["AKSNodeClass"]),
    ("karpenter.sh", &["NodeClaim", "NodeOverlay", "NodePool"]),
    ("napkeeper.io", &["NodeRecord", "OrphanRecord", "OrphanSweep", "PlacementPolicy"]),
];

impl Resource {
    /// The resource of an object. `None` without `apiVersion` and `kind`.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let api_version = object["apiVersion"].as_str().filter(|v| !v.is_empty())?;
        let kind = object["kind"].as_str().filter(|k| !k.is_empty())?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_in = |table: &[(&str, &[&str])]| table.iter().any(|(g, kinds)| *g == group && kinds.contains(&kind));
        let namespaced = match (is_in(NAMESPACED_KINDS), is_in(CLUSTER_KINDS)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            // A manifest that names a namespace has one.
            (false, false) => object["metadata"]["namespace"].is_string().then_some(true),
        };
        let plural = plural(kind);
        Some(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural, namespaced })
    }
}

/// The plural that a kind most likely has: definitions may choose any, and hardly ever do.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower == "endpoints" {
        return lower;
    }
    let vowel_before_y = ["ay", "ey", "iy", "oy", "uy"].iter().any(|end| lower.ends_with(end));
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| lower.ends_with(end)) {
        lower + "es"
    } else if let Some(stem) = lower.strip_suffix('y').filter(|_| !vowel_before_y) {
        format!("{stem}ies")
    } else {
        lower + "s"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kind_has_its_plural_and_its_scope() {
        let resource = |api_version: &str, kind: &str, metadata: Value| {
            let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
            Resource::of(&object).map(|r| (r.group, r.plural, r.namespaced)).unwrap()
        };
        let row = |group: &str, plural: &str, scope| (group.to_owned(), plural.to_owned(), scope);
        assert_eq!(resource("v1", "Pod", json!({})), row("", "pods", Some(true)));
        assert_eq!(resource("karpenter.sh/v1", "NodePool", json!({})), row("karpenter.sh", "nodepools", Some(false)));
        assert_eq!(resource("a.io/v1", "Policy", json!({})), row("a.io", "policies", None));
        assert_eq!(resource("a.io/v1", "Gateway", json!({ "namespace": "x" })), row("a.io", "gateways", Some(true)));
        assert_eq!(resource("a.io/v1", "Mesh", json!({})).1, "meshes");
        assert_eq!(Resource::of(&json!({ "kind": "Pod" })), None);
    }
}
