//! The clusters that manifests are validated for, with the facts about each.

pub(super) mod sources;

use super::args::{Args, FactArgs, KnownArgs};
use super::input::{ReadArgs, SourceOrigin};
use crate::output::alternatives;
use crate::repository::{Selection, Synced, absolute, relative};
use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use napkeeper_api::config::{self, Cluster};
use napkeeper_api::field_path::Path as Field;
use napkeeper_api::manifests::{Problem, Source};
use napkeeper_api::yaml::Document;
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_controller::config_file::node_options;
use napkeeper_core::catalog::live::{PriceSheet, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::model::names::Region;
use napkeeper_verdict::rules::sweeps::FACTS_OF_OTHER_REGION;
use napkeeper_verdict::{Facts, Finding};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What manifests are validated for.
#[derive(Debug)]
pub(super) struct Targets {
    /// The selected clusters of `napkeeper.yaml`.
    pub(super) clusters: Vec<Target>,
    /// For manifests of no cluster: the facts of the flags.
    pub(super) unassigned: Target,
    /// `napkeeper.yaml` and its directory.
    pub(super) config: Option<(Source, PathBuf)>,
}

/// A cluster, or the facts of the flags.
#[derive(Debug)]
pub(super) struct Target {
    /// Name of the cluster; absent for manifests that belong to none.
    pub(super) name: Option<Arc<str>>,
    /// Its directories and files.
    paths: Vec<PathBuf>,
    /// Its file of known findings.
    baseline: Option<PathBuf>,
    /// Directories and files of its policies.
    pub(super) policies: Vec<PathBuf>,
    /// Facts about it.
    pub(super) facts: Facts,
    /// Set where the published facts are of another region, so that they are ignored.
    pub(super) mismatched_facts: Option<MismatchedFacts>,
}

/// Published facts of another region.
#[derive(Debug, Clone)]
pub(super) struct MismatchedFacts {
    /// The file of the facts.
    pub(super) file: PathBuf,
    /// The warning about it.
    pub(super) finding: Finding,
}

/// A file of known findings.
pub(super) struct BaselineFile {
    /// The cluster that it is for; absent is all.
    pub(super) cluster: Option<Arc<str>>,
    pub(super) path: PathBuf,
}

impl Targets {
    /// The selected clusters of `napkeeper.yaml`.
    pub(super) fn read(config: Option<(Source, PathBuf)>, args: &Args) -> anyhow::Result<Self> {
        let clusters = clusters(config.as_ref(), &args.facts)?;
        // Another revision may have other folders.
        if let Some((source, _)) = config.as_ref().filter(|_| args.source.rev.is_none()) {
            let given: Vec<PathBuf> = args.paths.iter().map(|path| absolute(path)).collect();
            let is_read = |path: &Path| given.is_empty() || given.iter().any(|given| path.starts_with(given));
            clusters.iter().try_for_each(|cluster| cluster.check_paths(source, &is_read))?;
        }
        Ok(Self { clusters, unassigned: by_flags(&args.facts)?, config })
    }

    /// What to read: the given paths, else those of the one selected cluster, else the current directory.
    pub(super) fn read_args(&self, args: &Args) -> ReadArgs {
        let paths = match self.clusters.as_slice() {
            _ if !args.paths.is_empty() => args.paths.clone(),
            [one] if args.facts.cluster.is_some() => one.paths.iter().map(|path| relative(path)).collect(),
            _ => vec![PathBuf::from(".")],
        };
        let excluded = self.baselines(&args.known).into_iter().map(|baseline| baseline.path).collect();
        let selection = Selection { paths, explicit: !args.paths.is_empty(), reading: args.source.reading.clone() };
        ReadArgs { selection, excluded, allow_empty: args.allow_empty }
    }

    /// The files of known findings.
    pub(super) fn baselines(&self, known: &KnownArgs) -> Vec<BaselineFile> {
        let of = |target: &Target| Some(BaselineFile { cluster: target.name.clone(), path: target.baseline.clone()? });
        match known.write_baseline.as_ref().or(known.baseline.as_ref()) {
            Some(path) => vec![BaselineFile { cluster: None, path: path.clone() }],
            None => self.clusters.iter().filter_map(of).collect(),
        }
    }

    /// The warning that published facts are of another region, if they are used for no target at all.
    pub(super) fn unused_facts(&self) -> Option<&MismatchedFacts> {
        let all =
            if self.clusters.is_empty() { std::slice::from_ref(&self.unassigned) } else { self.clusters.as_slice() };
        let mismatched: Option<Vec<_>> = all.iter().map(|target| target.mismatched_facts.as_ref()).collect();
        mismatched?.first().copied()
    }

    /// True when a manifest belongs to a cluster with these paths: it, or what it is built from, is in one of them. The standard
    /// input belongs to a cluster that has the whole repository.
    fn owns(&self, paths: &[PathBuf], origin: &SourceOrigin) -> bool {
        let is_within = |file: &PathBuf| paths.iter().any(|path| file.starts_with(path));
        match (origin, &self.config) {
            (SourceOrigin::Stdin, Some((_, folder))) => paths.contains(folder),
            (SourceOrigin::Stdin, None) => false,
            (SourceOrigin::Render { files, .. }, _) if files.iter().any(is_within) => true,
            _ => origin.real_path().is_some_and(|real| is_within(&real)),
        }
    }
}

impl Target {
    /// Those of its paths exist that would be read: of one that does not, nothing would be checked, and nobody told.
    fn check_paths(&self, config: &Source, is_read: &impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        let Some(missing) = self.paths.iter().find(|path| is_read(path) && !path.exists()) else { return Ok(()) };
        let name = self.name.as_deref().unwrap_or_default();
        bail!(
            "{}: the path {} of cluster {name} does not exist: correct it, or remove it from the file",
            config.file,
            relative(missing).display()
        )
    }

    /// Its paths, and what the objects in these sync, and so on.
    fn all_paths(&self, synced: &[Synced]) -> Vec<PathBuf> {
        let mut all = self.paths.clone();
        let mut rest: Vec<&Synced> = synced.iter().filter(|one| one.leads_on()).collect();
        loop {
            let (own, others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|one| all.iter().any(|path| one.by.starts_with(path)));
            if own.is_empty() {
                return all;
            }
            all.extend(own.into_iter().map(|one| one.path.clone()));
            rest = others;
        }
    }
}

/// The facts of the flags.
fn by_flags(args: &FactArgs) -> anyhow::Result<Target> {
    let catalog = Catalog::embedded()?;
    let region = args.region.as_deref().map(|text| known_region(&catalog, text)).transpose();
    let region = region.context("--region")?;
    let facts = Facts::embedded(region.as_ref())?;
    let (mut facts, mismatched_facts) = with_published(facts, args, region.as_ref(), &PriceSheet::default())?;
    facts.kubernetes.clone_from(&args.kubernetes_version);
    facts.now = Some(Timestamp::now());
    facts.nodes.self_managed = args.mode == ModeArg::Provisioner;
    Ok(Target { name: None, paths: Vec::new(), baseline: None, policies: Vec::new(), facts, mismatched_facts })
}

/// The selected clusters of `napkeeper.yaml`. A file that cannot be parsed has none: it is validated later.
fn clusters(file: Option<&(Source, PathBuf)>, args: &FactArgs) -> anyhow::Result<Vec<Target>> {
    let Some((source, folder)) = file else {
        return match &args.cluster {
            Some(name) => {
                bail!("--cluster {name}: no {} found in this directory or its parents", config::FILE_NAME)
            }
            None => Ok(Vec::new()),
        };
    };
    let (document, clusters) = match parse(source) {
        Ok((document, read)) => (document, read.clusters),
        Err(Some(problem)) if args.cluster.is_some() => bail!("{problem}"),
        Err(_) if args.cluster.is_some() => bail!("{} cannot be read", source.file),
        Err(_) => return Ok(Vec::new()),
    };
    for (i, cluster) in clusters.iter().enumerate() {
        if clusters.iter().take(i).any(|other| other.name == cluster.name) {
            let at = ConfigPath { document, cluster: i }.field("name");
            bail!("{at}: there is another cluster {:?}: give each a name of its own", cluster.name);
        }
    }
    if let Some(name) = &args.cluster
        && !clusters.iter().any(|cluster| cluster.name == *name)
    {
        let names = clusters.iter().map(|cluster| cluster.name.as_str());
        bail!("{} has no cluster {name:?}: {}", source.file, alternatives(name, names));
    }
    let is_selected = |cluster: &Cluster| args.cluster.as_ref().is_none_or(|name| cluster.name == *name);
    let selected = clusters.iter().enumerate().filter(|(_, cluster)| is_selected(cluster));
    selected.map(|(i, cluster)| target(cluster, folder, &ConfigPath { document, cluster: i }, args)).collect()
}

fn parse(source: &Source) -> Result<(&Document, config::Config), Option<Problem>> {
    let document = source.parsed().documents.first().ok_or(None)?;
    Ok((document, config::read(document)?))
}

/// The position of a cluster in `napkeeper.yaml`.
struct ConfigPath<'d> {
    document: &'d Document,
    cluster: usize,
}

impl ConfigPath<'_> {
    fn field(&self, field: &str) -> String {
        let path = Field::from_dotted("clusters").index(self.cluster).key(field);
        format!("{}:{}: {path}", self.document.file, self.document.position(&path))
    }
}

fn target(cluster: &Cluster, folder: &Path, at: &ConfigPath<'_>, args: &FactArgs) -> anyhow::Result<Target> {
    let catalog = Catalog::embedded()?;
    let known = |text: &str, origin: String| known_region(&catalog, text).map_err(|e| anyhow!("{origin}: {e}"));
    let region: Option<Region> = match (&args.region, &cluster.region) {
        (Some(text), _) => Some(known(text, "--region".to_owned())?),
        (None, Some(text)) => Some(known(text, at.field("region"))?),
        (None, None) => None,
    };
    let sheet = napkeeper_controller::price_sheet::of_cluster(folder, cluster)?;
    let facts = Facts::embedded_at(region.as_ref(), sheet.clone())?;
    let (mut facts, mismatched_facts) = with_published(facts, args, region.as_ref(), &sheet)?;
    facts.now = Some(Timestamp::now());
    facts.kubernetes = args.kubernetes_version.clone().or_else(|| cluster.kubernetes_version.clone());
    facts.nodes = node_options(cluster.network_mode);
    facts.nodes.self_managed = args.mode == ModeArg::Provisioner;
    let inside = |path: &String| {
        let whole = absolute(&folder.join(path));
        std::fs::canonicalize(&whole).unwrap_or(whole)
    };
    let paths = match &cluster.paths {
        Some(paths) => paths.iter().map(inside).collect(),
        None => vec![folder.to_owned()],
    };
    let baseline = cluster.baseline.as_ref().map(|file| relative(&absolute(&folder.join(file))));
    let policies = cluster.policies.iter().flatten().map(|path| relative(&absolute(&folder.join(path)))).collect();
    Ok(Target { name: Some(Arc::from(cluster.name.as_str())), paths, baseline, policies, facts, mismatched_facts })
}

/// A region of the embedded catalogue. It has those of the public cloud alone: without published facts, one of another cloud is judged
/// by the sizes of all of these.
fn known_region(catalog: &Catalog, text: &str) -> anyhow::Result<Region> {
    match config::cloud_of_region(text) {
        Some(_) => Ok(Region::new(text)?),
        None => Ok(catalog.find_region(text)?),
    }
}

/// Adds the facts that the controller has published, if they are of the same region; otherwise the warning about it.
fn with_published(
    facts: Facts,
    args: &FactArgs,
    region: Option<&Region>,
    sheet: &PriceSheet,
) -> anyhow::Result<(Facts, Option<MismatchedFacts>)> {
    let Some(file) = &args.facts else { return Ok((facts, None)) };
    let (published, document) = crate::published_facts::read(file)?;
    if let Some(region) = region.filter(|region| **region != published.region) {
        let at = document.position(&Field::from_dotted("data.region"));
        let finding = Finding {
            rule: FACTS_OF_OTHER_REGION.id,
            severity: FACTS_OF_OTHER_REGION.severity,
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
        return Ok((facts, Some(MismatchedFacts { file: file.clone(), finding })));
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

    const NO_FLAGS: FactArgs =
        FactArgs { cluster: None, region: None, kubernetes_version: None, facts: None, mode: ModeArg::Companion };

    fn targets(text: &str, args: &FactArgs) -> anyhow::Result<Vec<Target>> {
        let file = (load_text(config::FILE_NAME, text.to_owned()), PathBuf::from("/repository"));
        clusters(Some(&file), args)
    }

    #[test]
    fn flags_override_the_settings_of_a_cluster() {
        let text = "clusters:\n- name: a\n  region: westeurope\n  kubernetesVersion: '1.33'\n  networkMode: node-subnet\n\
                    - name: b\n  paths: [x, ../y]\n";
        let all = targets(text, &NO_FLAGS).unwrap();
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
            ..NO_FLAGS
        };
        let one = targets(text, &flags).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].facts.regions[0].region.as_str(), "northeurope");
        assert_eq!(one[0].facts.kubernetes.as_deref(), Some("1.34"));
        assert_eq!(by_flags(&flags).unwrap().facts.regions.len(), 1);
    }

    #[test]
    fn a_name_is_that_of_one_cluster() {
        let error = targets("clusters:\n- name: a\n- name: b\n- name: a\n", &NO_FLAGS).unwrap_err().to_string();
        assert!(error.starts_with("napkeeper.yaml:4:9: clusters[2].name: there is another cluster \"a\""), "{error}");
    }

    #[test]
    fn settings_that_cannot_be_parsed_have_no_cluster_to_select() {
        let broken = "clusters:\n- name: a\n  nmae: b\n";
        assert!(targets(broken, &NO_FLAGS).unwrap().is_empty());
        let chosen = FactArgs { cluster: Some("a".to_owned()), ..NO_FLAGS };
        let error = targets(broken, &chosen).unwrap_err().to_string();
        assert!(error.starts_with("napkeeper.yaml:3:"), "{error}");
        assert!(clusters(None, &chosen).is_err());
    }
}
