//! Which definitions are manifests judged by?

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use napkeeper_api::manifests;
use napkeeper_verdict::Definitions;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// How long a cluster may take to list its definitions.
const PATIENCE: Duration = Duration::from_secs(30);
/// API groups of the kinds that are judged.
const GROUPS: [&str; 3] = ["karpenter.sh", "karpenter.azure.com", "napkeeper.io"];

/// What `--crds` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// Those of this build, which must follow the version if one is given.
    Embedded(Option<String>),
    /// Those of the cluster that the kubeconfig names.
    Cluster,
    /// Those of a folder or file.
    At(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("embedded:")) {
            ("", _) | (_, Some("")) => Err("must be cluster, embedded, embedded:VERSION, or a path".to_owned()),
            ("cluster", _) => Ok(Self::Cluster),
            ("embedded", _) => Ok(Self::Embedded(None)),
            (_, Some(version)) => Ok(Self::Embedded(Some(version.to_owned()))),
            (path, None) => Ok(Self::At(PathBuf::from(path))),
        }
    }
}

impl Choice {
    /// Loads them.
    pub(super) fn load(&self) -> anyhow::Result<Definitions> {
        match self {
            Self::Embedded(None) => Ok(Definitions::embedded()?),
            Self::Embedded(Some(version)) => Definitions::embedded_at(version).context("--crds"),
            Self::Cluster => of_cluster().context("--crds cluster"),
            Self::At(path) => at(path).with_context(|| format!("--crds {}", path.display())),
        }
    }
}

fn at(path: &Path) -> anyhow::Result<Definitions> {
    let loaded = manifests::load(&[path.to_owned()]);
    if let Some(problem) = loaded.unreadable.first() {
        bail!("{problem}");
    }
    for source in &loaded.files {
        if let Some(problem) = source.parsed().problems.first() {
            bail!("{}:{}: {}", source.file, problem.position, problem.message);
        }
    }
    let documents = || loaded.files.iter().flat_map(|source| &source.parsed().documents);
    let objects = documents().flat_map(manifests::items).map(|(_, object)| object);
    Ok(Definitions::from_crds(&path.display().to_string(), objects)?)
}

fn of_cluster() -> anyhow::Result<Definitions> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listing = async {
        let client = napkeeper_kube::connect(None).await?;
        let api: Api<CustomResourceDefinition> = Api::all(client);
        anyhow::Ok(api.list(&ListParams::default()).await.context("cannot list CustomResourceDefinitions")?.items)
    };
    let late = || format!("no response from the cluster within {} s", PATIENCE.as_secs());
    let listed = runtime.block_on(async { tokio::time::timeout(PATIENCE, listing).await }).with_context(late)??;
    let ours = listed.into_iter().filter(|definition| GROUPS.contains(&definition.spec.group.as_str()));
    let written: Result<Vec<Value>, _> = ours.map(serde_json::to_value).collect();
    Ok(Definitions::from_crds("the cluster", written?.iter())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_word_or_a_path() {
        for (text, choice) in [
            ("cluster", Choice::Cluster),
            ("embedded", Choice::Embedded(None)),
            ("embedded:v1.14", Choice::Embedded(Some("v1.14".to_owned()))),
            ("crds/", Choice::At(PathBuf::from("crds/"))),
        ] {
            assert_eq!(text.parse(), Ok(choice), "{text}");
        }
        assert!("embedded:".parse::<Choice>().is_err());
        let error = Choice::Embedded(Some("v0.1".to_owned())).load().unwrap_err();
        assert!(format!("{error:#}").contains("v1.14"), "{error:#}");
    }
}
