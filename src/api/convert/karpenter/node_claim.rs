//! Conversion of NodeClaims.
//!
//! The steps of a claim's life are conditions of the object; the launch intent and the planned offerings are
//! annotations, as JSON.

use crate::convert::common;
use crate::convert::karpenter::node_claim_status::{
    CONSOLIDATABLE, DISRUPTION_REASON, DRIFTED, consistent_state, read_consistent_state, read_termination,
    termination_conditions,
};
use crate::convert::karpenter::node_pool::{class_name, expire_after};
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::aks_node_class::AKSNodeClass;
use crate::types::duration;
use crate::types::karpenter::{
    ClaimCondition, ClaimResources, NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassRef, NodePool,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::core::Resource;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::{
    Claim, ClaimSpec, ClaimStatus, DriftedCondition, ForcefulReason, LaunchFailure,
};
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels::{
    FINALIZER, LAUNCH_INTENT, MADE_FROM, NODEPOOL, PLANNED_OFFERINGS, REPLACEMENT, REPLACES, REPLACES_WITH,
    TERMINATION_TIMESTAMP,
};
use napkeeper_core::model::names::{ClaimName, NodeName, NodePoolName, ProviderId};
use napkeeper_core::plan::ClaimDraft;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Reads a NodeClaim.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn claim(object: &NodeClaim) -> Result<Claim, Violations> {
    let mut found = Violations::default();
    let meta = &object.metadata;
    let name = common::name(meta, &mut found, |n| ClaimName::new(n));
    let uid = common::uid(meta, &mut found);
    let spec = spec(object, &mut found);
    let intent = annotation(meta, LAUNCH_INTENT, &mut found);
    let status = object.status.as_ref();
    let status = status.map(|s| read_status(s, &mut found)).unwrap_or_default();
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let built = name.zip(uid).zip(spec).map(|((name, uid), spec)| Claim {
        name,
        uid,
        created_at: common::created_at(meta),
        deleting_at: meta.deletion_timestamp.as_ref().map(|t| t.0),
        termination_at: termination_at(meta),
        has_finalizer: finalizers.iter().any(|f| f == FINALIZER),
        owned_by_pool: meta.owner_references.iter().flatten().any(is_node_pool),
        spec,
        intent,
        status,
    });
    found.finish(built)
}

/// True when an owner is a NodePool.
#[must_use]
pub fn is_node_pool(owner: &OwnerReference) -> bool {
    owner.kind == NodePool::kind(&()) && owner.api_version.starts_with(&*format!("{}/", NodePool::group(&())))
}

fn spec(object: &NodeClaim, found: &mut Violations) -> Option<ClaimSpec> {
    let at = Path::from_dotted("spec");
    let wire = &object.spec;
    let labels = common::labels(object.metadata.labels.as_ref());
    let pool = labels.get(NODEPOOL).map(|p| &**p);
    let pool_path = Path::from_dotted("metadata.labels").key(NODEPOOL);
    let pool = found.take_some(&pool_path, pool, |p| NodePoolName::new(p));
    let class = class_name(&wire.node_class_ref, &at.key("nodeClassRef"), found);
    let requirements = common::requirements(&wire.requirements, &at.key("requirements"), found);
    let requests = wire.resources.as_ref().and_then(|r| r.requests.as_ref());
    let requests_path = at.key("resources").key("requests");
    let requests = common::resources(requests.into_iter().flatten(), &requests_path, found);
    let taints = common::taints(wire.taints.as_ref(), &at.key("taints"), found);
    let startup_taints = common::taints(wire.startup_taints.as_ref(), &at.key("startupTaints"), found);
    let expire_after = expire_after(wire.expire_after.as_deref(), &at, found);
    let grace = wire.termination_grace_period.as_deref();
    let grace = found.take_some(&at.key("terminationGracePeriod"), grace, duration::parse);
    let planned = annotation(&object.metadata, PLANNED_OFFERINGS, found);
    // What cannot be read was made from something unknown: it must not hide the NodeClaim.
    let made_from = readable(&object.metadata, MADE_FROM);
    let replacement = readable(&object.metadata, REPLACEMENT);
    let replaces = names(&object.metadata, REPLACES, found);
    let replaces_with = names(&object.metadata, REPLACES_WITH, found);
    Some(ClaimSpec {
        pool,
        class: class?,
        requirements,
        requests,
        labels,
        annotations: annotations_of_node(&object.metadata),
        taints,
        startup_taints,
        expire_after,
        termination_grace_period: grace,
        made_from: made_from.map(Arc::new),
        planned: planned.unwrap_or_default(),
        replaces,
        replaces_with,
        replacement,
    })
}

/// Annotations that are about the NodeClaim itself.
const OF_CLAIM: [&str; 8] = [
    LAUNCH_INTENT,
    MADE_FROM,
    PLANNED_OFFERINGS,
    REPLACEMENT,
    REPLACES,
    REPLACES_WITH,
    TERMINATION_TIMESTAMP,
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Those that its node gets too, as with Karpenter.
fn annotations_of_node(meta: &ObjectMeta) -> Labels {
    let mut all = common::labels(meta.annotations.as_ref());
    all.retain(|key, _| !OF_CLAIM.contains(&&**key));
    all
}

/// What an annotation holds; nothing where it cannot be read.
fn readable<T: DeserializeOwned>(meta: &ObjectMeta, key: &str) -> Option<T> {
    serde_json::from_str(meta.annotations.as_ref()?.get(key)?).ok()
}

/// The NodeClaims that an annotation names.
fn names(meta: &ObjectMeta, key: &str, found: &mut Violations) -> Vec<ClaimName> {
    let names = annotation::<Vec<String>>(meta, key, found).unwrap_or_default();
    let path = Path::from_dotted("metadata.annotations").key(key);
    names.into_iter().filter_map(|name| found.take(&path, ClaimName::new(name))).collect()
}

/// Until when its drain must be over. A time that cannot be read is none: it must not hide the NodeClaim.
fn termination_at(meta: &ObjectMeta) -> Option<Timestamp> {
    common::time(meta.annotations.as_ref()?.get(TERMINATION_TIMESTAMP)?).ok()
}

fn annotation<T: DeserializeOwned>(meta: &ObjectMeta, key: &str, found: &mut Violations) -> Option<T> {
    let text = meta.annotations.as_ref()?.get(key)?;
    let path = Path::from_dotted("metadata.annotations").key(key);
    found.take(&path, serde_json::from_str(text))
}

fn read_status(wire: &NodeClaimStatus, found: &mut Violations) -> ClaimStatus {
    let at = Path::from_dotted("status");
    let conditions = wire.conditions.as_deref().unwrap_or_default();
    let mut since = |kind: &str, status: &str| {
        let matches = |c: &&ClaimCondition| c.kind == kind && c.status == status;
        let (i, condition) = conditions.iter().enumerate().find(|(_, c)| matches(c))?;
        let path = at.key("conditions").index(i).key("lastTransitionTime");
        let when = found.take(&path, common::time(&condition.last_transition_time))?;
        Some((when, condition))
    };
    let launched = since("Launched", "True").map(|(at, _)| at);
    let launch_failed = since("Launched", "False").map(|(at, condition)| LaunchFailure {
        at,
        code: Arc::from(condition.reason.as_deref().unwrap_or_default()),
        message: Arc::from(condition.message.as_deref().unwrap_or_default()),
    });
    let registered = since("Registered", "True").map(|(at, _)| at);
    let initialized = since("Initialized", "True").map(|(at, _)| at);
    let billed = since("Billed", "True").map(|(at, _)| at);
    let drifted = since(DRIFTED, "True").map(|(since, condition)| DriftedCondition {
        since,
        reason: Arc::from(condition.reason.as_deref().unwrap_or_default()),
        message: Arc::from(condition.message.as_deref().unwrap_or_default()),
    });
    let why = since(DISRUPTION_REASON, "True").and_then(|(_, condition)| condition.reason.as_deref());
    let disrupted = DisruptionReason::ALL.into_iter().find(|reason| why == Some(reason.as_str()));
    let forced = ForcefulReason::ALL.into_iter().find(|reason| why == Some(reason.as_str()));
    let consolidatable = since(CONSOLIDATABLE, "True").is_some();
    let provider = wire.provider_id.as_deref();
    let node = wire.node_name.as_deref();
    let last_event = wire.last_pod_event_time.as_deref();
    let mut amounts = |list: Option<&crate::types::common::ResourceList>, field: &str| -> Resources {
        common::resources(list.into_iter().flatten(), &at.key(field), found)
    };
    let capacity = amounts(wire.capacity.as_ref(), "capacity");
    let allocatable = amounts(wire.allocatable.as_ref(), "allocatable");
    ClaimStatus {
        launched,
        billed,
        launch_failed,
        registered,
        initialized,
        drifted,
        disrupted,
        forced,
        provider_id: found.take_some(&at.key("providerID"), provider, ProviderId::parse),
        node_name: found.take_some(&at.key("nodeName"), node, |n| NodeName::new(n)),
        image: wire.image_id.as_deref().map(Arc::from),
        capacity,
        allocatable,
        last_pod_event: found.take_some(&at.key("lastPodEventTime"), last_event, common::time),
        consolidatable,
        consistent_state: read_consistent_state(conditions),
        termination: read_termination(conditions),
    }
}

/// Writes a NodeClaim. Reading the result returns an equal NodeClaim.
///
/// # Errors
/// If the launch intent or planned offerings cannot be serialized, which no value causes.
pub fn claim_object(claim: &Claim) -> Result<NodeClaim, serde_json::Error> {
    let mut object = unsaved_object(&claim.name, &claim.spec)?;
    if let Some(intent) = &claim.intent {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(LAUNCH_INTENT.to_owned(), serde_json::to_string(intent)?);
    }
    if let Some(at) = claim.termination_at {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(TERMINATION_TIMESTAMP.to_owned(), at.to_string());
    }
    object.metadata = ObjectMeta {
        uid: Some(claim.uid.as_str().to_owned()),
        creation_timestamp: Some(Time(claim.created_at)),
        deletion_timestamp: claim.deleting_at.map(Time),
        finalizers: claim.has_finalizer.then(|| vec![FINALIZER.to_owned()]),
        ..object.metadata
    };
    object.status = Some(write_status(&claim.status));
    Ok(object)
}

/// Writes a NodeClaim that is to be created, with our finalizer.
///
/// # Errors
/// If planned offerings cannot be serialized, which no value causes.
pub fn claim_draft(draft: &ClaimDraft) -> Result<NodeClaim, serde_json::Error> {
    let mut object = unsaved_object(&draft.name, &draft.spec)?;
    object.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    Ok(object)
}

/// A NodeClaim before it is created.
fn unsaved_object(name: &ClaimName, spec: &ClaimSpec) -> Result<NodeClaim, serde_json::Error> {
    let mut labels = spec.labels.clone();
    if let Some(pool) = &spec.pool {
        labels.insert(Arc::from(NODEPOOL), pool.text());
    }
    let mut object = NodeClaim::new(
        name.as_str(),
        NodeClaimSpec {
            expire_after: Some(duration::format_or_never(spec.expire_after)),
            node_class_ref: NodeClassRef {
                group: AKSNodeClass::group(&()).into_owned(),
                kind: AKSNodeClass::kind(&()).into_owned(),
                name: spec.class.as_str().to_owned(),
                ..NodeClassRef::default()
            },
            requirements: common::requirement_entries(&spec.requirements),
            resources: common::resource_list(&spec.requests)
                .map(|requests| ClaimResources { requests: Some(requests), ..ClaimResources::default() }),
            startup_taints: common::taint_list(&spec.startup_taints),
            taints: common::taint_list(&spec.taints),
            termination_grace_period: spec.termination_grace_period.map(duration::format),
            ..NodeClaimSpec::default()
        },
    );
    object.metadata.labels = common::text_map(&labels);
    let mut annotations = common::text_map(&spec.annotations).unwrap_or_default();
    annotations.retain(|key, _| !OF_CLAIM.contains(&key.as_str()));
    if let Some(template) = &spec.made_from {
        annotations.insert(MADE_FROM.to_owned(), serde_json::to_string(&**template)?);
    }
    if !spec.planned.is_empty() {
        annotations.insert(PLANNED_OFFERINGS.to_owned(), serde_json::to_string(&spec.planned)?);
    }
    for (key, claims) in [(REPLACES, &spec.replaces), (REPLACES_WITH, &spec.replaces_with)] {
        if !claims.is_empty() {
            let names: Vec<&str> = claims.iter().map(ClaimName::as_str).collect();
            annotations.insert(key.to_owned(), serde_json::to_string(&names)?);
        }
    }
    if let Some(replacement) = &spec.replacement {
        annotations.insert(REPLACEMENT.to_owned(), serde_json::to_string(replacement)?);
    }
    object.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    Ok(object)
}

fn write_status(status: &ClaimStatus) -> NodeClaimStatus {
    let step = |kind: &str, at: Option<Timestamp>| {
        at.map(|at| ClaimCondition {
            kind: kind.to_owned(),
            status: "True".to_owned(),
            reason: Some(kind.to_owned()),
            last_transition_time: at.to_string(),
            ..ClaimCondition::default()
        })
    };
    let failed = status.launch_failed.as_ref().map(|failure| ClaimCondition {
        kind: "Launched".to_owned(),
        status: "False".to_owned(),
        reason: Some(failure.code.to_string()),
        message: Some(failure.message.to_string()),
        last_transition_time: failure.at.to_string(),
        ..ClaimCondition::default()
    });
    let drifted = status.drifted.as_ref().map(|drifted| ClaimCondition {
        kind: DRIFTED.to_owned(),
        status: "True".to_owned(),
        reason: Some(drifted.reason.to_string()),
        message: Some(drifted.message.to_string()),
        last_transition_time: drifted.since.to_string(),
        ..ClaimCondition::default()
    });
    // When these began is not known.
    let at = status.initialized.unwrap_or_default();
    let why = status.disrupted.map(DisruptionReason::as_str).or_else(|| status.forced.map(ForcefulReason::as_str));
    let disrupted = why.map(|reason| ClaimCondition {
        kind: DISRUPTION_REASON.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        last_transition_time: at.to_string(),
        ..ClaimCondition::default()
    });
    let conditions: Vec<ClaimCondition> = [
        step("Launched", status.launched),
        failed.filter(|_| status.launched.is_none()),
        step("Registered", status.registered),
        step("Initialized", status.initialized),
        step("Billed", status.billed),
        drifted,
        disrupted,
        step(CONSOLIDATABLE, status.consolidatable.then_some(at)),
        status.consistent_state.as_ref().map(|new| consistent_state(new, at)),
    ]
    .into_iter()
    .flatten()
    .chain(termination_conditions(&status.termination, at))
    .collect();
    NodeClaimStatus {
        allocatable: common::resource_list(&status.allocatable),
        capacity: common::resource_list(&status.capacity),
        conditions: (!conditions.is_empty()).then_some(conditions),
        image_id: status.image.as_deref().map(str::to_owned),
        last_pod_event_time: status.last_pod_event.map(|t| t.to_string()),
        node_name: status.node_name.as_ref().map(|n| n.as_str().to_owned()),
        provider_id: status.provider_id.as_ref().map(ToString::to_string),
        ..NodeClaimStatus::default()
    }
}
