//! What a migration leaves as it is, and why: what only a person can change, and patches of what it does not change.

use super::{MigratedFile, MigrationResult};
use crate::repository::{Kustomization, Obstacle, is_kustomization, patches_in, relative};
use napkeeper_api::field_path::Path as FieldPath;
use napkeeper_api::manifests::{self, Problem, Source, items};
use napkeeper_verdict::migrate::{Migration, migrate};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Kinds whose version decides whether a patch applies.
const KINDS: [&str; 4] = ["NodePool", "Provisioner", "NodeClaim", "AKSNodeClass"];

/// Leaves the patches of what stays as it is: kustomize applies a patch to objects of its own version only.
pub(super) fn leave_patches(result: &mut MigrationResult, kustomizations: &[Kustomization]) {
    let real = |file: &MigratedFile| std::fs::canonicalize(&*file.source.file).ok();
    let positions: BTreeMap<PathBuf, usize> =
        result.files.iter().enumerate().filter_map(|(i, file)| Some((real(file)?, i))).collect();
    let mut reasons: BTreeMap<usize, String> = BTreeMap::new();
    for one in kustomizations {
        let patches = patches_in(&one.files);
        let changes = |file: &PathBuf| {
            positions.get(file).is_some_and(|i| result.files.get(*i).is_some_and(MigratedFile::changed))
        };
        let patched = Patched::of(one, &patches, changes);
        for file in one.files.iter().filter(|file| patches.contains(*file) || is_kustomization(file)) {
            let Some(i) = positions.get(file).copied() else { continue };
            if let Some(reason) = result.files.get(i).and_then(|file| patched.reason_to_leave(&file.migration)) {
                reasons.insert(i, reason);
            }
        }
    }
    for (i, reason) in reasons {
        let Some(file) = result.files.get_mut(i) else { continue };
        file.migration = Migration { text: file.source.text.to_string(), ..Migration::default() };
        result.left.push(Problem { file: Arc::clone(&file.source.file), position: None, message: reason });
    }
}

/// What the patches of a kustomization change.
struct Patched<'k> {
    /// Its objects by kind and name.
    objects: BTreeSet<String>,
    /// Those of older versions that stay, with their files.
    old: BTreeMap<String, PathBuf>,
    obstacle: Option<&'k Obstacle>,
}

impl<'k> Patched<'k> {
    fn of(one: &'k Kustomization, patches: &BTreeSet<PathBuf>, changes: impl Fn(&PathBuf) -> bool) -> Self {
        let mut patched = Self { objects: BTreeSet::new(), old: BTreeMap::new(), obstacle: one.obstacle.as_ref() };
        let is_resource =
            |file: &&PathBuf| manifests::is_manifest(file) && !patches.contains(*file) && !is_kustomization(file);
        for file in one.files.iter().filter(is_resource) {
            let Some(source) = manifests::load(&[relative(file)]).files.pop() else { continue };
            let objects = source.parsed().documents.iter().flat_map(items).map(|(_, value)| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!("{} {}", text(&value["kind"]), text(&value["metadata"]["name"]))
            });
            let objects: Vec<String> = objects.collect();
            if !changes(file) {
                let old = match migrate(&source.text) {
                    Ok(migration) => versioned(&migration),
                    Err(_) => objects.iter().cloned().collect(),
                };
                patched.old.extend(old.into_iter().map(|object| (object, file.clone())));
            }
            patched.objects.extend(objects);
        }
        patched
    }

    /// Why a patch, or the kustomization with its selectors and inline patches, must stay as it is; `None` where it need not.
    fn reason_to_leave(&self, migration: &Migration) -> Option<String> {
        let objects = versioned(migration);
        // Selectors and operations of JSON patches name no object.
        let is_of_any = migration.edits.iter().any(|edit| !edit.object.contains(' '));
        if objects.is_empty() && !is_of_any {
            return None;
        }
        let file = match is_of_any {
            true => self.old.values().next(),
            false => objects.iter().find_map(|object| self.old.get(object)),
        };
        if let Some(file) = file {
            let file = relative(file);
            return Some(format!(
                "not changed: it patches what is in {}, which stays as it is, and would no longer apply: migrate both together",
                file.display()
            ));
        }
        let is_elsewhere = is_of_any || objects.iter().any(|object| !self.objects.contains(object));
        let what = match self.obstacle.filter(|_| is_elsewhere)? {
            Obstacle::Remote { what, .. } | Obstacle::Transformers { what, .. } => what,
            Obstacle::Helm { .. } => "a Helm chart",
            Obstacle::Component => return None,
        };
        Some(format!(
            "not changed: it may patch what is in {what}, which cannot be migrated from here: if that has the new version, change \
             this by hand"
        ))
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

/// Manifests in texts: of ConfigMaps, of Flux's patches and the like.
pub(super) fn embedded(files: &[MigratedFile]) -> Vec<Problem> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.source.text.contains("karpenter")) {
        let source = manifests::load_text(&file.source.file, file.migration.text.clone());
        for document in &source.parsed().documents {
            let mut paths = Vec::new();
            texts(&document.value, &FieldPath::root(), &mut paths);
            found.extend(paths.into_iter().map(|path| Problem {
                file: Arc::clone(&file.source.file),
                position: None,
                message: format!(
                    "not changed: {path} is a text with a manifest of an older version: change it by hand"
                ),
            }));
        }
    }
    found
}

/// The paths of texts of several lines that would be changed if they were files.
fn texts(value: &Value, at: &FieldPath, found: &mut Vec<FieldPath>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, child)| texts(child, &at.key(key), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, child)| texts(child, &at.index(i), found)),
        Value::String(text) if text.contains('\n') && migrate(text).is_ok_and(|migration| migration.text != *text) => {
            found.push(at.clone());
        }
        _ => {}
    }
}
