//! Migrates pods and workloads.
//!
//! Source: Karpenter's v1 migration guide: annotations, the NodePool label and the disruption taint.

use crate::migrate::plan::MigrationPlan;
use napkeeper_api::field_path::Path;

/// The label that named a Provisioner.
pub(super) const PROVISIONER_LABEL: &str = "karpenter.sh/provisioner-name";
const NODEPOOL_LABEL: &str = "karpenter.sh/nodepool";
const POOL_REASON: &str = "nodes are labelled with their NodePool, not with a Provisioner";
const OLD_ANNOTATIONS: [&str; 2] = ["karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate"];
const ANNOTATION: &str = "karpenter.sh/do-not-disrupt";
const ANNOTATION_REASON: &str = "v1 has a single annotation to prevent disruption";
const TAINT_REASON: &str = "v1 taints disrupted nodes with karpenter.sh/disrupted, without a value";

/// Brings the pod of an object to the current labels and annotations. Kinds without pods are unchanged.
pub(super) fn migrate(plan: &mut MigrationPlan, kind: &str) {
    let pod = match kind {
        "Pod" => Path::root(),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => Path::from_dotted("spec.template"),
        "CronJob" => Path::from_dotted("spec.jobTemplate.spec.template"),
        _ => return,
    };
    annotations(plan, &pod.key("metadata").key("annotations"));
    let spec = pod.key("spec");
    let selector = spec.key("nodeSelector");
    let old = selector.key(PROVISIONER_LABEL);
    if plan.get(&old).is_some() {
        if plan.get(&selector.key(NODEPOOL_LABEL)).is_some() {
            plan.retire(
                &old,
                &format!("{NODEPOOL_LABEL} is also selected and takes precedence, so this is removed"),
                POOL_REASON,
            );
        } else {
            plan.rename(&old, NODEPOOL_LABEL, POOL_REASON);
        }
    }
    for key in label_keys(plan, &spec) {
        if plan.text(&key) == Some(PROVISIONER_LABEL) {
            plan.set(&key, NODEPOOL_LABEL, POOL_REASON);
        }
    }
    for toleration in plan.items(&spec.key("tolerations")) {
        if plan.text(&toleration.key("key")) == Some("karpenter.sh/disruption") {
            plan.set(&toleration.key("key"), "karpenter.sh/disrupted", TAINT_REASON);
            if plan.text(&toleration.key("value")) == Some("disrupting") {
                plan.set(&toleration.key("value"), "", TAINT_REASON);
            }
        }
    }
}

/// Where a pod names labels of nodes outside its nodeSelector.
fn label_keys(plan: &MigrationPlan, spec: &Path) -> Vec<Path> {
    let affinity = spec.key("affinity").key("nodeAffinity");
    let required = affinity.key("requiredDuringSchedulingIgnoredDuringExecution").key("nodeSelectorTerms");
    let preferred = affinity.key("preferredDuringSchedulingIgnoredDuringExecution");
    let mut terms = plan.items(&required);
    terms.extend(plan.items(&preferred).into_iter().map(|p| p.key("preference")));
    let expressions = terms.iter().flat_map(|term| plan.items(&term.key("matchExpressions")));
    let mut keys: Vec<Path> = expressions.map(|e| e.key("key")).collect();
    keys.extend(plan.items(&spec.key("topologySpreadConstraints")).into_iter().map(|c| c.key("topologyKey")));
    keys
}

/// The old annotations against disruption, on any object.
pub(super) fn annotations(plan: &mut MigrationPlan, path: &Path) {
    for key in OLD_ANNOTATIONS {
        let old = path.key(key);
        if plan.get(&old).is_none() {
            continue;
        }
        if plan.get(&path.key(ANNOTATION)).is_some() {
            plan.retire(
                &old,
                &format!("{ANNOTATION} is also set and takes precedence, so this is removed"),
                ANNOTATION_REASON,
            );
        } else {
            plan.rename(&old, ANNOTATION, ANNOTATION_REASON);
        }
    }
}
