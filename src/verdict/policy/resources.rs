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
    /// Whether its objects live in a namespace; `None` for a kind that nobody here knows.
    pub(crate) namespaced: Option<bool>,
}

/// Kinds of Kubernetes and of those who work beside us that live in namespaces: group, kind, plural.
const NAMESPACED_KINDS: &[(&str, &str, &str)] = &[
    ("", "ConfigMap", "configmaps"),
    ("", "Endpoints", "endpoints"),
    ("", "Event", "events"),
    ("", "LimitRange", "limitranges"),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "Pod", "pods"),
    ("", "PodTemplate", "podtemplates"),
    ("", "ReplicationController", "replicationcontrollers"),
    ("", "ResourceQuota", "resourcequotas"),
    ("", "Secret", "secrets"),
    ("", "Service", "services"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("apps", "ControllerRevision", "controllerrevisions"),
    ("apps", "DaemonSet", "daemonsets"),
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "StatefulSet", "statefulsets"),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("batch", "CronJob", "cronjobs"),
    ("batch", "Job", "jobs"),
    ("coordination.k8s.io", "Lease", "leases"),
    ("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    ("networking.k8s.io", "Ingress", "ingresses"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "Role", "roles"),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    ("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities"),
    ("argoproj.io", "Application", "applications"),
    ("argoproj.io", "ApplicationSet", "applicationsets"),
    ("argoproj.io", "AppProject", "appprojects"),
    ("kustomize.toolkit.fluxcd.io", "Kustomization", "kustomizations"),
    ("helm.toolkit.fluxcd.io", "HelmRelease", "helmreleases"),
];

/// Kinds that belong to the whole cluster.
const CLUSTER_KINDS: &[(&str, &str, &str)] = &[
    ("", "Namespace", "namespaces"),
    ("", "Node", "nodes"),
    ("", "PersistentVolume", "persistentvolumes"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "APIService", "apiservices"),
    ("networking.k8s.io", "IngressClass", "ingressclasses"),
    ("node.k8s.io", "RuntimeClass", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings"),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    ("storage.k8s.io", "CSIDriver", "csidrivers"),
    ("storage.k8s.io", "CSINode", "csinodes"),
    ("storage.k8s.io", "StorageClass", "storageclasses"),
    ("storage.k8s.io", "VolumeAttachment", "volumeattachments"),
    ("karpenter.azure.com", "AKSNodeClass", "aksnodeclasses"),
    ("karpenter.sh", "NodeClaim", "nodeclaims"),
    ("karpenter.sh", "NodeOverlay", "nodeoverlays"),
    ("karpenter.sh", "NodePool", "nodepools"),
    ("napkeeper.io", "OrphanRecord", "orphanrecords"),
    ("napkeeper.io", "OrphanSweep", "orphansweeps"),
    ("napkeeper.io", "PlacementPolicy", "placementpolicies"),
];

impl Resource {
    /// The resource of an object. `None` without `apiVersion` and `kind`.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let api_version = object["apiVersion"].as_str().filter(|v| !v.is_empty())?;
        let kind = object["kind"].as_str().filter(|k| !k.is_empty())?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let known = |table: &[(&'static str, &'static str, &'static str)]| {
            table.iter().find(|(g, k, _)| (*g, *k) == (group, kind)).map(|(_, _, plural)| (*plural).to_owned())
        };
        let (plural, namespaced) = match (known(NAMESPACED_KINDS), known(CLUSTER_KINDS)) {
            (Some(plural), _) => (plural, Some(true)),
            (None, Some(plural)) => (plural, Some(false)),
            // A manifest that names a namespace has one.
            (None, None) => (plural(kind), object["metadata"]["namespace"].is_string().then_some(true)),
        };
        Some(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural, namespaced })
    }
}

/// The plural that a kind most likely has: definitions may choose any, and hardly ever do.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
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
