//! The custom data of a VM, with which its kubelet joins the cluster.
//!
//! AKS node images start the kubelet with `/etc/default/kubelet`: `KUBELET_NODE_LABELS` holds the labels, and
//! `KUBELET_FLAGS` the rest (Azure/AgentBaker, `parts/linux/cloud-init`). [`custom_data`] and [`parse_custom_data`] are
//! inverse to each other. [`custom_data_with_join`] adds what a node needs to join a real cluster, by the template in
//! `node.cloud-init.yaml`, which docs/bootstrap.md explains.

use base64::prelude::{BASE64_STANDARD, Engine};
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::labels::TAINT_UNREGISTERED;
use napkeeper_core::plan::KubeletSpec;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

const LABELS: &str = "KUBELET_NODE_LABELS=";
const MAX_PODS: &str = "--max-pods=";
/// The node label of AKS for the cluster, with the name of the node resource group (Azure/AgentBaker,
/// `pkg/agent/baker.go`).
const LABEL_CLUSTER: &str = "kubernetes.azure.com/cluster";
/// Most characters of a label's value.
const MAX_LABEL_VALUE_LENGTH: usize = 63;
const TEMPLATE: &str = include_str!("node.cloud-init.yaml");

/// How a node finds its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    api_server: Arc<str>,
    certificate_authority: Arc<str>,
    cluster_dns: IpAddr,
    /// The label by which AKS's own DaemonSets choose their nodes.
    cluster_label: Option<Arc<str>>,
}

/// Invalid join settings of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Not where an API server can be.
    #[error(
        "apiServer {0:?}: must be an https URL without a path, such as https://prod-dns-1234.hcp.westeurope.azmk8s.io:443"
    )]
    ApiServer(String),
    /// No certificates.
    #[error("certificateAuthority: must be PEM-encoded certificates")]
    CertificateAuthority,
    /// No address.
    #[error("clusterDns {0:?}: must be the address of the cluster's DNS service, such as 10.0.0.10")]
    ClusterDns(String),
}

impl Join {
    /// Join settings of a cluster: its API server, as nodes reach it, its certificate authority in PEM, and the address
    /// of its DNS service.
    ///
    /// # Errors
    /// [`JoinError`] if a value is invalid.
    pub fn new(api_server: &str, certificate_authority: &str, cluster_dns: &str) -> Result<Self, JoinError> {
        let host = api_server.strip_prefix("https://").unwrap_or_default();
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if host.is_empty() || !host.chars().all(bare) {
            return Err(JoinError::ApiServer(api_server.to_owned()));
        }
        let pem = certificate_authority.trim();
        if !pem.starts_with("-----BEGIN CERTIFICATE-----") || pem.contains("PRIVATE KEY") {
            return Err(JoinError::CertificateAuthority);
        }
        let cluster_dns = cluster_dns.parse().map_err(|_| JoinError::ClusterDns(cluster_dns.to_owned()))?;
        Ok(Self {
            api_server: Arc::from(api_server),
            certificate_authority: Arc::from(pem),
            cluster_dns,
            cluster_label: None,
        })
    }

    /// The same, for the cluster whose node resource group has this name. AKS's DaemonSets run only on nodes that
    /// are labelled with it; cloud-node-manager, which initialises nodes, is one of them.
    #[must_use]
    pub fn with_node_resource_group(mut self, group: &str) -> Self {
        self.cluster_label = Some(Arc::from(resource_group_label_value(group)));
        self
    }
}

/// A bootstrap token, with which one node requests its certificate. Only the custom data and the Secret contain it;
/// `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    id: Arc<str>,
    secret: Arc<str>,
}

impl JoinToken {
    /// A token in the form of the API server: six and sixteen lower-case letters and digits. `None` for anything else.
    #[must_use]
    pub fn new(id: &str, secret: &str) -> Option<Self> {
        let fits = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        (fits(id, 6) && fits(secret, 16)).then(|| Self { id: Arc::from(id), secret: Arc::from(secret) })
    }

    /// The part that is no secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret part.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}.…)", self.id)
    }
}

/// The custom data of a VM, as cloud-init reads it. The VM cannot join a cluster with it: it is for simulated ones.
#[must_use]
pub fn custom_data(kubelet: &KubeletSpec) -> String {
    let (labels, flags) = kubelet_settings(kubelet);
    format!(
        "#cloud-config\nwrite_files:\n- path: /etc/default/kubelet\n  permissions: \"0600\"\n  content: |\n    \
         {LABELS}{labels}\n    KUBELET_FLAGS={flags}\n"
    )
}

/// The custom data of a VM that joins a cluster. It holds the token.
#[must_use]
pub fn custom_data_with_join(kubelet: &KubeletSpec, join: &Join, token: &JoinToken) -> String {
    let mut kubelet = kubelet.clone();
    if let Some(group) = &join.cluster_label {
        kubelet.labels.insert(Arc::from(LABEL_CLUSTER), Arc::clone(group));
    }
    let (labels, flags) = kubelet_settings(&kubelet);
    let values = [
        ("{{certificate-authority}}", BASE64_STANDARD.encode(join.certificate_authority.as_bytes())),
        ("{{api-server}}", join.api_server.to_string()),
        ("{{cluster-dns}}", join.cluster_dns.to_string()),
        ("{{token}}", format!("{}.{}", token.id, token.secret)),
        ("{{labels}}", labels),
        ("{{flags}}", flags),
    ];
    values.into_iter().fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(name, &value))
}

/// The name of a resource group as AKS writes it into a label's value: no brackets, at most 63 characters, and a letter
/// or a digit at the end.
fn resource_group_label_value(group: &str) -> String {
    let plain = |c: char| if matches!(c, '(' | ')') { '-' } else { c };
    let mut text: String = group.chars().map(plain).take(MAX_LABEL_VALUE_LENGTH).collect();
    if text.ends_with(['-', '_', '.']) {
        if text.chars().count() == MAX_LABEL_VALUE_LENGTH {
            text.pop();
        }
        text.push('z');
    }
    text
}

/// Labels and flags of the kubelet.
fn kubelet_settings(kubelet: &KubeletSpec) -> (String, String) {
    let labels: Vec<String> = kubelet.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let flags = format!("--register-with-taints={TAINT_UNREGISTERED}=:NoExecute {MAX_PODS}{}", kubelet.max_pods);
    (labels.join(","), flags)
}

/// The kubelet settings in custom data; empty if there are none.
#[must_use]
pub fn parse_custom_data(custom_data: &str) -> KubeletSpec {
    let mut spec = KubeletSpec::default();
    for line in custom_data.lines().map(str::trim) {
        if let Some(pairs) = line.strip_prefix(LABELS) {
            let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
            spec.labels = pairs.map(|(key, value)| (Arc::from(key), Arc::from(value))).collect::<Labels>();
        }
        let flag = line.split_whitespace().find_map(|word| word.strip_prefix(MAX_PODS));
        spec.max_pods = flag.and_then(|n| n.parse().ok()).unwrap_or(spec.max_pods);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_bootstrap_reads_back() {
        let label = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
        let labels = Labels::from([label("kubernetes.io/arch", "amd64"), label("a/b", "")]);
        let spec = KubeletSpec { labels, max_pods: 110 };
        let text = custom_data(&spec);
        assert!(text.contains("KUBELET_NODE_LABELS=a/b=,kubernetes.io/arch=amd64\n"), "{text}");
        assert_eq!(parse_custom_data(&text), spec);
        assert_eq!(parse_custom_data(&custom_data(&KubeletSpec::default())), KubeletSpec::default());
    }

    const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn user_data_holds_the_join_settings() {
        let join = Join::new("https://prod.example:443", CA, "10.0.0.10").unwrap();
        let token = JoinToken::new("abc123", "0123456789abcdef").unwrap();
        let label = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
        let spec = KubeletSpec { labels: Labels::from([label("a/b", "c")]), max_pods: 30 };
        let text = custom_data_with_join(&spec, &join, &token);
        assert_eq!(parse_custom_data(&text), spec);
        assert!(text.starts_with("#cloud-config\n") && !text.contains("{{"), "{text}");
        for part in ["server: https://prod.example:443", "token: abc123.0123456789abcdef", "- 10.0.0.10"] {
            assert!(text.contains(part), "{part}");
        }
        let ca = BASE64_STANDARD.encode(CA.trim());
        assert!(text.contains(&format!("content: {ca}\n")), "{text}");
        assert_eq!(format!("{token:?}"), "JoinToken(abc123.…)");
        // It is valid YAML with five files.
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let files = read["write_files"].as_array().unwrap();
        assert_eq!(files.len(), 5);
        let unit = files[4]["content"].as_str().unwrap();
        assert!(unit.contains("--node-labels=${KUBELET_NODE_LABELS} $KUBELET_FLAGS\n"), "{unit}");
        for file in &files[1..3] {
            let inner: serde_json::Value = serde_saphyr::from_str(file["content"].as_str().unwrap()).unwrap();
            assert!(inner["kind"].is_string(), "{inner}");
        }
    }

    #[test]
    fn a_node_is_labelled_with_the_group_of_its_cluster() {
        let join = Join::new("https://prod.example:443", CA, "10.0.0.10")
            .unwrap()
            .with_node_resource_group("MC_group(1)_prod_westeurope");
        let token = JoinToken::new("abc123", "0123456789abcdef").unwrap();
        let text = custom_data_with_join(&KubeletSpec::default(), &join, &token);
        assert_eq!(
            parse_custom_data(&text).labels.get(LABEL_CLUSTER).map(|l| &**l),
            Some("MC_group-1-_prod_westeurope")
        );
        assert_eq!(resource_group_label_value("MC_a."), "MC_a.z");
        assert_eq!(resource_group_label_value(&"-".repeat(80)), format!("{}z", "-".repeat(62)));
        assert_eq!(resource_group_label_value(&"a".repeat(80)), "a".repeat(63));
    }

    #[test]
    fn unusable_settings_are_rejected() {
        for server in ["http://a", "https://", "https://a/path", "https://a\n- evil", "a"] {
            assert_eq!(Join::new(server, CA, "10.0.0.10"), Err(JoinError::ApiServer(server.to_owned())));
        }
        for ca in ["", "AAAA", "-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----"] {
            assert_eq!(Join::new("https://a", ca, "10.0.0.10"), Err(JoinError::CertificateAuthority));
        }
        assert!(Join::new("https://a", CA, "dns").is_err());
        for (id, secret) in [("abc12", "0123456789abcdef"), ("ABC123", "0123456789abcdef"), ("abc123", "0")] {
            assert_eq!(JoinToken::new(id, secret), None);
        }
    }
}
