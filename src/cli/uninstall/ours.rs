//! What belongs to an installation of napkeeper: exact kinds and names.
//!
//! A test compares them with what `kustomize/` builds.

/// A kind, as requests name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
}

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version, kind, plural }
}

/// Where objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Without a namespace.
    Cluster,
    /// In the namespace of napkeeper.
    Own,
    /// In `kube-system`.
    KubeSystem,
}

impl Place {
    /// The namespace, where napkeeper's is this one.
    pub(super) fn namespace(self, own: &str) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Own => Some(own),
            Self::KubeSystem => Some(KUBE_SYSTEM),
        }
    }
}

/// The namespace of the controller's Lease and of bootstrap tokens.
pub(super) const KUBE_SYSTEM: &str = "kube-system";

/// Objects of one kind in one place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owned {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) names: &'static [&'static str],
}

const fn owned(kind: Kind, place: Place, names: &'static [&'static str]) -> Owned {
    Owned { kind, place, names }
}

pub(super) const CONFIG_MAP: Kind = kind("", "v1", "ConfigMap", "configmaps");
pub(super) const SECRET: Kind = kind("", "v1", "Secret", "secrets");
pub(super) const POD: Kind = kind("", "v1", "Pod", "pods");
pub(super) const NODE: Kind = kind("", "v1", "Node", "nodes");
pub(super) const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces");
pub(super) const DEPLOYMENT: Kind = kind("apps", "v1", "Deployment", "deployments");
pub(super) const LEASE: Kind = kind("coordination.k8s.io", "v1", "Lease", "leases");
pub(super) const NODE_POOL: Kind = kind("karpenter.sh", "v1", "NodePool", "nodepools");
pub(super) const NODE_CLAIM: Kind = kind("karpenter.sh", "v1", "NodeClaim", "nodeclaims");
pub(super) const POLICY: Kind = kind(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
pub(super) const BINDING: Kind =
    kind(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
pub(super) const DEFINITION: Kind =
    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDING: Kind = kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings");
const CLUSTER_ROLE: Kind = kind(RBAC, "v1", "ClusterRole", "clusterroles");
const ROLE_BINDING: Kind = kind(RBAC, "v1", "RoleBinding", "rolebindings");
const ROLE: Kind = kind(RBAC, "v1", "Role", "roles");

/// Name of the controller's Deployment, and of its Lease.
pub(super) const CONTROLLER: &str = "napkeeper-controller";
/// What the name of the generated ConfigMap begins with, before a hash of its content.
pub(super) const CONFIG_PREFIX: &str = "napkeeper-config";
/// Selects napkeeper's pods in its namespace.
pub(super) const PODS: &str = "app.kubernetes.io/name=napkeeper";
/// Selects the bootstrap tokens in `kube-system`.
pub(super) const TOKENS: &str = "app.kubernetes.io/managed-by=napkeeper,napkeeper.io/nodeclaim-uid";
/// The label of definitions that are napkeeper's.
pub(super) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "napkeeper");

/// What the API server calls.
pub(super) const WEBHOOKS: &[Owned] = &[
    owned(
        kind(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        Place::Cluster,
        &["napkeeper"],
    ),
    owned(
        kind(ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        Place::Cluster,
        &["napkeeper"],
    ),
];

/// What runs. Of cert-manager, what would make the Secrets again.
pub(super) const WORKLOADS: &[Owned] = &[
    owned(
        kind("cert-manager.io", "v1", "Certificate", "certificates"),
        Place::Own,
        &["napkeeper-webhook", "napkeeper-webhook-issuer"],
    ),
    owned(
        kind("cert-manager.io", "v1", "Issuer", "issuers"),
        Place::Own,
        &["napkeeper-webhook", "napkeeper-webhook-root"],
    ),
    owned(DEPLOYMENT, Place::Own, &[CONTROLLER, "napkeeper-certificates", "napkeeper-webhook"]),
    owned(kind("batch", "v1", "CronJob", "cronjobs"), Place::Own, &["napkeeper-audit"]),
];

/// What limits the controller, as long as it runs.
pub(super) const POLICIES: &[Owned] = &[
    owned(BINDING, Place::Cluster, &["napkeeper-bootstrap-tokens"]),
    owned(POLICY, Place::Cluster, &["napkeeper-bootstrap-tokens"]),
];

const CLUSTER_ROLES: &[&str] =
    &["napkeeper-audit", "napkeeper-certificates", CONTROLLER, "napkeeper-provisioner", "napkeeper-webhook"];
const ROLES: &[&str] = &["napkeeper-audit", "napkeeper-certificates", CONTROLLER, "napkeeper-webhook"];
const SYSTEM_ROLES: &[&str] = &["napkeeper-bootstrap-tokens", CONTROLLER];

/// Everything else, but definitions and the namespace.
pub(super) const OBJECTS: &[Owned] = &[
    owned(
        kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
        Place::Own,
        &[CONTROLLER, "napkeeper-webhook"],
    ),
    owned(
        kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        Place::Own,
        &[CONTROLLER, "napkeeper-webhook"],
    ),
    owned(kind("", "v1", "Service", "services"), Place::Own, &[CONTROLLER, "napkeeper-webhook"]),
    owned(CLUSTER_ROLE_BINDING, Place::Cluster, CLUSTER_ROLES),
    owned(CLUSTER_ROLE, Place::Cluster, CLUSTER_ROLES),
    owned(ROLE_BINDING, Place::Own, ROLES),
    owned(ROLE, Place::Own, ROLES),
    owned(ROLE_BINDING, Place::KubeSystem, SYSTEM_ROLES),
    owned(ROLE, Place::KubeSystem, SYSTEM_ROLES),
    owned(kind("", "v1", "ServiceAccount", "serviceaccounts"), Place::Own, ROLES),
    owned(kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"), Place::Own, ROLES),
    owned(CONFIG_MAP, Place::Own, &["napkeeper-facts", "napkeeper-pause"]),
    owned(SECRET, Place::Own, &["napkeeper-webhook-ca", "napkeeper-webhook-issuer", "napkeeper-webhook-tls"]),
    owned(LEASE, Place::Own, &["napkeeper-webhook"]),
    owned(LEASE, Place::KubeSystem, &[CONTROLLER]),
];

/// A definition that napkeeper installs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Definition {
    /// The kind that it defines.
    pub(super) kind: Kind,
    /// Policies of `napkeeper policies export` that have no object without it.
    pub(super) policies: &'static [&'static str],
    /// Its objects are napkeeper's own, not upstream's.
    pub(super) is_own: bool,
}

impl Definition {
    /// The name of the CustomResourceDefinition.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.kind.plural, self.kind.group)
    }
}

const fn own(kind_name: &'static str, plural: &'static str, policies: &'static [&'static str]) -> Definition {
    Definition { kind: kind("napkeeper.io", "v1alpha1", kind_name, plural), policies, is_own: true }
}

const fn upstream(kind: Kind, policies: &'static [&'static str]) -> Definition {
    Definition { kind, policies, is_own: false }
}

/// The definitions of both modes.
pub(super) const DEFINITIONS: &[Definition] = &[
    own("NodeRecord", "noderecords", &[]),
    own("OrphanRecord", "orphanrecords", &["orphanrecords-definition", "orphanrecord-writers"]),
    own("OrphanSweep", "orphansweeps", &["orphansweeps-definition", "orphansweep-approvals"]),
    own("PlacementPolicy", "placementpolicies", &["placementpolicies-definition"]),
    upstream(NODE_CLAIM, &["nodeclaims-definition"]),
    upstream(kind("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays"), &[]),
    upstream(NODE_POOL, &["nodepools-definition", "nodepool-in-use"]),
    upstream(
        kind("karpenter.azure.com", "v1beta1", "AKSNodeClass", "aksnodeclasses"),
        &["aksnodeclasses-definition", "aksnodeclass-in-use"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::yaml;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Group, kind, namespace, name.
    type Identity = (String, String, String, String);

    /// Made while napkeeper runs, and therefore in no file.
    const AT_RUN_TIME: [(&str, &str); 4] = [
        ("ConfigMap", "napkeeper-facts"),
        ("Lease", "napkeeper-controller"),
        ("Lease", "napkeeper-webhook"),
        ("Secret", "napkeeper-webhook-issuer"),
    ];

    fn kustomize() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kustomize")
    }

    fn identity(object: &Value) -> Identity {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let (metadata, kind) = (&object["metadata"], text(&object["kind"]));
        let mut name = text(&metadata["name"]);
        if kind == "ConfigMap" && name.starts_with(CONFIG_PREFIX) {
            CONFIG_PREFIX.clone_into(&mut name);
        }
        (group, kind, text(&metadata["namespace"]), name)
    }

    fn objects(text: &str) -> Vec<Value> {
        let read = yaml::read("objects", text);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        read.documents.into_iter().map(|document| document.value).collect()
    }

    /// The objects of all overlays, and those that components add.
    fn shipped() -> BTreeSet<Identity> {
        let mut all = BTreeSet::new();
        for overlay in std::fs::read_dir(kustomize().join("overlays")).unwrap() {
            let output = Command::new("kubectl").arg("kustomize").arg(overlay.unwrap().path()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            all.extend(objects(&String::from_utf8(output.stdout).unwrap()).iter().map(identity));
        }
        for component in std::fs::read_dir(kustomize().join("components")).unwrap() {
            for file in std::fs::read_dir(component.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
                    all.extend(objects(&std::fs::read_to_string(path).unwrap()).iter().map(identity));
                }
            }
        }
        all
    }

    /// The same by the tables above.
    fn listed() -> BTreeSet<Identity> {
        let tables = [WEBHOOKS, WORKLOADS, POLICIES, OBJECTS].concat();
        let mut all: BTreeSet<Identity> = tables
            .iter()
            .flat_map(|row| {
                let namespace = row.place.namespace("napkeeper-system").unwrap_or_default();
                row.names.iter().map(move |name| (row.kind.group, row.kind.kind, namespace, *name))
            })
            .filter(|(_, kind, _, name)| !AT_RUN_TIME.contains(&(*kind, *name)))
            .map(|(group, kind, namespace, name)| (group.into(), kind.into(), namespace.into(), name.into()))
            .collect();
        let cluster = |kind: Kind, name: String| (kind.group.to_owned(), kind.kind.to_owned(), String::new(), name);
        all.extend(DEFINITIONS.iter().map(|definition| cluster(DEFINITION, definition.name())));
        all.insert(cluster(NAMESPACE, "napkeeper-system".to_owned()));
        all.insert((String::new(), "ConfigMap".to_owned(), "napkeeper-system".to_owned(), CONFIG_PREFIX.to_owned()));
        all
    }

    #[test]
    fn everything_that_kustomize_installs_is_removed_and_nothing_else() {
        let (shipped, listed) = (shipped(), listed());
        let forgotten: Vec<_> = shipped.difference(&listed).collect();
        let unknown: Vec<_> = listed.difference(&shipped).collect();
        assert!(forgotten.is_empty() && unknown.is_empty(), "forgotten: {forgotten:#?}, unknown: {unknown:#?}");
    }

    #[test]
    fn the_policies_of_a_definition_are_those_that_are_exported() {
        let folder = kustomize().join("../policies");
        let mut exported = BTreeSet::new();
        for file in
            ["guards/definitions.yaml", "guards/in-use.yaml", "rights/approvals.yaml", "rights/orphan-records.yaml"]
        {
            exported
                .extend(objects(&std::fs::read_to_string(folder.join(file)).unwrap()).iter().map(|o| identity(o).3));
        }
        let listed: BTreeSet<_> =
            DEFINITIONS.iter().flat_map(|definition| definition.policies).map(ToString::to_string).collect();
        assert_eq!(listed, exported);
    }
}
