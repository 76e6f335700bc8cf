//! Deployments, Jobs and DaemonSets: which pods will there be?

use super::meta;
use super::pod::{PodTemplate, pod_template};
use super::violations::Violations;
use crate::path::Path;
use k8s_openapi::api::apps::v1::{DaemonSet as WireDaemonSet, Deployment as WireDeployment};
use k8s_openapi::api::batch::v1::Job as WireJob;
use napkeeper_core::names::ObjectKey;

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

/// A Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many pods must end well.
    pub completions: u32,
    /// How many pods run at once.
    pub parallelism: u32,
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
    let key = meta::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let replicas = count(spec.and_then(|s| s.replicas), 1, "spec.replicas", &mut found);
    let template = template(key.as_ref(), spec.map(|s| &s.template), &mut found);
    let built = key.zip(replicas).zip(template);
    found.finish(built.map(|((key, replicas), template)| Deployment { key, replicas, template }))
}

/// Reads a Job; absent `completions` and `parallelism` are 1, and `completions` alone absent is `parallelism`.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn job(object: &WireJob) -> Result<Job, Violations> {
    let mut found = Violations::default();
    let key = meta::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let wanted = spec.and_then(|s| s.parallelism);
    let parallelism = count(wanted, 1, "spec.parallelism", &mut found);
    let completions = spec.and_then(|s| s.completions);
    let completions = count(completions, wanted.unwrap_or(1), "spec.completions", &mut found);
    let template = template(key.as_ref(), spec.map(|s| &s.template), &mut found);
    let built = key.zip(completions).zip(parallelism).zip(template);
    found.finish(built.map(|(((key, completions), parallelism), template)| Job {
        key,
        completions,
        parallelism,
        template,
    }))
}

/// Reads a DaemonSet.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn daemon_set(object: &WireDaemonSet) -> Result<DaemonSet, Violations> {
    let mut found = Violations::default();
    let key = meta::key(&object.metadata, &mut found);
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
        found.add(&Path::of("spec"), "is required");
        return None;
    };
    pod_template(template, &key?.namespace, &Path::of("spec.template"), found)
}

fn count(value: Option<i32>, default: i32, path: &str, found: &mut Violations) -> Option<u32> {
    let count = u32::try_from(value.unwrap_or(default)).map_err(|_| "must not be negative");
    found.take(&Path::of(path), count)
}
