//! The CustomResourceDefinitions that manifests are validated against.

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use napkeeper_api::manifests;
use napkeeper_verdict::CrdSchemas;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// How long a cluster may take to list its definitions.
const TIMEOUT: Duration = Duration::from_secs(30);
/// API groups of the kinds that are validated.
const GROUPS: [&str; 3] = ["karpenter.sh", "karpenter.azure.com", "napkeeper.io"];

/// The value of `--crds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CrdSource {
    /// Those of this build, which must have the version if one is given.
    Embedded(Option<String>),
    /// Those of the current kubeconfig context.
    Cluster,
    /// Those of a directory or file.
    Path(PathBuf),
}

impl FromStr for CrdSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("embedded:")) {
            ("", _) | (_, Some("")) => Err("must be cluster, embedded, embedded:VERSION, or a path".to_owned()),
            ("cluster", _) => Ok(Self::Cluster),
            ("embedded", _) => Ok(Self::Embedded(None)),
            (_, Some(version)) => Ok(Self::Embedded(Some(version.to_owned()))),
            (path, None) => Ok(Self::Path(PathBuf::from(path))),
        }
    }
}

impl CrdSource {
    /// Loads them.
    pub(super) fn load(&self) -> anyhow::Result<CrdSchemas> {
        match self {
            Self::Embedded(None) => Ok(CrdSchemas::embedded()?),
            Self::Embedded(Some(version)) => CrdSchemas::embedded_at(version).context("--crds"),
            Self::Cluster => from_cluster().context("--crds cluster"),
            Self::Path(path) => from_path(path).with_context(|| format!("--crds {}", path.display())),
        }
    }
}

fn from_path(path: &Path) -> anyhow::Result<CrdSchemas> {
    let loaded = manifests::load(&[path.to_owned()]);
    if let Some(problem) = loaded.unreadable.first() {
        bail!("{problem}");
    }
    if let Some(others) = manifests::describe(&loaded.others) {
        bail!("cannot read {others}: render them first");
    }
    for source in &loaded.files {
        if let Some(problem) = source.parsed().problems.first() {
            bail!("{}:{}: {}", source.file, problem.position, problem.message);
        }
    }
    let documents = || loaded.files.iter().flat_map(|source| &source.parsed().documents);
    let objects = documents().flat_map(manifests::items).map(|(_, object)| object);
    Ok(CrdSchemas::from_crds(&path.display().to_string(), objects)?)
}

fn from_cluster() -> anyhow::Result<CrdSchemas> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listing = async {
        let client = napkeeper_kube::connect(None).await?;
        let api: Api<CustomResourceDefinition> = Api::all(client);
        anyhow::Ok(api.list(&ListParams::default()).await.context("cannot list CustomResourceDefinitions")?.items)
    };
    let late = || format!("no response from the cluster within {} s", TIMEOUT.as_secs());
    let listed = runtime.block_on(async { tokio::time::timeout(TIMEOUT, listing).await }).with_context(late)??;
    let of_karpenter = listed.into_iter().filter(|definition| GROUPS.contains(&definition.spec.group.as_str()));
    let written: Result<Vec<Value>, _> = of_karpenter.map(serde_json::to_value).collect();
    Ok(CrdSchemas::from_crds("the cluster", written?.iter())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_word_or_a_path() {
        for (text, source) in [
            ("cluster", CrdSource::Cluster),
            ("embedded", CrdSource::Embedded(None)),
            ("embedded:v1.14", CrdSource::Embedded(Some("v1.14".to_owned()))),
            ("crds/", CrdSource::Path(PathBuf::from("crds/"))),
        ] {
            assert_eq!(text.parse(), Ok(source), "{text}");
        }
        assert!("embedded:".parse::<CrdSource>().is_err());
        let error = CrdSource::Embedded(Some("v0.1".to_owned())).load().unwrap_err();
        assert!(format!("{error:#}").contains("v1.14"), "{error:#}");
    }
}
