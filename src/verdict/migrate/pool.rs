//! Migrates NodePools, NodeClaims and AKSNodeClasses.
//!
//! Sources: Karpenter's v1 migration guide (`karpenter.sh/v1.0/upgrading/v1-migration`) for what moved between v1beta1
//! and v1, the API types of both versions in `kubernetes-sigs/karpenter`, and `Azure/karpenter-provider-azure#531` and
//! `#875` for AKSNodeClass.

use crate::migrate::plan::MigrationPlan;
use crate::migrate::pods;
use napkeeper_api::field_path::Path;
use napkeeper_api::yaml::edit::InsertPosition;
use serde_json::{Map, Value, json};

/// Group and kind of the node class of AKS.
const GROUP: &str = "karpenter.azure.com";
const KIND: &str = "AKSNodeClass";

/// Labels that Karpenter reads as others (`NormalizedLabels` of its API package).
const ALIASES: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// Fields of an AKSNodeClass's `spec.kubelet`.
const KUBELET: [&str; 10] = [
    "allowedUnsafeSysctls",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicy",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "podPidsLimit",
    "topologyManagerPolicy",
];

const NO_VERSION: &str = "v1 names a group, not a version";
const AFTER: &str = "v1 requires consolidateAfter where disruption is set";
const AT_ONCE: &str = "consolidateAfter: 0s was added, since v1 requires it here: empty and underutilized nodes are \
                       consolidated at once, as before v1, whatever a comment says; to delay this, set for \
                       example consolidateAfter: 1m";
/// v1beta1 demanded a value with `WhenEmpty`, so nothing is known of how it was before.
const EMPTY_AT_ONCE: &str = "consolidateAfter: 0s was added, since v1 requires it here: empty nodes are removed at \
                             once, whatever a comment says; to delay this, set for example \
                             consolidateAfter: 1m";
const PATCH: &str = "consolidateAfter is missing, and v1 requires it where disruption is set; nothing was added, \
                     because without a nodeClassRef this looks like a patch: make sure that the patched pool sets it";

/// Brings a NodePool to `karpenter.sh/v1`.
pub(super) fn migrate(plan: &mut MigrationPlan) {
    // A NodePool must have it, and what a patch omits is set elsewhere.
    let is_patch = plan.get(&Path::from_dotted("spec.template.spec.nodeClassRef")).is_none();
    fields(plan, is_patch);
}

/// Brings the fields of a NodePool, or of a patch of one, to `karpenter.sh/v1`.
pub(super) fn fields(plan: &mut MigrationPlan, is_patch: bool) {
    plan.set(&Path::from_dotted("apiVersion"), "karpenter.sh/v1", "NodePool is served as karpenter.sh/v1");
    let template = Path::from_dotted("spec.template.spec");
    let is_whole = plan.map(&Path::from_dotted("spec.template")).is_some();
    expiry(plan, is_patch);
    consolidation(plan, is_patch);
    if is_whole {
        class_ref(plan, &template.key("nodeClassRef"));
    }
    kubelet(plan, &template.key("kubelet"));
    let resources = template.key("resources");
    let message = "a NodePool has no resources: pod requests decide the size of a node";
    plan.retire(&resources, message, "v1 has resources on NodeClaims only");
    requirements(plan, &template.key("requirements"));
    pods::annotations(plan, &Path::from_dotted("spec.template.metadata.annotations"));
}

/// Brings a NodeClaim to `karpenter.sh/v1`.
pub(super) fn claim(plan: &mut MigrationPlan) {
    plan.set(&Path::from_dotted("apiVersion"), "karpenter.sh/v1", "NodeClaim is served as karpenter.sh/v1");
    class_ref(plan, &Path::from_dotted("spec.nodeClassRef"));
    kubelet(plan, &Path::from_dotted("spec.kubelet"));
    requirements(plan, &Path::from_dotted("spec.requirements"));
}

/// Brings an AKSNodeClass to `karpenter.azure.com/v1beta1`.
pub(super) fn class(plan: &mut MigrationPlan) {
    let reason = "AKSNodeClass v1alpha2 is deprecated";
    plan.set(&Path::from_dotted("apiVersion"), "karpenter.azure.com/v1beta1", reason);
    let version = Path::from_dotted("spec.imageVersion");
    if let Some(old) = plan.get(&version) {
        let message = format!(
            "an image version can no longer be pinned (it was {old}): nodes use the newest image of imageFamily \
             within the cluster's maintenance windows"
        );
        plan.retire_with_message(&version, message, "imageVersion was removed from AKSNodeClass");
    }
}

/// `expireAfter` went into the template.
fn expiry(plan: &mut MigrationPlan, is_patch: bool) {
    let disruption = Path::from_dotted("spec.disruption");
    let from = disruption.key("expireAfter");
    let Some(value) = plan.get(&from) else {
        return;
    };
    if value != "Never" {
        let message = "since v1 an expired node is drained at once: neither a budget nor a replacement that is not \
                       ready holds it back; spec.template.spec.terminationGracePeriod bounds how long that may take";
        plan.note(&from, message);
    }
    plan.relocate(&from, &Path::from_dotted("spec.template.spec.expireAfter"), "v1 has expireAfter in the template");
    if is_patch && plan.map(&disruption).is_some_and(Map::is_empty) {
        plan.discard(&disruption, "expireAfter was all that it had");
    }
}

/// The policy has a new name, and `consolidateAfter` is required.
fn consolidation(plan: &mut MigrationPlan, is_patch: bool) {
    let disruption = Path::from_dotted("spec.disruption");
    let policy = disruption.key("consolidationPolicy");
    if plan.text(&policy) == Some("WhenUnderutilized") {
        plan.set(&policy, "WhenEmptyOrUnderutilized", "v1 renamed the policy; the behavior is the same");
    }
    let after = disruption.key("consolidateAfter");
    let waits = plan.get(&after).is_some_and(|v| !v.is_null());
    if plan.map(&disruption).is_none() || waits {
        return;
    }
    if is_patch {
        return plan.note(&disruption, PATCH);
    }
    let empty_only = plan.text(&policy) == Some("WhenEmpty");
    plan.note(&disruption, if empty_only { EMPTY_AT_ONCE } else { AT_ONCE });
    if plan.get(&after).is_some() {
        plan.set(&after, "0s", AFTER);
        return;
    }
    let first = plan.map(&disruption).and_then(|map| map.keys().next().cloned());
    let position = match plan.get(&policy) {
        Some(_) => InsertPosition::After("consolidationPolicy".to_owned()),
        None => first.map_or(InsertPosition::End, InsertPosition::Before),
    };
    plan.insert(&after, position, "0s".into(), AFTER);
}

/// The reference to a class names its group and kind.
fn class_ref(plan: &mut MigrationPlan, path: &Path) {
    let (group, kind) = (path.key("group"), path.key("kind"));
    let Some(map) = plan.map(path) else {
        let message = "nodeClassRef is missing: unless this is a patch, add group: karpenter.azure.com, kind: AKSNodeClass and the class's \
                       name (AKS creates one called default)";
        plan.note(path, message);
        return;
    };
    let first = map.keys().next().cloned().map_or(InsertPosition::End, InsertPosition::Before);
    let version = path.key("apiVersion");
    if let Some(old) = plan.text(&version).map(str::to_owned) {
        if plan.get(&group).is_some() {
            plan.retire(&version, "group is also set and takes precedence, so this is removed", NO_VERSION);
        } else {
            plan.rename(&version, "group", NO_VERSION);
            plan.set(&group, old.split_once('/').map_or(old.as_str(), |(group, _)| group), "a group has no version");
        }
    }
    let is_aks_kind = plan.get(&kind).is_none_or(|k| k == KIND);
    if plan.get(&group).is_none() && is_aks_kind {
        plan.insert(&group, first, GROUP.into(), "v1 requires the group of the class");
    }
    let is_azure_group = plan.text(&group) == Some(GROUP);
    if plan.get(&kind).is_none() && is_azure_group {
        plan.insert(&kind, InsertPosition::Before("name".to_owned()), KIND.into(), "v1 requires the kind of the class");
    }
    if !is_azure_group || plan.get(&kind).is_none_or(|k| k != KIND) {
        plan.note(path, format!("this is not an {KIND} of {GROUP}: AKS cannot create nodes from it"));
    }
    if plan.get(&path.key("name")).is_none() {
        plan.note(path, "nodeClassRef has no name: add the name of the AKSNodeClass");
    }
}

/// Kubelet settings moved to the class, which several NodePools may share: a person must decide.
pub(super) fn kubelet(plan: &mut MigrationPlan, path: &Path) {
    let Some(value) = plan.get(path).cloned() else {
        return;
    };
    plan.retire_with_message(path, kubelet_note(&value), "v1 moved the kubelet settings to the AKSNodeClass");
}

fn kubelet_note(value: &Value) -> String {
    let (mut spec, mut kubelet, mut lost) = (json!({}), json!({}), json!({}));
    for (key, value) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "maxPods" => spec["maxPods"] = value.clone(),
            key if KUBELET.contains(&key) => kubelet[key] = value.clone(),
            key => lost[key] = value.clone(),
        }
    }
    if kubelet != json!({}) {
        spec["kubelet"] = kubelet;
    }
    let mut text = "kubelet settings are now part of the AKSNodeClass, for every pool that references it".to_owned();
    if spec != json!({}) {
        text += &format!(": set its spec: {spec}");
    }
    if lost != json!({}) {
        text += &format!("; AKS manages {lost} itself");
    }
    if !value.is_object() {
        text += &format!(" (it was {value})");
    }
    text
}

/// Old names of labels, which Karpenter reads as the current ones.
fn requirements(plan: &mut MigrationPlan, path: &Path) {
    for item in plan.items(path) {
        let key = item.key("key");
        let Some(old) = plan.text(&key).map(str::to_owned) else {
            continue;
        };
        if let Some((_, new)) = ALIASES.iter().find(|(alias, _)| *alias == old) {
            plan.set(&key, new, "Karpenter treats the old label name as this one");
        }
        if old == pods::PROVISIONER_LABEL {
            plan.note(&key, "a NodePool cannot require the name of a pool: remove this requirement");
        }
    }
}
