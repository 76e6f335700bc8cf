//! `napkeeper validate`: what is wrong with these manifests?

mod args;
mod clusters;
mod format;
mod input;
mod judge;
mod summary;
mod suppress;

use super::Outcome;
use super::output;
use anyhow::bail;
pub(super) use args::Args;
use clusters::Scope;
use format::Told;
use input::{Input, Place, Store};
use judge::{Judged, Part};
use napkeeper_api::config;
use napkeeper_api::manifests::Source;
use std::io::Write;
use std::path::{Path, PathBuf};
use summary::Summary;
use suppress::{BaselineOf, Hidden};

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let store = Store::open(&args.source, &args.paths)?;
    let file = store.config(&args.paths);
    let clusters = clusters::read(file.as_ref(), &args.facts)?;
    let paths = paths(args, &clusters);
    let mut input = store.read(&paths, !args.paths.is_empty())?;
    if input.sources.is_empty() && input.unreadable.is_empty() && !args.allow_empty {
        bail!("no manifests in {}: there is no .yaml, .yml or .json file", list(&paths));
    }
    let folder = file.as_ref().map(|(_, folder)| folder.clone()).unwrap_or_default();
    let rest = clusters::by_flags(&args.facts)?;
    let parts = divide(args, &input, &clusters, &rest, &folder);
    let mut parts = if parts.iter().all(|part| part.members.is_empty()) { Vec::new() } else { parts };
    let unasked = add_config(&mut input, &mut parts, file, &rest);
    let files = input.sources.len();
    let mut judged = judge::judge(&input.sources, &parts)?;
    refuse_empty(args, &input, &judged, unasked, &paths)?;
    let hidden = hide(args, &store, &clusters, &mut input, &mut judged)?;
    let (mut summary, mut shown) = Summary::of(judged, files, input.unreadable.len(), hidden);
    summary.revision = store.revision();
    suppress::identity::fingerprints(&mut shown);
    let told = Told { input: &input, shown: &shown, summary: &summary, fail_on: args.fail_on };
    let mut out = anstream::stdout().lock();
    format::write(args.output, &told, &mut out)?;
    out.flush()?;
    for problem in &input.unreadable {
        output::error(&problem.to_string());
    }
    let counts = shown.iter().any(|one| args.fail_on.counts(one.finding.severity));
    Ok(match (summary.unreadable, counts) {
        (1.., _) => Outcome::Incomplete,
        (0, true) => Outcome::Findings,
        (0, false) => Outcome::Fine,
    })
}

/// What is read where no path is given: the paths of the one cluster that was asked for, or the current folder.
fn paths(args: &Args, clusters: &[Scope]) -> Vec<PathBuf> {
    match clusters {
        _ if !args.paths.is_empty() => args.paths.clone(),
        [one] if args.facts.cluster.is_some() => one.paths.iter().map(|path| input::shown(path)).collect(),
        _ => vec![PathBuf::from(".")],
    }
}

/// Which sources belong to which cluster. What belongs to none is judged by the flags alone, unless one cluster was
/// asked for.
fn divide<'s>(args: &Args, input: &Input, clusters: &'s [Scope], rest: &'s Scope, folder: &Path) -> Vec<Part<'s>> {
    let all = 0..input.sources.len();
    let Some(_) = clusters.first() else { return vec![Part { scope: rest, members: all.collect() }] };
    let mut belongs = vec![false; input.sources.len()];
    let mut parts = Vec::new();
    for scope in clusters {
        let mut members = Vec::new();
        for (i, place) in input.places.iter().enumerate() {
            let chosen_by_name = args.facts.cluster.is_some() && *place == Place::Stdin;
            if chosen_by_name || scope.holds(place, folder) {
                members.push(i);
                belongs.iter_mut().skip(i).take(1).for_each(|b| *b = true);
            }
        }
        parts.push(Part { scope, members });
    }
    if args.facts.cluster.is_none() {
        let members = all.filter(|i| belongs.get(*i) == Some(&false)).collect();
        parts.push(Part { scope: rest, members });
    }
    parts
}

/// The repository's `napkeeper.yaml` is checked as well, wherever above the paths it is. Returns whether nobody asked
/// for that.
fn add_config<'s>(
    input: &mut Input,
    parts: &mut Vec<Part<'s>>,
    file: Option<(Source, PathBuf)>,
    rest: &'s Scope,
) -> bool {
    let Some((source, folder)) = file.filter(|_| !input.sources.iter().any(|s| config::is_config(&s.file))) else {
        return false;
    };
    let index = input.sources.len();
    input.push(source, Place::File(folder.join(config::FILE)));
    match parts.iter_mut().find(|part| part.scope.name.is_none()) {
        Some(part) => part.members.push(index),
        None => parts.push(Part { scope: rest, members: vec![index] }),
    }
    true
}

/// Nothing found in nothing is no good news: the render may be empty, or the path wrong.
fn refuse_empty(args: &Args, input: &Input, judged: &Judged, unasked: bool, paths: &[PathBuf]) -> anyhow::Result<()> {
    let named = args.paths.iter().any(|path| config::is_config(&path.to_string_lossy()));
    let configs = input.sources.iter().filter(|s| config::is_config(&s.file));
    let configs = configs.map(|source| source.reading.documents.len()).sum::<usize>();
    let ours = judged.checked - if named && !unasked { 0 } else { configs.min(judged.checked) };
    if ours > 0 || !judged.shown.is_empty() || !input.unreadable.is_empty() || args.allow_empty {
        return Ok(());
    }
    let cluster = args.facts.cluster.as_ref().map(|name| format!(" for cluster {name}")).unwrap_or_default();
    let others = judged.skipped.values().sum::<usize>();
    let others = match others {
        0 => String::new(),
        n => format!(", but {} of other kinds", output::plural(n, "object")),
    };
    bail!(
        "no manifest that napkeeper knows in {}{cluster}{others}: name the right path, or say --allow-empty if that is as it should be",
        list(paths)
    )
}

/// Takes away what is not to be reported, and adds what is wrong with that.
fn hide(
    args: &Args,
    store: &Store,
    clusters: &[Scope],
    input: &mut Input,
    judged: &mut Judged,
) -> anyhow::Result<Hidden> {
    let mut hidden = Hidden::default();
    let shown = &mut judged.shown;
    suppress::by_comments(&input.sources, shown, &mut hidden);
    match &args.known.write_baseline {
        Some(file) => suppress::write(file, shown, &mut hidden)?,
        None => {
            let files: Vec<BaselineOf> = match &args.known.baseline {
                Some(file) => vec![(None, file.clone())],
                None => clusters.iter().filter_map(|c| Some((c.name.clone(), c.baseline.clone()?))).collect(),
            };
            let stale = suppress::by_baselines(&files, &input.sources, shown, &mut hidden)?;
            for (source, findings) in stale.into_iter().filter(|(_, findings)| !findings.is_empty()) {
                let index = input.sources.len();
                let named = |finding| judge::Shown::new(finding, Vec::new(), index, &source);
                shown.extend(findings.into_iter().map(named));
                let place = Place::File(PathBuf::from(&*source.file));
                input.push(source, place);
            }
        }
    }
    if let Some(since) = &args.source.changed_since {
        let changed = store.changed(since, &args.paths)?;
        suppress::by_change(&changed, &input.places, shown, &mut hidden);
    }
    judge::sort(shown);
    Ok(hidden)
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
