//! What is to be simulated: which manifests, and which scenario?

use super::super::output;
use anyhow::bail;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Loaded, Problem, Source};
use napkeeper_api::yaml::Document;
use napkeeper_core::catalog::Catalog;
use napkeeper_sim::scenario::{self, Manifests, Scenario, is_scenario};
use napkeeper_verdict::{Severity, Verdict};
use std::path::Path;
use std::sync::Arc;

/// Where a world lies whose scenario does not say it.
const REGION: &str = "westeurope";

/// The quickstart, built in so that it runs from any folder.
const QUICKSTART: [(&str, &str); 8] = [
    ("aksnodeclass.yaml", include_str!("../../../../manifests/quickstart/aksnodeclass.yaml")),
    ("inflate.yaml", include_str!("../../../../manifests/quickstart/inflate.yaml")),
    ("nodepool-general-purpose.yaml", include_str!("../../../../manifests/quickstart/nodepool-general-purpose.yaml")),
    ("nodepool-gpu.yaml", include_str!("../../../../manifests/quickstart/nodepool-gpu.yaml")),
    ("nodepool-spot-preferred.yaml", include_str!("../../../../manifests/quickstart/nodepool-spot-preferred.yaml")),
    ("training.yaml", include_str!("../../../../manifests/quickstart/training.yaml")),
    ("orphansweep.yaml", include_str!("../../../../manifests/quickstart/orphansweep.yaml")),
    ("scenario.yaml", include_str!("../../../../manifests/quickstart/scenario.yaml")),
];

/// What is to be simulated.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) scenario: Scenario,
    pub(super) manifests: Manifests,
    /// Where the manifests come from, for people.
    pub(super) from: String,
}

/// Reads manifests and scenario. `None` when something is wrong with them, all of which has been said on stderr.
pub(super) fn read(
    path: Option<&Path>,
    scenario: Option<&Path>,
    change: impl FnOnce(&mut Scenario),
    catalog: &Catalog,
) -> anyhow::Result<Option<Input>> {
    let from = path.map_or_else(|| "the quickstart that is built in".to_owned(), |p| p.display().to_string());
    let mut loaded = match path {
        Some(path) => manifests::load(&[path.to_owned()]),
        None => quickstart(),
    };
    if loaded.sources.is_empty() && loaded.unreadable.is_empty() {
        bail!("{from}: there is no .yaml, .yml or .json file");
    }
    let own = scenario.map(|file| manifests::load(&[file.to_owned()]));
    let mut problems: Vec<Problem> = Vec::new();
    if let Some(own) = own {
        for source in &mut loaded.sources {
            source.reading.documents.retain(|d| !is_scenario(d));
        }
        loaded.unreadable.extend(own.unreadable);
        for source in own.sources {
            if !source.reading.documents.iter().any(is_scenario) && source.reading.problems.is_empty() {
                bail!("{}: there is no {} {} in it", source.file, scenario::API_VERSION, scenario::KIND);
            }
            loaded.sources.retain(|s| s.file != source.file);
            loaded.sources.push(source);
        }
    }
    let sound = sound_documents(&loaded)?;
    let documents: Vec<&Document> = loaded.sources.iter().flat_map(|s| &s.reading.documents).collect();
    let mut told = loaded.unreadable.len() + usize::from(sound.len() < documents.len());
    for problem in &loaded.unreadable {
        output::error(&problem.to_string());
    }
    if loaded.sources.iter().any(|s| !s.reading.problems.is_empty()) {
        told += 1;
    }
    let manifests = Manifests::gather(sound.iter().copied().filter(|d| !is_scenario(d)));
    let scenario = read_scenario(&sound, &mut problems)?;
    let input = match (manifests, scenario) {
        (Err(wrong), _) => {
            problems.extend(wrong);
            None
        }
        (Ok(_), None) => None,
        (Ok(manifests), Some((mut scenario, document))) => {
            change(&mut scenario);
            if let Some(document) = document {
                problems.extend(scenario::check(&scenario, document, &manifests, catalog));
            }
            Some(Input { scenario, manifests, from: from.clone() })
        }
    };
    say(&problems, &loaded.sources);
    if told + problems.len() > 0 {
        return Ok(None);
    }
    if input.as_ref().is_some_and(|i| i.manifests.pools.is_empty()) {
        super::nothing_to_do(&from)?;
    }
    Ok(input)
}

fn quickstart() -> Loaded {
    let source = |(name, text): (&str, &str)| manifests::load_text(&format!("quickstart/{name}"), text.to_owned());
    Loaded { sources: QUICKSTART.into_iter().map(source).collect(), unreadable: Vec::new() }
}

/// The documents without an error by the rules of `validate`. The errors of the others are said.
fn sound_documents(loaded: &Loaded) -> anyhow::Result<Vec<&Document>> {
    let verdict = Verdict::embedded()?;
    let is_error = |f: &napkeeper_verdict::Finding| f.severity == Severity::Error;
    let mut err = anstream::stderr().lock();
    let mut sound = Vec::new();
    for source in &loaded.sources {
        for finding in verdict.source(source).findings.iter().filter(|f| is_error(f)) {
            output::finding(&mut err, finding, &source.text)?;
        }
        let good = |d: &&Document| !verdict.document(d).findings.iter().any(is_error);
        sound.extend(source.reading.documents.iter().filter(|d| !config::is_config(&d.file)).filter(good));
    }
    Ok(sound)
}

/// The scenario with its document; a quiet one where there is none.
fn read_scenario<'d>(
    documents: &[&'d Document],
    problems: &mut Vec<Problem>,
) -> anyhow::Result<Option<(Scenario, Option<&'d Document>)>> {
    let scenarios: Vec<&Document> = documents.iter().copied().filter(|d| is_scenario(d)).collect();
    match scenarios[..] {
        [] => Ok(Some((Scenario::quiet(REGION)?, None))),
        [document] => match scenario::read(document) {
            Ok(scenario) => Ok(Some((scenario, Some(document)))),
            Err(wrong) => {
                problems.extend(wrong);
                Ok(None)
            }
        },
        _ => {
            let files: Vec<&str> = scenarios.iter().map(|d| &*d.file).collect();
            bail!("there are {} scenarios ({}): name one with --scenario", files.len(), files.join(", "))
        }
    }
}

/// Says problems on stderr, each with the line that it points at.
fn say(problems: &[Problem], sources: &[Source]) {
    for problem in problems {
        let source = sources.iter().find(|s| Arc::ptr_eq(&s.file, &problem.file) || s.file == problem.file);
        output::problem(problem, source.map_or("", |s| &s.text));
    }
}
