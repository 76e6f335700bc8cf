//! `napkeeper.yaml`, the settings of the clusters of a repository.

use crate::maintenance_window::MaintenanceWindows;
use crate::manifests::{Problem, Source};
use crate::types::decode::decode;
use crate::yaml::{self, Document};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
pub const FILE_NAME: &str = "napkeeper.yaml";

/// The clusters of a repository.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The clusters, each with its part of the repository.
    #[schemars(length(min = 1))]
    pub clusters: Vec<Cluster>,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Name, to choose the cluster by.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Folders and files of its manifests, from the folder of this file; absent is that folder.
    pub paths: Option<Vec<String>>,
    /// Which cluster it is in Azure.
    pub identity: Option<Identity>,
    /// Which Azure it is in: public, us-government or china; absent is public.
    #[schemars(extend("enum" = ["public", "us-government", "china"]))]
    pub cloud: Option<String>,
    /// Azure region, for example westeurope.
    #[schemars(regex(pattern = "^[a-z0-9]+$"))]
    pub region: Option<String>,
    /// Kubernetes version, for example 1.33.
    #[schemars(regex(pattern = r"^\d+\.\d+(\.\d+)?$"))]
    pub kubernetes_version: Option<String>,
    /// What the nodes that napkeeper itself launches are made from; needed in provisioner mode alone.
    pub nodes: Option<Nodes>,
    /// How nodes are made for waiting pods; provisioner mode alone.
    pub provisioning: Option<Provisioning>,
    /// How nodes are replaced; provisioner mode alone.
    pub disruption: Option<Disruption>,
    /// By which conditions and taints nodes are unhealthy or about to be lost; provisioner mode alone. These stand in place
    /// of the defaults; an empty list repairs and interrupts no node.
    #[schemars(length(max = 50))]
    pub node_health: Option<Vec<NodeHealth>>,
    /// When rolls of nodes may begin; provisioner mode alone.
    pub maintenance_windows: Option<MaintenanceWindows>,
    /// Network mode.
    #[schemars(with = "Option<String>", extend("enum" = ["overlay", "node-subnet", "pod-subnet", "none"]))]
    pub network_mode: Option<NetworkMode>,
    /// File of prices that stand in place of list prices.
    pub price_sheet: Option<String>,
    /// Folders and files of policies.
    pub policies: Option<Vec<String>>,
    /// File of findings that are known and not to be reported again.
    pub baseline: Option<String>,
}

/// Which cluster it is in Azure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Subscription id.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"))]
    pub subscription: String,
    /// Resource id of the managed cluster.
    #[schemars(regex(pattern = "^/subscriptions/"))]
    pub cluster_id: String,
    /// Name of the node resource group.
    #[schemars(length(min = 1, max = 90))]
    pub node_resource_group: String,
}

/// What nodes are made from, beside their AKSNodeClass.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// Resource id of the subnet for their NICs.
    #[schemars(regex(pattern = "^/subscriptions/"))]
    pub subnet: String,
    /// Resource id of their image, or of a community gallery's.
    #[schemars(regex(pattern = "^/(subscriptions|CommunityGalleries)/"))]
    pub image: String,
    /// Public SSH key of their administrator.
    #[schemars(length(min = 1))]
    pub ssh_public_key: String,
    /// Name of their administrator; azureuser where it is absent.
    pub admin_username: Option<String>,
    /// Resource id of the disk encryption set of their OS disks; Azure's own keys where it is absent.
    #[schemars(regex(pattern = "^/subscriptions/"))]
    #[serde(rename = "diskEncryptionSetID")]
    pub disk_encryption_set_id: Option<String>,
    /// How they join the cluster; needed on Azure itself.
    pub bootstrap: Option<Bootstrap>,
}

/// How nodes are made for waiting pods.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provisioning {
    /// Quiet time after which waiting pods are placed, for example 2s; absent is 1s.
    pub batch_idle: Option<String>,
    /// Longest that pods wait to be placed together; absent is 10s.
    pub batch_max: Option<String>,
    /// How a NodePool's minValues are treated that its offerings cannot satisfy. Strict, the default, launches no node;
    /// BestEffort launches one with as many values as there are.
    #[schemars(extend("enum" = ["Strict", "BestEffort"]))]
    pub min_values_policy: Option<String>,
    /// What each node counts beside its VM and OS disk where plans are compared, in USD per hour, for example "0.01"; absent
    /// is 0.005. The more, the fewer and larger are the nodes.
    #[schemars(regex(pattern = r"^\d+(\.\d{1,9})?$"))]
    pub per_node: Option<String>,
    /// Price of an OS disk in USD per hour, whatever its size, for example "0.02"; absent is the list price by size.
    #[schemars(regex(pattern = r"^\d+(\.\d{1,9})?$"))]
    pub os_disk_price: Option<String>,
}

/// How nodes are replaced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disruption {
    /// How long before the end of expireAfter nodes are replaced within budgets at most, for example 6h; a tenth of expireAfter
    /// where that is less. Absent is 24h; 0s is not before.
    pub expiry_lead: Option<String>,
}

/// A condition or a taint of a node, and what it means.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeHealth {
    /// Type of a condition, for example Ready; either this or taint.
    #[schemars(length(min = 1, max = 316))]
    pub condition: Option<String>,
    /// Status of the condition, in quotes.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: Option<String>,
    /// The condition's reason or its message must begin with one of these, in any case; absent is any.
    #[schemars(length(min = 1))]
    pub words: Option<Vec<String>>,
    /// Key of a taint.
    #[schemars(length(min = 1, max = 317))]
    pub taint: Option<String>,
    /// How long it is tolerated, for example 10m; absent is 0s.
    #[serde(rename = "for")]
    pub tolerated: Option<String>,
    /// What it means: repair replaces an unhealthy node, unless too many are; interruption moves the pods of a node that
    /// Azure is about to take away.
    #[schemars(extend("enum" = ["repair", "interruption"]))]
    pub means: String,
}

/// How nodes join the cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bootstrap {
    /// URL of the API server, as nodes reach it.
    #[schemars(regex(pattern = "^https://[A-Za-z0-9.:\\[\\]-]+$"))]
    pub api_server: String,
    /// Address of the cluster's DNS service.
    #[schemars(length(min = 1))]
    pub cluster_dns: String,
    /// The cluster's certificate authority in PEM; absent is the one that the controller's pod has.
    pub certificate_authority: Option<String>,
}

/// How pods get their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Azure CNI overlay.
    Overlay,
    /// Azure CNI with addresses of the subnet.
    NodeSubnet,
    /// Azure CNI with a subnet for pods.
    PodSubnet,
    /// Neither: the cluster brings its own.
    None,
}

/// The schema of the file, with everything in one place.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

/// Reads the file.
///
/// # Errors
/// [`Problem`]: the first thing that is wrong, with its place.
pub fn read(document: &Document) -> Result<Config, Problem> {
    decode(&document.value).map_err(|error| Problem {
        file: Arc::clone(&document.file),
        position: Some(document.position(&error.path)),
        message: error.to_string(),
    })
}

/// The cloud of a region, by its name; `None` for the public one. Those of others are from Azure's lists of regions of Azure Government
/// and of Azure operated by 21Vianet.
#[must_use]
pub fn cloud_of_region(region: &str) -> Option<&'static str> {
    match region {
        "usgovvirginia" | "usgovtexas" | "usgovarizona" | "usdodcentral" | "usdodeast" => Some("us-government"),
        "chinaeast" | "chinaeast2" | "chinaeast3" | "chinanorth" | "chinanorth2" | "chinanorth3" => Some("china"),
        _ => None,
    }
}

/// True when a file has the name of a `napkeeper.yaml`, whatever it holds.
#[must_use]
pub fn has_name(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == FILE_NAME)
}

/// True when a file is a `napkeeper.yaml`: by its name, unless all its documents are objects of Kubernetes, such as the
/// Kustomization by which Flux installs napkeeper.
#[must_use]
pub fn is_config(file: &str, documents: &[Document]) -> bool {
    has_name(file) && (documents.is_empty() || documents.iter().any(|document| !is_object(&document.value)))
}

/// [`is_config`] of a file that was read. Other files are not parsed for it.
#[must_use]
pub fn is_source(source: &Source) -> bool {
    has_name(&source.file) && is_config(&source.file, &source.parsed().documents)
}

fn is_object(value: &Value) -> bool {
    let has = |field| value.get(field).is_some();
    has("apiVersion") && has("kind") && !has("clusters")
}

/// The nearest `napkeeper.yaml` in a folder or above it. A file that cannot be read counts: the error is for who reads it.
#[must_use]
pub fn find(from: &Path) -> Option<PathBuf> {
    let from = std::fs::canonicalize(from).ok()?;
    let is_config = |file: &PathBuf| match std::fs::read_to_string(file) {
        Ok(text) => is_config(FILE_NAME, &yaml::read(FILE_NAME, &text).documents),
        Err(_) => file.is_file(),
    };
    from.ancestors().map(|folder| folder.join(FILE_NAME)).find(is_config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_an_invalid_field_has_its_position() {
        let read = |text: &str| super::read(&yaml::read(FILE_NAME, text).documents[0]);
        let good = "clusters:\n- name: prod\n  region: westeurope\n  networkMode: overlay\n  paths: [clusters/prod]\n";
        let cluster = &read(good).unwrap().clusters[0];
        assert_eq!(cluster.network_mode, Some(NetworkMode::Overlay));
        let error = read("clusters:\n- name: prod\n  networkMode: flat\n").unwrap_err();
        assert_eq!(error.position.unwrap().to_string(), "3:16");
    }

    #[test]
    fn the_file_is_found_upwards() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(root.path().join(FILE_NAME), "clusters: []\n").unwrap();
        let config = root.path().canonicalize().unwrap().join(FILE_NAME);
        assert_eq!(find(&deep).unwrap(), config);
        // By which Flux installs napkeeper: no settings, though it has the name.
        std::fs::write(deep.join(FILE_NAME), "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n")
            .unwrap();
        assert_eq!(find(&deep).unwrap(), config);
        std::fs::write(deep.join(FILE_NAME), "apiVersion: napkeeper.io/v1\nkind: Config\nclusters: []\n").unwrap();
        assert_eq!(find(&deep).unwrap(), config.with_file_name("a/b").join(FILE_NAME), "settings, though wrong ones");
    }
}
