//! Where a cluster is read from, for commands about its nodes.

use super::cluster;
use super::state::CatalogSources;
use jiff::Timestamp;
use napkeeper_controller::config_file::{ClusterConfig, node_base};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::snapshot::Snapshot;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a cluster is read from.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Output of `kubectl get` as JSON or YAML instead of the cluster: a file, a folder of files, or - for standard input.
    #[arg(long, value_name = "PATH", conflicts_with = "kubeconfig")]
    from: Option<PathBuf>,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Azure region, overrides that of the nodes.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// File with the ConfigMap napkeeper-facts: the subscription's sizes.
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Namespace of the ConfigMaps napkeeper-facts and napkeeper-pause in the cluster.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    facts_namespace: String,
}

impl ClusterArgs {
    /// The objects on which it depends what becomes of nodes, saved or live, and where they are from. Prices, instance types and
    /// what nodes are made from are those of a `napkeeper.yaml` if there is one.
    pub(crate) fn read(&self, config: Option<&ClusterConfig>) -> anyhow::Result<(Snapshot, String)> {
        let catalog = Catalog::embedded()?;
        let region = self.region.as_deref().map(|text| catalog.find_region(text)).transpose()?;
        let given = self.facts.as_deref().map(crate::published_facts::read).transpose()?.map(|(given, _)| given);
        let (saved, kubeconfig) = (self.from.as_deref(), self.kubeconfig.as_deref());
        let (mut listed, from) = cluster::read(saved, kubeconfig, &self.facts_namespace, cluster::kinds_of_nodes())?;
        let published = given.or_else(|| listed.published.take());
        let (options, sheet) = config.map(|config| (config.options, config.sheet.clone())).unwrap_or_default();
        let sources = CatalogSources { catalog: &catalog, region: region.as_ref(), published, sheet: &sheet, options };
        let mut snapshot = listed.snapshot;
        if let Some(config) = config {
            snapshot.node_base = Arc::new(node_base(config.nodes.as_ref())?);
        }
        sources.add_to(&mut snapshot, Timestamp::now())?;
        Ok((snapshot, from))
    }
}
