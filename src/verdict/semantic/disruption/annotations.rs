//! `karpenter.sh/do-not-disrupt` on the wrong object, with a wrong value, or without a time limit.

use crate::cel::parse_duration;
use crate::finding::Issue;
use crate::rules::disruption as rules;
use crate::semantic::{ManifestSet, ValidObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::labels::DO_NOT_DISRUPT;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotations of Karpenter before v1beta1, which read `do-not-disrupt` now.
const OLD_ANNOTATIONS: [&str; 2] = ["karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate"];

/// The path of the annotations of created objects.
const TEMPLATE_ANNOTATIONS: &str = "spec.template.metadata.annotations";
const CRON_JOB_ANNOTATIONS: &str = "spec.jobTemplate.spec.template.metadata.annotations";
const OBJECT_ANNOTATIONS: &str = "metadata.annotations";

/// The objects that get the annotation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnnotatedObject {
    Pods,
    Nodes,
}

pub(super) fn check(manifest: &ValidObject<'_>, found: &mut Vec<Issue>) {
    let Some((carrier, annotations_path)) = location(manifest) else { return };
    if let Some(annotations) = look(manifest.value, annotations_path) {
        let path = Path::from_dotted(annotations_path);
        found.extend(
            OLD_ANNOTATIONS.iter().filter(|old| annotations.contains_key(**old)).map(|old| outdated(&path.key(old))),
        );
        let text = annotations.get(DO_NOT_DISRUPT).and_then(Value::as_str);
        if let Some(text) = text {
            found.extend(value(text, carrier, &path.key(DO_NOT_DISRUPT)));
        }
    }
    if annotations_path != OBJECT_ANNOTATIONS
        && look(manifest.value, OBJECT_ANNOTATIONS).is_some_and(|a| a.contains_key(DO_NOT_DISRUPT))
    {
        let target = if carrier == AnnotatedObject::Pods { "pods" } else { "nodes" };
        let kind = manifest.value["kind"].as_str().unwrap_or_default();
        let article = if kind.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
        let message = format!("this annotation has no effect on {article} {kind}: Karpenter reads it on {target}");
        let fix = format!("move it to {annotations_path}");
        found.push(
            Issue::new(&rules::MISPLACED, &Path::from_dotted(OBJECT_ANNOTATIONS).key(DO_NOT_DISRUPT), message)
                .at_key()
                .fix(fix),
        );
    }
}

/// Reports pods that run indefinitely and must not be disrupted.
pub(super) fn check_set(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    // With a terminationGracePeriod on every pool there is a bound, whichever node the pods are on.
    let mut bounded: BTreeMap<&str, bool> = BTreeMap::new();
    for (i, retained) in set.objects.iter().enumerate() {
        let Object::NodePool(pool) = &retained.object else { continue };
        *bounded.entry(set.cluster_folder(i)).or_insert(true) &= pool.termination_grace_period.is_some();
    }
    let everywhere = !bounded.is_empty() && bounded.values().all(|b| *b);
    for (i, retained) in set.objects.iter().enumerate() {
        // Without a NodePool in the folder, those of other folders are the best guess.
        if bounded.get(set.cluster_folder(i)).copied().unwrap_or(everywhere) {
            continue;
        }
        let lasting = matches!(retained.object, Object::Deployment(_) | Object::StatefulSet(_) | Object::DaemonSet(_));
        if lasting && retained.do_not_disrupt.as_deref() == Some("true") {
            let message = "these pods have no end, so Karpenter never consolidates, updates or drains their nodes \
                           unless the NodePool has a terminationGracePeriod";
            let fix = "use a duration instead of true, for example 4h, counted from the start of each pod; or protect the \
                       pods with a PodDisruptionBudget";
            let path = Path::from_dotted(TEMPLATE_ANNOTATIONS).key(DO_NOT_DISRUPT);
            found.push((i, Issue::new(&rules::UNBOUNDED, &path, message).fix(fix.to_owned())));
        }
    }
}

/// The path where the annotation takes effect for this kind.
fn location(manifest: &ValidObject<'_>) -> Option<(AnnotatedObject, &'static str)> {
    match manifest.object {
        Object::NodePool(_) => Some((AnnotatedObject::Nodes, TEMPLATE_ANNOTATIONS)),
        Object::Deployment(_) | Object::StatefulSet(_) | Object::DaemonSet(_) | Object::Job(_) => {
            Some((AnnotatedObject::Pods, TEMPLATE_ANNOTATIONS))
        }
        Object::Pod(_) => Some((AnnotatedObject::Pods, OBJECT_ANNOTATIONS)),
        Object::Other { kind, api_version, .. } if &**kind == "CronJob" && &**api_version == "batch/v1" => {
            Some((AnnotatedObject::Pods, CRON_JOB_ANNOTATIONS))
        }
        _ => None,
    }
}

fn look<'v>(value: &'v Value, annotations_path: &str) -> Option<&'v serde_json::Map<String, Value>> {
    annotations_path.split('.').try_fold(value, |value, key| value.get(key))?.as_object()
}

fn outdated(path: &Path) -> Issue {
    let message = "Karpenter ignores this annotation since v1beta1";
    Issue::new(&rules::OLD_ANNOTATION, path, message).at_key().fix(format!("use {DO_NOT_DISRUPT}: \"true\""))
}

fn value(text: &str, carrier: AnnotatedObject, path: &Path) -> Option<Issue> {
    match (text, carrier) {
        ("" | "false", _) => None,
        ("true", AnnotatedObject::Pods) => None,
        ("true", AnnotatedObject::Nodes) => {
            let message = "no node of the pool may be disrupted: none is consolidated or updated, and empty \
                           nodes stay until they expire";
            let fix = "limit disruption with spec.disruption.budgets instead, or annotate single nodes temporarily";
            Some(Issue::new(&rules::UNBOUNDED, path, message).fix(fix.to_owned()))
        }
        (_, AnnotatedObject::Pods) if parse_duration(text).is_some_and(|nanos| nanos > 0) => None,
        (_, AnnotatedObject::Pods) => {
            let message = format!("{text:?} is neither true nor a duration, so Karpenter ignores it");
            Some(
                Issue::new(&rules::IGNORED_VALUE, path, message)
                    .fix("use \"true\", or a duration such as 4h".to_owned()),
            )
        }
        (_, AnnotatedObject::Nodes) => {
            let message = format!("on nodes Karpenter only accepts true, and ignores {text:?}");
            Some(Issue::new(&rules::IGNORED_VALUE, path, message).fix("remove it, or use \"true\"".to_owned()))
        }
    }
}
