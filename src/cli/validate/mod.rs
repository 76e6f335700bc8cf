//! `napkeeper validate`: what is wrong with these manifests?

mod args;
mod clusters;
mod definitions;
mod format;
mod input;
mod judge;
mod summary;
mod suppress;

use super::policy_args::LoadedPolicies;
use super::{Outcome, output};
use anyhow::bail;
pub(super) use args::Args;
use clusters::Scope;
use format::Told;
use input::{Changed, Input, Place, Store};
use judge::{Judged, Part};
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Source};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use summary::Summary;
use suppress::identity::Objects;
use suppress::{BaselineOf, Hidden, News};

/// What a run is made of.
struct Run<'r> {
    args: &'r Args,
    store: Store,
    /// The clusters that are asked for.
    clusters: &'r [Scope],
    /// What is known by flags alone.
    rest: &'r Scope,
    /// The folder of `napkeeper.yaml`.
    folder: PathBuf,
    /// What is read.
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let store = Store::open(&args.source, &args.paths)?;
    let file = store.config(&args.paths);
    let clusters = &clusters::read(file.as_ref(), &args.facts)?;
    let rest = &clusters::by_flags(&args.facts)?;
    let paths = paths(args, clusters);
    let folder = file.as_ref().map(|(_, folder)| folder.clone()).unwrap_or_default();
    let run = Run { args, store, clusters, rest, folder, paths };
    let mut input = run.store.read(&run.paths, !args.paths.is_empty())?;
    if input.sources.is_empty() && input.unreadable.is_empty() && !args.allow_empty {
        bail!("no .yaml, .yml or .json files in {}", list(&run.paths));
    }
    input.leave_out(&run.baselines().into_iter().map(|(_, file)| file).collect::<Vec<_>>());
    let patches = input::patches(&input);
    input.leave_out(&patches);
    let mut parts = run.divide(&input)?;
    let unasked = add_config(&mut input, &mut parts, file, rest);
    let files = input.sources.len();
    let mut judged = judge::judge(args, &input.sources, &parts)?;
    add_policies(&mut input, &parts, &mut judged);
    add_facts(&mut input, clusters, rest, &mut judged);
    if parts.iter().all(|part| part.policies.policies.is_empty()) {
        run.refuse_empty(&input, &judged, unasked)?;
    }
    let hidden = run.hide(&mut input, &mut judged)?;
    let (mut summary, mut shown) = Summary::of(judged, files, input.unreadable.len(), hidden);
    summary.patches = patches.len();
    summary.revision = run.store.revision();
    suppress::identity::fingerprints(&mut shown);
    let told = Told { input: &input, shown: &shown, summary: &summary, fail_on: args.fail_on };
    let mut out = anstream::stdout().lock();
    let written = format::write(args.output, &told, &mut out).and_then(|()| Ok(out.flush()?));
    // A reader that has seen enough does not change what was found.
    written.or_else(|error| if super::is_broken_pipe(&error) { Ok(()) } else { Err(error) })?;
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
    input.push(source, Place::File(folder.join(config::FILE_NAME)));
    match parts.iter_mut().find(|part| part.scope.name.is_none()) {
        Some(part) => part.members.push(index),
        None => parts.push(Part { scope: rest, policies: LoadedPolicies::default(), members: vec![index] }),
    }
    true
}

/// Adds what is wrong with policies that stand in files of their own.
fn add_policies(input: &mut Input, parts: &[Part<'_>], judged: &mut Judged) {
    for part in parts {
        for (source, findings) in part.policies.problems(&input.sources) {
            let index = input.sources.len();
            let mut objects = Objects::of(&source);
            let named = |finding| judge::Shown::new(finding, Vec::new(), index, &mut objects);
            judged.shown.extend(findings.into_iter().map(named));
            let place = Place::File(PathBuf::from(&*source.file));
            input.push(source, place);
        }
    }
}

/// Adds that published facts serve nothing that is judged.
fn add_facts(input: &mut Input, clusters: &[Scope], rest: &Scope, judged: &mut Judged) {
    let scopes = if clusters.is_empty() { std::slice::from_ref(rest) } else { clusters };
    let mut apart = scopes.iter().map(|scope| scope.apart.as_ref());
    let Some(Some(first)) = apart.next() else { return };
    if apart.any(|other| other.is_none()) {
        return;
    }
    for source in manifests::load(std::slice::from_ref(&first.file)).files {
        let mut objects = Objects::of(&source);
        judged.shown.push(judge::Shown::new(first.finding.clone(), Vec::new(), input.sources.len(), &mut objects));
        input.push(source, Place::File(first.file.clone()));
    }
}

impl<'r> Run<'r> {
    /// Which sources belong to which cluster. What belongs to none is judged by the flags alone, unless one cluster was
    /// asked for.
    fn divide(&self, input: &Input) -> anyhow::Result<Vec<Part<'r>>> {
        let all = 0..input.sources.len();
        let by_name = self.args.facts.cluster.is_some();
        let mut belongs = vec![false; input.sources.len()];
        let mut parts = Vec::new();
        let is_config = |i: usize| input.sources.get(i).is_some_and(|source| config::is_config(&source.file));
        for scope in self.clusters {
            let mut members = Vec::new();
            for ((i, place), belongs) in input.places.iter().enumerate().zip(&mut belongs) {
                let chosen = by_name && *place == Place::Stdin;
                if !is_config(i) && (chosen || scope.holds(place, &self.folder)) {
                    members.push(i);
                    *belongs = true;
                }
            }
            parts.push(self.part(scope, members)?);
        }
        // The settings are judged whichever cluster is asked for.
        let rest = all.filter(|i| belongs.get(*i) == Some(&false) && (!by_name || is_config(*i)));
        parts.push(self.part(self.rest, rest.collect())?);
        parts.retain(|part| !part.members.is_empty());
        Ok(parts)
    }

    fn part(&self, scope: &'r Scope, members: Vec<usize>) -> anyhow::Result<Part<'r>> {
        Ok(Part { scope, policies: self.args.policies.load(&scope.policies)?, members })
    }

    /// The files of what is known.
    fn baselines(&self) -> Vec<BaselineOf> {
        let known = &self.args.known;
        let of = |scope: &Scope| Some((scope.name.clone(), scope.baseline.clone()?));
        match known.write_baseline.as_ref().or(known.baseline.as_ref()) {
            Some(file) => vec![(None, file.clone())],
            None => self.clusters.iter().filter_map(of).collect(),
        }
    }

    /// Nothing found in nothing is no good news: the render may be empty, or the path wrong.
    fn refuse_empty(&self, input: &Input, judged: &Judged, unasked: bool) -> anyhow::Result<()> {
        let named = self.args.paths.iter().any(|path| config::is_config(&path.to_string_lossy()));
        let configs = input.sources.iter().filter(|s| config::is_config(&s.file));
        let configs = configs.map(|source| source.parsed().documents.len()).sum::<usize>();
        let ours = judged.checked - if named && !unasked { 0 } else { configs.min(judged.checked) };
        if ours > 0 || !judged.shown.is_empty() || !input.unreadable.is_empty() || self.args.allow_empty {
            return Ok(());
        }
        let cluster = self.args.facts.cluster.as_ref().map(|name| format!(" for cluster {name}")).unwrap_or_default();
        let others = match judged.skipped.values().sum::<usize>() {
            0 => String::new(),
            n => format!(" ({} of other kinds)", output::plural(n, "object")),
        };
        bail!(
            "no supported manifests found in {}{cluster}{others}: check the path, or use --allow-empty to allow \
             this",
            list(&self.paths)
        )
    }

    /// Takes away what is not to be reported, and adds what is wrong with that.
    fn hide(&self, input: &mut Input, judged: &mut Judged) -> anyhow::Result<Hidden> {
        let (args, mut hidden) = (self.args, Hidden::default());
        let shown = &mut judged.shown;
        suppress::by_comments(&input.sources, shown, &mut hidden);
        if let Some(file) = &args.known.write_baseline {
            suppress::write(file, shown, &mut hidden)?;
        } else {
            let stale = suppress::by_baselines(&self.baselines(), &input.sources, shown, &mut hidden)?;
            for (source, findings) in stale.into_iter().filter(|(_, findings)| !findings.is_empty()) {
                let index = input.sources.len();
                let mut objects = Objects::of(&source);
                let named = |finding| judge::Shown::new(finding, Vec::new(), index, &mut objects);
                shown.extend(findings.into_iter().map(named));
                let place = Place::File(PathBuf::from(&*source.file));
                input.push(source, place);
            }
        }
        if let Some(since) = &args.source.changed_since {
            let changed = self.store.changed(since, &args.paths)?;
            suppress::by_change(&changed, &input.places, shown, &mut hidden, || self.found_before(&changed))?;
        }
        judge::sort(shown);
        Ok(hidden)
    }

    /// What is found where the histories part, judged by what is known today.
    fn found_before(&self, changed: &Changed) -> anyhow::Result<BTreeSet<News>> {
        let before = changed.before(&self.paths)?;
        let judged = judge::judge(self.args, &before.sources, &self.divide(&before)?)?;
        Ok(judged.shown.iter().filter_map(|shown| suppress::news(shown, changed, &before.places)).collect())
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
