//! Conversion of Deployments, StatefulSets, Jobs and DaemonSets.

use crate::convert::common;
use crate::convert::pods::{PodTemplate, pod_template};
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::duration;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{
    DaemonSet as WireDaemonSet, Deployment as WireDeployment, StatefulSet as WireStatefulSet,
};
use k8s_openapi::api::batch::v1::Job as WireJob;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use napkeeper_core::model::amounts::quantity::Quantity;
use napkeeper_core::model::labels::SIMULATED_DURATION;
use napkeeper_core::model::names::ObjectKey;

/// A Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many pods it keeps.
    pub replicas: u32,
    /// Its pods.
    pub template: PodTemplate,
}

/// A StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSet {
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many pods it keeps.
    pub replicas: u32,
    /// Its pods.
    pub template: PodTemplate,
    /// The disks of each pod, in GiB, rounded up.
    pub disks_gib: Vec<u32>,
}

/// A Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many pods must end well.
    pub completions: u32,
    /// How many pods run at once.
    pub parallelism: u32,
    /// It is suspended.
    pub suspended: bool,
    /// How long each pod runs in a simulation, by annotation.
    pub run_for: Option<SignedDuration>,
    /// Its pods.
    pub template: PodTemplate,
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its pods.
    pub template: PodTemplate,
}

/// Reads a Deployment; absent `replicas` is 1.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn deployment(object: &WireDeployment) -> Result<Deployment, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let replicas = count(spec.and_then(|s| s.replicas), 1, "spec.replicas", &mut found);
    let template = template(key.as_ref(), spec.map(|s| &s.template), &mut found);
    let built = key.zip(replicas).zip(template);
    found.finish(built.map(|((key, replicas), template)| Deployment { key, replicas, template }))
}

/// Reads a StatefulSet; absent `replicas` is 1.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn stateful_set(object: &WireStatefulSet) -> Result<StatefulSet, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let replicas = count(spec.and_then(|s| s.replicas), 1, "spec.replicas", &mut found);
    let template = template(key.as_ref(), spec.map(|s| &s.template), &mut found);
    let claims = spec.and_then(|s| s.volume_claim_templates.as_ref()).into_iter().flatten().enumerate();
    let at = Path::from_dotted("spec.volumeClaimTemplates");
    let disks_gib = claims.filter_map(|(i, claim)| disk(claim, &at.index(i), &mut found)).collect();
    let built = key.zip(replicas).zip(template);
    found.finish(built.map(|((key, replicas), template)| StatefulSet { key, replicas, template, disks_gib }))
}

/// The storage request of a PersistentVolumeClaim, in GiB; 1 if absent.
fn disk(claim: &PersistentVolumeClaim, at: &Path, found: &mut Violations) -> Option<u32> {
    let requests = claim.spec.as_ref().and_then(|s| s.resources.as_ref()).and_then(|r| r.requests.as_ref());
    let Some(storage) = requests.and_then(|r| r.get("storage")) else { return Some(1) };
    let at = at.key("spec").key("resources").key("requests").key("storage");
    let size = found.take(&at, storage.0.parse::<Quantity>())?;
    let gib = size.ceil().checked_add((1 << 30) - 1).map(|bytes| bytes >> 30);
    found.take(&at, gib.and_then(|n| u32::try_from(n).ok()).ok_or("must be a disk size, for example 64Gi"))
}

/// Reads a Job; absent `completions` and `parallelism` are 1, and `completions` alone absent is `parallelism`.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn job(object: &WireJob) -> Result<Job, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let wanted = spec.and_then(|s| s.parallelism);
    let parallelism = count(wanted, 1, "spec.parallelism", &mut found);
    let completions = spec.and_then(|s| s.completions);
    let completions = count(completions, wanted.unwrap_or(1), "spec.completions", &mut found);
    let template = template(key.as_ref(), spec.map(|s| &s.template), &mut found);
    let suspended = spec.and_then(|s| s.suspend).unwrap_or(false);
    let run_for = object.metadata.annotations.as_ref().and_then(|a| a.get(SIMULATED_DURATION));
    let at = Path::from_dotted("metadata.annotations").key(SIMULATED_DURATION);
    let run_for = found.take_some(&at, run_for, |text| duration::parse_with_days(text));
    let built = key.zip(completions).zip(parallelism).zip(template);
    found.finish(built.map(|(((key, completions), parallelism), template)| Job {
        key,
        completions,
        parallelism,
        suspended,
        run_for,
        template,
    }))
}

/// Reads a DaemonSet.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn daemon_set(object: &WireDaemonSet) -> Result<DaemonSet, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let template = template(key.as_ref(), object.spec.as_ref().map(|s| &s.template), &mut found);
    let built = key.zip(template);
    found.finish(built.map(|(key, template)| DaemonSet { key, template }))
}

fn template(
    key: Option<&ObjectKey>,
    template: Option<&k8s_openapi::api::core::v1::PodTemplateSpec>,
    found: &mut Violations,
) -> Option<PodTemplate> {
    let Some(template) = template else {
        found.add(&Path::from_dotted("spec"), "is required");
        return None;
    };
    pod_template(template, &key?.namespace, &Path::from_dotted("spec.template"), found)
}

fn count(value: Option<i32>, default: i32, path: &str, found: &mut Violations) -> Option<u32> {
    let count = u32::try_from(value.unwrap_or(default)).map_err(|_| "must not be negative");
    found.take(&Path::from_dotted(path), count)
}
