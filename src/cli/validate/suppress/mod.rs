//! Which findings are not to be reported, and is what hides them still needed?

mod baseline;
pub(super) mod identity;
mod ignore;

use super::input::{Changed, Place};
use super::judge::Shown;
use anyhow::Context;
use baseline::Baseline;
use identity::Objects;
use napkeeper_api::manifests::Source;
use napkeeper_verdict::Finding;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many findings are not reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hidden {
    /// By a comment.
    pub(super) ignored: usize,
    /// By a baseline.
    pub(super) known: usize,
    /// In files that did not change.
    pub(super) unchanged: usize,
}

/// A baseline, and for which cluster it is; absent is for all.
pub(super) type BaselineOf = (Option<Arc<str>>, PathBuf);

/// Hides what comments name. Adds what is wrong with the comments.
pub(super) fn by_comments(sources: &[Source], shown: &mut Vec<Shown>, hidden: &mut Hidden) {
    let mut rest = std::mem::take(shown).into_iter().peekable();
    for (i, source) in sources.iter().enumerate() {
        let mut here = Vec::new();
        while let Some(one) = rest.next_if(|one| one.source == i) {
            here.push(one);
        }
        let (ignored, wrong) = ignore::apply(source, &mut here);
        hidden.ignored += ignored;
        let mut objects = Objects::of(source);
        here.extend(wrong.into_iter().map(|finding| Shown::new(finding, Vec::new(), i, &mut objects)));
        shown.extend(here);
    }
}

/// Hides what is known. Returns the files of the baselines, each with what is stale in it.
pub(super) fn by_baselines(
    files: &[BaselineOf],
    sources: &[Source],
    shown: &mut Vec<Shown>,
    hidden: &mut Hidden,
) -> anyhow::Result<Vec<(Source, Vec<Finding>)>> {
    if files.is_empty() {
        // Reading everything once more is for those who have a baseline.
        return Ok(Vec::new());
    }
    let looked_at = LookedAt::of(sources);
    let mut stale = Vec::new();
    for (cluster, file) in files {
        let mut baseline = Baseline::read(file)?;
        let before = shown.len();
        shown.retain_mut(|one| match cluster {
            None => !baseline.takes(one),
            Some(cluster) => {
                // What is known of one cluster may be news of another.
                let known = one.clusters.contains(cluster) && baseline.takes(one);
                one.clusters.retain(|c| !(known && c == cluster));
                !(known && one.clusters.is_empty())
            }
        });
        hidden.known += before - shown.len();
        let findings = baseline.stale(|object, file| looked_at.holds(object, file));
        stale.push((baseline.source, findings));
    }
    Ok(stale)
}

/// A finding of a file whose lines did not move: file, line, column, rule, path and message.
pub(super) type News = (String, usize, usize, &'static str, String, String);

/// The finding in these words, if it stands in a file of the repository.
pub(super) fn news(shown: &Shown, changed: &Changed, places: &[Place]) -> Option<News> {
    let Finding { line, column, rule, path, message, .. } = &shown.finding;
    let file = changed.inside(places.get(shown.source)?)?;
    Some((file, *line, *column, *rule, path.clone(), message.clone()))
}

/// Hides what stands in files that did not change, unless it was not found there before: then a change elsewhere did it,
/// such as a node class that is gone.
pub(super) fn by_change(
    changed: &Changed,
    places: &[Place],
    shown: &mut Vec<Shown>,
    hidden: &mut Hidden,
    before: impl FnOnce() -> anyhow::Result<BTreeSet<News>>,
) -> anyhow::Result<()> {
    let touched: Vec<bool> = places.iter().map(|place| changed.holds(place)).collect();
    let is_touched = |one: &Shown| touched.get(one.source).copied().unwrap_or(true);
    if shown.iter().all(is_touched) {
        return Ok(());
    }
    let before = before()?;
    let count = shown.len();
    // What is said of ignores and baselines belongs to their own file.
    let is_news = |one: &Shown| {
        let own = one.finding.rule.starts_with("NK8");
        !own && news(one, changed, places).is_some_and(|news| !before.contains(&news))
    };
    shown.retain(|one| is_touched(one) || is_news(one));
    hidden.unchanged += count - shown.len();
    Ok(())
}

/// Writes a baseline of all that is found, but for what is wrong with ignores themselves.
pub(super) fn write(file: &Path, shown: &mut Vec<Shown>, hidden: &mut Hidden) -> anyhow::Result<()> {
    let (own, known): (Vec<_>, Vec<_>) =
        std::mem::take(shown).into_iter().partition(|s| s.finding.rule.starts_with("NK8"));
    std::fs::write(file, baseline::text(&known)?)
        .with_context(|| format!("cannot write the baseline {}", file.display()))?;
    hidden.known += known.len();
    *shown = own;
    Ok(())
}

/// Which objects and files this run looked at.
struct LookedAt {
    objects: BTreeSet<String>,
    files: BTreeSet<Arc<str>>,
}

impl LookedAt {
    fn of(sources: &[Source]) -> Self {
        let documents = sources.iter().flat_map(|source| &source.parsed().documents);
        let objects = documents.flat_map(identity::objects).collect();
        Self { objects, files: sources.iter().map(|source| Arc::clone(&source.file)).collect() }
    }

    /// True when an entry's object or file was read, or its file is gone.
    fn holds(&self, object: &str, file: &str) -> bool {
        self.objects.contains(object)
            || self.files.contains(file)
            || (!file.starts_with('<') && !Path::new(file).exists())
    }
}
