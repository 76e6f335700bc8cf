//! Conversion of pods and pod templates.

pub(crate) mod host_ports;
pub(crate) mod node_affinity;
pub(crate) mod pod_affinity;
pub(crate) mod requests;
pub(crate) mod spread;

use crate::convert::common;
use crate::convert::pods::pod_affinity::PodIdentity;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::duration;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod as WirePod, PodCondition, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use napkeeper_core::model::cluster::pod::{
    DoNotDisrupt, Pod, PodAffinity, PodDetails, PodOwner, PodPhase, PodShape, Preferences,
};
use napkeeper_core::model::labels::{DO_NOT_DISRUPT, POD_DELETION_COST};
use napkeeper_core::model::names::{Namespace, NodeName, ObjectName};
use napkeeper_core::snapshot::spread_defaults::DEFAULT_SCHEDULER;
use std::sync::Arc;

/// All of a pod template that matters for its pods' placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTemplate {
    /// The scheduling requirements of each pod.
    pub shape: Arc<PodShape>,
    /// The pods must not be disrupted.
    pub do_not_disrupt: Option<DoNotDisrupt>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// PersistentVolumeClaims that every pod uses.
    pub volumes: Vec<ObjectName>,
    /// `terminationGracePeriodSeconds`; `None` is the default of Kubernetes.
    pub termination_grace_period: Option<SignedDuration>,
    /// How long after its start a pod is ready at the earliest: the longest `initialDelaySeconds` of its readiness probes.
    pub ready_after: SignedDuration,
}

/// Annotation of a pod that the kubelet made from a file.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Reads the template of a workload in `namespace`. `at` is the path of the template.
pub fn pod_template(
    template: &PodTemplateSpec,
    namespace: &Namespace,
    at: &Path,
    found: &mut Violations,
) -> Option<PodTemplate> {
    let default = ObjectMeta::default();
    let metadata = template.metadata.as_ref().unwrap_or(&default);
    let Some(spec) = &template.spec else {
        found.add(&at.key("spec"), "is required");
        return None;
    };
    Some(read(metadata, spec, namespace, at, found))
}

fn read(
    metadata: &ObjectMeta,
    spec: &PodSpec,
    namespace: &Namespace,
    at: &Path,
    found: &mut Violations,
) -> PodTemplate {
    let labels = common::labels(metadata.labels.as_ref());
    let at_spec = at.key("spec");
    let (selector, alternatives) = node_affinity::node_affinity(spec, &at_spec, found);
    let own = PodIdentity { namespace, labels: &labels };
    let (spread, soft_spread) = spread::spread(spec, &labels, &at_spec, found);
    let (affinity, preferences) = pod_affinity::affinity(spec, own, &at_spec, found);
    let preferences = Preferences { spread: soft_spread, ..preferences };
    let shape = PodShape {
        namespace: namespace.clone(),
        requests: requests::requests(spec, &at_spec, found),
        selector,
        alternatives,
        tolerations: node_affinity::tolerations(spec, &at_spec, found),
        spread,
        priority: spec.priority.unwrap_or(0),
        affinity: (affinity != PodAffinity::default()).then(|| Box::new(affinity)),
        preferences: (!preferences.is_empty()).then(|| Box::new(preferences)),
        ports: host_ports::host_ports(spec, &at_spec, found),
        labels,
    };
    PodTemplate {
        shape: Arc::new(shape),
        do_not_disrupt: do_not_disrupt(metadata),
        deletion_cost: deletion_cost(metadata),
        volumes: volumes(spec, metadata.name.as_deref(), &at_spec, found),
        termination_grace_period: spec.termination_grace_period_seconds.map(SignedDuration::from_secs),
        ready_after: ready_after(spec),
    }
}

fn ready_after(spec: &PodSpec) -> SignedDuration {
    // An init container that is always restarted is a sidecar, which counts too.
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let probes = spec.containers.iter().chain(sidecars).filter_map(|container| container.readiness_probe.as_ref());
    let longest = probes.filter_map(|probe| probe.initial_delay_seconds).max().unwrap_or_default();
    SignedDuration::from_secs(longest.max(0).into())
}

fn do_not_disrupt(metadata: &ObjectMeta) -> Option<DoNotDisrupt> {
    match metadata.annotations.as_ref()?.get(DO_NOT_DISRUPT)?.as_str() {
        "true" => Some(DoNotDisrupt::Always),
        "false" | "" => None,
        // Any other value: never disrupting the pod is the safe reading.
        text => Some(duration::parse(text).map_or(DoNotDisrupt::Always, DoNotDisrupt::For)),
    }
}

/// Anything but a number is 0, as for the controller of ReplicaSets.
fn deletion_cost(metadata: &ObjectMeta) -> i32 {
    let annotation = metadata.annotations.as_ref().and_then(|annotations| annotations.get(POD_DELETION_COST));
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// A generic ephemeral volume's claim is named after its pod, so a template's has no name yet.
fn volumes(spec: &PodSpec, pod: Option<&str>, at: &Path, found: &mut Violations) -> Vec<ObjectName> {
    let list = spec.volumes.iter().flatten().enumerate();
    list.filter_map(|(i, volume)| {
        let claim = volume.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone());
        let own = || volume.ephemeral.as_ref().and(pod).map(|pod| format!("{pod}-{}", volume.name));
        let name = claim.or_else(own)?;
        found.take(&at.key("volumes").index(i), ObjectName::new(name))
    })
    .collect()
}

/// Reads a Pod.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn pod(object: &WirePod) -> Result<Pod, Violations> {
    let mut found = Violations::default();
    let pod = read_partially(object, &mut found);
    found.finish(pod)
}

/// Reads a running Pod even if it is invalid: it is then opaque, but its node is not empty. The second value are its
/// violations.
///
/// # Errors
/// [`Violations`] if not even its name and UID can be read.
pub fn pod_or_opaque(object: &WirePod) -> Result<(Pod, Option<Violations>), Violations> {
    let mut found = Violations::default();
    let pod = read_partially(object, &mut found);
    match pod {
        Some(pod) if found.0.is_empty() => Ok((pod, None)),
        Some(pod) => Ok((Pod { opaque: true, ..pod }, Some(found))),
        None => Err(found),
    }
}

/// All that can be read of a Pod; none without name and UID.
fn read_partially(object: &WirePod, found: &mut Violations) -> Option<Pod> {
    let metadata = &object.metadata;
    let key = common::key(metadata, found);
    let uid = common::uid(metadata, found);
    if object.spec.is_none() {
        found.add(&Path::from_dotted("spec"), "is required");
    }
    let nothing = PodSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&nothing);
    let node = spec.node_name.as_deref().filter(|n| !n.is_empty());
    let node = found.take_some(&Path::from_dotted("spec.nodeName"), node, |n| NodeName::new(n));
    // A bound pod may be running.
    let unknown = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
    let phase = phase(object, found).unwrap_or(unknown);
    let (key, uid) = key.zip(uid)?;
    let template = read(metadata, spec, &key.namespace, &Path::root(), found);
    let status = object.status.as_ref();
    let started_at = status.and_then(|s| s.start_time.as_ref()).map(|t| t.0);
    let nominated = status.and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty());
    let nominated = found.take_some(&Path::from_dotted("status.nominatedNodeName"), nominated, |n| NodeName::new(n));
    Some(Pod {
        key,
        uid,
        shape: template.shape,
        owner: owner(metadata),
        created_at: common::created_at(metadata),
        started_at,
        deleting_at: deleting_at(metadata),
        termination_grace: termination_grace(metadata)
            .or(template.termination_grace_period)
            .unwrap_or(Pod::TERMINATION_GRACE),
        node,
        phase,
        ready: is_ready(object),
        unschedulable: is_unschedulable(object),
        do_not_disrupt: template.do_not_disrupt,
        deletion_cost: template.deletion_cost,
        volumes: template.volumes,
        nominated,
        scheduler: scheduler(spec),
        of_set: has_selector_controller(metadata),
        claims_devices: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        opaque: false,
        details: PodDetails {
            owner: owner_path(metadata),
            limits: Arc::new(requests::limits(spec)),
            scheduled_at: true_condition(object, "PodScheduled").and_then(since),
            ready_at: true_condition(object, "Ready").and_then(since),
        },
    })
}

/// Its condition Ready is true.
fn is_ready(object: &WirePod) -> bool {
    true_condition(object, "Ready").is_some()
}

/// Its condition of this type, if that is true.
fn true_condition<'a>(object: &'a WirePod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().find(|c| c.type_ == kind && c.status == "True")
}

fn since(condition: &PodCondition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// The path of its first owner, as Karpenter spells it.
fn owner_path(metadata: &ObjectMeta) -> Arc<str> {
    let Some(owner) = metadata.owner_references.iter().flatten().next() else { return Arc::from("") };
    let (namespace, kind) = (metadata.namespace.as_deref().unwrap_or_default(), owner.kind.to_lowercase());
    Arc::from(format!("/apis/{}/namespaces/{namespace}/{kind}s/{}", owner.api_version, owner.name))
}

/// kube-scheduler reports that no node fits. Reports on gated pods, older ones and those of other controllers do not
/// count.
fn is_unschedulable(object: &WirePod) -> bool {
    let gates = object.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref());
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref());
    gates.is_none_or(Vec::is_empty)
        && conditions
            .into_iter()
            .flatten()
            .any(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))
}

/// When the deletion of a pod was requested: its deletionTimestamp minus its grace period.
fn deleting_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    let end = metadata.deletion_timestamp.as_ref()?.0;
    let grace = termination_grace(metadata).unwrap_or_default();
    Some(end.saturating_sub(grace).unwrap_or(end))
}

/// The grace period that a requested deletion gives it, which may differ from its spec's.
fn termination_grace(metadata: &ObjectMeta) -> Option<SignedDuration> {
    metadata.deletion_grace_period_seconds.map(SignedDuration::from_secs)
}

fn phase(object: &WirePod, found: &mut Violations) -> Option<PodPhase> {
    let phase = object.status.as_ref().and_then(|s| s.phase.as_deref());
    let phase = match phase.unwrap_or("Pending") {
        "Pending" => Ok(PodPhase::Pending),
        // A kubelet that cannot be reached leaves the phase Unknown; the pod may still run.
        "Running" | "Unknown" => Ok(PodPhase::Running),
        "Succeeded" => Ok(PodPhase::Succeeded),
        "Failed" => Ok(PodPhase::Failed),
        _ => Err("must be Pending, Running, Succeeded, Failed or Unknown"),
    };
    found.take(&Path::from_dotted("status.phase"), phase)
}

/// The scheduler of the pod, if it is not the default.
fn scheduler(spec: &PodSpec) -> Option<Arc<str>> {
    spec.scheduler_name.as_deref().filter(|name| !name.is_empty() && *name != DEFAULT_SCHEDULER).map(Arc::from)
}

/// Whether kube-scheduler looks up the selector of its controller.
fn has_selector_controller(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|o| {
        matches!(
            (o.api_version.as_str(), o.kind.as_str()),
            ("apps/v1", "ReplicaSet" | "StatefulSet") | ("v1", "ReplicationController")
        )
    })
}

/// The controlling owner.
fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

fn owner(metadata: &ObjectMeta) -> PodOwner {
    if metadata.annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR_POD_ANNOTATION)) {
        return PodOwner::Static;
    }
    match controller(metadata).map(|o| o.kind.as_str()) {
        None => PodOwner::Nobody,
        Some("DaemonSet") => PodOwner::DaemonSet,
        Some("Node") => PodOwner::Static,
        Some(_) => PodOwner::Controller,
    }
}

#[cfg(test)]
mod tests;
