//! Migrates kustomizations: which versions they select, and the patches that stand inline in them.
//!
//! kustomize applies a patch only where group, version, kind and name are those of the object, unless it has a `target`; a `target`
//! of another version selects nothing, without an error (`api/resource` and `api/types/selector.go` in
//! `kubernetes-sigs/kustomize`). So both move to the current version together with the objects.

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
const FIELDS: [&str; 3] = ["patches", "patchesJson6902", "replacements"];

/// True for a kustomization or component, which need not say so.
pub(super) fn is_kustomization(value: &Value) -> bool {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("", "") => FIELDS.iter().any(|field| value[field].is_array()),
        (version, kind) => {
            (version.is_empty() || version.starts_with("kustomize.config.k8s.io/"))
                && ["Kustomization", "Component"].contains(&kind)
        }
    }
}

/// Brings selectors and inline patches to the current versions.
pub(super) fn migrate(plan: &mut MigrationPlan) {
    for field in ["patches", "patchesJson6902"] {
        for patch in plan.items(&Path::root().key(field)) {
            selector(plan, &patch.key("target"));
            inline(plan, &patch.key("patch"));
        }
    }
    for replacement in plan.items(&Path::root().key("replacements")) {
        selector(plan, &replacement.key("source"));
        for target in plan.items(&replacement.key("targets")) {
            selector(plan, &target.key("select"));
            for rejected in plan.items(&target.key("reject")) {
                selector(plan, &rejected);
            }
        }
    }
}

/// What selects objects by group, version and kind.
fn selector(plan: &mut MigrationPlan, path: &Path) {
    let (version, kind) = (path.key("version"), path.key("kind"));
    let of_group = |group: &str| plan.text(&path.key("group")).is_none_or(|given| given == group);
    let current = match plan.text(&kind) {
        Some("NodePool" | "NodeClaim" | "Provisioner") if of_group("karpenter.sh") => "v1",
        Some("AKSNodeClass") if of_group("karpenter.azure.com") => "v1beta1",
        _ => return,
    };
    if plan.text(&kind) == Some("Provisioner") {
        plan.set(&kind, "NodePool", "Provisioners became NodePools");
    }
    if plan.text(&version).is_some_and(|old| ["v1alpha2", "v1alpha5", "v1beta1"].contains(&old)) {
        plan.set(&version, current, SELECTED);
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
        Ok(_) => {}
        Err(problem) => plan.note(path, format!("this patch was not migrated: {}", problem.message)),
    }
}

/// A JSON patch: a list of operations (RFC 6902).
pub(super) fn operations(plan: &mut MigrationPlan) {
    for operation in plan.items(&Path::root()) {
        let (path, value) = (operation.key("path"), operation.key("value"));
        match plan.text(&path) {
            Some(pointer) if pointer == EXPIRY.0 => plan.set(&path, EXPIRY.1, OPERATION),
            Some(POLICY) if plan.text(&value) == Some("WhenUnderutilized") => {
                plan.set(&value, "WhenEmptyOrUnderutilized", "v1 renamed the policy; the behavior is the same");
            }
            _ => {}
        }
    }
}
