//! What a migration leaves as it is, and why: what only a person can change, and patches of what it does not change.

use super::{MigratedFile, MigrationResult};
use crate::repository::{Changing, Disk, Obstacle, Tree, is_kustomization, relative};
use napkeeper_api::manifests::{self, Problem, Source, items};
use napkeeper_verdict::migrate::{Migration, migrate, remaining as remaining_in};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Kinds whose version decides whether a patch applies.
const KINDS: [&str; 4] = ["NodePool", "Provisioner", "NodeClaim", "AKSNodeClass"];
/// Those among them that have the fields which operations of JSON patches are migrated for.
const POOLS: [&str; 2] = ["NodePool", "Provisioner"];

/// Leaves the patches of what stays as it is: kustomize applies a patch to objects of its own version only.
pub(super) fn leave_patches(result: &mut MigrationResult, changing: &[Changing]) {
    let mut judgements: BTreeMap<usize, Judgement> = BTreeMap::new();
    let real = |file: &MigratedFile| std::fs::canonicalize(&*file.source.file).ok();
    let positions = result.files.iter().enumerate().filter_map(|(i, file)| Some((real(file)?, i)));
    let positions: BTreeMap<PathBuf, usize> = positions.collect();
    let patches: BTreeSet<&PathBuf> = changing.iter().flat_map(|one| &one.by).collect();
    let resources = changing.iter().flat_map(|one| &one.files);
    let resources: BTreeSet<&PathBuf> =
        resources.filter(|file| manifests::is_manifest(file) && !patches.contains(file)).collect();
    let migrated = |file: &PathBuf| positions.get(file).and_then(|i| result.files.get(*i));
    let objects = resources.into_iter().map(|file| (file, Objects::of(file, migrated(file))));
    let objects: BTreeMap<&PathBuf, Objects> = objects.collect();
    for one in changing {
        let changed = Changed::of(one, &objects);
        for file in &one.by {
            let Some((i, migrated)) = positions.get(file).copied().zip(migrated(file)) else { continue };
            match (changed.judge(file, &migrated.migration), judgements.get(&i)) {
                (None, _) | (Some(Judgement::Tell(_)), Some(Judgement::Leave(_))) => {}
                (Some(judgement), _) => drop(judgements.insert(i, judgement)),
            }
        }
    }
    for (i, judgement) in judgements {
        let Some(file) = result.files.get_mut(i) else { continue };
        let message = match judgement {
            Judgement::Tell(message) => message,
            Judgement::Leave(reason) => {
                file.migration = Migration { text: file.source.text.to_string(), ..Migration::default() };
                format!("not changed: {reason}")
            }
        };
        result.left.push(Problem { file: Arc::clone(&file.source.file), position: None, message });
    }
}

/// The objects of Karpenter in a file, by kind and name.
struct Objects {
    all: BTreeSet<String>,
    /// Those of older versions.
    old: BTreeSet<String>,
    /// The old ones are migrated.
    is_migrated: bool,
}

impl Objects {
    fn of(file: &Path, migrated: Option<&MigratedFile>) -> Self {
        let source = migrated.map(|file| file.source.clone()).or_else(|| Disk.read(file));
        let documents = source.iter().flat_map(|source| &source.parsed().documents);
        let all: BTreeSet<String> = documents.flat_map(items).filter_map(|(_, value)| name(value)).collect();
        let old = match migrated {
            Some(file) => versioned(&file.migration),
            None => match source.map(|source| migrate(&source.text)) {
                Some(Ok(migration)) => versioned(&migration),
                Some(Err(_)) | None => all.clone(),
            },
        };
        Self { all, old, is_migrated: migrated.is_some() }
    }
}

/// Kind and name of an object of Karpenter.
fn name(value: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&value["kind"]);
    KINDS.contains(&kind.as_str()).then(|| format!("{kind} {}", text(&value["metadata"]["name"])))
}

/// What becomes of a patch, or of a kustomization with its selectors and inline patches.
enum Judgement {
    /// It stays, for this reason.
    Leave(String),
    /// It is migrated, and this is to be said.
    Tell(String),
}

/// The objects that the patches of a kustomization change.
struct Changed<'c> {
    all: BTreeSet<&'c str>,
    /// Those of older versions that stay, with their files.
    stay: BTreeMap<&'c str, &'c Path>,
    /// Those that are migrated, with their files.
    migrated: BTreeMap<&'c str, &'c Path>,
    obstacle: Option<&'c Obstacle>,
}

impl<'c> Changed<'c> {
    fn of(one: &'c Changing, objects: &'c BTreeMap<&PathBuf, Objects>) -> Self {
        let (all, obstacle) = (BTreeSet::new(), one.obstacle.as_ref());
        let mut changed = Self { all, stay: BTreeMap::new(), migrated: BTreeMap::new(), obstacle };
        for (file, objects) in one.files.iter().filter_map(|file| Some((file, objects.get(file)?))) {
            changed.all.extend(objects.all.iter().map(String::as_str));
            let old = objects.old.iter().map(|object| (object.as_str(), file.as_path()));
            if objects.is_migrated { changed.migrated.extend(old) } else { changed.stay.extend(old) }
        }
        changed
    }

    /// What becomes of one of its files; `None` where it is just migrated.
    fn judge(&self, file: &Path, migration: &Migration) -> Option<Judgement> {
        let objects = versioned(migration);
        let is_kustomization = is_kustomization(file);
        // Operations of JSON patches and replacements name no object.
        let is_of_any = is_kustomization || migration.edits.iter().any(|edit| !edit.object.contains(' '));
        if migration.edits.is_empty() || (objects.is_empty() && !is_of_any) {
            return None;
        }
        let is_changed = |object: &str| match (is_kustomization, is_of_any) {
            (true, _) => true,
            (false, true) => objects.contains(object) || POOLS.iter().any(|kind| object.starts_with(kind)),
            (false, false) => objects.contains(object),
        };
        let first = |map: &BTreeMap<&str, &Path>| {
            map.iter().find(|(object, _)| is_changed(object)).map(|(_, file)| relative(file).display().to_string())
        };
        let is_elsewhere = is_of_any || objects.iter().any(|object| !self.all.contains(object.as_str()));
        let elsewhere = match self.obstacle.filter(|_| is_elsewhere) {
            Some(Obstacle::Remote { what, .. } | Obstacle::Transformers { what, .. }) => Some(what.as_str()),
            Some(Obstacle::Helm { .. }) => Some("a Helm chart"),
            Some(Obstacle::Component) | None => None,
        };
        match (first(&self.stay), first(&self.migrated), elsewhere) {
            (Some(stays), None, _) => Some(Judgement::Leave(format!(
                "it patches what is in {stays}, which stays as it is, and would no longer apply: migrate both together"
            ))),
            (Some(stays), Some(migrated), _) => Some(Judgement::Leave(format!(
                "it patches what is in {stays}, which stays as it is, and may patch what is in {migrated}, which is migrated, and \
                 would apply to one only: migrate all three together, or change this by hand"
            ))),
            (None, Some(migrated), Some(what)) => Some(Judgement::Tell(format!(
                "migrated with what is in {migrated}, but it may also patch what is in {what}, which cannot be migrated from here: if \
                 that has the old version, patch it separately"
            ))),
            (None, None, Some(what)) => Some(Judgement::Leave(format!(
                "it may patch what is in {what}, which cannot be migrated from here: if that has the new version, change this by hand"
            ))),
            (None, _, None) => None,
        }
    }
}

/// The objects of Karpenter that a migration changes, by kind and name.
fn versioned(migration: &Migration) -> BTreeSet<String> {
    let of_karpenter = |object: &&str| object.split_once(' ').is_some_and(|(kind, _)| KINDS.contains(&kind));
    migration.edits.iter().map(|edit| edit.object.as_str()).filter(of_karpenter).map(ToOwned::to_owned).collect()
}

/// What is to be migrated in files that no path holds.
pub(super) fn beyond(files: &[Source]) -> impl Iterator<Item = Problem> {
    let is_due = |source: &&Source| migrate(&source.text).is_ok_and(|migration| *migration.text != *source.text);
    files.iter().filter(is_due).map(|source| Problem {
        file: Arc::clone(&source.file),
        position: None,
        message: "not changed: it is built or synced with the files of PATH, but is not among them: pass it, too, if it is not excluded"
            .to_owned(),
    })
}

/// What files have of older versions after their migration. Those of which it is already said that they stay are left out.
pub(super) fn remaining(result: &MigrationResult) -> Vec<Problem> {
    let said: BTreeSet<&str> = result.left.iter().map(|left| &*left.file).collect();
    let changed = |file: &&MigratedFile| file.changed() || !said.contains(&*file.source.file);
    let within = result.files.iter().filter(changed).flat_map(|file| {
        remaining_in(&file.migration.text).into_iter().map(|one| Problem {
            file: Arc::clone(&file.source.file),
            position: None,
            message: format!("not changed: {} {}: change it by hand", one.path, one.what),
        })
    });
    within.collect()
}
