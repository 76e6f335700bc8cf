//! Migrates a Provisioner to a NodePool.
//!
//! Sources: the design document of v1beta1 in `aws/karpenter-provider-aws` (`designs/v1beta1-full-changelist.md`) and
//! the API types of v1alpha5 in `kubernetes-sigs/karpenter` 0.31: without `ttlSecondsUntilExpired` a node never
//! expired, without `consolidation` and `ttlSecondsAfterEmpty` none was taken away for being empty.

use crate::migrate::plan::MigrationPlan;
use crate::migrate::pool;
use napkeeper_api::field_path::Path;
use napkeeper_api::yaml::edit::InsertPosition;
use serde_json::{Value, json};

const TEMPLATE: &str = "a NodePool describes its nodes in a template";
const CONSOLIDATION: &str = "consolidation is part of disruption";
const EXPIRY: &str = "expiry is now a duration in the template";

/// Brings an object of v1alpha5 to `karpenter.sh/v1`. Defaults of a Provisioner must be written in a NodePool; this is
/// omitted for a NodePool of v1alpha5, which never existed.
pub(super) fn migrate(plan: &mut MigrationPlan, is_provisioner: bool) {
    plan.set(&Path::from_dotted("kind"), "NodePool", "Provisioners became NodePools");
    template(plan);
    consolidation(plan, is_provisioner);
    limits(plan);
    if is_provisioner {
        defaults(plan);
    }
    // Last, or the comment would go along with an entry below it.
    retired(plan);
    let is_patch = plan.map(&Path::from_dotted("spec.template")).is_none();
    pool::fields(plan, is_patch);
}

/// Where the fields of a Provisioner's spec belong.
const MOVED_FIELDS: [(&str, &str); 7] = [
    ("requirements", "spec.template.spec.requirements"),
    ("taints", "spec.template.spec.taints"),
    ("startupTaints", "spec.template.spec.startupTaints"),
    ("providerRef", "spec.template.spec.nodeClassRef"),
    ("ttlSecondsUntilExpired", "spec.template.spec.expireAfter"),
    ("labels", "spec.template.metadata.labels"),
    ("annotations", "spec.template.metadata.annotations"),
];

/// Moves into the template what belongs there, in the order of the file.
fn template(plan: &mut MigrationPlan) {
    let spec = Path::from_dotted("spec");
    let keys: Vec<String> = plan.map(&spec).map(|map| map.keys().cloned().collect()).unwrap_or_default();
    for key in keys {
        let from = spec.key(&key);
        if let Some((_, to)) = MOVED_FIELDS.iter().find(|(old, _)| *old == key) {
            plan.relocate(&from, &Path::from_dotted(to), TEMPLATE);
            after_move(plan, &key);
        }
    }
}

/// Settings without a field in a NodePool.
fn retired(plan: &mut MigrationPlan) {
    let spec = Path::from_dotted("spec");
    pool::kubelet(plan, &spec.key("kubeletConfiguration"));
    let provider = spec.key("provider");
    let message = "cloud settings belong in an AKSNodeClass: create one, and reference it in nodeClassRef";
    plan.retire(&provider, message, "v1beta1 removed spec.provider");
}

/// Changes of the value itself.
fn after_move(plan: &mut MigrationPlan, key: &str) {
    let template = Path::from_dotted("spec.template.spec");
    match key {
        "ttlSecondsUntilExpired" => seconds(plan, &template.key("expireAfter"), EXPIRY),
        "providerRef" => {
            let kind = template.key("nodeClassRef").key("kind");
            if plan.text(&kind).is_some_and(|k| k.ends_with("NodeTemplate")) {
                plan.note(&kind, "node templates became node classes: an AKSNodeClass of this name must exist");
                plan.set(&kind, "AKSNodeClass", "node templates became node classes");
                let version = template.key("nodeClassRef").key("apiVersion");
                if plan.get(&version).is_some() {
                    plan.set(&version, "karpenter.azure.com", "the group of AKSNodeClass");
                }
            }
        }
        _ => {}
    }
}

/// A number of seconds becomes a duration: `2592000` is `720h`.
fn seconds(plan: &mut MigrationPlan, path: &Path, reason: &'static str) {
    let Some(seconds) = plan.get(path).and_then(Value::as_u64) else {
        return;
    };
    let text = match seconds {
        s if s > 0 && s % 3600 == 0 => format!("{}h", s / 3600),
        s if s > 0 && s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    };
    plan.set(path, &text, reason);
}

fn consolidation(plan: &mut MigrationPlan, is_provisioner: bool) {
    let spec = Path::from_dotted("spec");
    let (old, ttl) = (spec.key("consolidation"), spec.key("ttlSecondsAfterEmpty"));
    let enabled = plan.get(&old.key("enabled")).and_then(Value::as_bool) == Some(true);
    let has_ttl = plan.get(&ttl).is_some_and(|v| !v.is_null());
    let disruption = spec.key("disruption");
    if plan.get(&old).is_some() && plan.get(&disruption).is_some() {
        plan.retire(&old, "spec.disruption is also set and takes precedence, so this is removed", CONSOLIDATION);
    } else if plan.get(&old).is_some() {
        plan.rename(&old, "disruption", CONSOLIDATION);
        rename_enabled(plan, &disruption, enabled, has_ttl);
    }
    if has_ttl && enabled {
        let message = "a Provisioner could not combine this with consolidation, so it is removed; \
                       to delay consolidation use spec.disruption.consolidateAfter";
        plan.retire(&ttl, message, CONSOLIDATION);
    } else if has_ttl {
        let policy = disruption.key("consolidationPolicy");
        if plan.get(&disruption).is_none() {
            plan.insert(
                &disruption,
                InsertPosition::Before("ttlSecondsAfterEmpty".to_owned()),
                json!({"consolidationPolicy": "WhenEmpty"}),
                CONSOLIDATION,
            );
        } else if plan.get(&policy).is_none() {
            plan.insert(&policy, InsertPosition::End, "WhenEmpty".into(), CONSOLIDATION);
        }
        let after = disruption.key("consolidateAfter");
        plan.relocate(&ttl, &after, CONSOLIDATION);
        seconds(plan, &after, "a duration needs a unit");
    } else if is_provisioner && plan.get(&disruption).is_none() {
        plan.insert(&disruption, InsertPosition::End, json!({"consolidateAfter": "Never"}), CONSOLIDATION);
        let message = "a Provisioner without consolidation and ttlSecondsAfterEmpty kept empty nodes, a NodePool \
                       consolidates by default: consolidateAfter: Never keeps it so; take it away to save money";
        plan.note(&disruption, message);
    }
}

/// Replaces `consolidation.enabled` by the policy of `disruption`.
fn rename_enabled(plan: &mut MigrationPlan, disruption: &Path, enabled: bool, has_ttl: bool) {
    let old = disruption.key("enabled");
    let (key, value) = match (enabled, has_ttl) {
        (true, _) => ("consolidationPolicy", "WhenEmptyOrUnderutilized"),
        (false, true) => ("consolidationPolicy", "WhenEmpty"),
        (false, false) => ("consolidateAfter", "Never"),
    };
    if plan.get(&old).is_some() {
        let new = plan.rename(&old, key, CONSOLIDATION);
        plan.set(&new, value, CONSOLIDATION);
    } else {
        plan.insert(&disruption.key(key), InsertPosition::End, value.into(), CONSOLIDATION);
    }
}

/// `limits.resources` is `limits`.
fn limits(plan: &mut MigrationPlan) {
    let reason = "resource limits are now direct children of limits";
    let limits = Path::from_dotted("spec.limits");
    let old = limits.key("resources");
    let Some(map) = plan.map(&old) else {
        return;
    };
    let keys: Vec<String> = map.keys().cloned().collect();
    for key in keys {
        plan.relocate(&old.key(&key), &limits.key(&key), reason);
    }
    plan.discard(&old, reason);
}

/// Writes the defaults of absent fields.
fn defaults(plan: &mut MigrationPlan) {
    let template = Path::from_dotted("spec.template.spec");
    let (requirements, expiry) = (template.key("requirements"), template.key("expireAfter"));
    if plan.map(&template).is_none() {
        return plan.note(&template, "there is nothing to build a template from: write spec.template.spec by hand");
    }
    if plan.get(&requirements).is_none() {
        plan.insert(&requirements, InsertPosition::End, json!([]), "v1 requires requirements, which may be empty");
    }
    if plan.get(&expiry).is_none() {
        plan.insert(&expiry, InsertPosition::End, "Never".into(), "a Provisioner did not expire nodes by default");
        let message = "a Provisioner without ttlSecondsUntilExpired never expired nodes, a NodePool replaces them \
                       after 720h: expireAfter: Never keeps the old behavior";
        plan.note(&expiry, message);
    }
}
