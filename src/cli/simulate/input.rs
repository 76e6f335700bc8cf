//! The manifests and the scenario of a simulation.

use super::super::{output, repository};
use crate::repository::{ObjectIdentity, ReadingArgs};
use anyhow::bail;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Loaded, Problem, may_be_object};
use napkeeper_api::yaml::Document;
use napkeeper_controller::config_file::RepositoryFacts;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::names::Region;
use napkeeper_sim::scenario::{self, Manifests, Scenario, is_scenario};
use napkeeper_verdict::{Finding, Severity, Validator, first_variable};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The region of manifests without a scenario, where napkeeper.yaml does not say it.
const REGION: &str = "westeurope";

/// The quickstart, built in so that it runs from any folder.
const QUICKSTART: [(&str, &str); 8] = [
    ("aksnodeclass.yaml", include_str!("../../../manifests/quickstart/aksnodeclass.yaml")),
    ("inflate.yaml", include_str!("../../../manifests/quickstart/inflate.yaml")),
    ("nodepool-general-purpose.yaml", include_str!("../../../manifests/quickstart/nodepool-general-purpose.yaml")),
    ("nodepool-gpu.yaml", include_str!("../../../manifests/quickstart/nodepool-gpu.yaml")),
    ("nodepool-spot-preferred.yaml", include_str!("../../../manifests/quickstart/nodepool-spot-preferred.yaml")),
    ("training.yaml", include_str!("../../../manifests/quickstart/training.yaml")),
    ("orphansweep.yaml", include_str!("../../../manifests/quickstart/orphansweep.yaml")),
    ("scenario.yaml", include_str!("../../../manifests/quickstart/scenario.yaml")),
];

/// Kinds of which a cluster has one of each name.
const SIMULATED: [&str; 9] = [
    "NodePool",
    "AKSNodeClass",
    "NodeOverlay",
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "PodDisruptionBudget",
];

/// A simulation to run.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) scenario: Scenario,
    pub(crate) manifests: Manifests,
    /// The origin of the manifests, for people.
    pub(crate) from: String,
}

/// The part of the command line about input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputArgs<'a> {
    /// The folder; absent is the quickstart.
    pub(crate) path: Option<&'a Path>,
    /// The file of the scenario, in place of the folder's own.
    pub(crate) scenario: Option<&'a Path>,
    /// How the folder is read.
    pub(crate) reading: &'a ReadingArgs,
    /// The cluster that the folder is for.
    pub(crate) facts: &'a RepositoryFacts,
    pub(crate) catalog: &'a Catalog,
}

/// Reads manifests and scenario. `None` where they are wrong: all problems have been written to `err`.
pub(crate) fn read(
    args: InputArgs<'_>,
    change: impl FnOnce(&mut Scenario),
    err: &mut dyn Write,
) -> anyhow::Result<Option<Input>> {
    let from = args.path.map_or_else(|| "the built-in quickstart".to_owned(), |p| p.display().to_string());
    let loaded = load(args, &from)?;
    for problem in &loaded.unreadable {
        output::problem(err, problem, "")?;
    }
    let ValidDocuments { documents, all, open_variable } = valid_documents(&loaded, args.facts, err)?;
    let is_whole = all && loaded.unreadable.is_empty();
    if let Some(name) = &open_variable {
        writeln!(
            err,
            "error: variables such as ${{{name}}} have no value here: set them under spec.postBuild.substitute of the Flux \
             Kustomization, or replace them and pass -"
        )?;
    }
    let mut problems: Vec<Problem> = Vec::new();
    let scenario = read_scenario(&documents, args.facts, &mut problems)?;
    // References are checked once each document is valid in itself.
    let gathered = is_whole.then(|| Manifests::collect(documents.iter().copied().filter(|d| !is_scenario(d))));
    let manifests = gathered.and_then(|all| all.map_err(|wrong| problems.extend(wrong)).ok());
    let input = scenario.zip(manifests).map(|((mut scenario, document), manifests)| {
        change(&mut scenario);
        if let Some(document) = document {
            problems.extend(scenario::check(&scenario, document, &manifests, args.catalog));
        }
        Input { scenario, manifests, from: from.clone() }
    });
    for problem in &problems {
        let source = loaded.files.iter().find(|s| s.file == problem.file);
        output::problem(err, problem, source.map_or("", |s| &s.text))?;
    }
    if !is_whole || !problems.is_empty() {
        return Ok(None);
    }
    if input.as_ref().is_some_and(|i| i.manifests.pools.is_empty()) {
        bail!(
            "{from}: no NodePool found, so no pod could get a node; add one as in manifests/quickstart, or run \
             napkeeper simulate without a path"
        );
    }
    Ok(input)
}

/// The files of the folder, with the scenario of the command line in place of its own.
fn load(args: InputArgs<'_>, from: &str) -> anyhow::Result<Loaded> {
    let mut loaded = match args.path {
        Some(path) => repository::load(path, args.reading)?,
        None => quickstart(),
    };
    if loaded.files.is_empty() && loaded.unreadable.is_empty() {
        bail!("{from}: no .yaml, .yml or .json files found; pass a folder with manifests");
    }
    if let Some((one, other, object)) = defined_twice(&loaded) {
        bail!("{from}: {one} and {other} both define {object}: pass the folder of one of them");
    }
    let Some(file) = args.scenario else { return Ok(loaded) };
    let own = manifests::load(&[file.to_owned()]);
    loaded.files = loaded.files.into_iter().map(|source| source.without(is_scenario)).collect();
    for source in &own.files {
        let reading = source.parsed();
        if reading.problems.is_empty() && !reading.documents.iter().any(is_scenario) {
            bail!("{}: no {} {} found in it", source.file, scenario::API_VERSION, scenario::KIND);
        }
        loaded.files.retain(|s| s.file != source.file);
    }
    loaded.files.extend(own.files);
    loaded.unreadable.extend(own.unreadable);
    Ok(loaded)
}

/// Two folders, or kustomizations, that define the same object, which are for different clusters.
fn defined_twice(loaded: &Loaded) -> Option<(&str, &str, String)> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for source in &loaded.files {
        let render = source.file.strip_prefix("<kustomize ").and_then(|name| name.strip_suffix('>'));
        let folder = render.unwrap_or_else(|| source.file.rsplit_once('/').map_or(".", |(folder, _)| folder));
        for (_, value) in source.parsed().documents.iter().flat_map(manifests::items) {
            if !value["kind"].as_str().is_some_and(|kind| SIMULATED.contains(&kind))
                || value["metadata"]["name"].is_null()
            {
                continue;
            }
            let object = ObjectIdentity::of(value).label();
            match seen.insert(object.clone(), folder) {
                Some(other) if other != folder => return Some((other, folder, object)),
                _ => {}
            }
        }
    }
    None
}

fn quickstart() -> Loaded {
    let source = |(name, text): (&str, &str)| manifests::load_text(&format!("quickstart/{name}"), text.to_owned());
    Loaded { files: QUICKSTART.into_iter().map(source).collect(), ..Loaded::default() }
}

/// The valid documents, and whether that is all of them.
struct ValidDocuments<'d> {
    documents: Vec<&'d Document>,
    all: bool,
    /// A variable without a value on a line with an error.
    open_variable: Option<String>,
}

/// The documents without an error by the rules of `validate`. The errors of the others are written.
fn valid_documents<'d>(
    loaded: &'d Loaded,
    facts: &RepositoryFacts,
    err: &mut dyn Write,
) -> anyhow::Result<ValidDocuments<'d>> {
    let validator = Validator::embedded()?.with_kubernetes(facts.kubernetes_version.clone()).with_nodes(facts.options);
    let is_error = |f: &&Finding| f.severity == Severity::Error;
    let mut valid = ValidDocuments { documents: Vec::new(), all: true, open_variable: None };
    for source in &loaded.files {
        let report = validator.validate_files(std::slice::from_ref(source)).remove(0);
        for finding in report.findings.iter().filter(is_error) {
            output::write_finding(err, finding, &[], source.text.lines().nth(finding.line - 1))?;
            valid.all = false;
            let line = source.text.lines().nth(finding.line - 1).unwrap_or_default();
            valid.open_variable = valid.open_variable.or_else(|| first_variable(line).map(ToOwned::to_owned));
        }
        let is_valid = |d: &&Document| {
            !config::is_config(&d.file, std::slice::from_ref(*d))
                && may_be_object(&d.value)
                && !validator.validate_document(d).findings.iter().any(|f| is_error(&f))
        };
        valid.documents.extend(source.parsed().documents.iter().filter(is_valid));
    }
    Ok(valid)
}

/// The scenario with its document; one without steps if there is none.
fn read_scenario<'d>(
    documents: &[&'d Document],
    facts: &RepositoryFacts,
    problems: &mut Vec<Problem>,
) -> anyhow::Result<Option<(Scenario, Option<&'d Document>)>> {
    let scenarios: Vec<&Document> = documents.iter().copied().filter(|d| is_scenario(d)).collect();
    match scenarios[..] {
        [] => Ok(Some((Scenario::quiet(facts.region.as_ref().map_or(REGION, Region::as_str))?, None))),
        [document] => match scenario::read(document) {
            Ok(scenario) => Ok(Some((scenario, Some(document)))),
            Err(wrong) => {
                problems.extend(wrong);
                Ok(None)
            }
        },
        _ => {
            let files: Vec<&str> = scenarios.iter().map(|d| &*d.file).collect();
            bail!("found {} scenarios ({}): select one with --scenario", files.len(), files.join(", "))
        }
    }
}
