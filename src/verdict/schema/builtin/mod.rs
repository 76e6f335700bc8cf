//! Validates built-in kinds: Pods, workloads, PodDisruptionBudgets, PersistentVolumeClaims.
//!
//! Schemas come from the types of `k8s-openapi`, and are made for the first object of a kind. Of the checks that the
//! API server makes in code, the common ones are here.

mod checks;
mod placement;
mod schema;

use crate::finding::Issue;
use crate::rules::structure as structure_rules;
use crate::schema::structural::{self, ObjectSchema};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use napkeeper_api::field_path::Path;
use serde_json::Value;
use std::sync::OnceLock;

/// A kind of Kubernetes itself.
pub(crate) struct BuiltinKind {
    api_version: &'static str,
    kind: &'static str,
    schema: fn() -> Value,
    form: OnceLock<Option<ObjectSchema>>,
    /// Where its pods are described.
    pods: Option<&'static str>,
}

macro_rules! builtin {
    ($($api_version:literal, $kind:ident, $pods:expr;)*) => {
        static BUILTIN_KINDS: [BuiltinKind; 8] = [$(BuiltinKind {
            api_version: $api_version,
            kind: stringify!($kind),
            schema: schema::of::<$kind>,
            form: OnceLock::new(),
            pods: $pods,
        }),*];
    };
}

builtin! {
    "v1", Pod, Some("");
    "v1", PersistentVolumeClaim, None;
    "apps/v1", Deployment, Some("spec.template");
    "apps/v1", StatefulSet, Some("spec.template");
    "apps/v1", DaemonSet, Some("spec.template");
    "batch/v1", Job, Some("spec.template");
    "batch/v1", CronJob, Some("spec.jobTemplate.spec.template");
    "policy/v1", PodDisruptionBudget, None;
}

/// Fields that are younger than the types of this build, and since when there are they; 1.37 and before.
const ADDED_IN: [(&str, u32); 21] = [
    ("bindMountOptions", 37),
    ("defaultUser", 37),
    ("evictionResponders", 37),
    ("extendedResourceClaimStatus", 34),
    ("fileKeyRef", 34),
    ("hostnameOverride", 34),
    ("mode", 37),
    ("podCertificate", 34),
    ("protocol", 37),
    ("restartPolicyRules", 34),
    ("scheduling", 37),
    ("schedulingGroup", 36),
    ("user", 37),
    ("userAnnotations", 35),
    ("workloadRef", 35),
    ("healthStatus", 37),
    ("volumeHealth", 37),
    ("resources", 35),
    ("allocatedResources", 35),
    ("message", 36),
    ("shardInfo", 36),
];

/// The kind of an object, where it is one of these.
pub(crate) fn find(value: &Value) -> Option<&'static BuiltinKind> {
    let (api_version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
    BUILTIN_KINDS.iter().find(|native| (native.api_version, native.kind) == (api_version, kind))
}

impl BuiltinKind {
    /// The form of the kind; `None` when its schema cannot be read, which a test rules out.
    fn form(&self) -> Option<&ObjectSchema> {
        let make = || {
            let schema = structural::compile(&(self.schema)(), structural::SchemaOrigin::OwnType).ok()?;
            Some(ObjectSchema { schema, has_status: true, scale: None })
        };
        self.form.get_or_init(make).as_ref()
    }

    /// Problems of an object, and the object as it would be stored, without the defaults of its kind.
    pub(crate) fn validate(&self, value: &Value, kubernetes: Option<&str>) -> (Value, Vec<Issue>) {
        let Some(form) = self.form() else { return (value.clone(), Vec::new()) };
        let result = structural::create(value, form);
        let mut found = structural::issues(&result);
        found.retain_mut(|issue| !is_newer_field(issue, kubernetes));
        let sound = found.is_empty();
        // The other checks need an object that matches its schema.
        if sound {
            checks::check(self.kind, self.pods, &result.stored, &mut found);
            placement::check(&result.stored["spec"], &Path::from_dotted("spec"), &mut found);
        }
        (result.stored, found)
    }
}

/// True when a field is unknown only because it is younger than this build's types. Fields that an older cluster lacks
/// too are reported.
fn is_newer_field(issue: &mut Issue, kubernetes: Option<&str>) -> bool {
    if *issue.rule != structure_rules::UNKNOWN_FIELD {
        return false;
    }
    let Some(last) = issue.path.last_key() else { return false };
    let Some((_, since)) = ADDED_IN.iter().find(|(field, _)| *field == last) else { return false };
    let minor = kubernetes.and_then(|version| version.split('.').nth(1)?.parse::<u32>().ok());
    match minor {
        Some(minor) if minor < *since => {
            issue.message = format!("unknown field {last}: added in Kubernetes 1.{since}, the cluster has 1.{minor}");
            issue.fix = None;
            false
        }
        _ => true,
    }
}

/// A dotted path; the empty string is the object itself.
fn path(dotted: &str) -> Path {
    if dotted.is_empty() { Path::root() } else { Path::from_dotted(dotted) }
}

#[cfg(test)]
mod tests;
