//! The files that `init` writes, and what is to be done with them.

use super::cluster::Cluster;
use super::{Mode, OVERLAY};
use napkeeper_api::config::cloud_of_region;
use std::path::Path;

/// Where the overlays expect pods: AKS's default, which `kustomize/base/network-policy.yaml` excepts.
const POD_CIDR: &str = "10.244.0.0/16";
/// What the overlays have in place of a client id.
const NO_CLIENT_ID: &str = "00000000-0000-0000-0000-000000000000";

/// A file with its path in the folder to write to.
pub(super) struct RenderedFile {
    pub(super) path: &'static str,
    pub(super) text: String,
}

/// All files.
pub(super) fn render(cluster: &Cluster, mode: Mode, base: &str, client_id: Option<&str>) -> [RenderedFile; 3] {
    let config = config(cluster, mode);
    let copy =
        format!("# A copy of ../napkeeper.yaml: kustomize reads no file outside of its folder. Change both.\n{config}");
    let kustomization = kustomization(cluster, mode, base, client_id);
    [
        RenderedFile { path: "napkeeper.yaml", text: config },
        RenderedFile { path: "napkeeper-system/napkeeper.yaml", text: copy },
        RenderedFile { path: "napkeeper-system/kustomization.yaml", text: kustomization },
    ]
}

/// What YAML 1.1 reads as something else than text, in lower case.
const NO_TEXT: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// A scalar of YAML that is text: in quotes where it could be read as something else.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || "./".contains(c))
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./()?=:".contains(c))
        && !NO_TEXT.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { serde_json::json!(text).to_string() }
}

/// `napkeeper.yaml`.
fn config(cluster: &Cluster, mode: Mode) -> String {
    let mut text = format!("clusters:\n  - name: {}\n    region: {}\n", scalar(&cluster.name), cluster.region);
    let optional = [
        ("cloud", cloud_of_region(&cluster.region).map(str::to_owned)),
        ("kubernetesVersion", cluster.kubernetes_version.as_ref().map(|version| format!("\"{version}\""))),
        ("networkMode", cluster.network_mode.map(scalar)),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            text.push_str(&format!("    {field}: {value}\n"));
        }
    }
    text.push_str(&format!(
        "    identity:\n      subscription: {}\n      clusterId: {}\n      nodeResourceGroup: {}\n",
        cluster.subscription,
        cluster.id(),
        scalar(&cluster.node_resource_group),
    ));
    if mode == Mode::Provisioner {
        text.push_str(NODES);
    }
    text
}

/// What a provisioner needs to know of nodes, for a person to complete.
const NODES: &str = "    # What nodes are made from, which a provisioner must know: docs/bootstrap.md.
    # nodes:
    #   subnet: /subscriptions/…/virtualNetworks/…/subnets/…
    #   image: /subscriptions/…/galleries/…/images/…/versions/…
    #   sshPublicKey: ssh-ed25519 …
    #   bootstrap:
    #     apiServer: https://…
    #     clusterDns: 10.0.0.10
";

/// `kustomization.yaml`.
fn kustomization(cluster: &Cluster, mode: Mode, base: &str, client_id: Option<&str>) -> String {
    let mut text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - {}
configMapGenerator:
  - name: napkeeper-config
    namespace: napkeeper-system
    behavior: replace
    files: [napkeeper.yaml]
patches:
  # The client id of its identity in Azure.
  - target: {{kind: ServiceAccount, name: {}}}
    patch: |-
      - op: replace
        path: /metadata/annotations/azure.workload.identity~1client-id
        value: {}
",
        scalar(base),
        mode.service_account(),
        client_id.unwrap_or(NO_CLIENT_ID),
    );
    // The audit has no hook, so that nothing reaches it.
    if let Some(pods) = cluster.pod_cidr.as_ref().filter(|cidr| *cidr != POD_CIDR && mode != Mode::Audit) {
        text.push_str(&format!(
            "  # Where the pods of this cluster are: none of them may send reviews but those of kube-system.
  - target: {{kind: NetworkPolicy, name: napkeeper-webhook}}
    patch: |-
      - op: test
        path: /spec/ingress/0/from/1/ipBlock/except/0
        value: {POD_CIDR}
      - op: replace
        path: /spec/ingress/0/from/1/ipBlock/except/0
        value: {pods}
"
        ));
    }
    text
}

/// What remains to be done.
pub(super) fn next_steps(cluster: &Cluster, mode: Mode, overlay: &Path) -> String {
    let (Cluster { resource_group, name, .. }, account) = (cluster, mode.service_account());
    format!(
        "Give napkeeper's identity its roles (docs/azure-roles.md), let it sign in, and install:

  az identity federated-credential create -g '{resource_group}' --identity-name napkeeper --name {account} \\
    --issuer \"$(az aks show -g '{resource_group}' -n '{name}' --query oidcIssuerProfile.issuerUrl -o tsv)\" \\
    --subject system:serviceaccount:{OVERLAY}:{account} --audiences api://AzureADTokenExchange
  kubectl apply --server-side -k {}

Flux applies every file of a folder that has no kustomization: where it syncs this one, name napkeeper.yaml in .sourceignore.
",
        overlay.display()
    )
}
