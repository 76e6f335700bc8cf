//! Migrates kustomizations and the replacements in files of their own: which versions they select, and the patches that stand inline
//! in them.
//!
//! kustomize applies a patch only where group, version, kind and name are those of the object, unless it has a `target`; a `target`
//! of another version selects nothing, without an error (`api/resource` and `api/types/selector.go` in
//! `kubernetes-sigs/kustomize`). So both move to the current version together with the objects.

use super::selector::{Current, Selector, field};
use super::{Migration, migrate as migrate_text};
use crate::migrate::plan::MigrationPlan;
use napkeeper_api::field_path::Path;
use serde_json::Value;

const SELECTED: &str = "a kustomization selects objects by their version";
const INLINE: &str = "a patch has the version of the object that it changes";
const OPERATION: &str = "a patch changes the field where it is now";
/// Where a NodePool's expiry was, and where it is, as JSON pointers.
const EXPIRY: (&str, &str) = ("/spec/disruption/expireAfter", "/spec/template/spec/expireAfter");
/// The pointer of the field that has a value with a new name.
const POLICY: &str = "/spec/disruption/consolidationPolicy";
/// The fields by which only a kustomization has patches.
const FIELDS: [&str; 4] = ["patches", "patchesJson6902", "patchesStrategicMerge", "replacements"];

/// True for a kustomization or component, which need not say so.
pub(super) fn is_kustomization(value: &Value) -> bool {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("", "") => FIELDS.iter().any(|name| field(value, name).is_some_and(|(_, list)| list.is_array())),
        (version, kind) => {
            (version.is_empty() || version.starts_with("kustomize.config.k8s.io/"))
                && ["", "Kustomization", "Component"].contains(&kind)
        }
    }
}

/// True for what `path` of an entry of `replacements` names: one, or a list of them.
pub(super) fn is_replacement(value: &Value) -> bool {
    let has = |name: &str| field(value, name).is_some();
    has("targets") && (has("source") || has("sourceValue")) && !has("kind")
}

/// Brings selectors and inline patches to the current versions.
pub(super) fn migrate(plan: &mut MigrationPlan) {
    let root = Path::root();
    for name in ["patches", "patchesJson6902"] {
        for patch in items(plan, &root, name) {
            select(plan, &key(plan, &patch, "target"));
            inline(plan, &key(plan, &patch, "patch"));
        }
    }
    for one in items(plan, &root, "replacements") {
        replacement(plan, &one);
    }
}

/// What copies a field of one object to others.
pub(super) fn replacement(plan: &mut MigrationPlan, path: &Path) {
    select(plan, &key(plan, path, "source"));
    for target in items(plan, path, "targets") {
        select(plan, &key(plan, &target, "select"));
        for rejected in items(plan, &target, "reject") {
            select(plan, &rejected);
        }
    }
}

/// The path of a field, by its name in any case.
fn key(plan: &MigrationPlan, of: &Path, name: &str) -> Path {
    of.key(plan.get(of).and_then(|value| field(value, name)).map_or(name, |(key, _)| key))
}

fn items(plan: &MigrationPlan, of: &Path, name: &str) -> Vec<Path> {
    plan.items(&key(plan, of, name))
}

/// What selects objects by group, version and kind.
fn select(plan: &mut MigrationPlan, path: &Path) {
    let current = plan.get(path).and_then(Selector::of).and_then(|selector| selector.current());
    let Some(Current { version, kind }) = current else { return };
    if let Some(kind) = kind {
        plan.set(&key(plan, path, "kind"), &kind, "Provisioners became NodePools");
    }
    if let Some(version) = version {
        plan.set(&key(plan, path, "version"), version, SELECTED);
    }
}

/// A patch in a text.
fn inline(plan: &mut MigrationPlan, path: &Path) {
    let Some(old) = plan.text(path) else { return };
    match migrate_text(old) {
        Ok(Migration { text, edits, notes }) if !edits.is_empty() => {
            for note in notes {
                plan.note(path, format!("{} ({}: {})", note.message, note.object, note.path));
            }
            let changes = edits.iter().map(|edit| format!("{}: {}", edit.path, edit.change)).collect::<Vec<_>>();
            plan.replace_text(path, &text, changes.join("; "), INLINE);
        }
        // What cannot be read or edited is among what remains.
        Ok(_) | Err(_) => {}
    }
}

/// A JSON patch, which is a list of operations (RFC 6902), or a list of replacements.
pub(super) fn list(plan: &mut MigrationPlan) {
    for one in plan.items(&Path::root()) {
        if plan.get(&one).is_some_and(is_replacement) {
            replacement(plan, &one);
        } else {
            operation(plan, &one);
        }
    }
}

fn operation(plan: &mut MigrationPlan, operation: &Path) {
    let (path, value) = (operation.key("path"), operation.key("value"));
    match plan.text(&path) {
        Some(pointer) if pointer == EXPIRY.0 => plan.set(&path, EXPIRY.1, OPERATION),
        Some(POLICY) if plan.text(&value) == Some("WhenUnderutilized") => {
            plan.set(&value, "WhenEmptyOrUnderutilized", "v1 renamed the policy; the behavior is the same");
        }
        _ => {}
    }
}
