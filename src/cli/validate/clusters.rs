//! Which clusters does `napkeeper.yaml` name, and what is known of each?

use super::args::FactArgs;
use super::input::{Place, absolute, shown};
use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use napkeeper_api::config::{self, Cluster};
use napkeeper_api::manifests::{Problem, Source};
use napkeeper_api::path::Path as Field;
use napkeeper_api::yaml::Document;
use napkeeper_controller::settings::node_options;
use napkeeper_core::catalog::live::{PriceSheet, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::model::names::Region;
use napkeeper_core::model::support::spelling::nearest;
use napkeeper_verdict::rules::sweeps::FACTS_ELSEWHERE;
use napkeeper_verdict::{Facts, Finding};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// For whom manifests are judged.
#[derive(Debug)]
pub(super) struct Scope {
    /// Name of the cluster; absent for manifests that belong to none.
    pub(super) name: Option<Arc<str>>,
    /// Its folders and files.
    pub(super) paths: Vec<PathBuf>,
    /// The file of what is known, if it has one.
    pub(super) baseline: Option<PathBuf>,
    /// Folders and files of its policies.
    pub(super) policies: Vec<PathBuf>,
    /// What is known of it.
    pub(super) facts: Facts,
    /// The published facts are of another region, so nothing of them is used.
    pub(super) apart: Option<Apart>,
}

/// Facts of a region that is not judged.
#[derive(Debug, Clone)]
pub(super) struct Apart {
    /// The file of the facts.
    pub(super) file: PathBuf,
    /// What is wrong.
    pub(super) finding: Finding,
}

impl Scope {
    /// True when a manifest is the cluster's. The standard input is that of a cluster that has the whole repository.
    pub(super) fn holds(&self, place: &Place, whole: &Path) -> bool {
        match place.real() {
            Some(real) => self.paths.iter().any(|path| real.starts_with(path)),
            None => self.paths.iter().any(|path| path == whole),
        }
    }
}

/// What is known of any cluster by flags alone.
pub(super) fn by_flags(args: &FactArgs) -> anyhow::Result<Scope> {
    let region = args.region.as_deref().map(|text| anyhow::Ok(Catalog::embedded()?.find_region(text)?)).transpose();
    let region = region.context("--region")?;
    let facts = Facts::embedded(region.as_ref())?;
    let (mut facts, apart) = published(facts, args, region.as_ref(), &PriceSheet::default())?;
    facts.kubernetes.clone_from(&args.kubernetes_version);
    facts.now = Some(Timestamp::now());
    Ok(Scope { name: None, paths: Vec::new(), baseline: None, policies: Vec::new(), facts, apart })
}

/// The clusters that are asked for. A file that cannot be understood names none: what is wrong with it is found when it
/// is judged.
pub(super) fn read(file: Option<&(Source, PathBuf)>, args: &FactArgs) -> anyhow::Result<Vec<Scope>> {
    let Some((source, folder)) = file else {
        return match &args.cluster {
            Some(name) => {
                bail!("--cluster {name}: no {} found in this directory or its parents", config::FILE_NAME)
            }
            None => Ok(Vec::new()),
        };
    };
    let (document, clusters) = match understood(source) {
        Ok((document, read)) => (document, read.clusters),
        Err(Some(problem)) if args.cluster.is_some() => bail!("{problem}"),
        Err(_) if args.cluster.is_some() => bail!("{} cannot be read", source.file),
        Err(_) => return Ok(Vec::new()),
    };
    if let Some(name) = &args.cluster
        && !clusters.iter().any(|cluster| cluster.name == *name)
    {
        let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let meant = nearest(name, names.iter().copied()).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        bail!("{} has no cluster {name:?}: {meant}Available: {}", source.file, names.join(", "));
    }
    let asked = |cluster: &Cluster| args.cluster.as_ref().is_none_or(|name| cluster.name == *name);
    let chosen = clusters.iter().enumerate().filter(|(_, cluster)| asked(cluster));
    chosen.map(|(i, cluster)| scope(cluster, folder, &At { document, cluster: i }, args)).collect()
}

fn understood(source: &Source) -> Result<(&Document, config::Config), Option<Problem>> {
    let document = source.parsed().documents.first().ok_or(None)?;
    Ok((document, config::read(document)?))
}

/// Where a cluster stands in the file.
struct At<'d> {
    document: &'d Document,
    cluster: usize,
}

impl At<'_> {
    fn field(&self, field: &str) -> String {
        let path = Field::from_dotted("clusters").index(self.cluster).key(field);
        format!("{}:{}: {path}", self.document.file, self.document.position(&path))
    }
}

fn scope(cluster: &Cluster, folder: &Path, at: &At<'_>, args: &FactArgs) -> anyhow::Result<Scope> {
    let catalog = Catalog::embedded()?;
    let known = |text: &str, whence: String| catalog.find_region(text).map_err(|e| anyhow!("{whence}: {e}"));
    let region: Option<Region> = match (&args.region, &cluster.region) {
        (Some(text), _) => Some(known(text, "--region".to_owned())?),
        (None, Some(text)) => Some(known(text, at.field("region"))?),
        (None, None) => None,
    };
    let sheet = napkeeper_controller::price_sheet::of_cluster(folder, cluster)?;
    let facts = Facts::embedded_at(region.as_ref(), sheet.clone())?;
    let (mut facts, apart) = published(facts, args, region.as_ref(), &sheet)?;
    facts.now = Some(Timestamp::now());
    facts.kubernetes = args.kubernetes_version.clone().or_else(|| cluster.kubernetes_version.clone());
    facts.nodes = node_options(cluster.network_mode);
    let inside = |path: &String| {
        let whole = absolute(&folder.join(path));
        std::fs::canonicalize(&whole).unwrap_or(whole)
    };
    let paths = match &cluster.paths {
        Some(paths) => paths.iter().map(inside).collect(),
        None => vec![folder.to_owned()],
    };
    let baseline = cluster.baseline.as_ref().map(|file| shown(&absolute(&folder.join(file))));
    let policies = cluster.policies.iter().flatten().map(|path| shown(&absolute(&folder.join(path)))).collect();
    Ok(Scope { name: Some(Arc::from(cluster.name.as_str())), paths, baseline, policies, facts, apart })
}

/// The facts with what the controller has published, if that is of the same region; else, that it is not.
fn published(
    facts: Facts,
    args: &FactArgs,
    region: Option<&Region>,
    sheet: &PriceSheet,
) -> anyhow::Result<(Facts, Option<Apart>)> {
    let Some(file) = &args.facts else { return Ok((facts, None)) };
    let (published, document) = crate::published_facts::read(file)?;
    if let Some(region) = region.filter(|region| **region != published.region) {
        let at = document.position(&Field::from_dotted("data.region"));
        let finding = Finding {
            rule: FACTS_ELSEWHERE.id,
            severity: FACTS_ELSEWHERE.severity,
            file: file.display().to_string(),
            line: at.line,
            column: at.column,
            path: "data.region".to_owned(),
            message: format!(
                "these facts are for {}, but the manifests are for {region}: the facts are ignored",
                published.region
            ),
            fix: Some(format!("use napkeeper-facts of a cluster in {region}")),
        };
        return Ok((facts, Some(Apart { file: file.clone(), finding })));
    }
    if published.facts.sizes.is_none() {
        return Ok((facts, None));
    }
    let none = || RegionCatalog { region: published.region.clone(), sizes: Vec::new() };
    let embedded = Catalog::embedded()?.region(&published.region).unwrap_or_else(none);
    Ok((facts.with_live_regions(vec![Arc::new(catalog_from_facts(&published.facts, &embedded, sheet))]), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::manifests::load_text;

    const NO_FLAGS: FactArgs = FactArgs { cluster: None, region: None, kubernetes_version: None, facts: None };

    fn scopes(text: &str, args: &FactArgs) -> anyhow::Result<Vec<Scope>> {
        let file = (load_text(config::FILE_NAME, text.to_owned()), PathBuf::from("/repository"));
        read(Some(&file), args)
    }

    #[test]
    fn the_facts_of_a_cluster_are_those_of_its_settings_unless_a_flag_says_otherwise() {
        let text = "clusters:\n- name: a\n  region: westeurope\n  kubernetesVersion: '1.33'\n  networkMode: node-subnet\n\
                    - name: b\n  paths: [x, ../y]\n";
        let all = scopes(text, &NO_FLAGS).unwrap();
        let [a, b] = &all[..] else { panic!("{}", all.len()) };
        assert_eq!(a.facts.regions.iter().map(|r| r.region.as_str()).collect::<Vec<_>>(), ["westeurope"]);
        assert_eq!(a.facts.kubernetes.as_deref(), Some("1.33"));
        assert_eq!(a.facts.nodes.default_max_pods, 30);
        assert_eq!(a.paths, [PathBuf::from("/repository")]);
        assert!(b.facts.regions.len() > 10 && b.facts.kubernetes.is_none());
        assert_eq!(b.facts.nodes.default_max_pods, 250);
        assert_eq!(b.paths, [PathBuf::from("/repository/x"), PathBuf::from("/y")]);
        let flags = FactArgs {
            cluster: Some("a".to_owned()),
            region: Some("northeurope".to_owned()),
            kubernetes_version: Some("1.34".to_owned()),
            facts: None,
        };
        let one = scopes(text, &flags).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].facts.regions[0].region.as_str(), "northeurope");
        assert_eq!(one[0].facts.kubernetes.as_deref(), Some("1.34"));
        assert_eq!(by_flags(&flags).unwrap().facts.regions.len(), 1);
    }

    #[test]
    fn settings_that_cannot_be_understood_name_no_cluster_and_cannot_be_chosen_from() {
        let broken = "clusters:\n- name: a\n  nmae: b\n";
        assert!(scopes(broken, &NO_FLAGS).unwrap().is_empty());
        let chosen = FactArgs { cluster: Some("a".to_owned()), ..NO_FLAGS };
        let error = scopes(broken, &chosen).unwrap_err().to_string();
        assert!(error.starts_with("napkeeper.yaml:3:"), "{error}");
        assert!(read(None, &chosen).is_err());
    }
}
